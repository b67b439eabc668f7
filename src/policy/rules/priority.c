/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `priority`: jobs stand in the row of queue.h by priority, larger first, then by class
 * and arrival.
 *
 * The first that lacks room for what it starts with pauses preemptible jobs of lower priority:
 * those with the longest accumulated run first, then the smallest request, then the smallest id, as
 * many as it needs and none in vain. A job is paused only for what a pause can free: not for
 * memory. The paused wait in the row, and resume when there is room.
 *
 * With ageing, a job's priority rises by one for each such time that it has waited, now and before,
 * and stays there while it runs. Everyone who waits rises alike, so none overtakes another by it;
 * but sooner or later it is one above any job that runs. So two jobs that fill the machine take
 * turns of twice the ageing time, and none starves, if those who run are preemptible or end.
 */
#include "policy/division/queue.h"
#include "policy/rules/policies.h"

enum { PRIORITY_AGEING = QUEUE_PARAM_MAX, PRIORITY_PARAM_MAX };

#define AGEING_MAX (INT64_C(24) * 3600 * 1000000000)
#define RISEN_MAX  (UINT64_C(1) << 62) /* of steps: no overflow with any priority */

/* Includes the whole steps that the job has gained by waiting. */
static int64_t risen(const struct queue *q, uint32_t j)
{
    const struct policy_job *job = &q->snapshot->jobs[j];
    uint64_t steps = q->unit ? job->wait_ns / (uint64_t)q->unit : 0;

    return job->priority + (int64_t)(steps < RISEN_MAX ? steps : RISEN_MAX);
}

/* Returns when @waiting is one above @running, whose priority stands still. */
static uint64_t yields_ns(const struct queue *q, uint32_t running, uint32_t waiting)
{
    const struct policy_job *r = &q->snapshot->jobs[running], *w = &q->snapshot->jobs[waiting];
    int64_t steps = (int64_t)r->priority - w->priority + 1;
    int64_t ahead; /* ns of waiting by which it must be ahead of the other job */
    uint64_t target, at;

    if (q->unit == 0)
        return steps <= 0 ? q->snapshot->now_ns : POLICY_NEVER;
    if (__builtin_mul_overflow(steps, q->unit, &ahead))
        return steps <= 0 ? q->snapshot->now_ns : POLICY_NEVER;
    if (ahead < 0 && r->wait_ns < -(uint64_t)ahead)
        return q->snapshot->now_ns;
    if (__builtin_add_overflow(r->wait_ns, ahead, &target))
        return POLICY_NEVER;
    if (target <= w->wait_ns)
        return q->snapshot->now_ns;
    return __builtin_add_overflow(q->snapshot->now_ns, target - w->wait_ns, &at) ? POLICY_NEVER
                                                                                 : at;
}

static bool paused_first(uint32_t a, uint32_t b, const void *arg)
{
    const struct queue *q = arg;
    const struct policy_job *x = &q->snapshot->jobs[a], *y = &q->snapshot->jobs[b];

    if (x->run_ns != y->run_ns)
        return x->run_ns > y->run_ns;
    if (q->ticket[a].request != q->ticket[b].request)
        return q->ticket[a].request < q->ticket[b].request;
    return x->id < y->id;
}

static void explain(struct queue *q, uint32_t j, uint32_t paused_for)
{
    layout_reason(&q->layout, j, POLICY_REASON_PREEMPTED, (int64_t)q->ticket[paused_for].id,
                  risen(q, paused_for), risen(q, j), 0);
}

static const struct queue_pausing pausing = {
    .yields_ns = yields_ns,
    .paused_first = paused_first,
    .explain = explain,
};

static int priority_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                           struct policy_plan *plan)
{
    struct queue queue;

    queue_init(&queue, policy, snapshot, plan);
    queue.pausing = &pausing;
    queue.unit = policy_param(policy, snapshot, PRIORITY_AGEING);
    for (uint32_t j = 0; j < snapshot->job_count; j++) {
        queue.ticket[j].major = -risen(&queue, j);
        if (queue.unit)
            queue.ticket[j].minor =
                (uint64_t)queue.unit - snapshot->jobs[j].wait_ns % (uint64_t)queue.unit;
    }
    queue_decide(&queue);
    return 0;
}

static const struct policy_param priority_params[] = {
    QUEUE_PARAMS,
    [PRIORITY_AGEING] = {.name = "ageing",
                         .max = AGEING_MAX,
                         .unit = "ns",
                         .text = "time of waiting that raises a job's priority by one; 0: never"},
};

const struct policy policy_priority = {
    .name = "priority",
    .brief = "higher priority first; pauses preemptible jobs of lower priority",
    .params = priority_params,
    .param_count = PRIORITY_PARAM_MAX,
    .room = queue_room,
    .decide = priority_decide,
};
