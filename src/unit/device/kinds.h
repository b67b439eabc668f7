/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all kinds of devices. Any thread; the configuration and the area use it. */
#pragma once

#include <stddef.h>

#include "unit/device/device.h"

const struct device_ops *device_kind(const char *kind); /* NULL: unknown */
const char *const *device_kinds(size_t *ret_n);

/* Whether the section says all that its kind needs. Returns 0 or -EINVAL with what it lacks. */
int device_config_check(const struct meter_config *c, char *why, size_t size);
