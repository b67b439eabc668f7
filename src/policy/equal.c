/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `equal`: everyone gets the same number of cores, or one in proportion to its weight.
 *
 * In a domain of C cores, job j of weight w_j gets clamp(L * w_j, min_j, max_j) with the one level
 * L at which the domain is full: that is floor(C / n) clamped, its surplus redistributed. What
 * rounding leaves goes to the largest remainders, older jobs first. Exact, as L is kept as a
 * fraction. In a tree, domains are filled from the leaves to the root, each cutting what the
 * narrower ones had allowed: a full domain cuts at one level, so the result is max-min fair.
 *
 * Pinned, rigid and started moldable jobs are taken as given before the rest is shared. Cores lent
 * are taken off a share, not below the minimum; cores borrowed are added where lending has left
 * room. Everyone is started and resumed at once, unless memory, parameter servers or workers lack.
 */
#include "policy/order.h"
#include "policy/policies.h"

#include <string.h>

#define NOBODY UINT32_MAX

enum equal_param { EQUAL_RESERVE, EQUAL_PARAM_MAX };

enum role {
    ROLE_STOPPED, /* gets no cores */
    ROLE_FIXED,   /* its cores are given */
    ROLE_SHARING,
};

enum settled { SETTLED_NOT, SETTLED_LOW, SETTLED_HIGH };

/*
 * One job; cores are whole cores. Age and id are copied here, as the sort would else miss the cache
 * at each comparison.
 */
struct share {
    uint64_t arrival_ns;
    uint64_t id;
    int64_t min;
    int64_t max;
    int64_t cores;   /* allowed by the domains filled so far */
    int64_t over;    /* numerator of what rounding cut off */
    int64_t mcpu;    /* the result */
    uint32_t rank;   /* by age, 0 is the oldest */
    uint32_t next;   /* in the list of its domain */
    uint8_t role;    /* enum role */
    uint8_t settled; /* enum settled: held at a bound of its own while a domain is filled */
    bool cut;        /* a domain gave less than the maximum */
    bool squeezed;   /* in a domain whose minima are above its capacity */
};

/* All within the plan's scratch. The plan's domains hold what is used while deciding. */
struct equal {
    const struct policy_snapshot *snapshot;
    struct policy_plan *plan;
    struct share *share;
    uint32_t *by_age;
    uint32_t *member; /* of the domain that is being filled */
    uint32_t *head;   /* first job of each domain's list */
    int64_t reserve_mcpu;
};

static void set_reason(struct equal *e, uint32_t j, enum policy_reason_code code, int64_t arg0,
                       int64_t arg1, int64_t arg2, int64_t arg3)
{
    e->plan->decisions[j].reason =
        (struct policy_reason){.code = code, .arg = {arg0, arg1, arg2, arg3}};
}

static struct policy_amount *entries(struct equal *e, uint32_t j)
{
    return e->plan->amounts + e->plan->decisions[j].amount_first;
}

static void use(struct equal *e, uint32_t domain, int resource, int64_t amount)
{
    for (uint32_t d = domain; d != POLICY_NO_PARENT; d = e->snapshot->domains[d].parent) {
        int64_t *used = &e->plan->domains[d].used.of[resource];

        if (__builtin_add_overflow(*used, amount, used))
            *used = INT64_MAX;
    }
}

/* What is left of a resource in one domain; may be negative. */
static int64_t left_in(const struct equal *e, uint32_t domain, int resource)
{
    int64_t capacity = policy_domain_capacity(e->snapshot, domain, resource);

    if (capacity == POLICY_UNLIMITED)
        return capacity;
    if (domain == 0 && resource == POLICY_MCPU)
        capacity -= e->reserve_mcpu;
    return capacity - e->plan->domains[domain].used.of[resource];
}

/* ---- what a job has beside cores ------------------------------------------------------------- */

/* Lays out the job's entries: its place first, which will get the cores, then what stays put. */
static void lay_out(struct equal *e, uint32_t j)
{
    const struct policy_job *job = &e->snapshot->jobs[j];
    struct policy_decision *decision = &e->plan->decisions[j];
    uint32_t place = policy_job_place(e->snapshot, job);

    decision->amount_first = (uint32_t)e->plan->amount_count;
    decision->amount_count = 1;
    *entries(e, j) = (struct policy_amount){.domain = place};
    for (uint32_t i = 0; i < job->current_count; i++) {
        struct policy_amount *entry = entries(e, j);

        if (job->current[i].domain != place)
            entry += decision->amount_count++;
        *entry = job->current[i];
        entry->amount.of[POLICY_MCPU] = 0;
    }
    e->plan->amount_count += decision->amount_count;
}

/* Parameter servers and workers of a running job: what it has, unless a pin or bound differs. */
static void place_tasks(struct equal *e, uint32_t j, int r)
{
    const struct policy_job *job = &e->snapshot->jobs[j];
    int64_t has = policy_amount_total(job->current, job->current_count, r);
    int64_t want = policy_job_fixed(job, r);

    if (want < 0)
        want = has < job->min.of[r] ? job->min.of[r] : has;
    if (policy_job_fixed(job, r) < 0 && want > job->max.of[r])
        want = job->max.of[r];
    if (want == has)
        return;
    for (uint32_t i = 0; i < e->plan->decisions[j].amount_count; i++)
        entries(e, j)[i].amount.of[r] = 0;
    entries(e, j)->amount.of[r] = want;
}

static void place_running(struct equal *e, uint32_t j)
{
    const struct policy_job *job = &e->snapshot->jobs[j];

    lay_out(e, j);
    if (job->current_count == 0)
        entries(e, j)->amount.of[POLICY_MEMORY] = policy_job_least(job, POLICY_MEMORY);
    place_tasks(e, j, POLICY_PS);
    place_tasks(e, j, POLICY_WORKER);
    for (uint32_t i = 0; i < e->plan->decisions[j].amount_count; i++)
        for (int r = POLICY_MEMORY; r < POLICY_RESOURCE_MAX; r++)
            use(e, entries(e, j)[i].domain, r, entries(e, j)[i].amount.of[r]);
}

/* What a queued job starts with: its request where the machine could hold that, else its least. */
static int64_t starting_amount(const struct equal *e, const struct policy_job *job, int r)
{
    int64_t least = policy_job_least(job, r);
    int64_t want = job->request.of[r];

    if (policy_job_fixed(job, r) >= 0 || want <= least)
        return least;
    want = want > job->max.of[r] ? job->max.of[r] : want;
    for (uint32_t d = job->home; d != POLICY_NO_PARENT; d = e->snapshot->domains[d].parent)
        if (want > policy_domain_capacity(e->snapshot, d, r))
            return least;
    return want;
}

/* Starts a queued job if there is room for everything but cores, of which it always gets some. */
static bool admit(struct equal *e, uint32_t j)
{
    const struct policy_job *job = &e->snapshot->jobs[j];
    struct policy_decision *decision = &e->plan->decisions[j];

    for (int r = POLICY_MEMORY; r < POLICY_RESOURCE_MAX; r++) {
        int64_t need = starting_amount(e, job, r);

        for (uint32_t d = job->home; d != POLICY_NO_PARENT; d = e->snapshot->domains[d].parent) {
            int64_t capacity = policy_domain_capacity(e->snapshot, d, r);
            int64_t left = left_in(e, d, r);

            if (need <= left)
                continue;
            decision->verb = need > capacity ? POLICY_VERB_INFEASIBLE : POLICY_VERB_HOLD;
            if (need > capacity)
                set_reason(e, j, POLICY_REASON_TOO_LARGE, r, need, capacity, 0);
            else
                set_reason(e, j, POLICY_REASON_NO_ROOM, r, need, left > 0 ? left : 0, 0);
            return false;
        }
    }
    decision->verb = POLICY_VERB_START;
    lay_out(e, j);
    for (int r = POLICY_MEMORY; r < POLICY_RESOURCE_MAX; r++) {
        entries(e, j)->amount.of[r] = starting_amount(e, job, r);
        use(e, job->home, r, entries(e, j)->amount.of[r]);
    }
    return true;
}

/* ---- roles ----------------------------------------------------------------------------------- */

static int64_t whole_cores(int64_t mcpu)
{
    int64_t cores = mcpu / POLICY_CORE_MCPU + (mcpu % POLICY_CORE_MCPU != 0);

    return cores < POLICY_CORES_MAX ? cores : POLICY_CORES_MAX;
}

static void join(struct equal *e, uint32_t j)
{
    const struct policy_job *job = &e->snapshot->jobs[j];
    struct share *share = &e->share[j];
    uint32_t place = policy_job_place(e->snapshot, job);
    int64_t fixed = policy_job_fixed(job, POLICY_MCPU);

    if (fixed >= 0) {
        share->role = ROLE_FIXED;
        share->mcpu = fixed;
        use(e, place, POLICY_MCPU, fixed);
        if (job->pinned_by != POLICY_PIN_NONE && job->pinned.of[POLICY_MCPU])
            set_reason(e, j, POLICY_REASON_PINNED, fixed, job->pinned_by, 0, 0);
        else
            set_reason(e, j,
                       job->malleability == POLICY_RIGID ? POLICY_REASON_RIGID
                                                         : POLICY_REASON_MOLDABLE,
                       fixed, 0, 0, 0);
        return;
    }
    share->role = ROLE_SHARING;
    share->min = whole_cores(policy_job_least(job, POLICY_MCPU));
    share->max = whole_cores(policy_job_most(job, POLICY_MCPU));
    share->cores = share->max;
    share->next = e->head[place];
    e->head[place] = j;
    set_reason(e, j, POLICY_REASON_MAXIMUM, policy_job_most(job, POLICY_MCPU), 0, 0, 0);
}

static void assign_roles(struct equal *e)
{
    for (uint32_t i = 0; i < e->snapshot->job_count; i++) {
        uint32_t state = e->snapshot->jobs[i].state;

        if (state == POLICY_RUNNING || state == POLICY_PAUSED)
            place_running(e, i);
    }
    for (uint32_t i = 0; i < e->snapshot->job_count; i++) {
        uint32_t j = e->by_age[i];
        const struct policy_job *job = &e->snapshot->jobs[j];

        e->share[j].rank = i;
        if (job->state == POLICY_HELD) {
            e->plan->decisions[j].verb = POLICY_VERB_HOLD;
            set_reason(e, j, POLICY_REASON_HELD, 0, 0, 0, 0);
        } else if (job->state != POLICY_QUEUED || admit(e, j)) {
            join(e, j);
        }
    }
}

/* ---- filling a domain ------------------------------------------------------------------------ */

/* The level at which a domain is full: `cores` for jobs whose weights add up to `weight`. */
struct level {
    int64_t cores;
    int64_t weight;
    int64_t jobs;
};

static struct level level_of_unsettled(const struct equal *e, uint32_t count, int64_t cores)
{
    struct level level = {.cores = cores};

    for (uint32_t i = 0; i < count; i++) {
        const struct share *share = &e->share[e->member[i]];

        if (share->settled) {
            level.cores -= share->settled == SETTLED_LOW ? share->min : share->cores;
        } else {
            level.weight += e->snapshot->jobs[e->member[i]].weight;
            level.jobs++;
        }
    }
    return level;
}

/*
 * Settles the jobs whose bound holds them at this level and at the final one: if the minima add
 * more than the maxima take away, the level can only fall, and what lies below its minimum stays
 * there; otherwise it can only rise. Returns whether any was settled.
 */
static bool settle_round(struct equal *e, uint32_t count, const struct level *level)
{
    int64_t low = 0, high = 0;
    bool any = false;

    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < count; i++) {
            struct share *share = &e->share[e->member[i]];
            int64_t quota = level->cores * e->snapshot->jobs[e->member[i]].weight;
            int64_t under = share->min * level->weight - quota;
            int64_t above = quota - share->cores * level->weight;

            if (share->settled)
                continue;
            if (pass == 0) {
                low += under > 0 ? under : 0;
                high += above > 0 ? above : 0;
            } else if (under > 0 && low >= high) {
                share->settled = SETTLED_LOW;
                any = true;
            } else if (above > 0 && high >= low) {
                share->settled = SETTLED_HIGH;
                any = true;
            }
        }
    return any;
}

static bool larger_remainder(uint32_t a, uint32_t b, const void *arg)
{
    const struct share *share = arg;

    if (share[a].over != share[b].over)
        return share[a].over > share[b].over;
    return share[a].rank < share[b].rank;
}

/* Gives the unsettled jobs their quota of the level, rounded by largest remainder. */
static void round_shares(struct equal *e, uint32_t count, const struct level *level)
{
    int64_t rest = level->cores;
    uint32_t open = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = e->member[i];
        int64_t quota = level->cores * e->snapshot->jobs[j].weight;

        if (e->share[j].settled)
            continue;
        e->share[j].cores = quota / level->weight;
        e->share[j].over = quota % level->weight;
        rest -= e->share[j].cores;
        e->member[open++] = j; /* the settled ones are not needed any more */
    }
    if (rest == 0)
        return;
    order_sort(e->member, open, larger_remainder, e->share);
    for (int64_t i = 0; i < rest; i++)
        e->share[e->member[i]].cores++;
}

static void explain_level(struct equal *e, uint32_t count, const struct level *level)
{
    bool weighted = false;
    int64_t mcpu = level->cores * POLICY_CORE_MCPU;

    for (uint32_t i = 0; i < count; i++)
        weighted |= !e->share[e->member[i]].settled &&
                    e->snapshot->jobs[e->member[i]].weight * level->jobs != level->weight;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = e->member[i];
        const struct policy_job *job = &e->snapshot->jobs[j];
        struct share *share = &e->share[j];
        int64_t quota = mcpu * job->weight / level->weight;

        if (share->settled == SETTLED_LOW && (!share->cut || share->cores > share->min))
            set_reason(e, j, POLICY_REASON_MINIMUM, policy_job_least(job, POLICY_MCPU), quota, 0,
                       0);
        else if (share->settled == SETTLED_HIGH && !share->cut)
            set_reason(e, j, POLICY_REASON_MAXIMUM, policy_job_most(job, POLICY_MCPU), quota, 0, 0);
        else if (!share->settled && weighted)
            set_reason(e, j, POLICY_REASON_WEIGHTED_SHARE, job->weight, level->weight, mcpu,
                       level->jobs);
        else if (!share->settled)
            set_reason(e, j, POLICY_REASON_EQUAL_SHARE, mcpu, level->jobs, 0, 0);
    }
}

static void share_out(struct equal *e, uint32_t count, int64_t cores)
{
    struct level level, last;

    for (uint32_t i = 0; i < count; i++)
        e->share[e->member[i]].settled = SETTLED_NOT;
    level = last = level_of_unsettled(e, count, cores);
    while (level.jobs && settle_round(e, count, &level)) {
        last = level;
        level = level_of_unsettled(e, count, cores);
    }
    explain_level(e, count, level.jobs ? &level : &last);
    for (uint32_t i = 0; i < count; i++) {
        struct share *share = &e->share[e->member[i]];

        share->cut |= share->settled != SETTLED_HIGH;
        if (share->settled == SETTLED_LOW)
            share->cores = share->min;
    }
    if (level.jobs)
        round_shares(e, count, &level);
}

/*
 * Whole cores for all minima are more than there are: everyone gets its minimum to the thousandth,
 * and the plan says so if even that is above the capacity.
 */
static void squeeze(struct equal *e, uint32_t count, int64_t left_mcpu)
{
    int64_t minima = 0;

    for (uint32_t i = 0; i < count; i++)
        minima += policy_job_least(&e->snapshot->jobs[e->member[i]], POLICY_MCPU);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = e->member[i];
        struct share *share = &e->share[j];
        int64_t least = policy_job_least(&e->snapshot->jobs[j], POLICY_MCPU);

        share->cores = share->min;
        share->cut = share->squeezed = true;
        if (minima <= left_mcpu)
            set_reason(e, j, POLICY_REASON_MINIMUM, least, left_mcpu / count, 0, 0);
        else if (share->min > 1)
            set_reason(e, j, POLICY_REASON_MINIMA, least, minima, left_mcpu, 0);
        else
            set_reason(e, j, POLICY_REASON_ONE_THREAD, count, left_mcpu, 0, 0);
    }
}

static void fill_domain(struct equal *e, uint32_t domain)
{
    int64_t left = left_in(e, domain, POLICY_MCPU);
    int64_t left_mcpu = left > 0 ? left : 0;
    int64_t cores = left_mcpu / POLICY_CORE_MCPU;
    int64_t minima = 0, maxima = 0;
    uint32_t count = 0;

    for (uint32_t j = e->head[domain]; j != NOBODY; j = e->share[j].next) {
        e->member[count++] = j;
        minima += e->share[j].min;
        maxima += e->share[j].cores;
    }
    if (minima > cores)
        squeeze(e, count, left_mcpu);
    else if (maxima > cores)
        share_out(e, count, cores);
}

/* Leaves first: children stand behind their parents, and hand their jobs over to them. */
static void fill_tree(struct equal *e)
{
    for (uint32_t d = e->snapshot->domain_count; d-- > 0;) {
        uint32_t parent = e->snapshot->domains[d].parent;
        uint32_t j = e->head[d];

        if (j == NOBODY)
            continue;
        fill_domain(e, d);
        if (d == 0)
            break;
        while (e->share[j].next != NOBODY)
            j = e->share[j].next;
        e->share[j].next = e->head[parent];
        e->head[parent] = e->head[d];
    }
}

/* ---- lending --------------------------------------------------------------------------------- */

static int64_t free_cores(const struct equal *e, uint32_t domain)
{
    int64_t least = INT64_MAX;

    for (uint32_t d = domain; d != POLICY_NO_PARENT; d = e->snapshot->domains[d].parent) {
        int64_t left = left_in(e, d, POLICY_MCPU) / POLICY_CORE_MCPU;

        least = left < least ? left : least;
    }
    return least > 0 ? least : 0;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void lend(struct equal *e, uint32_t j)
{
    struct share *share = &e->share[j];
    int64_t lent = smaller(e->snapshot->jobs[j].lent, share->cores - share->min);

    if (lent > 0)
        set_reason(e, j, POLICY_REASON_LENT, share->cores * POLICY_CORE_MCPU,
                   lent * POLICY_CORE_MCPU, 0, 0);
    share->cores -= lent;
    use(e, policy_job_place(e->snapshot, &e->snapshot->jobs[j]), POLICY_MCPU,
        share->cores * POLICY_CORE_MCPU);
}

/* Room is what lenders left: before they did, no domain had any for a job below its maximum. */
static void borrow(struct equal *e, uint32_t j)
{
    struct share *share = &e->share[j];
    const struct policy_job *job = &e->snapshot->jobs[j];
    uint32_t place = policy_job_place(e->snapshot, job);
    int64_t granted = smaller(job->borrowed, share->max - share->cores);

    if (granted <= 0)
        return;
    granted = smaller(granted, free_cores(e, place));
    if (granted > 0)
        set_reason(e, j, POLICY_REASON_BORROWED, share->cores * POLICY_CORE_MCPU,
                   granted * POLICY_CORE_MCPU, 0, 0);
    share->cores += granted;
    use(e, place, POLICY_MCPU, granted * POLICY_CORE_MCPU);
}

static void move_lent_cores(struct equal *e)
{
    for (uint32_t i = 0; i < e->snapshot->job_count; i++)
        if (e->share[e->by_age[i]].role == ROLE_SHARING)
            lend(e, e->by_age[i]);
    for (uint32_t i = 0; i < e->snapshot->job_count; i++)
        if (e->share[e->by_age[i]].role == ROLE_SHARING)
            borrow(e, e->by_age[i]);
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Bounds may be fractions of a core: they cut the whole cores that were counted. */
static int64_t share_mcpu(const struct share *share, const struct policy_job *job)
{
    if (share->role == ROLE_FIXED)
        return share->mcpu;
    if (share->squeezed)
        return policy_job_least(job, POLICY_MCPU);
    return smaller(share->cores * POLICY_CORE_MCPU, policy_job_most(job, POLICY_MCPU));
}

static bool is_empty(const struct policy_vector *amount)
{
    return !(amount->of[POLICY_MCPU] | amount->of[POLICY_MEMORY] | amount->of[POLICY_PS] |
             amount->of[POLICY_WORKER]);
}

/* Whether the entries that hold something are the same as now. */
static bool is_unchanged(struct equal *e, uint32_t j)
{
    const struct policy_job *job = &e->snapshot->jobs[j];
    uint32_t held = 0;

    for (uint32_t i = 0; i < job->current_count; i++) {
        uint32_t k = 0;

        if (is_empty(&job->current[i].amount))
            continue;
        held++;
        while (k < e->plan->decisions[j].amount_count &&
               entries(e, j)[k].domain != job->current[i].domain)
            k++;
        if (k == e->plan->decisions[j].amount_count ||
            memcmp(&entries(e, j)[k].amount, &job->current[i].amount,
                   sizeof(struct policy_vector)) != 0)
            return false;
    }
    return held == e->plan->decisions[j].amount_count;
}

static void conclude(struct equal *e, uint32_t j)
{
    const struct policy_job *job = &e->snapshot->jobs[j];
    struct policy_decision *decision = &e->plan->decisions[j];
    uint32_t kept = 0;

    if (e->share[j].role == ROLE_STOPPED)
        return;
    entries(e, j)->amount.of[POLICY_MCPU] = share_mcpu(&e->share[j], job);
    for (uint32_t i = 0; i < decision->amount_count; i++)
        if (!is_empty(&entries(e, j)[i].amount))
            entries(e, j)[kept++] = entries(e, j)[i];
    decision->amount_count = kept;
    if (job->state == POLICY_PAUSED)
        decision->verb = POLICY_VERB_RESUME;
    else if (job->state == POLICY_RUNNING)
        decision->verb = is_unchanged(e, j) ? POLICY_VERB_KEEP : POLICY_VERB_RESIZE;
}

static bool older(uint32_t a, uint32_t b, const void *arg)
{
    const struct share *share = arg;

    if (share[a].arrival_ns != share[b].arrival_ns)
        return share[a].arrival_ns < share[b].arrival_ns;
    return share[a].id < share[b].id;
}

static void equal_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room)
{
    struct policy_room room = {0};

    for (uint32_t j = 0; j < snapshot->job_count; j++)
        room.amounts += 1 + snapshot->jobs[j].current_count;
    room.scratch_bytes = snapshot->job_count * (sizeof(struct share) + 2 * sizeof(uint32_t)) +
                         snapshot->domain_count * sizeof(uint32_t);
    *ret_room = room;
}

static void prepare(struct equal *e)
{
    uint32_t jobs = e->snapshot->job_count;

    e->share = e->plan->scratch;
    e->by_age = (uint32_t *)(e->share + jobs);
    e->member = e->by_age + jobs;
    e->head = e->member + jobs;
    for (uint32_t j = 0; j < jobs; j++) {
        e->share[j] = (struct share){
            .arrival_ns = e->snapshot->jobs[j].arrival_ns,
            .id = e->snapshot->jobs[j].id,
            .next = NOBODY,
        };
        e->by_age[j] = j;
    }
    for (uint32_t d = 0; d < e->snapshot->domain_count; d++) {
        e->head[d] = NOBODY;
        e->plan->domains[d] = (struct policy_domain_use){0};
    }
    order_sort(e->by_age, jobs, older, e->share);
}

static int equal_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                        struct policy_plan *plan)
{
    struct equal e = {
        .snapshot = snapshot,
        .plan = plan,
        .reserve_mcpu = policy_param(policy, snapshot, EQUAL_RESERVE),
    };

    prepare(&e);
    assign_roles(&e);
    fill_tree(&e);
    move_lent_cores(&e);
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        conclude(&e, j);
    return 0;
}

static const struct policy_param equal_params[EQUAL_PARAM_MAX] = {
    [EQUAL_RESERVE] = {.name = "reserve",
                       .min = 0,
                       .max = POLICY_CORES_MAX * POLICY_CORE_MCPU,
                       .def = 0,
                       .unit = "mcpu",
                       .text = "left to programs that are no jobs, off the machine's cores"},
};

const struct policy policy_equal = {
    .name = "equal",
    .brief = "the same number of cores for everyone, in proportion to weights",
    .params = equal_params,
    .param_count = EQUAL_PARAM_MAX,
    .room = equal_room,
    .decide = equal_decide,
};
