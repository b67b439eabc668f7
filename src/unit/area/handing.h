/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readings of meters that measure one machine, for that machine's tided. The event loop's thread;
 * area.c calls it.
 */
#pragma once

#include <stdbool.h>

#include "edge/payload.h"
#include "unit/device/device.h"

/* Whether the meter measures a machine and has told something new since the last call. */
bool handing_take(struct device *d, struct payload_reading *ret);

/* Tells the machine of the meter's section by the area's broker; a late message is worth nothing.
 */
void handing_publish(struct mqtt *broker, const struct device *d,
                     const struct payload_reading *reading);
