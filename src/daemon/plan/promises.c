/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/promises.h"

#include "base/clock.h"
#include "base/minmax.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"
#include "daemon/job/job.h"
#include "daemon/plan/beyond.h"
#include "daemon/plan/decision.h"
#include "daemon/plan/machine_share.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/users.h"
#include "policy/core/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool promises_bind(const struct job *j)
{
    return j->promise.room.need > 0 && j->asked.attributes.slo_us > 0;
}

/* Threads beyond its share that its promise gives it, and that it was given. */
static uint32_t in_force(const struct job *j)
{
    return j->wanted.threads.intra > j->wanted.share ? beyond_by_promise(j) : 0;
}

const char *promises_text(const struct job *j, char buf[PROMISES_TEXT_MAX])
{
    char promise[PROMISE_TEXT_MAX], shared[48] = "";

    *buf = '\0';
    if (!promises_bind(j) || j->promise.room.alone)
        return buf;
    promise_text(j->asked.attributes.slo_us, promise);
    if (beyond_by_promise(j))
        snprintf(shared, sizeof(shared), ", on %u of them others yield", beyond_by_promise(j));
    if (promise_is_given_up(j->promise.state.why))
        snprintf(buf, PROMISES_TEXT_MAX, "its promise %s is not kept: %s", promise,
                 promise_why_text(j->promise.state.why));
    else
        snprintf(buf, PROMISES_TEXT_MAX, "its promise %s needs %u core%s%s: %s", promise,
                 j->promise.room.need, j->promise.room.need == 1 ? "" : "s", shared,
                 promise_why_text(j->promise.state.why));
    return buf;
}

void promises_explain(struct job *j, bool bounded)
{
    bool agree = j->wanted.share + beyond_by_promise(j) == j->promise.room.need;
    size_t len = agree && !bounded ? 0 : strlen(j->wanted.reason);
    char text[PROMISES_TEXT_MAX];

    if (*promises_text(j, text) && len + strlen(text) + 3 < sizeof(j->wanted.reason))
        snprintf(j->wanted.reason + len, sizeof(j->wanted.reason) - len, "%s%s", len ? "; " : "",
                 text);
}

/* ---- in the snapshot ------------------------------------------------------------------------- */

static bool is_of_another(const struct job *k, const struct job *j)
{
    return k->uid != j->uid && k->admission.wanted;
}

/*
 * Whether more threads than cores take nothing but from its user's jobs that yield. Asked again
 * after the policy, which may have begun another user's job.
 */
static bool may_share(struct job *const *job, int64_t count, const struct job *j)
{
    const struct daemon *d = j->daemon;

    if (!beyond_allowed(j) || !j->confine->can_limit(j) || j->asked.kept ||
        machine_share_shared(d->machine_share) || decision_keeps_idle(d) ||
        users_most(d, j->uid) < cpuset_count(&d->cpus))
        return false;
    for (int64_t k = 0; k < count; k++)
        if (is_of_another(job[k], j))
            return false;
    return true;
}

/*
 * Its threads follow its share, its weight is what gives it its part, and neither a person nor a
 * promise says which part that is.
 */
static bool may_yield(const struct job *k, const struct policy_job *p)
{
    return beyond_allowed(k) && p->malleability == POLICY_MALLEABLE && k->confine->can_limit(k) &&
           !k->asked.kept && devices_least(k) <= 1 && k->asked.attributes.slo_us == 0;
}

/* Everything that its promise and those of others may know of it. */
static void describe(struct job *const *job, int64_t count, int64_t at, const struct policy_job *p)
{
    struct job *j = job[at];
    struct promise_room *room = &j->promise.room;

    room->id = j->number;
    room->user = j->uid;
    room->user_mcpu = j->wanted.user.may_mcpu;
    room->wanted = j->admission.wanted;
    room->promised = j->asked.attributes.slo_us && p->malleability == POLICY_MALLEABLE &&
                     p->pinned_by == POLICY_PIN_NONE && j->admission.wanted;
    room->binds = promises_bind(j);
    room->may_share = room->promised && may_share(job, count, j);
    room->may_yield = may_yield(j, p);
}

void promises_bound(struct job *const *job, struct promise_room **rooms, struct policy_job *policy,
                    uint32_t count, int64_t mcpu)
{
    for (uint32_t i = 0; i < count; i++) {
        describe(job, count, i, &policy[i]);
        rooms[i] = &job[i]->promise.room;
    }
    promise_room_divide(rooms, policy, count, mcpu);
}

void promises_confirm(struct job *const *job, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (job[i]->promise.room.threads && !may_share(job, count, job[i]))
            job[i]->promise.room.threads = 0;
}

void promises_weigh(struct daemon *d)
{
    for (struct job *k = d->jobs->first; k; k = k->next) {
        int64_t yielded = promise_yielded(k->wanted.weight);
        struct job *server = beyond_yields_to(k);

        if (!server)
            continue;
        yielded = smaller(yielded, CGROUP_WEIGHT_MAX - server->wanted.weight);
        k->wanted.yields = true;
        k->wanted.weight -= (uint32_t)yielded;
        server->wanted.weight += (uint32_t)yielded;
    }
}

/* ---- looks ----------------------------------------------------------------------------------- */

/* Cores of which its threads are surely there: while anything settles, the fewer of both. */
static uint32_t in_place(struct job *j)
{
    uint32_t share =
        j->wanted.share > j->asked.lent ? j->wanted.share - j->asked.lent + in_force(j) : 1;
    bool settled = true;

    for (const struct job *k = j->daemon->jobs->first; k; k = k->next)
        settled &= job_settled(k);
    if (settled || share < j->promise.has)
        j->promise.has = share;
    return j->promise.has ? j->promise.has : share;
}

static void begin_anew(struct job *j)
{
    struct promise_room room = j->promise.room;

    room.need = 0;
    room.why = PROMISE_NONE;
    j->promise = (struct job_promise){
        .slo_us = j->asked.attributes.slo_us, .room = room, .source = j->latency.source};
    latency_judge_anew(j);
}

/*
 * Whether its processes' threads may follow its requests: several serve, and for a moment more
 * threads than cores take nothing from another user.
 */
static bool may_shape(const struct job *j)
{
    const struct daemon *d = j->daemon;

    if (!promises_bind(j) || promise_is_given_up(j->promise.state.why) || !job_malleable(j) ||
        j->observed.frozen || j->wanted.threads.intra == 0 || latency_serving(j) < 2 ||
        machine_share_shared(d->machine_share) || decision_keeps_idle(d) ||
        users_most(d, j->uid) < cpuset_count(&d->cpus))
        return false;
    for (const struct job *k = d->jobs->first; k && !j->confine->can_limit(j); k = k->next)
        if (is_of_another(k, j))
            return false;
    return true;
}

/* Instances × threads of its processes. Returns true if the shape has changed. */
static bool choose_shape(struct job *j, const struct latency_window *w, uint64_t now)
{
    struct job_promise *p = &j->promise;
    struct instances_shape before = p->shape;
    const struct instances_look look = {.now_ns = now,
                                        .cores = j->wanted.threads.intra,
                                        .processes = latency_serving(j),
                                        .at_work = latency_busy(j),
                                        .service_ns = w->p50_ns,
                                        .window_ns = w->window_ns,
                                        .ended = w->ended};

    p->shape = (struct instances_shape){0};
    if (may_shape(j))
        p->shape = instances_choose(&p->instances, &look);
    else
        p->instances = (struct instances_state){0};
    if (p->shape.count >= look.processes) /* all at a time, which need no equal parts */
        p->shape = (struct instances_shape){0};
    return p->shape.count != before.count || p->shape.threads != before.threads;
}

static void look(struct job *j, uint64_t now)
{
    struct job_promise *p = &j->promise;
    uint32_t before = p->room.need;
    struct latency_window w;
    struct promise_look look;

    if (p->slo_us != j->asked.attributes.slo_us || p->source != j->latency.source)
        begin_anew(j);
    p->looked_ns = now;
    if (p->slo_us == 0 || p->room.most == 0 || !latency_look(j, now, &w)) {
        latency_take_most(j, 0);
        p->room.need = 0;
        p->shape = (struct instances_shape){0};
        if (before)
            plan_make(j->daemon);
        return;
    }
    p->in_flight = w.in_flight;
    look = (struct promise_look){.now_ns = now,
                                 .promise_ns = (uint64_t)p->slo_us * NS_PER_US,
                                 .p99_ns = w.p99_ns,
                                 .window_ns = w.window_ns,
                                 .ended = w.ended,
                                 .in_flight = w.in_flight,
                                 .most_in_flight = latency_take_most(j, w.in_flight),
                                 .has = in_place(j)};
    promise_room_need(&p->room, &p->state, &look);
    if (choose_shape(j, &w, now) || (p->room.need != before && !p->room.alone))
        plan_make(j->daemon);
}

void promises_look(struct job *j)
{
    uint64_t now = clock_now_ns();

    if (now - j->promise.looked_ns >= PROMISE_LOOK_NS ||
        promise_jumped(j->latency.most_in_flight, j->promise.in_flight))
        look(j, now);
}

void promises_tick(struct daemon *d)
{
    uint64_t now = clock_now_ns();

    for (struct job *j = d->jobs->first; j; j = j->next)
        if (now - j->promise.looked_ns >= NS_PER_S &&
            (j->asked.attributes.slo_us || j->promise.slo_us))
            look(j, now);
}
