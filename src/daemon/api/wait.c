/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api/wait.h"

#include "base/clock.h"
#include "daemon/node.h"
#include "daemon/plan/plan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

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
    struct node *n = j->node;
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
    *w = (struct wait){n->waits, ++n->wait_ids, j, sent_ns, deadline_ns, fn, arg};
    n->waits = w;
    *ret_id = w->id;
    plan_arm_deadline(n);
    return 0;
}

void wait_cancel(struct node *n, uint64_t id)
{
    for (struct wait **at = &n->waits; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            struct wait *w = *at;

            *at = w->next;
            free(w);
            return;
        }
}

/*
 * A callback may cancel or start waits, so that each search begins anew; what is answered leaves
 * the list first.
 */
void wait_settled(struct job *j)
{
    enum wait_outcome outcome = only_later(j) ? WAIT_PENDING : WAIT_DONE;
    struct wait **at = &j->node->waits;

    if (!job_settled(j))
        return;
    while (*at)
        if ((*at)->job == j) {
            finish(at, j, outcome, clock_now_ns());
            at = &j->node->waits;
        } else {
            at = &(*at)->next;
        }
}

void wait_job_gone(struct node *n, struct job *j)
{
    struct wait **at = &n->waits;

    while (*at)
        if ((*at)->job == j) {
            finish(at, NULL, WAIT_GONE, clock_now_ns());
            at = &n->waits;
        } else {
            at = &(*at)->next;
        }
}

void wait_expire(struct node *n, uint64_t now)
{
    struct wait **at = &n->waits;

    while (*at)
        if ((*at)->deadline_ns <= now) {
            plan_give_up((*at)->job); /* leaves the list as it is */
            finish(at, (*at)->job, WAIT_PARTIAL, now);
            at = &n->waits;
        } else {
            at = &(*at)->next;
        }
}

uint64_t wait_next_deadline(const struct node *n)
{
    uint64_t next = UINT64_MAX;

    for (const struct wait *w = n->waits; w; w = w->next)
        if (w->deadline_ns < next)
            next = w->deadline_ns;
    return next;
}
