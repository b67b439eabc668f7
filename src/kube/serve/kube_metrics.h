/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /metrics (Prometheus' text format 0.0.4), /healthz (the loop turns) and /readyz (certificate
 * and caches are there; a replica that waits for the lease is ready, too), without TLS on a port of
 * their own. Event loop's thread; called by main.c.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <systemd/sd-event.h>

struct channel;
struct client;
struct controller;
struct metrics;

/* The sources of the numbers; all borrowed, members may be set later. */
struct metrics_source {
    const struct client *client;
    const struct controller *controller;
    const struct channel *channel;
    const char *policy;
    const char *unready; /* why not ready; NULL: ready once all pointers above are set */
    bool leading;
};

/*
 * @numbers: also serves /metrics, to everybody who asks: for an address that no stranger reaches.
 */
int metrics_new(sd_event *event, const char *address, bool numbers,
                const struct metrics_source *source, struct metrics **ret, struct error *err);
struct metrics *metrics_free(struct metrics *m); /* takes NULL, returns NULL */
