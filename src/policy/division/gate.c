/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/division/gate.h"

#include "policy/division/order.h"
#include "policy/model/curve.h"

#include <stdint.h>

/* Bounds that keep the sums of products below within 128 bits, even with all jobs. */
#define HORIZON_MAX (UINT64_C(3600) * 1000000000)
#define COST_MAX    (UINT64_C(1) << 38)
#define WORTH_MAX   (UINT64_C(1) << 32)

#define SOONEST_NS   1000000 /* shortest time until the next look */
#define NOT_OPTIONAL (-1)

__extension__ typedef unsigned __int128 wide;

struct gate {
    const struct policy_snapshot *snapshot;
    struct policy_plan *plan;
    uint64_t factor;
    uint64_t dwell_ns;
    int64_t *mcpu; /* mcpu of each job with an optional resize: without it, then with free cores */
    uint32_t *by_id;
    uint32_t optional;
    enum policy_reason_code reason; /* why the gate changes the plan */
    uint64_t wait_ns;               /* the longest dwell left */
};

/* Index of the first parameter of the gate, or negative. */
static int first_param(const struct policy *policy)
{
    return policy_param_find(policy, "switch-factor");
}

void gate_room(const struct policy *policy, const struct policy_snapshot *snapshot,
               struct policy_room *room)
{
    size_t scratch = snapshot->job_count * (sizeof(int64_t) + sizeof(uint32_t));

    if (first_param(policy) < 0)
        return;
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        room->amounts += snapshot->jobs[j].current_count;
    if (room->scratch_bytes < scratch)
        room->scratch_bytes = scratch; /* the policy no longer needs it then */
}

/* ---- what is optional -------------------------------------------------------------------------
 */

static struct policy_amount *entries(const struct gate *g, uint32_t j)
{
    return g->plan->amounts + g->plan->decisions[j].amount_first;
}

static int64_t mcpu_now(const struct gate *g, uint32_t j)
{
    const struct policy_job *job = &g->snapshot->jobs[j];

    return policy_amount_total(job->current, job->current_count, POLICY_MCPU);
}

static int64_t mcpu_planned(const struct gate *g, uint32_t j)
{
    return policy_decision_total(g->plan, j, POLICY_MCPU);
}

static int64_t amount_in(const struct policy_amount *amounts, uint32_t count, uint32_t domain,
                         int resource)
{
    for (uint32_t i = 0; i < count; i++)
        if (amounts[i].domain == domain)
            return amounts[i].amount.of[resource];
    return 0;
}

/* True if each domain of @a and @b agrees on all resources except cores. */
static bool others_match(const struct policy_amount *a, uint32_t a_count,
                         const struct policy_amount *b, uint32_t b_count)
{
    for (uint32_t i = 0; i < a_count; i++)
        for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
            if (r != POLICY_MCPU && a[i].amount.of[r] != amount_in(b, b_count, a[i].domain, r))
                return false;
    return true;
}

static bool is_optional(const struct gate *g, uint32_t j)
{
    const struct policy_job *job = &g->snapshot->jobs[j];
    const struct policy_decision *decision = &g->plan->decisions[j];
    int64_t now = mcpu_now(g, j);

    return decision->verb == POLICY_VERB_RESIZE && policy_job_fixed(job, POLICY_MCPU) < 0 &&
           now >= policy_job_least(job, POLICY_MCPU) && now <= policy_job_most(job, POLICY_MCPU) &&
           job->lent == 0 && job->borrowed == 0 &&
           decision->reason.code != POLICY_REASON_DEADLINE &&
           others_match(entries(g, j), decision->amount_count, job->current, job->current_count) &&
           others_match(job->current, job->current_count, entries(g, j), decision->amount_count);
}

static void find_optional(struct gate *g)
{
    for (uint32_t j = 0; j < g->snapshot->job_count; j++) {
        bool optional = is_optional(g, j);

        g->mcpu[j] = optional ? mcpu_now(g, j) : NOT_OPTIONAL;
        g->optional += optional;
    }
}

/* Returns the only domain with cores among the amounts, or POLICY_NO_PARENT. */
static uint32_t domain_of_cores(const struct policy_amount *amounts, uint32_t count)
{
    uint32_t domain = POLICY_NO_PARENT;

    for (uint32_t i = 0; i < count; i++) {
        if (amounts[i].amount.of[POLICY_MCPU] == 0)
            continue;
        if (domain != POLICY_NO_PARENT)
            return POLICY_NO_PARENT;
        domain = amounts[i].domain;
    }
    return domain;
}

/* True if the plan gives the job more cores where it has some: harmless if they are free. */
static bool grows_in_place(const struct gate *g, uint32_t j)
{
    const struct policy_job *job = &g->snapshot->jobs[j];
    uint32_t place = domain_of_cores(entries(g, j), g->plan->decisions[j].amount_count);

    return place != POLICY_NO_PARENT && mcpu_planned(g, j) > mcpu_now(g, j) &&
           place == domain_of_cores(job->current, job->current_count);
}

/* ---- room ------------------------------------------------------------------------------------ */

static int64_t *used_in(const struct gate *g, uint32_t domain)
{
    return &g->plan->domains[domain].used.of[POLICY_MCPU];
}

static int64_t room_in(const struct gate *g, uint32_t domain)
{
    int64_t capacity = policy_domain_capacity(g->snapshot, domain, POLICY_MCPU);

    return capacity - *used_in(g, domain) - (domain == 0 ? g->plan->reserve_mcpu : 0);
}

/* Counts the plan's use without its optional resizes. */
static void count_used(struct gate *g)
{
    for (uint32_t d = 0; d < g->snapshot->domain_count; d++)
        *used_in(g, d) = 0;
    for (uint32_t j = 0; j < g->snapshot->job_count; j++) {
        const struct policy_job *job = &g->snapshot->jobs[j];
        bool stays = g->mcpu[j] != NOT_OPTIONAL;
        const struct policy_amount *entry = stays ? job->current : entries(g, j);
        uint32_t count = stays ? job->current_count : g->plan->decisions[j].amount_count;

        for (uint32_t i = 0; i < count; i++)
            *used_in(g, entry[i].domain) += entry[i].amount.of[POLICY_MCPU];
    }
    for (uint32_t d = g->snapshot->domain_count; d-- > 1;)
        *used_in(g, g->snapshot->domains[d].parent) += *used_in(g, d);
}

static bool fits(const struct gate *g)
{
    for (uint32_t d = 0; d < g->snapshot->domain_count; d++)
        if (room_in(g, d) < 0)
            return false;
    return true;
}

/* ---- what pays ------------------------------------------------------------------------------- */

static uint64_t speed_with(const struct gate *g, uint32_t j, int64_t mcpu)
{
    return curve_speed(&g->snapshot->jobs[j].curve[POLICY_MCPU], mcpu);
}

static uint64_t worth_of(const struct gate *g, uint32_t j)
{
    uint64_t worth = g->plan->decisions[j].worth;

    worth = worth ? worth : g->snapshot->jobs[j].weight;
    return worth < WORTH_MAX ? worth : WORTH_MAX;
}

static uint64_t cost_of(const struct gate *g, uint32_t j)
{
    uint64_t cost = g->snapshot->jobs[j].cost_ns[POLICY_ACTION_RESIZE];

    return cost < COST_MAX ? cost : COST_MAX;
}

/* Returns how long the job is expected to go on with @mcpu. */
static uint64_t horizon_of(const struct gate *g, uint32_t j, int64_t mcpu)
{
    const struct policy_job *job = &g->snapshot->jobs[j];
    uint64_t speed = speed_with(g, j, mcpu);
    uint64_t horizon = job->run_ns > g->dwell_ns ? job->run_ns : g->dwell_ns;

    if (job->remaining_ns != POLICY_UNKNOWN && speed) {
        uint64_t whole = job->remaining_ns / speed;

        horizon = whole < HORIZON_MAX / 1000
                      ? whole * 1000 + job->remaining_ns % speed * 1000 / speed
                      : HORIZON_MAX;
    }
    return horizon < HORIZON_MAX ? horizon : HORIZON_MAX;
}

static bool growth_pays(const struct gate *g, uint32_t j, int64_t mcpu)
{
    uint64_t before = speed_with(g, j, g->mcpu[j]), after = speed_with(g, j, mcpu);

    return after > before && (wide)(after - before) * horizon_of(g, j, mcpu) >
                                 (wide)before * cost_of(g, j) * g->factor;
}

/* Returns the part of the job's growth that is free without another job's shrink. */
static void grow(struct gate *g, uint32_t j)
{
    uint32_t place = domain_of_cores(entries(g, j), g->plan->decisions[j].amount_count);
    int64_t want = mcpu_planned(g, j) - g->mcpu[j];

    for (uint32_t d = place; d != POLICY_NO_PARENT; d = g->snapshot->domains[d].parent) {
        int64_t room = room_in(g, d);

        if (want > room)
            want = room / POLICY_CORE_MCPU * POLICY_CORE_MCPU;
    }
    if (want <= 0 || !growth_pays(g, j, g->mcpu[j] + want))
        return;
    g->mcpu[j] += want;
    for (uint32_t d = place; d != POLICY_NO_PARENT; d = g->snapshot->domains[d].parent)
        *used_in(g, d) += want;
}

static bool smaller_id(uint32_t a, uint32_t b, const void *arg)
{
    const struct policy_job *jobs = arg;

    return jobs[a].id < jobs[b].id;
}

static void grow_into_free_cores(struct gate *g)
{
    uint32_t count = 0;

    for (uint32_t j = 0; j < g->snapshot->job_count; j++)
        if (g->mcpu[j] != NOT_OPTIONAL && grows_in_place(g, j))
            g->by_id[count++] = j;
    order_sort(g->by_id, count, smaller_id, g->snapshot->jobs);
    for (uint32_t i = 0; i < count; i++)
        grow(g, g->by_id[i]);
}

/* Returns the longest dwell left of a job that the plan shrinks or moves. */
static uint64_t dwell_left(const struct gate *g)
{
    uint64_t longest = 0;

    for (uint32_t j = 0; j < g->snapshot->job_count; j++) {
        const struct policy_job *job = &g->snapshot->jobs[j];
        uint64_t since = g->snapshot->now_ns - job->change_ns;

        if (g->mcpu[j] != NOT_OPTIONAL && !grows_in_place(g, j) && job->change_ns &&
            job->change_ns <= g->snapshot->now_ns && since < g->dwell_ns &&
            g->dwell_ns - since > longest)
            longest = g->dwell_ns - since;
    }
    return longest;
}

/* Compares all optional resizes of the plan with those that need no shrink. */
static bool plan_pays(struct gate *g)
{
    uint64_t horizon = HORIZON_MAX;
    wide gain = 0, loss = 0, cost = 0;
    bool grows_with_age = false;

    for (uint32_t j = 0; j < g->snapshot->job_count; j++) {
        uint64_t before, after, own;

        if (g->mcpu[j] == NOT_OPTIONAL)
            continue;
        before = speed_with(g, j, g->mcpu[j]);
        after = speed_with(g, j, mcpu_planned(g, j));
        gain += (wide)worth_of(g, j) * (after > before ? after - before : 0);
        loss += (wide)worth_of(g, j) * (after < before ? before - after : 0);
        if (g->mcpu[j] == mcpu_now(g, j))
            cost += (wide)worth_of(g, j) * before * cost_of(g, j);
        own = horizon_of(g, j, mcpu_planned(g, j));
        horizon = own < horizon ? own : horizon;
        grows_with_age |= g->snapshot->jobs[j].remaining_ns == POLICY_UNKNOWN;
    }
    if (gain > loss && (gain - loss) * horizon > cost * g->factor)
        return true;
    if (gain > loss && grows_with_age) /* the change may pay when the jobs are twice as old */
        g->wait_ns = horizon > SOONEST_NS ? horizon : SOONEST_NS;
    return false;
}

/* ---- taking back ----------------------------------------------------------------------------- */

static void keep(struct gate *g, uint32_t j)
{
    const struct policy_job *job = &g->snapshot->jobs[j];
    struct policy_decision *decision = &g->plan->decisions[j];
    int64_t planned = mcpu_planned(g, j);

    decision->verb = POLICY_VERB_KEEP;
    decision->reason = (struct policy_reason){
        .code = g->reason,
        .arg = {planned, (int64_t)(g->reason == POLICY_REASON_DWELL ? g->wait_ns : cost_of(g, j))}};
    decision->amount_first = (uint32_t)g->plan->amount_count;
    decision->amount_count = job->current_count;
    for (uint32_t i = 0; i < job->current_count; i++)
        g->plan->amounts[g->plan->amount_count++] = job->current[i];
}

static void grow_in_part(struct gate *g, uint32_t j)
{
    struct policy_decision *decision = &g->plan->decisions[j];
    int64_t planned = mcpu_planned(g, j);

    for (uint32_t i = 0; i < decision->amount_count; i++) {
        int64_t *mcpu = &entries(g, j)[i].amount.of[POLICY_MCPU];

        *mcpu = *mcpu ? g->mcpu[j] : 0;
    }
    decision->reason =
        (struct policy_reason){.code = POLICY_REASON_FREE_CORES, .arg = {g->mcpu[j], planned}};
}

static void take_back(struct gate *g)
{
    uint64_t wakeup = g->snapshot->now_ns + g->wait_ns;

    for (uint32_t j = 0; j < g->snapshot->job_count; j++) {
        if (g->mcpu[j] == NOT_OPTIONAL)
            continue;
        if (g->mcpu[j] == mcpu_now(g, j))
            keep(g, j);
        else if (g->mcpu[j] != mcpu_planned(g, j))
            grow_in_part(g, j);
    }
    if (g->wait_ns && wakeup > g->snapshot->now_ns && wakeup < g->plan->next_wakeup_ns)
        g->plan->next_wakeup_ns = wakeup;
}

void gate_apply(const struct policy *policy, const struct policy_snapshot *snapshot,
                struct policy_plan *plan)
{
    int first = first_param(policy);
    struct gate g = {.snapshot = snapshot, .plan = plan, .mcpu = plan->scratch};
    bool shrinks = false;

    if (first < 0 || snapshot->at_once)
        return;
    g.by_id = (uint32_t *)(g.mcpu + snapshot->job_count);
    g.factor = (uint64_t)policy_param(policy, snapshot, (uint32_t)first);
    g.dwell_ns = (uint64_t)policy_param(policy, snapshot, (uint32_t)first + 1);
    find_optional(&g);
    if (g.optional == 0)
        return;
    count_used(&g);
    if (!fits(&g))
        return;
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        shrinks |= g.mcpu[j] != NOT_OPTIONAL && !grows_in_place(&g, j);
    grow_into_free_cores(&g);
    g.reason = POLICY_REASON_SWITCH_COST;
    g.wait_ns = shrinks ? dwell_left(&g) : 0;
    if (g.wait_ns)
        g.reason = POLICY_REASON_DWELL;
    else if (shrinks && plan_pays(&g))
        return;
    take_back(&g);
}
