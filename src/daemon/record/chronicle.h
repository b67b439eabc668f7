/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices what happens to jobs: compares each job with its state at the last look. Tells the
 * listeners (events.h) and the history (history.h), so that the code that decides knows of neither.
 * Daemon's event loop only; called by the top level when there is time.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct chronicle;
struct daemon;

extern const struct job_observer chronicle_observer;

/* Receives each event and takes over @data. */
typedef void chronicle_fn(void *arg, const char *type, json_t *data);

int chronicle_new(chronicle_fn *listener, void *arg, struct chronicle **ret); /* 0 or -ENOMEM */
void chronicle_done(struct daemon *d);                 /* the daemon ends: tells waiting events */
struct chronicle *chronicle_free(struct chronicle *c); /* takes NULL, returns NULL */

/* Compares all jobs; runs before the store writes what is dirty. */
void chronicle_look(struct daemon *d);

/* Whether the exit status of an ended container is still awaited: a reason to tick without jobs. */
bool chronicle_pending(const struct daemon *d);
