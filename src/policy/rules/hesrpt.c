/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `hesrpt`: the least mean turnaround, if all jobs are here, speed up as k^p with one p, and
 * no bound holds. Number i of m jobs by size, the largest first, gets
 *
 *   k_i = C [(i/m)^(1/(1-p)) - ((i-1)/m)^(1/(1-p))]
 *
 * (Berg, Vesilo and Harchol-Balter, heSRPT, 2020). Machines ask for the rest: minima and maxima
 * clamp the sizes as in share.h, and sizes are whole multiples of a unit, cores by default, as
 * threads are whole. With a unit of 1 and jobs without minimum the result is the formula, rounded
 * to the thousandth. No job is paused. Waiting jobs start, the smallest first, as long as there is
 * room for the minima of all that run.
 *
 * This is the only policy with floating point: only pow, rounded before it decides anything.
 */
#include "policy/division/layout.h"
#include "policy/division/order.h"
#include "policy/division/share.h"
#include "policy/division/size.h"
#include "policy/rules/policies.h"

#include <math.h>

enum { HESRPT_P, HESRPT_UNIT, HESRPT_UNKNOWN, HESRPT_PARAM_MAX };

#define WHOLE (1 << 30) /* weight of all jobs together */

/* One job. */
struct place {
    uint64_t work_ns;
    uint64_t arrival_ns;
    uint64_t id;
    int64_t weight;
};

struct hesrpt {
    const struct policy_snapshot *snapshot;
    struct layout layout;
    struct sharing sharing;
    struct place *place;
    uint32_t *order; /* smallest first */
    uint32_t count;  /* number of jobs that no user holds */
    int64_t param[HESRPT_PARAM_MAX];
};

static bool smaller_job(uint32_t x, uint32_t y, const void *arg)
{
    const struct place *a = (const struct place *)arg + x, *b = (const struct place *)arg + y;

    if (a->work_ns != b->work_ns)
        return a->work_ns < b->work_ns;
    return a->arrival_ns != b->arrival_ns ? a->arrival_ns < b->arrival_ns : a->id < b->id;
}

static bool shares(const struct policy_job *job)
{
    return policy_job_fixed(job, POLICY_MCPU) < 0;
}

/*
 * Sorts the jobs, held ones behind all others, and writes each one's part of WHOLE. Parts are
 * differences of rounded limits, so that their sum is exact.
 */
static void weigh(struct hesrpt *h)
{
    double exponent = 1000.0 / (double)(1000 - h->param[HESRPT_P]);
    uint32_t last = h->snapshot->job_count, sharing = 0, larger = 0;
    int64_t above = WHOLE;

    for (uint32_t j = 0; j < h->snapshot->job_count; j++) {
        const struct policy_job *job = &h->snapshot->jobs[j];

        h->place[j] = (struct place){size_left_ns(job, h->param[HESRPT_UNKNOWN]), job->arrival_ns,
                                     job->id, 0};
        h->order[job->state == POLICY_HELD ? --last : h->count++] = j;
        sharing += job->state != POLICY_HELD && shares(job);
    }
    order_sort(h->order, h->count, smaller_job, h->place);
    larger = sharing;
    for (uint32_t i = 0; i < h->count; i++) {
        int64_t limit;

        if (!shares(&h->snapshot->jobs[h->order[i]]))
            continue;
        limit = (int64_t)(pow((double)--larger / sharing, exponent) * WHOLE + 0.5);
        h->place[h->order[i]].weight = above > limit ? above - limit : 1;
        above = limit;
    }
}

/* ---- choosing the jobs that run -------------------------------------------------------------- */

/* A fraction of a core will do for a job without minimum, where the unit allows fractions. */
static int64_t least_of(const struct hesrpt *h, const struct policy_job *job)
{
    int64_t least = policy_job_least(job, POLICY_MCPU), min = job->min.of[POLICY_MCPU];

    if (!shares(job) || min >= least)
        return least;
    return min > h->param[HESRPT_UNIT] ? min : h->param[HESRPT_UNIT];
}

/* A running job already has its minimum; a waiting job starts if its minimum is left. */
static void seat(struct hesrpt *h, uint32_t j)
{
    const struct policy_job *job = &h->snapshot->jobs[j];
    bool paused = job->state == POLICY_PAUSED;
    uint32_t place = paused ? layout_place(&h->layout, j) : job->home;
    struct policy_vector need;

    if (job->state == POLICY_RUNNING)
        return;
    layout_need(&h->layout, j, place, &need);
    need.of[POLICY_MCPU] = least_of(h, job);
    if (layout_lacks(&h->layout, place, &need) != POLICY_RESOURCE_MAX) {
        layout_refuse(&h->layout, j, place, &need);
        if (paused)
            layout_stop(&h->layout, j, POLICY_VERB_HOLD);
        return;
    }
    if (paused) {
        layout_tasks(&h->layout, j, 1);
    } else {
        int64_t mcpu = need.of[POLICY_MCPU];

        need.of[POLICY_MCPU] = 0;
        layout_start(&h->layout, j, place, &need);
        need.of[POLICY_MCPU] = mcpu;
    }
    layout_use(&h->layout, place, POLICY_MCPU, need.of[POLICY_MCPU]);
}

static void seat_present(struct hesrpt *h)
{
    for (uint32_t j = 0; j < h->snapshot->job_count; j++) {
        const struct policy_job *job = &h->snapshot->jobs[j];

        if (job->state != POLICY_RUNNING && job->state != POLICY_PAUSED)
            continue;
        layout_present(&h->layout, j);
        if (job->state == POLICY_PAUSED)
            continue;
        layout_tasks(&h->layout, j, 1);
        layout_use(&h->layout, layout_place(&h->layout, j), POLICY_MCPU, least_of(h, job));
    }
}

static bool runs(const struct hesrpt *h, uint32_t j)
{
    return h->snapshot->jobs[j].state != POLICY_HELD &&
           h->layout.plan->decisions[j].verb == POLICY_VERB_NONE;
}

/* Gives back the reserved minima; the running jobs join the division instead. */
static void join(struct hesrpt *h)
{
    for (uint32_t i = 0; i < h->snapshot->job_count; i++) {
        uint32_t j = h->order[i];
        const struct policy_job *job = &h->snapshot->jobs[j];
        int64_t least = least_of(h, job);

        h->sharing.share[j].rank = i;
        if (!runs(h, j) || !shares(job))
            continue;
        layout_use(&h->layout, layout_place(&h->layout, j), POLICY_MCPU, -least);
        sharing_join(&h->sharing, j, h->place[j].weight, least, policy_job_most(job, POLICY_MCPU));
    }
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void conclude(struct hesrpt *h, uint32_t i)
{
    uint32_t j = h->order[i];
    const struct policy_reason *reason = &h->layout.plan->decisions[j].reason;
    int64_t mcpu;

    if (h->snapshot->jobs[j].state == POLICY_HELD) {
        layout_reason(&h->layout, j, POLICY_REASON_HELD, 0, 0, 0, 0);
        h->layout.plan->decisions[j].verb = POLICY_VERB_HOLD;
        return;
    }
    if (!runs(h, j))
        return;
    if (!shares(&h->snapshot->jobs[j])) {
        mcpu = policy_job_fixed(&h->snapshot->jobs[j], POLICY_MCPU);
        layout_fixed_reason(&h->layout, j);
    } else {
        mcpu = sharing_mcpu(&h->sharing, j);
        if (reason->code == POLICY_REASON_WEIGHTED_SHARE ||
            reason->code == POLICY_REASON_EQUAL_SHARE)
            layout_reason(&h->layout, j, POLICY_REASON_SIZE_RANK, mcpu, i + 1, h->count, 0);
    }
    layout_run(&h->layout, j, mcpu);
}

static size_t own_bytes(const struct policy_snapshot *snapshot)
{
    return snapshot->job_count * (sizeof(struct place) + sizeof(uint32_t));
}

static void hesrpt_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room)
{
    *ret_room = (struct policy_room){
        .amounts = layout_amounts(snapshot),
        .scratch_bytes = layout_bytes(snapshot) + own_bytes(snapshot) + sharing_bytes(snapshot),
    };
}

static int hesrpt_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                         struct policy_plan *plan)
{
    struct hesrpt h = {.snapshot = snapshot, .place = plan->scratch};
    char *rest = (char *)(h.place + snapshot->job_count);

    for (uint32_t i = 0; i < HESRPT_PARAM_MAX; i++)
        h.param[i] = policy_param(policy, snapshot, i);
    layout_init(&h.layout, snapshot, plan, rest);
    rest += layout_bytes(snapshot);
    sharing_init(&h.sharing, &h.layout, rest);
    h.sharing.unit_mcpu = h.param[HESRPT_UNIT];
    h.order = (uint32_t *)(rest + sharing_bytes(snapshot));
    weigh(&h);
    seat_present(&h);
    for (uint32_t i = 0; i < h.count; i++)
        seat(&h, h.order[i]);
    join(&h);
    sharing_fill(&h.sharing);
    sharing_lend(&h.sharing, h.order);
    for (uint32_t i = 0; i < snapshot->job_count; i++)
        conclude(&h, i);
    return 0;
}

static const struct policy_param hesrpt_params[] = {
    [HESRPT_P] = {.name = "p",
                  .min = 1,
                  .max = 950,
                  .def = 500,
                  .unit = "permille",
                  .text = "exponent of the speed-up assumed for all jobs"},
    [HESRPT_UNIT] = {.name = "unit",
                     .min = 1,
                     .max = POLICY_CORE_MCPU,
                     .def = POLICY_CORE_MCPU,
                     .unit = "mcpu",
                     .text = "shares are multiples of this; less than a core suits quotas"},
    SIZE_PARAM(HESRPT_UNKNOWN),
};

const struct policy policy_hesrpt = {
    .name = "hesrpt",
    .brief = "least mean turnaround for speed-ups k^p: smaller jobs get more cores",
    .params = hesrpt_params,
    .param_count = HESRPT_PARAM_MAX,
    .room = hesrpt_room,
    .decide = hesrpt_decide,
};
