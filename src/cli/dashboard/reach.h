/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to the daemons of other machines that wait for the page's next request: a login takes
 * longer than an answer. Event loop's thread; used by the page's proxy.
 */
#pragma once

#include "cli/remote/dial.h"

#include <systemd/sd-event.h>

#define REACH_KEPT_MAX 16

struct reach;

/* Returns 0 or -errno. */
int reach_new(sd_event *event, struct reach **ret);
struct reach *reach_free(struct reach *c); /* takes NULL, returns NULL */

/* Takes a kept connection to @a. Returns false when none is there. */
bool reach_take(struct reach *c, const struct address *a, struct dial *ret);

/* Keeps @d, on which an answer has just ended, for a few seconds. The caller has it no more. */
void reach_keep(struct reach *c, const struct address *a, const struct dial *d);
