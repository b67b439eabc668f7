/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub at work: its event loop until SIGTERM, the tree of its units (hub/tree), the pages for
 * people (web.h), and what has to be done in time: sums of old records, certificates that end.
 * Called by cmd_serve.c.
 */
#pragma once

#include "base/error.h"
#include "hub/conf.h"

/* Returns 0 after SIGTERM or SIGINT, or -errno with *err. Lines about units go to stderr. */
int serve_run(const struct conf *conf, struct error *err);
