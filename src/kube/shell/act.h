/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries a plan's actions out: those of one training in order, each when the one before it has
 * succeeded, trainings side by side. Until all are done nothing else is begun for it. What the
 * server will not have made or resized is told, and what does not rest on it goes on. What fails
 * drops the rest of its training, which waits, ever longer, before it is acted on again. Every
 * write says of which object (UID) it was meant, and a status of which version, so that an action
 * decided on old news fails instead of hitting another or setting something back. Event loop's
 * thread; called by controller.c.
 */
#pragma once

#include "kube/api/client.h"
#include "kube/shell/manifest.h"
#include "kube/view/action.h"

struct actor;

struct actor_events {
    /* The server's last word on an action of a training. */
    void (*answered)(void *arg, const char *name_space, const char *name, const char *uid,
                     const struct kube_answer *answer);
    /* An object as a write was answered: newer than what the watch has brought. */
    void (*learnt)(void *arg, enum kube_action_kind kind, json_t *object);
    /* The members that the chief of a training is answered from now on; taken over. */
    void (*members)(void *arg, const char *uid, json_t *members);
    /* A training's actions were carried out, or not: it is worth looking again. */
    void (*ended)(void *arg);
    /* What was planned for a training was not carried out to its end. */
    void (*dropped)(void *arg, const char *name_space, const char *name, const char *uid);
    /* Something failed, for the log. */
    void (*failed)(void *arg, const char *text);
    /* Whether we may still act: another may have the lease. */
    bool (*allowed)(void *arg);
    void *arg;
};

/* @settings and @identity (whose events these are) are borrowed. */
int actor_new(struct client *client, const struct actor_events *events,
              const struct kube_pod_settings *settings, const char *identity, struct actor **ret);
struct actor *actor_free(struct actor *a); /* takes NULL, returns NULL */

/* Whether something is under way for the training of this UID, or it waits after a failure. */
bool actor_holds(const struct actor *a, const char *uid, uint64_t now);

/*
 * Begins what @plan says, which has nothing for trainings that are held. Nothing of the plan is
 * referred to afterwards.
 */
void actor_begin(struct actor *a, const struct kube_plan *plan, uint64_t now);

/* Breaks everything off: the lease is gone. What is under way may be done or not. */
void actor_stop(struct actor *a);

uint64_t actor_next_ns(const struct actor *a); /* when a training that waits may go on */
unsigned actor_busy(const struct actor *a);    /* trainings that are acted on */
uint64_t actor_done(const struct actor *a, enum kube_action_kind kind); /* for metrics … */
uint64_t actor_failed(const struct actor *a);
