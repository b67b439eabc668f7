/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes the modules above: a module that changed something reports it here without knowing who acts
 * on it. The daemon's top level registers three handlers; the loop calls the first two once for all
 * reports of one turn. Owns their event sources. Daemon's event loop only; called by all of
 * src/daemon.
 */
#pragma once

#include <systemd/sd-event.h>

struct daemon;
struct wake;

struct wake_handlers {
    void (*decide)(struct daemon *d); /* after all messages that arrived together */
    void (*store)(struct daemon *d);  /* when there is time */
    void (*save)(struct daemon *d);   /* at once */
};

int wake_new(struct daemon *d, sd_event *event, const struct wake_handlers *handlers,
             struct wake **ret);        /* 0 or -errno */
struct wake *wake_free(struct wake *w); /* takes NULL, returns NULL */

/* A change that decisions rest on: decides again before the loop sleeps. */
void daemon_changed(struct daemon *d);

/* Decides now if a change was reported since the last decision: for an order that reads it. */
void daemon_decide_due(struct daemon *d);

/* A job joined, changed or left: saves it when there is time. */
void daemon_store_later(struct daemon *d);

/* Saves changed jobs now, before the caller's next step relies on it. */
void daemon_store_now(struct daemon *d);
