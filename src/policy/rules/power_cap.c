/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `power-cap`: as many cores as the power cap allows, K = floor((cap - idle) / core), which
 * `throughput` divides. Every policy respects the domains' caps. This one also stops jobs for them:
 * where no core is left under a cap, waiting jobs do not start, and preemptible ones are paused. In
 * the simulator it can set a cap for the machine besides. Its reasons name the jobs that a cap
 * holds back. Jobs that cannot be paused keep their minimum, and the plan says if that is too much.
 *
 * A domain of unknown power (without core_uw) allows everything.
 */
#include "policy/division/auction.h"
#include "policy/rules/policies.h"

enum { POWER_CAP_CAP = AUCTION_PARAM_MAX, POWER_CAP_PARAM_MAX };

/* Returns the most mcpu under @cap_uw for the whole machine, at the power of its dearest core. */
static int64_t allowed_mcpu(const struct policy_snapshot *snapshot, uint64_t cap_uw)
{
    int64_t capacity = policy_domain_capacity(snapshot, 0, POLICY_MCPU);
    uint64_t idle = 0, core = 0, allowed;

    for (uint32_t d = 0; d < snapshot->domain_count; d++) {
        idle += snapshot->domains[d].idle_uw;
        core = snapshot->domains[d].core_uw > core ? snapshot->domains[d].core_uw : core;
    }
    if (cap_uw == 0 || (core == 0 && cap_uw > idle))
        return capacity;
    allowed = cap_uw > idle ? (cap_uw - idle) / core * POLICY_CORE_MCPU : 0;
    return allowed < (uint64_t)capacity ? (int64_t)allowed : capacity;
}

/* Says whether a job gets fewer cores than it wants because of a cap. */
static void explain_cap(struct auction *a, uint32_t j, uint64_t cap_uw, int64_t root_mcpu)
{
    const struct policy_reason *reason = &a->plan->decisions[j].reason;
    uint32_t d = a->bidder[j].lacking;
    uint64_t own_uw;
    int64_t mcpu;

    if (d == POLICY_NO_PARENT || reason->code == POLICY_REASON_TOO_LARGE ||
        (reason->code == POLICY_REASON_NO_ROOM && reason->arg[0] != POLICY_MCPU))
        return;
    own_uw = a->snapshot->domains[d].cap_uw;
    mcpu = a->layout.capacity[d].of[POLICY_MCPU];
    if (d == 0 && root_mcpu < mcpu)
        layout_reason(&a->layout, j, POLICY_REASON_POWER_CAP, (int64_t)cap_uw, root_mcpu, 0, 0);
    else if (own_uw && mcpu < a->snapshot->domains[d].capacity.of[POLICY_MCPU])
        layout_reason(&a->layout, j, POLICY_REASON_POWER_CAP, (int64_t)own_uw, mcpu, 0, 0);
}

static int power_cap_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                            struct policy_plan *plan)
{
    uint64_t cap_uw = (uint64_t)policy_param(policy, snapshot, POWER_CAP_CAP);
    int64_t root_mcpu = allowed_mcpu(snapshot, cap_uw);
    struct auction auction;

    auction_init(&auction, policy, snapshot, plan, AUCTION_PAUSES_IN_NEED,
                 policy_domain_capacity(snapshot, 0, POLICY_MCPU) - root_mcpu);
    auction_run(&auction);
    auction_conclude(&auction);
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        explain_cap(&auction, j, cap_uw, root_mcpu);
    return 0;
}

static const struct policy_param power_cap_params[] = {
    AUCTION_PARAMS,
    [POWER_CAP_CAP] = {.name = "cap",
                       .max = (int64_t)POLICY_POWER_MAX,
                       .unit = "uW",
                       .text = "power that the machine may draw, for tide sim; 0: its own cap "
                               "alone counts",
                       .open = true,
                       .simulated = true},
};

const struct policy policy_power_cap = {
    .name = "power-cap",
    .brief = "throughput with no more cores than the power cap allows",
    .params = power_cap_params,
    .param_count = POWER_CAP_PARAM_MAX,
    .by_curves = true,
    .by_watts = true,
    .room = auction_room,
    .decide = power_cap_decide,
};
