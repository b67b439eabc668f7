/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `fcfs`: first come, first served. Jobs stand in the row of queue.h by class, smaller
 * first, then by arrival, and none is paused.
 *
 * With `strict` this is the thesis' FCFS: the oldest waits until its full request is free, and no
 * other job is filled in past it. `max-prop` with resize=grow is its MAX_PROP, `always-attend` its
 * ALWAYS_ATTEND; variant=moldable is what it calls `original`.
 */
#include "policy/division/queue.h"
#include "policy/rules/policies.h"

static int fcfs_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                       struct policy_plan *plan)
{
    struct queue queue;

    queue_init(&queue, policy, snapshot, plan);
    queue_decide(&queue);
    return 0;
}

static const struct policy_param fcfs_params[] = {QUEUE_PARAMS};

const struct policy policy_fcfs = {
    .name = "fcfs",
    .brief = "first come, first served",
    .params = fcfs_params,
    .param_count = QUEUE_PARAM_MAX,
    .room = queue_room,
    .decide = fcfs_decide,
};
