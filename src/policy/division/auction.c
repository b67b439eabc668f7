/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/division/auction.h"

#include "base/minmax.h"

#include "policy/division/order.h"

#define GAIN_MAX (INT64_C(1) << 15)      /* per core; no real speed-up is larger */
#define NOTHING  INT64_MIN               /* the bid of a job that gains nothing */
#define SURE     (2 * AUCTION_WORTH_MAX) /* added to bids for cores that a job is sure of */

static int64_t cores_up(int64_t mcpu)
{
    return mcpu / POLICY_CORE_MCPU + (mcpu % POLICY_CORE_MCPU != 0);
}

/* ---- setting up ------------------------------------------------------------------------------ */

size_t auction_bytes(const struct policy_snapshot *snapshot)
{
    size_t bytes = layout_bytes(snapshot) + snapshot->domain_count * sizeof(int64_t) +
                   snapshot->job_count * (sizeof(struct bidder) + sizeof(uint32_t));

    return (bytes + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
}

void auction_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room)
{
    *ret_room = (struct policy_room){
        .amounts = layout_amounts(snapshot),
        .scratch_bytes = auction_bytes(snapshot),
    };
}

static void take(struct auction *a, uint32_t j, int64_t mcpu)
{
    a->bidder[j].mcpu += mcpu;
    layout_use(&a->layout, layout_place(&a->layout, j), POLICY_MCPU, mcpu);
}

uint32_t auction_place(struct auction *a, uint32_t j)
{
    return a->snapshot->jobs[j].state == POLICY_QUEUED ? a->snapshot->jobs[j].home
                                                       : layout_place(&a->layout, j);
}

static void enter(struct auction *a, uint32_t j, int64_t confidence)
{
    const struct policy_job *job = &a->snapshot->jobs[j];
    const struct policy_curve *curve = &job->curve[POLICY_MCPU];
    int64_t fixed = policy_job_fixed(job, POLICY_MCPU);
    struct bidder *b = &a->bidder[j];

    *b = (struct bidder){
        .bid = NOTHING,
        .arrival_ns = job->arrival_ns,
        .id = job->id,
        .least = policy_job_least(job, POLICY_MCPU),
        .most = fixed >= 0 ? fixed : policy_job_most(job, POLICY_MCPU),
        .price = job->weight,
        .weight = job->weight,
        .lacking = POLICY_NO_PARENT,
        .runs = job->state == POLICY_RUNNING,
        .fixed = fixed >= 0,
    };
    if (curve->count && curve->confidence_permille >= confidence) {
        b->speed = curve->envelope_permille ? curve->envelope_permille : curve->speedup_permille;
        b->count = curve->count;
    }
    /* a starting job keeps its size: no more than its request, as others may come */
    if (job->malleability == POLICY_MOLDABLE && !b->fixed && job->request.of[POLICY_MCPU])
        b->most = larger(b->least, smaller(b->most, job->request.of[POLICY_MCPU]));
    /* a paused job holds an entry, so a job without one cannot be paused yet */
    b->seated = b->runs && (a->pausing == AUCTION_PAUSES_NOBODY || !job->preemptible ||
                            job->current_count == 0);
    if (!b->runs && job->state != POLICY_PAUSED)
        return;
    layout_present(&a->layout, j);
    if (b->runs)
        layout_tasks(&a->layout, j, 1);
    if (b->fixed && b->seated)
        take(a, j, b->least);
}

bool auction_takes_part(const struct auction *a, uint32_t j)
{
    return a->snapshot->jobs[j].state != POLICY_HELD &&
           a->plan->decisions[j].verb == POLICY_VERB_NONE;
}

/* In each domain around a job's place, its part by weight of the cores that are not fixed. */
static void find_sure_shares(struct auction *a)
{
    const struct policy_domain *domains = a->snapshot->domains;

    for (uint32_t d = 0; d < a->snapshot->domain_count; d++)
        a->weight_in[d] = 0;
    for (uint32_t j = 0; j < a->snapshot->job_count; j++)
        if (auction_takes_part(a, j) && !a->bidder[j].fixed)
            for (uint32_t d = auction_place(a, j); d != POLICY_NO_PARENT; d = domains[d].parent)
                a->weight_in[d] += a->bidder[j].weight;
    for (uint32_t j = 0; j < a->snapshot->job_count; j++) {
        struct bidder *b = &a->bidder[j];

        if (!auction_takes_part(a, j) || b->fixed || b->speed)
            continue;
        b->sure = b->most;
        for (uint32_t d = auction_place(a, j); d != POLICY_NO_PARENT; d = domains[d].parent) {
            int64_t cores = larger(a->layout.left[d].of[POLICY_MCPU], 0) / POLICY_CORE_MCPU;

            cores = cores * b->weight / a->weight_in[d];
            b->sure = smaller(b->sure, cores * POLICY_CORE_MCPU);
        }
    }
}

static int64_t worth_of_speed(const struct auction *a, uint32_t j, int64_t cores)
{
    return a->bidder[j].price * auction_gain(&a->bidder[j], cores);
}

void auction_init(struct auction *a, const struct policy *policy,
                  const struct policy_snapshot *snapshot, struct policy_plan *plan,
                  enum auction_pausing pausing, int64_t reserve_mcpu)
{
    int64_t confidence = policy_param(policy, snapshot, AUCTION_CONFIDENCE);
    bool all_known = true;

    *a = (struct auction){
        .snapshot = snapshot, .plan = plan, .pausing = pausing, .worth = worth_of_speed};
    layout_init(&a->layout, snapshot, plan, plan->scratch);
    layout_use(&a->layout, 0, POLICY_MCPU, reserve_mcpu);
    plan->reserve_mcpu = reserve_mcpu;
    a->bidder = (struct bidder *)((char *)plan->scratch + layout_bytes(snapshot));
    a->weight_in = (int64_t *)(a->bidder + snapshot->job_count);
    a->heap = (uint32_t *)(a->weight_in + snapshot->domain_count);
    for (uint32_t j = 0; j < snapshot->job_count; j++) {
        enter(a, j, confidence);
        all_known &= a->bidder[j].speed != NULL;
    }
    if (!all_known)
        find_sure_shares(a);
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        if (a->bidder[j].seated && !a->bidder[j].fixed)
            take(a, j, a->bidder[j].least);
}

/* ---- bids ------------------------------------------------------------------------------------ */

int64_t auction_speed(const struct bidder *b, int64_t cores)
{
    if (!b->speed || cores <= 0)
        return cores * 1000;
    return b->speed[(cores < b->count ? cores : b->count) - 1];
}

int64_t auction_gain(const struct bidder *b, int64_t cores)
{
    int64_t least = cores_up(b->least);

    if (cores == 0)
        return smaller(auction_speed(b, least) / least, GAIN_MAX);
    return smaller(auction_speed(b, cores + 1) - auction_speed(b, cores), GAIN_MAX);
}

/* Between two jobs without curve, the one that would have fewer cores for its weight bids more. */
static int64_t fairness(const struct bidder *b)
{
    return -(((b->mcpu / POLICY_CORE_MCPU + 1) << 24) / b->weight);
}

static int64_t bid_of(const struct auction *a, uint32_t j)
{
    const struct bidder *b = &a->bidder[j];
    int64_t worth;

    if (b->mcpu >= b->most)
        return NOTHING;
    if (b->mcpu && !b->speed)
        return b->mcpu < b->sure ? SURE + fairness(b) : fairness(b);
    worth = smaller(a->worth(a, j, b->mcpu / POLICY_CORE_MCPU), AUCTION_WORTH_MAX);
    if (b->mcpu)
        return worth > 0 ? worth : NOTHING;
    return larger(worth, 1) + (b->runs && a->pausing == AUCTION_PAUSES_IN_NEED ? SURE : 0);
}

/* The last one is the root of the heap. */
static bool bids_less(uint32_t x, uint32_t y, const void *arg)
{
    const struct bidder *a = (const struct bidder *)arg + x, *b = (const struct bidder *)arg + y;

    if (a->bid != b->bid)
        return a->bid < b->bid;
    if (a->runs != b->runs)
        return b->runs;
    if (a->arrival_ns != b->arrival_ns)
        return a->arrival_ns > b->arrival_ns;
    return a->id > b->id;
}

static void open_heap(struct auction *a)
{
    a->heap_count = 0;
    for (uint32_t j = 0; j < a->snapshot->job_count; j++) {
        if (!auction_takes_part(a, j))
            continue;
        a->bidder[j].bid = bid_of(a, j);
        if (a->bidder[j].bid != NOTHING)
            a->heap[a->heap_count++] = j;
    }
    for (uint32_t i = a->heap_count / 2; i-- > 0;)
        order_sift_down(a->heap, i, a->heap_count, bids_less, a->bidder);
}

/* Moves the root down after its bid changed, or removes it. */
static void update_root(struct auction *a)
{
    if (a->bidder[a->heap[0]].bid == NOTHING)
        a->heap[0] = a->heap[--a->heap_count];
    if (a->heap_count)
        order_sift_down(a->heap, 0, a->heap_count, bids_less, a->bidder);
}

/* ---- handing out ----------------------------------------------------------------------------- */

/* Returns the job's needs to run with @mcpu beside its present amounts. */
static struct policy_vector need_of(struct auction *a, uint32_t j, int64_t mcpu)
{
    struct policy_vector need = {0};

    if (!a->bidder[j].runs)
        layout_need(&a->layout, j, auction_place(a, j), &need);
    need.of[POLICY_MCPU] = mcpu;
    return need;
}

/* True for a job without cores in the plan so far. */
static bool begin(struct auction *a, uint32_t j, int64_t mcpu, bool crowd)
{
    uint32_t place = auction_place(a, j);
    struct policy_vector need = need_of(a, j, crowd ? 0 : mcpu);

    if (layout_lacks(&a->layout, place, &need) != POLICY_RESOURCE_MAX)
        return false;
    need.of[POLICY_MCPU] = 0;
    if (a->snapshot->jobs[j].state == POLICY_QUEUED)
        layout_start(&a->layout, j, place, &need);
    else if (a->snapshot->jobs[j].state == POLICY_PAUSED)
        layout_tasks(&a->layout, j, 1);
    take(a, j, mcpu);
    return true;
}

bool auction_seat(struct auction *a, uint32_t j, int64_t mcpu, bool crowd)
{
    struct bidder *b = &a->bidder[j];
    int64_t more = smaller(mcpu, b->most) - b->mcpu;

    if (b->mcpu == 0)
        return begin(a, j, larger(more, b->least), crowd);
    if (more > 0 && more > layout_left(&a->layout, layout_place(&a->layout, j), POLICY_MCPU))
        return false;
    if (more > 0)
        take(a, j, more);
    return true;
}

/* Returns the narrowest domain around the job that lacks this much room. */
static uint32_t lacking_domain(struct auction *a, uint32_t j, int64_t mcpu)
{
    uint32_t d = auction_place(a, j);

    while (d != POLICY_NO_PARENT && a->layout.left[d].of[POLICY_MCPU] >= mcpu)
        d = a->snapshot->domains[d].parent;
    return d;
}

/* One core more; a job with a fraction of a core fills that up first. */
static int64_t next_size(const struct bidder *b)
{
    return smaller((b->mcpu / POLICY_CORE_MCPU + 1) * POLICY_CORE_MCPU, b->most);
}

/* Ends the job's bidding: its next cores are not free, and will not become free. */
static void turn_away(struct auction *a, uint32_t j)
{
    struct bidder *b = &a->bidder[j];
    struct policy_vector need;

    b->bid = NOTHING;
    b->lacking = lacking_domain(a, j, b->mcpu ? next_size(b) - b->mcpu : b->least);
    if (b->mcpu)
        return;
    if (b->runs) {
        layout_reason(&a->layout, j, POLICY_REASON_GIVES_WAY, b->least, 0, 0, 0);
        layout_tasks(&a->layout, j, -1);
        layout_stop(&a->layout, j, POLICY_VERB_PAUSE);
        return;
    }
    need = need_of(a, j, b->least);
    layout_refuse(&a->layout, j, auction_place(a, j), &need);
    if (a->snapshot->jobs[j].state == POLICY_PAUSED)
        layout_stop(&a->layout, j, POLICY_VERB_HOLD);
}

/* Gives the root the cores of its bid, or removes it. */
static void serve_root(struct auction *a)
{
    uint32_t j = a->heap[0];
    struct bidder *b = &a->bidder[j];

    if (auction_seat(a, j, b->mcpu ? next_size(b) : b->least, false))
        b->bid = bid_of(a, j);
    else
        turn_away(a, j);
    update_root(a);
}

static void lend(struct auction *a, uint32_t j)
{
    const struct bidder *b = &a->bidder[j];
    int64_t lent = smaller(a->snapshot->jobs[j].lent, (b->mcpu - b->least) / POLICY_CORE_MCPU);

    if (lent <= 0)
        return;
    layout_reason(&a->layout, j, POLICY_REASON_LENT, b->mcpu, lent * POLICY_CORE_MCPU, 0, 0);
    take(a, j, -lent * POLICY_CORE_MCPU);
}

static void borrow(struct auction *a, uint32_t j)
{
    const struct bidder *b = &a->bidder[j];
    int64_t left = layout_left(&a->layout, layout_place(&a->layout, j), POLICY_MCPU);
    int64_t granted =
        smaller(a->snapshot->jobs[j].borrowed, smaller(b->most - b->mcpu, left) / POLICY_CORE_MCPU);

    if (granted <= 0)
        return;
    layout_reason(&a->layout, j, POLICY_REASON_BORROWED, b->mcpu, granted * POLICY_CORE_MCPU, 0, 0);
    take(a, j, granted * POLICY_CORE_MCPU);
}

static bool older(uint32_t x, uint32_t y, const void *arg)
{
    const struct bidder *a = (const struct bidder *)arg + x, *b = (const struct bidder *)arg + y;

    return a->arrival_ns != b->arrival_ns ? a->arrival_ns < b->arrival_ns : a->id < b->id;
}

/* All lend before one borrows. The auction is over, so the heap's room is free. */
static void move_lent_cores(struct auction *a)
{
    uint32_t borrowers = 0;

    for (uint32_t j = 0; j < a->snapshot->job_count; j++) {
        if (a->bidder[j].mcpu == 0 || a->bidder[j].fixed)
            continue;
        lend(a, j);
        if (a->snapshot->jobs[j].borrowed)
            a->heap[borrowers++] = j;
    }
    order_sort(a->heap, borrowers, older, a->bidder);
    for (uint32_t i = 0; i < borrowers; i++)
        borrow(a, a->heap[i]);
}

void auction_run(struct auction *a)
{
    open_heap(a);
    while (a->heap_count && a->layout.left[0].of[POLICY_MCPU] > 0)
        serve_root(a);
    for (uint32_t i = 0; i < a->heap_count; i++)
        turn_away(a, a->heap[i]);
    move_lent_cores(a);
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void explain(struct auction *a, uint32_t j)
{
    const struct bidder *b = &a->bidder[j];
    int64_t cores = b->mcpu / POLICY_CORE_MCPU;

    if (b->fixed)
        layout_fixed_reason(&a->layout, j);
    else if (b->mcpu >= b->most)
        layout_reason(&a->layout, j, POLICY_REASON_MAXIMUM, b->most, 0, 0, 0);
    else if (!b->speed)
        layout_reason(&a->layout, j, POLICY_REASON_NO_CURVE, b->mcpu, larger(b->sure, b->least), 0,
                      0);
    else
        layout_reason(&a->layout, j, POLICY_REASON_GAIN, b->mcpu,
                      auction_speed(b, cores) - auction_speed(b, cores - 1),
                      larger(auction_gain(b, cores), 0), 0);
}

void auction_conclude(struct auction *a)
{
    for (uint32_t j = 0; j < a->snapshot->job_count; j++) {
        struct policy_decision *decision = &a->plan->decisions[j];

        if (a->snapshot->jobs[j].state == POLICY_HELD) {
            decision->verb = POLICY_VERB_HOLD;
            layout_reason(&a->layout, j, POLICY_REASON_HELD, 0, 0, 0, 0);
        } else if (a->bidder[j].mcpu) {
            if (decision->reason.code == POLICY_REASON_NONE)
                explain(a, j);
            layout_run(&a->layout, j, a->bidder[j].mcpu);
            decision->worth = (uint64_t)a->bidder[j].price;
        }
    }
}
