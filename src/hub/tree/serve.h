/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub at work: a client of the broker that stores what units send, gives them receipts, and
 * sums up what is old. Runs its own event loop until SIGTERM. Called by cmd_serve.c.
 */
#pragma once

#include "base/error.h"
#include "hub/store/store.h"

#include <stdint.h>

struct serve_options {
    const char *state;           /* the hub's directory: what ends in it is made again in time */
    const char *store;           /* path of the file */
    const char *host;            /* of the broker … */
    uint16_t port;               /* … and its port */
    const char *ca, *cert, *key; /* paths; NULL: no TLS, on loopback alone */
    struct store_keep keep;
};

/* Returns 0 after SIGTERM or SIGINT, or -errno with *err. Lines about units go to stderr. */
int serve_run(const struct serve_options *options, struct error *err);
