/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/core/policy.h"
#include "policy/core/writer.h"
#include "policy/division/gate.h"
#include "policy/division/speeds.h"
#include "policy/division/users.h"
#include "policy/rules/policies.h"

#include <errno.h>
#include <stdint.h>

/* A new policy is one file and one line here; the first is the default. */
static const struct policy *const registry[] = {
    &policy_equal,    &policy_fcfs,       &policy_priority,  &policy_round_robin,
    &policy_weighted, &policy_throughput, &policy_response,  &policy_hesrpt,
    &policy_makespan, &policy_deadline,   &policy_power_cap,
};

#define REGISTRY_COUNT (sizeof(registry) / sizeof(registry[0]))

size_t policy_count(void)
{
    return REGISTRY_COUNT;
}

const struct policy *policy_at(size_t index)
{
    return index < REGISTRY_COUNT ? registry[index] : NULL;
}

const struct policy *policy_find(const char *name)
{
    for (size_t i = 0; i < REGISTRY_COUNT; i++)
        if (text_same(registry[i]->name, name))
            return registry[i];
    return NULL;
}

void policy_room(const struct policy *policy, const struct policy_snapshot *snapshot,
                 struct policy_room *ret_room)
{
    struct policy_room room;
    uint32_t user;

    policy->room(snapshot, &room);
    gate_room(policy, snapshot, &room);
    if (users_share(snapshot, &user))
        users_room(policy, snapshot, &room);
    speeds_room(snapshot, &room);
    *ret_room = room;
}

/* If only one user has jobs, the policy decides as if users were not counted. */
static int decide_for_one(const struct policy *policy, const struct policy_snapshot *snapshot,
                          uint32_t user, struct policy_plan *plan)
{
    struct policy_snapshot own = *snapshot;
    int r;

    own.state = users_state(snapshot, user, &own.state_size);
    r = policy->decide(policy, &own, plan);
    if (r == 0)
        gate_apply(policy, &own, plan);
    return r;
}

int policy_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                  struct policy_plan *plan)
{
    struct policy_room room;
    uint32_t user;
    int r = policy_snapshot_check(snapshot, NULL);

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < policy->param_count; i++) {
        int64_t value = policy_param(policy, snapshot, i);

        if (value < policy->params[i].min || value > policy->params[i].max)
            return -ERANGE;
    }
    policy_room(policy, snapshot, &room);
    if (plan->amount_room < room.amounts || plan->scratch_room < room.scratch_bytes ||
        plan->state_room < room.state_bytes)
        return -ENOSPC;

    plan->epoch = snapshot->epoch;
    plan->generation = snapshot->generation;
    plan->next_wakeup_ns = POLICY_NEVER;
    plan->amount_count = 0;
    plan->state_size = 0;
    plan->reserve_mcpu = 0;
    for (uint32_t i = 0; i < snapshot->job_count; i++)
        plan->decisions[i] = (struct policy_decision){.id = snapshot->jobs[i].id};
    r = users_share(snapshot, &user) ? users_decide(policy, snapshot, plan)
                                     : decide_for_one(policy, snapshot, user, plan);
    if (r < 0)
        return r;
    speeds_apply(policy, snapshot, plan);
    policy_plan_account(snapshot, plan);
    return 0;
}
