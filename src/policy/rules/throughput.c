/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `throughput`: each core goes to the job with the largest gain of speed times weight:
 * argmax w_j [S_j(k+1) - S_j(k)]. The sum of weighted speeds is the largest possible when speed-up
 * curves are concave. No job is paused for it. A waiting job's first core adds a whole core's
 * speed, so jobs start, older ones first, while there are cores, and wait beyond that: threads that
 * take turns on a core add nothing.
 */
#include "policy/division/auction.h"
#include "policy/rules/policies.h"

static int throughput_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                             struct policy_plan *plan)
{
    struct auction auction;

    auction_init(&auction, policy, snapshot, plan, AUCTION_PAUSES_NOBODY, 0);
    auction_run(&auction);
    auction_conclude(&auction);
    return 0;
}

static const struct policy_param throughput_params[] = {AUCTION_PARAMS};

const struct policy policy_throughput = {
    .name = "throughput",
    .brief = "each core to the job that it speeds up most",
    .params = throughput_params,
    .param_count = AUCTION_PARAM_MAX,
    .by_curves = true,
    .room = auction_room,
    .decide = throughput_decide,
};
