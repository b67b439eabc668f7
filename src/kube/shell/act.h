/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out a plan's actions: those of one training in order, each after the one before it has
 * succeeded; trainings side by side. A training gets no new actions until all are done. A refused
 * creation or resize is reported, and the actions that do not rest on it go on. Any other failure
 * drops the rest of the training's actions, and the training waits, each time longer. Every write
 * names the UID of its object, and a status names its version: so an action decided on old data
 * fails instead of hitting another object or undoing a change. Event loop's thread; called by
 * controller.c.
 */
#pragma once

#include "kube/api/client.h"
#include "kube/shell/manifest.h"
#include "kube/view/action.h"

struct actor;

struct actor_events {
    /* The server's final answer to an action of a training. */
    void (*answered)(void *arg, const char *name_space, const char *name, const char *uid,
                     const struct kube_answer *answer);
    /* The object in the answer to a write: newer than the watch's. */
    void (*learnt)(void *arg, enum kube_action_kind kind, json_t *object);
    /* The members with which to answer the training's chief from now on; taken over. */
    void (*members)(void *arg, const char *uid, json_t *members);
    /* A training's actions have ended, well or not: time for another look. */
    void (*ended)(void *arg);
    /* The rest of a training's actions was dropped. */
    void (*dropped)(void *arg, const char *name_space, const char *name, const char *uid);
    /* Something failed, for the log. */
    void (*failed)(void *arg, const char *text);
    /* Whether we may still act: another replica may have the lease. */
    bool (*allowed)(void *arg);
    void *arg;
};

/* Borrows @settings and @identity, which events name as their source. */
int actor_new(struct client *client, const struct actor_events *events,
              const struct kube_pod_settings *settings, const char *identity, struct actor **ret);
struct actor *actor_free(struct actor *a); /* takes NULL, returns NULL */

/* Whether actions are under way for the training of this UID, or it waits after a failure. */
bool actor_holds(const struct actor *a, const char *uid, uint64_t now);

/*
 * Starts the actions of @plan, which has none for held trainings. Keeps no reference to the plan.
 */
void actor_begin(struct actor *a, const struct kube_plan *plan, uint64_t now);

/* Cancels everything, as the lease is gone. The server may or may not do what is under way. */
void actor_stop(struct actor *a);

uint64_t actor_next_ns(const struct actor *a); /* when the next waiting training may go on */
unsigned actor_busy(const struct actor *a);    /* trainings with actions under way */
uint64_t actor_done(const struct actor *a, enum kube_action_kind kind); /* for metrics … */
uint64_t actor_failed(const struct actor *a);
