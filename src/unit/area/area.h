/* SPDX-License-Identifier: Apache-2.0 */
/* All parts of a unit, from its configuration. The event loop's thread; main.c calls it. */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"
#include "unit/config.h"

struct area;

/* Borrows the configuration. Returns 0 or -errno with the reason. */
int area_new(sd_event *event, const struct unit_config *config, struct area **ret,
             struct error *err);
struct area *area_free(struct area *a); /* writes what waits to be written */
