/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/plan.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/job/confine.h"
#include "daemon/link/target.h"
#include "daemon/node.h"
#include "daemon/plan/claims.h"
#include "daemon/plan/decision.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct plan {
    sd_event_source *deadline; /* of the first shrink that is not acknowledged */
};

/* ---- threads ---- */

/* What a process may be running now: before the first command, all that its pools have. */
static uint32_t present(const struct process *p)
{
    return p->sent_generation ? p->sent.intra : process_max(p);
}

static bool wants_command(const struct process *p)
{
    return process_malleable(p) && p->want.intra > 0 &&
           (p->sent_generation == 0 || p->want.intra != p->sent.intra ||
            p->want.inter != p->sent.inter);
}

/* What stands still has nothing to park; what it may use it hears when it goes on. */
static bool stands_still(const struct job *j)
{
    return j->frozen || j->admission.phase == JOB_PAUSED;
}

static bool shrinking(const struct job *j, uint64_t now)
{
    if (stands_still(j))
        return false;
    for (const struct process *p = j->processes; p; p = p->next)
        if (p->shrink_since_ns && now < p->shrink_since_ns + JOB_DEADLINE_NS)
            return true;
    return false;
}

static void lower_targets(struct node *n)
{
    for (struct job *j = n->jobs.first; j; j = j->next)
        for (struct process *p = j->processes; p; p = p->next)
            if (wants_command(p) && p->want.intra <= present(p)) {
                target_send(p);
                failpoint(FAILPOINT_TARGET_LOWERED);
            }
}

static void mark_late(struct job *j, uint64_t now)
{
    bool late = false;

    for (const struct process *p = j->processes; p && !stands_still(j); p = p->next)
        late |= p->shrink_since_ns && now >= p->shrink_since_ns + JOB_DEADLINE_NS;
    if (late && !j->late)
        node_log("job %s (%s) did not park its threads in time: oversubscribed", j->id, j->name);
    j->late = late;
}

/*
 * Where nobody owns a core, threads wait for those that others park; a grow that a person ordered
 * need not. One that is exclusive has its cores in place, or it does not get here.
 */
static void raise_targets(struct job *j, bool others_shrink)
{
    if (others_shrink && !j->urgent && j->asked.placement != PLACEMENT_EXCLUSIVE)
        return;
    for (struct process *p = j->processes; p; p = p->next)
        if (wants_command(p) && p->want.intra > present(p)) {
            target_send(p);
            failpoint(FAILPOINT_TARGET_RAISED);
        }
}

/* ---- cores ---- */

/* Still on its way out: threads that park, or an engine that has not answered. */
static bool leaving(const struct job *j, uint64_t now)
{
    return shrinking(j, now) || j->confine->is_busy(j);
}

static bool is_subset(const struct cpuset *a, const struct cpuset *b)
{
    struct cpuset both;

    cpuset_and(&both, a, b);
    return cpuset_equal(&both, a);
}

static bool fenced(const struct cpuset *set)
{
    return cpuset_count(set) > 0;
}

/*
 * Cores on which @o may still run threads although it is to leave them. Before its first fence that
 * is every core; but one that has nothing to park is fenced in this very pass.
 */
static void still_there(const struct job *o, uint64_t now, struct cpuset *ret)
{
    cpuset_zero(ret);
    if (!fenced(&o->want_cores) || o->admission.phase == JOB_PAUSED)
        return;
    if (fenced(&o->cores))
        *ret = o->cores;
    else if (leaving(o, now))
        *ret = o->node->cpus;
    for (unsigned w = 0; w < CPUSET_WORDS; w++)
        ret->word[w] &= ~o->want_cores.word[w];
}

/* What of its wanted cores @j may have now: where one of two is exclusive, the other is gone. */
static void free_part(const struct job *j, uint64_t now, struct cpuset *ret)
{
    struct cpuset there;

    *ret = j->want_cores;
    for (const struct job *o = j->node->jobs.first; o; o = o->next) {
        if (o == j || (o->asked.placement != PLACEMENT_EXCLUSIVE &&
                       j->asked.placement != PLACEMENT_EXCLUSIVE))
            continue;
        still_there(o, now, &there);
        for (unsigned w = 0; w < CPUSET_WORDS; w++)
            ret->word[w] &= ~there.word[w];
    }
}

static bool blocked(const struct job *j, uint64_t now)
{
    struct cpuset free;

    free_part(j, now, &free);
    return !cpuset_equal(&free, &j->want_cores);
}

/* True if they changed, or are on their way: not while a container's engine is away. */
static bool set_cores(struct job *j, const struct cpuset *cores, enum failpoint step)
{
    struct cpuset before = j->cores;
    int r = j->confine->set_cores(j, cores);

    failpoint(step);
    if (r == 0)
        return j->confine->is_busy(j) || !cpuset_equal(&j->cores, &before);
    node_log("job %s (%s): %s", j->id, j->name, j->note);
    j->unfenceable = true;
    cpuset_zero(&j->want_cores);
    j->confine->set_cores(j, &j->want_cores);
    return true;
}

/* Gives up what it is to leave, unless its threads are still being parked. True if it did. */
static bool narrow_cores(struct job *j, uint64_t now)
{
    struct cpuset kept;

    if (leaving(j, now) || !fenced(&j->want_cores) ||
        (fenced(&j->cores) && is_subset(&j->cores, &j->want_cores)))
        return false;
    if (fenced(&j->cores))
        cpuset_and(&kept, &j->cores, &j->want_cores);
    else
        free_part(j, now, &kept);
    if (!fenced(&kept))
        return false; /* moves as a whole, when its new cores are free */
    return set_cores(j, &kept, FAILPOINT_CORES_NARROWED);
}

static bool place_cores(struct job *j, uint64_t now, bool force)
{
    if (cpuset_equal(&j->cores, &j->want_cores) || leaving(j, now))
        return false;
    if (!force && fenced(&j->want_cores) && blocked(j, now))
        return false;
    return set_cores(j, &j->want_cores, FAILPOINT_CORES_WIDENED);
}

/*
 * Each pass may free cores for another job. Two jobs that were to change places would wait for each
 * other for ever: when nothing moves and nobody parks, the first one goes.
 */
static void settle_cores(struct node *n, uint64_t now)
{
    for (unsigned pass = 0; pass <= 2 * n->jobs.n; pass++) {
        bool moved = false, parking = false;

        for (struct job *j = n->jobs.first; j; j = j->next) {
            moved |= narrow_cores(j, now);
            parking |= leaving(j, now);
        }
        for (struct job *j = n->jobs.first; j; j = j->next) {
            moved |= place_cores(j, now, false);
            parking |= j->confine->is_behind(j);
        }
        for (struct job *j = n->jobs.first; !moved && !parking && j; j = j->next)
            moved = place_cores(j, now, true);
        if (!moved)
            return;
    }
}

static void settle_quota(struct job *j, uint64_t now)
{
    if (j->want_quota_mcpu == j->quota_set_mcpu || j->quota_failed ||
        (j->want_quota_mcpu < j->quota_set_mcpu && shrinking(j, now)))
        return;
    if (j->confine->set_quota(j, j->want_quota_mcpu) < 0) {
        node_log("job %s (%s): no quota: %s", j->id, j->name, j->note);
        j->quota_failed = true;
    }
    failpoint(FAILPOINT_QUOTA_SET);
}

/* ---- the whole ---- */

static void arm_deadline(struct node *n)
{
    uint64_t next = UINT64_MAX, now = clock_now_ns();

    for (const struct job *j = n->jobs.first; j; j = j->next) {
        uint64_t look = j->confine->next_look(j, now);

        next = look < next ? look : next;
        for (const struct process *p = j->processes; p; p = p->next)
            if (p->shrink_since_ns && p->shrink_since_ns + JOB_DEADLINE_NS > now &&
                p->shrink_since_ns + JOB_DEADLINE_NS < next)
                next = p->shrink_since_ns + JOB_DEADLINE_NS;
    }
    if (next == UINT64_MAX) {
        sd_event_source_set_enabled(n->plan->deadline, SD_EVENT_OFF);
        return;
    }
    sd_event_source_set_time(n->plan->deadline, next / NS_PER_US + 1);
    sd_event_source_set_enabled(n->plan->deadline, SD_EVENT_ONESHOT);
}

void plan_advance(struct node *n)
{
    uint64_t now = clock_now_ns();
    bool any = false;

    lower_targets(n);
    admission_stop(n);
    for (struct job *j = n->jobs.first; j; j = j->next) {
        mark_late(j, now);
        any |= shrinking(j, now) || admission_stopping(j);
    }
    settle_cores(n, now);
    for (struct job *j = n->jobs.first; j; j = j->next) {
        settle_quota(j, now);
        if (cpuset_equal(&j->cores, &j->want_cores) && !j->confine->is_busy(j))
            raise_targets(j, any);
        if (job_settled(j)) /* also when the order changed nothing: nobody acknowledges that */
            j->urgent = false;
    }
    if (!any)
        admission_go(n);
    arm_deadline(n);
}

static void tell_resized(struct job *j, uint64_t latency_ns)
{
    speed_resized(j, latency_ns);
    job_announce_resized(j, latency_ns);
}

void plan_acknowledged(struct job *j)
{
    struct node *n = j->node;
    struct change *last;

    if (n->ending)
        return;
    plan_advance(n);
    if (!job_settled(j))
        return;
    last = j->n_changes ? &j->changes[(j->n_changes - 1) % JOB_CHANGES_MAX] : NULL;
    if (last && last->latency_ns == 0 && last->to == j->want.intra) {
        uint64_t sent = 0;

        for (const struct process *p = j->processes; p; p = p->next)
            sent = p->sent_ns > sent ? p->sent_ns : sent;
        last->latency_ns = sent ? clock_now_ns() - sent : 0;
        if (sent)
            tell_resized(j, last->latency_ns);
    }
    job_announce_settled(j);
}

void plan_give_up(struct job *j)
{
    uint64_t now = clock_now_ns();

    for (struct process *p = j->processes; p; p = p->next)
        if (p->shrink_since_ns && p->shrink_since_ns + JOB_DEADLINE_NS > now)
            p->shrink_since_ns = now > JOB_DEADLINE_NS ? now - JOB_DEADLINE_NS : 1;
    plan_advance(j->node);
}

void plan_finish(struct node *n)
{
    struct cpuset held;
    uint64_t now = clock_now_ns();
    uint32_t jobs = 0;

    cpuset_zero(&held);
    for (struct job *j = n->jobs.first; j; j = j->next) {
        if (j->confine->can_limit(j) && j->want_weight != j->weight_set) {
            j->confine->set_weight(j, j->want_weight);
            failpoint(FAILPOINT_WEIGHT_SET);
        }
        jobs += decision_counts(j, now);
        for (unsigned w = 0; j->asked.placement == PLACEMENT_EXCLUSIVE && w < CPUSET_WORDS; w++)
            held.word[w] |= j->cores.word[w] | j->want_cores.word[w];
    }
    claims_publish(n->claims, jobs, &held);
}

static void make(struct node *n, bool at_once)
{
    struct error err = {0};

    if (n->ending)
        return;
    n->generation++;
    if (decision_make(n, clock_now_ns(), at_once, &err) < 0)
        node_log("no decision: %s; everything stays as it is", err.text);
    plan_advance(n);
    for (struct job *j = n->jobs.first; j; j = j->next)
        job_announce_settled(j);
    node_store_later(n);
}

void plan_make(struct node *n)
{
    make(n, false);
}

void plan_make_now(struct node *n)
{
    make(n, true);
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *arg)
{
    plan_advance(arg);
    return 0;
}

int plan_new(struct node *n, struct plan **ret)
{
    struct plan *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return -ENOMEM;
    r = sd_event_add_time(n->event, &p->deadline, CLOCK_MONOTONIC, 0, 1000, on_deadline, n);
    if (r >= 0)
        r = sd_event_source_set_enabled(p->deadline, SD_EVENT_OFF);
    if (r < 0) {
        plan_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

struct plan *plan_free(struct plan *p)
{
    if (!p)
        return NULL;
    sd_event_source_disable_unref(p->deadline);
    free(p);
    return NULL;
}
