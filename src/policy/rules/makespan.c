/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `makespan`: the next core goes to the job that would end last, argmax rem_j / S_j(k_j), as
 * long as it gains from one. This makes the last end as early as possible if no job arrives and the
 * division stays, because only a faster last job helps. Waiting jobs start, the longest first,
 * before any job gets a second core. Weights do not count here.
 */
#include "policy/division/auction.h"
#include "policy/division/size.h"
#include "policy/rules/policies.h"

enum { MAKESPAN_UNKNOWN = AUCTION_PARAM_MAX, MAKESPAN_PARAM_MAX };

#define WORK_MAX_US (INT64_C(1) << 48)      /* about nine years */
#define FIRST_CORE  (AUCTION_WORTH_MAX / 2) /* more than any time in microseconds */
#define LAST_WORTH  (1 << 20)

/* The price of a job is its work. */
static int64_t work_us(const struct policy_job *job, int64_t unknown_ns)
{
    uint64_t us = size_left_ns(job, unknown_ns) / 1000 + 1;

    return us < WORK_MAX_US ? (int64_t)us : WORK_MAX_US;
}

static int64_t time_us(const struct bidder *b, int64_t cores)
{
    return b->price * 1000 / auction_speed(b, cores);
}

static int64_t worth_of_time(const struct auction *a, uint32_t j, int64_t cores)
{
    const struct bidder *b = &a->bidder[j];

    if (cores == 0)
        return FIRST_CORE + b->price;
    return auction_gain(b, cores) > 0 ? time_us(b, cores) : 0;
}

static void explain_end(struct auction *a, uint32_t j)
{
    const struct policy_reason *reason = &a->plan->decisions[j].reason;
    int64_t us, ns;

    if (reason->code != POLICY_REASON_GAIN)
        return;
    us = time_us(&a->bidder[j], reason->arg[0] / POLICY_CORE_MCPU);
    if (__builtin_mul_overflow(us, 1000, &ns)) /* a steep fall of the curve, to its least */
        ns = INT64_MAX;
    layout_reason(&a->layout, j, POLICY_REASON_ENDS, reason->arg[0], ns, 0, 0);
}

/* Returns the time to the end with its present cores; 0: it has none. */
static int64_t present_us(const struct auction *a, uint32_t j)
{
    const struct policy_job *job = &a->snapshot->jobs[j];
    int64_t mcpu = policy_amount_total(job->current, job->current_count, POLICY_MCPU);

    return mcpu >= POLICY_CORE_MCPU ? time_us(&a->bidder[j], mcpu / POLICY_CORE_MCPU) : 0;
}

/* For the switching gate, which must favour the jobs that would end last, or nearly so. */
static void set_worth(struct auction *a)
{
    int64_t last = 0;

    for (uint32_t j = 0; j < a->snapshot->job_count; j++)
        if (present_us(a, j) > last)
            last = present_us(a, j);
    for (uint32_t j = 0; j < a->snapshot->job_count; j++)
        a->plan->decisions[j].worth = present_us(a, j) >= last - last / 10 ? LAST_WORTH : 1;
}

static int makespan_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                           struct policy_plan *plan)
{
    int64_t unknown_ns = policy_param(policy, snapshot, MAKESPAN_UNKNOWN);
    struct auction auction;

    auction_init(&auction, policy, snapshot, plan, AUCTION_PAUSES_NOBODY, 0);
    auction.worth = worth_of_time;
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        auction.bidder[j].price = work_us(&snapshot->jobs[j], unknown_ns);
    auction_run(&auction);
    auction_conclude(&auction);
    set_worth(&auction);
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        explain_end(&auction, j);
    return 0;
}

static const struct policy_param makespan_params[] = {AUCTION_PARAMS, SIZE_PARAM(MAKESPAN_UNKNOWN)};

const struct policy policy_makespan = {
    .name = "makespan",
    .brief = "the next core to the job that would end last",
    .params = makespan_params,
    .param_count = MAKESPAN_PARAM_MAX,
    .by_curves = true,
    .room = auction_room,
    .decide = makespan_decide,
};
