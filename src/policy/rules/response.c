/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `response`: short mean turnaround.
 *
 * A core goes where it lets most jobs end sooner. The price of a job is what a unit of its work
 * costs all jobs. For speed-ups k^p the best division is known (heSRPT, Berg, Vesilo and
 * Harchol-Balter 2020): the price is the time that this unit takes, times a power of the number of
 * jobs with as much work left or more, since these wait for it. So here, the r-th from the longest
 * of n jobs on C cores has the price
 *
 *   w_j * r^a / S_j(C/n)          the time taken with an equal share of the cores, one at least
 *
 * and the next core goes to argmax price_j [S_j(k+1) - S_j(k)]. Without the time taken, jobs that
 * use many cores well would get all of them, though the others have to wait for short jobs, too.
 *
 * The exponent a is smaller than theirs, since further jobs may arrive. It is smaller still with
 * less than one job for two cores: then newcomers would pay for the cores that the shortest job
 * uses badly. The order counts most, so this loses little, and the last end comes sooner.
 *
 * A job of a smaller class (interactive) is ranked before all of larger ones (batch), whatever
 * their sizes; `slowdown` below bounds what these wait.
 *
 * Jobs are left waiting when the cores are worth more to others, and preemptible ones are paused.
 * Three parameters bound the cost of that.
 *
 * slowdown: a job that has waited this many times its own time, that is what it has run and what it
 * will still take with its minimum, is late: late jobs have their minimum before anybody bids, the
 * oldest first. So however many shorter jobs come, nobody waits longer than that and until the late
 * jobs that are older have ended, where jobs can be paused; where they cannot, and its minimum is a
 * core, until one ends. Of a job of unknown size what it has run counts, and that changes while it
 * runs: once it goes on, it is late for the work assumed for a new one at least.
 *
 * long: a job that takes more than this many times the mean work per core with its minimum would
 * end last anyhow, and later still if it waits. So it has its minimum.
 *
 * overtake: a waiting job passes a running one that is this many times longer, the cost of the
 * start included. If jobs that cannot be paused leave no room for the minimum of a job that is that
 * much shorter than the rest of any of them, it starts beside them.
 *
 * unknown: see size.h.
 */
#include "policy/division/auction.h"
#include "policy/division/order.h"
#include "policy/division/size.h"
#include "policy/rules/policies.h"

enum {
    RESPONSE_EXPONENT = AUCTION_PARAM_MAX,
    RESPONSE_LONG,
    RESPONSE_OVERTAKE,
    RESPONSE_SLOWDOWN,
    RESPONSE_UNKNOWN,
    RESPONSE_PARAM_MAX
};

#define PRICE_BITS 14         /* bits behind the binary point */
#define SOONEST_NS 1000000000 /* shortest time to the next look without an event */

/* One job. */
struct size {
    uint64_t key;     /* area left per weight; for a waiting job with its handicap */
    uint64_t work_ns; /* remaining work, and the cost of starting if it has to */
    uint64_t arrival_ns;
    uint64_t id;
    uint32_t class;
};

struct response {
    struct auction auction;
    struct size *size;
    uint32_t *order; /* jobs that take part: by class, shortest first */
    uint32_t count;
    uint32_t *late; /* oldest first */
    int64_t share;  /* whole cores of the equal share, at least 1 */
    int64_t param[RESPONSE_PARAM_MAX];
};

/* Returns a * permille / 1000; saturates. */
static uint64_t scaled(uint64_t a, int64_t permille)
{
    uint64_t whole;

    if (__builtin_mul_overflow(a / 1000, (uint64_t)permille, &whole) ||
        __builtin_add_overflow(whole, a % 1000 * (uint64_t)permille / 1000, &whole))
        return UINT64_MAX;
    return whole;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

/* ---- prices ---------------------------------------------------------------------------------- */

/* Binary logarithm of @x >= 1 with 16 bits behind the point: each squaring yields one bit. */
static uint32_t log2_q16(uint32_t x)
{
    uint32_t whole = 31 - (uint32_t)__builtin_clz(x);
    uint64_t rest = (uint64_t)x << (31 - whole); /* 1 … 2, 31 bits behind the point */
    uint32_t log = whole << 16;

    for (uint32_t bit = 1u << 15; bit; bit >>= 1) {
        rest = rest * rest >> 31;
        if (rest >> 32) {
            rest >>= 1;
            log |= bit;
        }
    }
    return log;
}

/* Returns 2^x of a number with 16 bits behind the point; with PRICE_BITS. */
static int64_t exp2_q16(uint32_t x)
{
    /* 2^(1/2), 2^(1/4), …, 30 bits behind the point */
    static const uint64_t root[] = {1518500250, 1276901417, 1170923762, 1121280436,
                                    1097253708, 1085434106, 1079572136, 1076653033,
                                    1075196443, 1074468888, 1074105294, 1073923544,
                                    1073832680, 1073787251, 1073764537, 1073753181};
    uint64_t power = (uint64_t)1 << 30;

    for (uint32_t i = 0; i < 16; i++)
        if (x & (0x8000u >> i))
            power = power * root[i] >> 30;
    return (int64_t)(power << (x >> 16) >> (30 - PRICE_BITS));
}

static bool older(uint32_t x, uint32_t y, const void *arg)
{
    const struct size *a = (const struct size *)arg + x, *b = (const struct size *)arg + y;

    return a->arrival_ns != b->arrival_ns ? a->arrival_ns < b->arrival_ns : a->id < b->id;
}

/* Interactive before batch, then the shorter one. */
static bool shorter(uint32_t x, uint32_t y, const void *arg)
{
    const struct size *a = (const struct size *)arg + x, *b = (const struct size *)arg + y;

    if (a->class != b->class)
        return a->class < b->class;
    return a->key != b->key ? a->key < b->key : older(x, y, arg);
}

static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t result;

    return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

static uint64_t least_cores(const struct bidder *b)
{
    return b->least < 2 * POLICY_CORE_MCPU ? 1 : (uint64_t)(b->least / POLICY_CORE_MCPU);
}

/* Returns the time to the end with its minimum; with one core, its work. */
static uint64_t time_with_least(const struct bidder *b, uint64_t work_ns)
{
    uint64_t cores = least_cores(b);

    return cores == 1 ? work_ns
                      : product(work_ns / (uint64_t)auction_speed(b, (int64_t)cores), 1000);
}

/* Returns the core time to the end with its minimum, which others cannot use. */
static uint64_t area_ns(const struct bidder *b, uint64_t work_ns)
{
    return product(time_with_least(b, work_ns), least_cores(b));
}

/*
 * Jobs bid for their start by rank alone: the rank already tells how badly a job uses a minimum of
 * many cores, and no job gets a second core while another could start with one.
 */
static int64_t worth(const struct auction *a, uint32_t j, int64_t cores)
{
    const struct response *r = (const struct response *)a; /* its first member */
    const struct bidder *b = &a->bidder[j];

    return b->price * (cores ? auction_gain(b, cores) : auction_speed(b, r->share));
}

static void measure(struct response *r, uint32_t j)
{
    const struct policy_job *job = &r->auction.snapshot->jobs[j];
    uint64_t work_ns = size_left_ns(job, r->param[RESPONSE_UNKNOWN]);
    uint64_t key;

    if (job->state != POLICY_RUNNING) {
        work_ns = sum(
            work_ns,
            job->cost_ns[job->state == POLICY_PAUSED ? POLICY_ACTION_PAUSE : POLICY_ACTION_START]);
    }
    key = area_ns(&r->auction.bidder[j], work_ns);
    if (job->state != POLICY_RUNNING)
        key = scaled(key, r->param[RESPONSE_OVERTAKE]);
    r->size[j] = (struct size){key / job->weight, work_ns, job->arrival_ns, job->id, job->class};
}

/* Returns the cores of the machine under all power caps; at least 1. */
static int64_t machine_cores(const struct response *r)
{
    int64_t cores = layout_capacity(&r->auction.layout, 0, POLICY_MCPU) / POLICY_CORE_MCPU;

    return cores > 0 ? cores : 1;
}

/* Returns the exponent for this number of jobs, in thousandths of the parameter. */
static uint64_t exponent(const struct response *r)
{
    uint64_t permille = r->count * UINT64_C(2000) / (uint64_t)machine_cores(r);

    return (uint64_t)r->param[RESPONSE_EXPONENT] * (permille < 1000 ? permille : 1000);
}

static void set_price(struct response *r, uint32_t j, uint32_t rank)
{
    struct bidder *b = &r->auction.bidder[j];
    uint64_t log = log2_q16(rank) * exponent(r) / 1000000;
    int64_t price = b->price * exp2_q16((uint32_t)log) * 1000 / auction_speed(b, r->share);

    b->price = price < AUCTION_PRICE_MAX ? price : AUCTION_PRICE_MAX;
    b->price += b->price == 0;
}

static void set_prices(struct response *r)
{
    for (uint32_t j = 0; j < r->auction.snapshot->job_count; j++) {
        measure(r, j);
        if (auction_takes_part(&r->auction, j))
            r->order[r->count++] = j;
    }
    order_sort(r->order, r->count, shorter, r->size);
    if (r->count < machine_cores(r))
        r->share = machine_cores(r) / (r->count ? r->count : 1);
    for (uint32_t i = 0; i < r->count; i++)
        set_price(r, r->order[i], r->count - i);
}

/* ---- jobs that must not wait ----------------------------------------------------------------- */

/* Returns the time to the end with the cores that it is sure of. */
static uint64_t time_of_seated(const struct response *r, uint32_t j)
{
    const struct bidder *b = &r->auction.bidder[j];
    int64_t cores = b->mcpu / POLICY_CORE_MCPU;

    return r->size[j].work_ns / (uint64_t)auction_speed(b, cores ? cores : 1) * 1000;
}

/* True if jobs that cannot be paused leave no room for its minimum, though the machine has it. */
static bool is_shut_out(struct auction *a, uint32_t j)
{
    uint32_t place = auction_place(a, j);
    int64_t least = a->bidder[j].least;

    return layout_left(&a->layout, place, POLICY_MCPU) < least &&
           layout_capacity(&a->layout, place, POLICY_MCPU) >= least;
}

/* The expected time of a job of unknown size grows as it runs. */
static void look_again_in(struct response *r, uint64_t ns)
{
    uint64_t now_ns = r->auction.snapshot->now_ns;

    ns = ns < SOONEST_NS ? SOONEST_NS : ns;
    if (ns < POLICY_NEVER - now_ns && now_ns + ns < r->auction.plan->next_wakeup_ns)
        r->auction.plan->next_wakeup_ns = now_ns + ns;
}

/* Returns what a job has run and will still take with its minimum. */
static uint64_t own_time_ns(const struct response *r, uint32_t j)
{
    const struct policy_snapshot *snapshot = r->auction.snapshot;
    const struct policy_job *job = &snapshot->jobs[j];
    uint64_t unknown = (uint64_t)r->param[RESPONSE_UNKNOWN], run = job->run_ns, stretch;

    if (job->remaining_ns != POLICY_UNKNOWN)
        return sum(run, time_with_least(&r->auction.bidder[j], r->size[j].work_ns));
    stretch = snapshot->now_ns - job->change_ns;
    if (job->state == POLICY_RUNNING && stretch < unknown)
        run = run > stretch ? run - stretch : 0; /* as when it went on */
    return sum(run, time_with_least(&r->auction.bidder[j], run > unknown ? run : unknown));
}

/* Returns how long it may still wait before it is late; 0: it is. */
static uint64_t until_late_ns(const struct response *r, uint32_t j)
{
    uint64_t most = scaled(own_time_ns(r, j), r->param[RESPONSE_SLOWDOWN]);
    uint64_t waited = r->auction.snapshot->jobs[j].wait_ns;

    return most > waited ? most - waited : 0;
}

static void seat_the_late(struct response *r)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < r->count; i++)
        if (until_late_ns(r, r->order[i]) == 0)
            r->late[count++] = r->order[i];
    order_sort(r->late, count, older, r->size);
    for (uint32_t i = 0; i < count; i++)
        auction_seat(&r->auction, r->late[i], r->auction.bidder[r->late[i]].least, false);
}

/* Somebody who is left waiting will be late then. */
static void wake_for_the_late(struct response *r)
{
    uint64_t soonest = UINT64_MAX;

    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t j = r->order[i];
        uint64_t ns = r->auction.bidder[j].mcpu ? 0 : until_late_ns(r, j);

        if (ns > 0 && ns < soonest)
            soonest = ns;
    }
    if (soonest != UINT64_MAX)
        look_again_in(r, soonest);
}

/*
 * Starts short jobs beside those that hold all cores and cannot be paused. A started job counts
 * among them, so each must be much shorter than the one before: there are few.
 */
static void seat_the_short(struct response *r)
{
    struct auction *a = &r->auction;
    uint64_t soonest = UINT64_MAX, wait = UINT64_MAX;
    bool known = true;

    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t j = r->order[i];
        uint64_t time = a->bidder[j].mcpu ? time_of_seated(r, j) : UINT64_MAX;

        if (time < soonest) {
            soonest = time;
            known = a->snapshot->jobs[j].remaining_ns != POLICY_UNKNOWN;
        }
    }
    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t j = r->order[i];
        uint64_t time = time_with_least(&a->bidder[j], r->size[j].work_ns);
        uint64_t needed = scaled(time, r->param[RESPONSE_OVERTAKE]);

        if (a->bidder[j].mcpu || !is_shut_out(a, j))
            continue;
        if (needed < soonest && auction_seat(a, j, a->bidder[j].least, true))
            soonest = time;
        else if (needed >= soonest && needed - soonest < wait)
            wait = needed - soonest;
    }
    if (!known && wait != UINT64_MAX)
        look_again_in(r, wait);
}

static void seat_the_long(struct response *r)
{
    uint64_t total = 0, bound;

    for (uint32_t i = 0; i < r->count; i++)
        total = sum(total, area_ns(&r->auction.bidder[r->order[i]], r->size[r->order[i]].work_ns));
    bound = scaled(total / (uint64_t)machine_cores(r), r->param[RESPONSE_LONG]);
    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t j = r->order[i];

        if (time_with_least(&r->auction.bidder[j], r->size[j].work_ns) >= bound)
            auction_seat(&r->auction, j, r->auction.bidder[j].least, false);
    }
}

/* ---- deciding -------------------------------------------------------------------------------- */

static void explain(struct response *r, uint32_t i)
{
    struct auction *a = &r->auction;
    const struct policy_reason *reason = &a->plan->decisions[r->order[i]].reason;

    if (reason->code == POLICY_REASON_GAIN)
        layout_reason(&a->layout, r->order[i], POLICY_REASON_SIZE_RANK, reason->arg[0], i + 1,
                      r->count,
                      r->size[r->order[0]].class != r->size[r->order[r->count - 1]].class);
}

static void response_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room)
{
    auction_room(snapshot, ret_room);
    ret_room->scratch_bytes += snapshot->job_count * (sizeof(struct size) + 2 * sizeof(uint32_t));
}

static int response_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                           struct policy_plan *plan)
{
    struct response r = {.share = 1};

    for (uint32_t i = 0; i < RESPONSE_PARAM_MAX; i++)
        r.param[i] = policy_param(policy, snapshot, i);
    auction_init(&r.auction, policy, snapshot, plan, AUCTION_PAUSES_OUTBID, 0);
    r.auction.worth = worth;
    r.size = (struct size *)((char *)plan->scratch + auction_bytes(snapshot));
    r.order = (uint32_t *)(r.size + snapshot->job_count);
    r.late = r.order + snapshot->job_count;
    set_prices(&r);
    seat_the_short(&r);
    seat_the_late(&r);
    seat_the_long(&r);
    auction_run(&r.auction);
    wake_for_the_late(&r);
    auction_conclude(&r.auction);
    for (uint32_t i = 0; i < r.count; i++)
        explain(&r, i);
    return 0;
}

static const struct policy_param response_params[] = {
    AUCTION_PARAMS,
    [RESPONSE_EXPONENT] = {.name = "exponent",
                           .max = 1000,
                           .def = 350,
                           .unit = "permille",
                           .text = "how much a job's rank by size counts; 0: not at all"},
    [RESPONSE_LONG] =
        {.name = "long",
         .min = 1000,
         .max = 1000000,
         .def = 2000,
         .unit = "permille",
         .text = "a job this many times as long as all work over all cores does not wait"},
    [RESPONSE_OVERTAKE] =
        {.name = "overtake",
         .min = 1000,
         .max = 100000,
         .def = 1200,
         .unit = "permille",
         .text = "how much longer a running job must be for a waiting one to pass it"},
    [RESPONSE_SLOWDOWN] =
        {.name = "slowdown",
         .min = 1000,
         .max = 1000000000,
         .def = 20000,
         .unit = "permille",
         .text = "a job that has waited this many times its own time goes before all others"},
    SIZE_PARAM(RESPONSE_UNKNOWN),
};

const struct policy policy_response = {
    .name = "response",
    .brief = "short mean turnaround: cores where they gain most, shorter jobs first",
    .params = response_params,
    .param_count = RESPONSE_PARAM_MAX,
    .by_curves = true,
    .room = response_room,
    .decide = response_decide,
};
