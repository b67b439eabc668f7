/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `deadline`: a job with a deadline is sure of the fewest cores that meet it, k_min = min
 * {k: rem / S(k) <= deadline - now}; `throughput` divides the rest. If the cores do not suffice,
 * higher priorities go first, then earlier deadlines. A job that cannot get k_min gets none of it,
 * since a part would not save its deadline. If there is no other way, preemptible jobs are paused
 * for this, lower priorities first.
 *
 * The reason says when no number of cores can meet a deadline. Such a job goes on with the cores
 * that others leave, or, if it waits and the parameter says so, is refused. A job without a curve
 * or known work counts as one without deadline.
 */
#include "policy/division/auction.h"
#include "policy/division/order.h"
#include "policy/rules/policies.h"

#include <assert.h>

enum { DEADLINE_MARGIN = AUCTION_PARAM_MAX, DEADLINE_LATE, DEADLINE_PARAM_MAX };
enum late { LATE_RUN, LATE_REFUSE, LATE_MAX };

static const char *const late_names[] = {[LATE_RUN] = "run", [LATE_REFUSE] = "refuse"};
static_assert(sizeof(late_names) / sizeof(char *) == LATE_MAX, "every treatment has a name");

/* One job. */
struct due {
    uint64_t deadline_ns;
    uint64_t arrival_ns;
    uint64_t id;
    uint64_t left_ns; /* time to the deadline */
    uint64_t best_ns; /* time that it takes with all cores that it can use */
    int32_t priority;
    uint32_t cores; /* fewest cores that meet the deadline; 0: none do */
    bool known;     /* its deadline and work are known */
    bool sure;      /* has those cores */
};

struct deadlines {
    struct auction auction;
    struct due *due;
    uint32_t *order;
    int64_t margin;
};

/* Returns how many cores the job could have on an empty machine, within its table. */
static uint32_t usable(const struct deadlines *d, uint32_t j)
{
    const struct policy_job *job = &d->auction.snapshot->jobs[j];
    int64_t most = policy_job_most(job, POLICY_MCPU);
    int64_t capacity = layout_capacity(&d->auction.layout, job->home, POLICY_MCPU);
    int64_t cores = (most < capacity ? most : capacity) / POLICY_CORE_MCPU;

    return cores < job->curve[POLICY_MCPU].count ? (uint32_t)cores : job->curve[POLICY_MCPU].count;
}

/* Returns the fewest of the @usable cores with which the job is fastest; 0: none. */
static uint32_t fastest(const struct policy_curve *curve, uint32_t usable)
{
    const uint32_t *speed = curve->speedup_permille;
    uint32_t low = 1, high = usable, best = 1;

    if (usable == 0)
        return 0;
    for (uint32_t k = 2; curve->envelope_permille && k <= usable; k++)
        best = speed[k - 1] > speed[best - 1] ? k : best;
    if (curve->envelope_permille)
        return best;
    while (low < high) { /* a concave table has one peak */
        uint32_t middle = low + (high - low) / 2;

        if (speed[middle] > speed[middle - 1])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the fewest cores, up to @most, with which the job takes at most @left_ns; 0: none do. */
static uint32_t cores_in_time(const struct policy_job *job, uint32_t most, uint64_t left_ns)
{
    const uint32_t *speed = job->curve[POLICY_MCPU].speedup_permille;
    uint64_t left = left_ns, work = job->remaining_ns, slower;

    for (; left >> 53; left >>= 1)
        work >>= 1;
    /* the largest speed that is too slow, or by what was shifted out a bit less */
    if (__builtin_mul_overflow(work / (left + 1), UINT64_C(1000), &slower))
        return 0;
    slower += work % (left + 1) * 1000 / (left + 1);
    for (uint32_t k = 1; k <= most; k++)
        if (speed[k - 1] > slower && policy_time_with(job, POLICY_MCPU, k) <= left_ns)
            return k;
    return 0;
}

static void reckon(struct deadlines *d, uint32_t j)
{
    const struct policy_job *job = &d->auction.snapshot->jobs[j];
    const struct bidder *b = &d->auction.bidder[j];
    uint64_t now_ns = d->auction.snapshot->now_ns;
    struct due *due = &d->due[j];
    uint32_t most;

    *due = (struct due){
        .deadline_ns = job->deadline_ns,
        .arrival_ns = job->arrival_ns,
        .id = job->id,
        .priority = job->priority,
        .left_ns = job->deadline_ns > now_ns ? job->deadline_ns - now_ns : 0,
        .known = b->speed && job->deadline_ns != POLICY_NEVER &&
                 job->remaining_ns != POLICY_UNKNOWN && auction_takes_part(&d->auction, j),
    };
    if (!due->known)
        return;
    most = b->fixed ? (uint32_t)(b->least / POLICY_CORE_MCPU)
                    : fastest(&job->curve[POLICY_MCPU], usable(d, j));
    due->best_ns = policy_time_with(job, POLICY_MCPU, most);
    if (due->best_ns > due->left_ns)
        return;
    due->cores = most;
    if (!b->fixed) {
        uint64_t reserve_ns = due->left_ns / 1000 * (uint64_t)d->margin;
        uint32_t cores = cores_in_time(job, most, due->left_ns - reserve_ns);

        due->cores = cores ? cores : cores_in_time(job, most, due->left_ns);
    }
}

static bool goes_first(uint32_t x, uint32_t y, const void *arg)
{
    const struct due *a = (const struct due *)arg + x, *b = (const struct due *)arg + y;

    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->deadline_ns != b->deadline_ns)
        return a->deadline_ns < b->deadline_ns;
    return a->arrival_ns != b->arrival_ns ? a->arrival_ns < b->arrival_ns : a->id < b->id;
}

static void seat(struct deadlines *d)
{
    uint32_t count = d->auction.snapshot->job_count;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = d->order[i];
        struct bidder *b = &d->auction.bidder[j];
        int64_t mcpu = (int64_t)d->due[j].cores * POLICY_CORE_MCPU;

        if (mcpu == 0)
            continue;
        if (!b->fixed && b->most < mcpu) /* a request for less does not count then */
            b->most = mcpu;
        d->due[j].sure = auction_seat(&d->auction, j, mcpu, false);
    }
    for (uint32_t i = 0; i < count; i++)
        if (d->auction.bidder[d->order[i]].runs)
            auction_seat(&d->auction, d->order[i], d->auction.bidder[d->order[i]].least, false);
}

/* Refuses a waiting job that would be late even with all cores, if the user wants that. */
static void refuse_lost(struct deadlines *d, uint32_t j)
{
    struct auction *a = &d->auction;

    if (!d->due[j].known || d->due[j].cores || a->bidder[j].runs || a->bidder[j].fixed)
        return;
    if (a->snapshot->jobs[j].state == POLICY_PAUSED)
        layout_stop(&a->layout, j, POLICY_VERB_INFEASIBLE);
    a->plan->decisions[j].verb = POLICY_VERB_INFEASIBLE;
}

static int64_t as_argument(uint64_t ns)
{
    return ns < INT64_MAX ? (int64_t)ns : INT64_MAX;
}

static void explain(struct deadlines *d, uint32_t j)
{
    struct auction *a = &d->auction;
    const struct due *due = &d->due[j];
    uint32_t cores = (uint32_t)(a->bidder[j].mcpu / POLICY_CORE_MCPU);
    uint64_t with_ns = policy_time_with(&a->snapshot->jobs[j], POLICY_MCPU, cores);

    if (!due->known || a->plan->decisions[j].reason.code == POLICY_REASON_TOO_LARGE)
        return;
    if (due->cores == 0)
        layout_reason(&a->layout, j, POLICY_REASON_DEADLINE_MISSED, as_argument(due->best_ns),
                      as_argument(due->left_ns), 0, 0);
    else if (due->sure)
        layout_reason(&a->layout, j, POLICY_REASON_DEADLINE, (int64_t)due->cores * POLICY_CORE_MCPU,
                      as_argument(due->left_ns), 0, 0);
    else if (cores && with_ns > due->left_ns)
        layout_reason(&a->layout, j, POLICY_REASON_DEADLINE_MISSED, as_argument(with_ns),
                      as_argument(due->left_ns), 0, 0);
}

static void deadline_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room)
{
    auction_room(snapshot, ret_room);
    ret_room->scratch_bytes += snapshot->job_count * (sizeof(struct due) + sizeof(uint32_t));
}

static int deadline_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                           struct policy_plan *plan)
{
    bool refuses = policy_param(policy, snapshot, DEADLINE_LATE) == LATE_REFUSE;
    struct deadlines d = {.margin = policy_param(policy, snapshot, DEADLINE_MARGIN)};

    auction_init(&d.auction, policy, snapshot, plan, AUCTION_PAUSES_IN_NEED, 0);
    d.due = (struct due *)((char *)plan->scratch + auction_bytes(snapshot));
    d.order = (uint32_t *)(d.due + snapshot->job_count);
    for (uint32_t j = 0; j < snapshot->job_count; j++) {
        reckon(&d, j);
        if (refuses)
            refuse_lost(&d, j);
        d.order[j] = j;
    }
    order_sort(d.order, snapshot->job_count, goes_first, d.due);
    seat(&d);
    auction_run(&d.auction);
    auction_conclude(&d.auction);
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        explain(&d, j);
    return 0;
}

static const struct policy_param deadline_params[] = {
    AUCTION_PARAMS,
    [DEADLINE_MARGIN] =
        {.name = "margin",
         .max = 900,
         .unit = "permille",
         .text = "part of the time to a deadline that stays in reserve, where possible"},
    [DEADLINE_LATE] = {.name = "late",
                       .max = LATE_REFUSE,
                       .text = "what happens to waiting jobs that cannot meet their deadline",
                       .names = late_names},
};

const struct policy policy_deadline = {
    .name = "deadline",
    .brief = "the fewest cores that meet each deadline, the rest by throughput",
    .params = deadline_params,
    .param_count = DEADLINE_PARAM_MAX,
    .by_curves = true,
    .room = deadline_room,
    .decide = deadline_decide,
};
