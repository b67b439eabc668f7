/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes what stands above: a module that changed something says so here and knows nothing of who
 * acts on it. The daemon's top level registers the three handlers; the first two are called from
 * the event loop, once for all calls of one turn. Owns their event sources.
 * Daemon's event loop only; called by all of src/daemon.
 */
#pragma once

#include <systemd/sd-event.h>

struct daemon;
struct wake;

struct wake_handlers {
    void (*decide)(struct daemon *d); /* behind all messages that arrived together */
    void (*store)(struct daemon *d);  /* when there is time */
    void (*save)(struct daemon *d);   /* at once */
};

int wake_new(struct daemon *d, sd_event *event, const struct wake_handlers *handlers,
             struct wake **ret);        /* 0 or -errno */
struct wake *wake_free(struct wake *w); /* takes NULL, returns NULL */

/* Something that a decision rests on changed: decide again before the loop sleeps. */
void daemon_changed(struct daemon *d);

/* A job joined, changed or left: write it down when there is time. */
void daemon_store_later(struct daemon *d);

/* Jobs have to be on disk before what is done next: writes those that changed. */
void daemon_store_now(struct daemon *d);
