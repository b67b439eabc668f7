/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller: watches fill caches, and chiefs report. Soon after a change, while we hold the
 * lease, kube_reconcile() makes a plan of all of it, and act.c carries the plan out. Owns caches,
 * reports and members. Event loop's thread; called by main.c.
 */
#pragma once

#include "kube/api/client.h"
#include "kube/api/watch.h"
#include "kube/shell/act.h"

#define CONTROLLER_BATCH_MS    20   /* delay after a change, to collect those that follow */
#define CONTROLLER_GAP_MS      200  /* least time between two looks */
#define CONTROLLER_REPORT_MS   1000 /* delay after a report that changes no replica */
#define CONTROLLER_REPORTS_MAX 4096

struct controller;

struct controller_options {
    const struct kube_settings *settings;
    const struct kube_pod_settings *pods; /* ca_pem may come later: controller_wake() */
    const char *identity;
    const char *name_space; /* NULL: all */
    bool (*leading)(void *arg);
    void (*log)(void *arg, const char *text);
    void *arg;
};

/* All of @options is borrowed for as long as the object lives. */
int controller_new(struct client *client, sd_event *event, const struct controller_options *options,
                   struct controller **ret);
struct controller *controller_free(struct controller *c); /* takes NULL, returns NULL */

/* We may act from now on, or no longer. Begins with empty memory, so measurements begin anew. */
void controller_lead(struct controller *c, bool leading);

void controller_wake(struct controller *c); /* something else has changed */

/* A channel_report; @arg: the controller. */
unsigned controller_report(void *arg, struct kube_report *report, json_t **ret_members,
                           struct error *err);

bool controller_synced(const struct controller *c); /* every cache is complete */

struct controller_counts {
    uint64_t looks, look_ns, look_max_ns;
    const struct actor *actor;
    uint64_t lists, resumes, unreadable;
    size_t objects[9]; /* by enum cache_kind */
    size_t phases[KUBE_PHASE_MAX];
};

void controller_count(const struct controller *c, struct controller_counts *ret);
