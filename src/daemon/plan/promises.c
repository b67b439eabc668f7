/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/promises.h"

#include "base/clock.h"
#include "base/minmax.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/plan/plan.h"
#include "policy/core/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool promises_bind(const struct job *j)
{
    return j->promise.need > 0 && j->asked.attributes.slo_us > 0;
}

const char *promises_text(const struct job *j, char buf[PROMISES_TEXT_MAX])
{
    char promise[PROMISE_TEXT_MAX];

    *buf = '\0';
    if (!promises_bind(j) || j->promise.alone)
        return buf;
    promise_text(j->asked.attributes.slo_us, promise);
    if (promise_is_given_up(j->promise.state.why))
        snprintf(buf, PROMISES_TEXT_MAX, "its promise %s is not kept: %s", promise,
                 promise_why_text(j->promise.state.why));
    else
        snprintf(buf, PROMISES_TEXT_MAX, "its promise %s needs %u core%s: %s", promise,
                 j->promise.need, j->promise.need == 1 ? "" : "s",
                 promise_why_text(j->promise.state.why));
    return buf;
}

void promises_explain(struct job *j, bool bounded)
{
    size_t len = j->wanted.share == j->promise.need && !bounded ? 0 : strlen(j->wanted.reason);
    char text[PROMISES_TEXT_MAX];

    if (*promises_text(j, text) && len + strlen(text) + 3 < sizeof(j->wanted.reason))
        snprintf(j->wanted.reason + len, sizeof(j->wanted.reason) - len, "%s%s", len ? "; " : "",
                 text);
}

/* ---- in the snapshot ------------------------------------------------------------------------- */

static void bound(struct job *const *job, struct policy_job *jobs, uint32_t count, uint32_t at,
                  int64_t capacity)
{
    struct job *j = job[at];
    int64_t share = (j->wanted.user.may_mcpu + POLICY_CORE_MCPU - 1) / POLICY_CORE_MCPU;
    int64_t least = jobs[at].min.of[POLICY_MCPU] / POLICY_CORE_MCPU;
    int64_t most = jobs[at].max.of[POLICY_MCPU] / POLICY_CORE_MCPU;
    int64_t room = capacity, own = share ? share : capacity, spare = capacity, need;

    for (uint32_t k = 0; k < count; k++) {
        int64_t insists = policy_job_least(&jobs[k], POLICY_MCPU) / POLICY_CORE_MCPU;
        int64_t could = policy_job_fixed(&jobs[k], POLICY_MCPU);

        if (k == at || !job[k]->admission.wanted)
            continue;
        room -= insists;
        own -= job[k]->uid == j->uid ? insists : 0;
        could = could >= 0 ? could : policy_job_most(&jobs[k], POLICY_MCPU);
        spare -= could / POLICY_CORE_MCPU;
    }
    room = smaller(smaller(larger(room, least), larger(own, least)), most);
    j->promise.least = (uint32_t)least;
    j->promise.room = (uint32_t)room;
    j->promise.alone = spare >= most;
    if (!promises_bind(j))
        return;
    need = smaller(larger(j->promise.need, least), room);
    jobs[at].min.of[POLICY_MCPU] = need * POLICY_CORE_MCPU;
    if (!promise_is_given_up(j->promise.state.why))
        jobs[at].max.of[POLICY_MCPU] =
            larger(need, smaller(larger(spare, 0), most)) * POLICY_CORE_MCPU;
}

void promises_bound(struct job *const *job, struct policy_job *jobs, uint32_t count,
                    uint32_t capacity)
{
    for (uint32_t i = 0; i < count; i++) {
        struct job *j = job[i];

        if (j->asked.attributes.slo_us && jobs[i].malleability == POLICY_MALLEABLE &&
            jobs[i].pinned_by == POLICY_PIN_NONE && j->admission.wanted)
            bound(job, jobs, count, i, capacity);
        else
            j->promise.need = j->promise.room = 0;
    }
}

/* ---- looks ----------------------------------------------------------------------------------- */

/* Cores of which its threads are surely there: while anything settles, the fewer of both. */
static uint32_t in_place(struct job *j)
{
    uint32_t share = j->wanted.share > j->asked.lent ? j->wanted.share - j->asked.lent : 1;
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
                                      .alone = j->promise.alone};
    latency_judge_anew(j);
}

static void look(struct job *j, uint64_t now)
{
    struct job_promise *p = &j->promise;
    uint32_t before = p->need;
    struct latency_window w;
    struct promise_look look;

    if (p->slo_us != j->asked.attributes.slo_us)
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
                                 .most = p->room};
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
