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

#define YIELDS 16 /* weight of a job that yields is so many times smaller */

bool promises_bind(const struct job *j)
{
    return j->promise.need > 0 && j->asked.attributes.slo_us > 0;
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
    if (!promises_bind(j) || j->promise.alone)
        return buf;
    promise_text(j->asked.attributes.slo_us, promise);
    if (beyond_by_promise(j))
        snprintf(shared, sizeof(shared), ", on %u of them others yield", beyond_by_promise(j));
    if (promise_is_given_up(j->promise.state.why))
        snprintf(buf, PROMISES_TEXT_MAX, "its promise %s is not kept: %s", promise,
                 promise_why_text(j->promise.state.why));
    else
        snprintf(buf, PROMISES_TEXT_MAX, "its promise %s needs %u core%s%s: %s", promise,
                 j->promise.need, j->promise.need == 1 ? "" : "s", shared,
                 promise_why_text(j->promise.state.why));
    return buf;
}

void promises_explain(struct job *j, bool bounded)
{
    bool agree = j->wanted.share + beyond_by_promise(j) == j->promise.need;
    size_t len = agree && !bounded ? 0 : strlen(j->wanted.reason);
    char text[PROMISES_TEXT_MAX];

    if (*promises_text(j, text) && len + strlen(text) + 3 < sizeof(j->wanted.reason))
        snprintf(j->wanted.reason + len, sizeof(j->wanted.reason) - len, "%s%s", len ? "; " : "",
                 text);
}

/* ---- in the snapshot ------------------------------------------------------------------------- */

/* The jobs of a snapshot, and the cores that they may have. */
struct jobs {
    struct job *const *job;
    struct policy_job *policy; /* same index */
    int64_t count, capacity;
};

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
           !k->asked.kept && k->asked.attributes.min <= 1 && k->asked.attributes.slo_us == 0 &&
           k->promise.yields_to == 0;
}

/*
 * Finds the cores that it may have: some are its own, further ones it shares with jobs that yield.
 * Returns how many nobody else could use.
 */
static int64_t find_room(const struct jobs *s, int64_t at)
{
    struct job *j = s->job[at];
    int64_t share = (j->wanted.user.may_mcpu + POLICY_CORE_MCPU - 1) / POLICY_CORE_MCPU;
    int64_t least = s->policy[at].min.of[POLICY_MCPU] / POLICY_CORE_MCPU;
    int64_t most = s->policy[at].max.of[POLICY_MCPU] / POLICY_CORE_MCPU;
    bool shares = may_share(s->job, s->count, j);
    int64_t room = s->capacity, users = share && !shares ? share : room, spare = room, yielded = 0;

    for (int64_t k = 0; k < s->count; k++) {
        int64_t insists = policy_job_least(&s->policy[k], POLICY_MCPU) / POLICY_CORE_MCPU;
        int64_t could = policy_job_fixed(&s->policy[k], POLICY_MCPU);

        if (k == at || !s->job[k]->admission.wanted)
            continue;
        room -= insists;
        users -= s->job[k]->uid == j->uid ? insists : 0;
        yielded += shares && may_yield(s->job[k], &s->policy[k]) ? insists : 0;
        could = could >= 0 ? could : policy_job_most(&s->policy[k], POLICY_MCPU);
        spare -= could / POLICY_CORE_MCPU;
    }
    room = smaller(room, users);
    j->promise.least = (uint32_t)least;
    j->promise.own = (uint32_t)smaller(larger(room, least), most);
    j->promise.room = (uint32_t)smaller(larger(room + yielded, least), most);
    j->promise.alone = spare >= most;
    return smaller(larger(spare, 0), most);
}

static void bound(const struct jobs *s, int64_t at)
{
    struct job *j = s->job[at];
    struct policy_job *p = &s->policy[at];
    int64_t spare = find_room(s, at), need, own;

    if (!promises_bind(j) || j->promise.alone) /* alone: a job that comes finds no minimum */
        return;
    need = smaller(larger(j->promise.need, j->promise.least), j->promise.room);
    own = smaller(need, j->promise.own);
    p->min.of[POLICY_MCPU] = own * POLICY_CORE_MCPU;
    if (promise_is_given_up(j->promise.state.why))
        return;
    p->max.of[POLICY_MCPU] = larger(own, spare) * POLICY_CORE_MCPU;
    if (need == own)
        return;
    j->promise.threads = (uint32_t)need;
    for (int64_t k = 0; k < s->count; k++)
        if (k != at && may_yield(s->job[k], &s->policy[k]))
            s->job[k]->promise.yields_to = j->number;
}

void promises_bound(struct job *const *job, struct policy_job *policy, uint32_t count, int64_t mcpu)
{
    const struct jobs jobs = {job, policy, count, larger(mcpu, 0) / POLICY_CORE_MCPU};

    for (uint32_t i = 0; i < count; i++)
        job[i]->promise.threads = job[i]->promise.yields_to = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct job *j = job[i];

        if (j->asked.attributes.slo_us && policy[i].malleability == POLICY_MALLEABLE &&
            policy[i].pinned_by == POLICY_PIN_NONE && j->admission.wanted)
            bound(&jobs, i);
        else
            j->promise.need = j->promise.room = 0;
    }
}

void promises_confirm(struct job *const *job, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (job[i]->promise.threads && !may_share(job, count, job[i]))
            job[i]->promise.threads = 0;
}

void promises_weigh(struct daemon *d)
{
    for (struct job *k = d->jobs->first; k; k = k->next) {
        int64_t yielded = k->wanted.weight - larger(k->wanted.weight / YIELDS, CGROUP_WEIGHT_MIN);
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
    j->promise = (struct job_promise){.slo_us = j->asked.attributes.slo_us,
                                      .least = j->promise.least,
                                      .room = j->promise.room,
                                      .own = j->promise.own,
                                      .threads = j->promise.threads,
                                      .yields_to = j->promise.yields_to,
                                      .source = j->latency.source,
                                      .alone = j->promise.alone};
    latency_judge_anew(j);
}

static void look(struct job *j, uint64_t now)
{
    struct job_promise *p = &j->promise;
    uint32_t before = p->need;
    struct latency_window w;
    struct promise_look look;

    if (p->slo_us != j->asked.attributes.slo_us || p->source != j->latency.source)
        begin_anew(j);
    p->looked_ns = now;
    if (p->slo_us == 0 || p->room == 0 || !latency_look(j, now, &w)) {
        latency_take_most(j, 0);
        p->need = 0;
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
                                 .has = in_place(j),
                                 .least = p->least,
                                 .most = p->room,
                                 .own = p->own};
    if (p->alone) { /* it has all that it can use: nothing is learnt of fewer */
        p->state = (struct promise_state){0};
        p->need = look.has;
    } else {
        p->need = promise_need(&p->state, &look);
    }
    if (p->need != before && !p->alone)
        plan_make(j->daemon);
}

void promises_look(struct job *j)
{
    uint64_t now = clock_now_ns();
    bool jumped = j->latency.most_in_flight > 2 * j->promise.in_flight + 1;

    if (now - j->promise.looked_ns >= PROMISE_LOOK_NS || jumped)
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
