/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/wait.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/plan/plan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct waits {
    struct wait *first;
    uint64_t last_id;
    sd_event_source *deadline; /* of the earliest wait */
};

struct wait {
    struct wait *next;
    uint64_t id;
    struct job *job;
    uint64_t sent_ns, deadline_ns;
    wait_fn fn;
    void *arg;
};

static bool only_later(const struct job *j)
{
    for (const struct process *p = j->processes; p; p = p->next)
        if (process_malleable(p) && !p->later)
            return false;
    return true;
}

static void arm_deadline(struct daemon *d)
{
    uint64_t next = UINT64_MAX;

    for (const struct wait *w = d->waits->first; w; w = w->next)
        next = w->deadline_ns < next ? w->deadline_ns : next;
    if (next != UINT64_MAX)
        sd_event_source_set_time(d->waits->deadline, next / NS_PER_US + 1);
    sd_event_source_set_enabled(d->waits->deadline,
                                next == UINT64_MAX ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
}

static uint64_t latency(uint64_t sent_ns, uint64_t now)
{
    return now > sent_ns ? now - sent_ns : 0;
}

/* Takes *at out of the list and answers. */
static void finish(struct wait **at, struct job *job, enum wait_outcome outcome, uint64_t now)
{
    struct wait *w = *at;

    *at = w->next;
    w->fn(w->arg, job, outcome, latency(w->sent_ns, now));
    free(w);
}

int wait_start(struct job *j, uint64_t sent_ns, uint64_t deadline_ns, wait_fn fn, void *arg,
               uint64_t *ret_id)
{
    struct daemon *d = j->daemon;
    uint64_t now = clock_now_ns();
    struct wait *w;

    if (job_settled(j)) {
        *ret_id = 0;
        fn(arg, j, only_later(j) ? WAIT_PENDING : WAIT_DONE, latency(sent_ns, now));
        return 0;
    }
    w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    *w = (struct wait){d->waits->first, ++d->waits->last_id, j, sent_ns, deadline_ns, fn, arg};
    d->waits->first = w;
    *ret_id = w->id;
    arm_deadline(d);
    return 0;
}

void wait_cancel(struct daemon *d, uint64_t id)
{
    for (struct wait **at = &d->waits->first; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            struct wait *w = *at;

            *at = w->next;
            free(w);
            return;
        }
}

/*
 * A callback may start or cancel waits: each search starts anew, and a wait leaves the list before
 * its answer.
 */
static void settled(struct job *j)
{
    struct daemon *d = j->daemon;
    enum wait_outcome outcome = only_later(j) ? WAIT_PENDING : WAIT_DONE;
    struct wait **at = &d->waits->first;

    while (*at)
        if ((*at)->job == j) {
            finish(at, j, outcome, clock_now_ns());
            at = &d->waits->first;
        } else {
            at = &(*at)->next;
        }
}

static void job_gone(struct job *j)
{
    struct daemon *d = j->daemon;
    struct wait **at = &d->waits->first;

    while (*at)
        if ((*at)->job == j) {
            finish(at, NULL, WAIT_GONE, clock_now_ns());
            at = &d->waits->first;
        } else {
            at = &(*at)->next;
        }
}

static void expire(struct daemon *d, uint64_t now)
{
    struct wait **at = &d->waits->first;

    while (*at)
        if ((*at)->deadline_ns <= now) {
            plan_give_up((*at)->job); /* leaves the list as it is */
            finish(at, (*at)->job, WAIT_PARTIAL, now);
            at = &d->waits->first;
        } else {
            at = &(*at)->next;
        }
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *arg)
{
    expire(arg, clock_now_ns());
    arm_deadline(arg);
    return 0;
}

const struct job_observer wait_observer = {.gone = job_gone, .settled = settled};

int waits_new(struct daemon *d, struct waits **ret)
{
    struct waits *w = calloc(1, sizeof(*w));
    int r;

    if (!w)
        return -ENOMEM;
    r = sd_event_add_time(d->event, &w->deadline, CLOCK_MONOTONIC, 0, 1000, on_deadline, d);
    if (r >= 0)
        r = sd_event_source_set_enabled(w->deadline, SD_EVENT_OFF);
    if (r < 0) {
        waits_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

struct waits *waits_free(struct waits *w)
{
    if (!w)
        return NULL;
    sd_event_source_disable_unref(w->deadline);
    free(w);
    return NULL;
}

void wait_give_up_all(struct daemon *d)
{
    expire(d, UINT64_MAX);
}
