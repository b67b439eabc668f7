/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices what happens to jobs, and tells it to those who listen (events.h) and to the history
 * (history.h): compares each job with what was told of it last. So nothing on the way of a decision
 * knows of either. Daemon's event loop only; called by the top level when there is time.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct chronicle;
struct daemon;

extern const struct job_observer chronicle_observer;

/* Hears of each event and takes over @data. */
typedef void chronicle_fn(void *arg, const char *type, json_t *data);

int chronicle_new(chronicle_fn *listener, void *arg, struct chronicle **ret); /* 0 or -ENOMEM */
void chronicle_done(struct daemon *d); /* the daemon ends: what waits is told as it is known */
struct chronicle *chronicle_free(struct chronicle *c); /* takes NULL, returns NULL */

/* Looks at everything, before the store writes what is dirty. */
void chronicle_look(struct daemon *d);

/* An engine's word on an ended container is waited for: also without jobs there is work. */
bool chronicle_pending(const struct daemon *d);
