/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit's present state for Prometheus, on a port of loopback that the configuration names. The
 * event loop's thread; area.c calls it.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"
#include "edge/payload.h"
#include "power/measure/range.h"
#include "unit/config.h"

struct metrics;

struct metrics_now {
    struct payload_state state;
    struct power_range draw; /* POWER_UNKNOWN: nobody knows, and no value is told */
    uint64_t total_uj;
    bool connected; /* to the parent */
};

/* Fills in the present values. */
typedef void (*metrics_ask)(void *arg, struct metrics_now *ret);

/* Returns 0; or -errno with the reason (the port is taken). */
int metrics_new(sd_event *event, const struct unit_config *config, metrics_ask ask, void *arg,
                struct metrics **ret, struct error *err);
struct metrics *metrics_free(struct metrics *m);
