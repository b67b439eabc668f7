/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/core/policy.h"

#include <errno.h>
#include <string.h>

static const struct policy_vector zero;

static int64_t add(int64_t a, int64_t b)
{
    int64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static const struct policy_amount *amounts_of(const struct policy_plan *plan, uint32_t job)
{
    return plan->amounts + plan->decisions[job].amount_first;
}

/* ---- account --------------------------------------------------------------------------------- */

/* Records the domain with the largest excess of cores among those where the job's cores lie. */
static void note_oversubscription(const struct policy_snapshot *snapshot, struct policy_plan *plan,
                                  uint32_t job)
{
    struct policy_reason *reason = &plan->decisions[job].reason;

    reason->used_mcpu = reason->capacity_mcpu = 0;
    for (uint32_t i = 0; i < plan->decisions[job].amount_count; i++) {
        const struct policy_amount *entry = &amounts_of(plan, job)[i];

        if (entry->amount.of[POLICY_MCPU] == 0)
            continue;
        for (uint32_t d = entry->domain; d != POLICY_NO_PARENT; d = snapshot->domains[d].parent) {
            int64_t used = plan->domains[d].used.of[POLICY_MCPU];
            int64_t capacity;

            if (!plan->domains[d].oversubscribed[POLICY_MCPU])
                continue;
            capacity = policy_domain_capacity(snapshot, d, POLICY_MCPU);
            if (used - capacity > reason->used_mcpu - reason->capacity_mcpu) {
                reason->used_mcpu = used;
                reason->capacity_mcpu = capacity;
            }
        }
    }
}

/* Adds the use of each domain's children to it; children stand behind their parents. */
static void add_up_the_tree(const struct policy_snapshot *snapshot, struct policy_domain_use *use)
{
    for (uint32_t d = snapshot->domain_count; d-- > 1;) {
        struct policy_vector *parent = &use[snapshot->domains[d].parent].used;

        for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
            parent->of[r] = add(parent->of[r], use[d].used.of[r]);
    }
}

void policy_plan_account(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    memset(plan->domains, 0, snapshot->domain_count * sizeof(plan->domains[0]));
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        for (uint32_t i = 0; i < plan->decisions[j].amount_count; i++) {
            const struct policy_amount *entry = &amounts_of(plan, j)[i];
            struct policy_vector *used = &plan->domains[entry->domain].used;

            for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
                used->of[r] = add(used->of[r], entry->amount.of[r]);
        }
    add_up_the_tree(snapshot, plan->domains);
    for (uint32_t d = 0; d < snapshot->domain_count; d++)
        for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
            plan->domains[d].oversubscribed[r] =
                plan->domains[d].used.of[r] > policy_domain_capacity(snapshot, d, r);
    for (uint32_t j = 0; j < snapshot->job_count; j++)
        note_oversubscription(snapshot, plan, j);
}

/* ---- check ----------------------------------------------------------------------------------- */

/* The common state of the checks of one plan; the first fault ends them. */
#define EVERYBODY UINT32_MAX

struct check {
    const struct policy_snapshot *snapshot;
    const struct policy_plan *plan;
    struct policy_fault fault;
};

static int fail(struct check *c, enum policy_fault_code code, uint32_t index)
{
    c->fault.code = code;
    c->fault.index = index;
    return -EINVAL;
}

static int fail_amount(struct check *c, enum policy_fault_code code, uint32_t index,
                       uint32_t resource, int64_t value, int64_t bound)
{
    c->fault.resource = resource;
    c->fault.value = value;
    c->fault.bound = bound;
    return fail(c, code, index);
}

static bool verb_runs(uint32_t verb)
{
    return verb == POLICY_VERB_START || verb == POLICY_VERB_KEEP || verb == POLICY_VERB_RESIZE ||
           verb == POLICY_VERB_RESUME;
}

static bool verb_fits_state(uint32_t verb, uint32_t state)
{
    static const bool fits[POLICY_STATE_MAX][POLICY_VERB_MAX] = {
        [POLICY_QUEUED] = {[POLICY_VERB_START] = true,
                           [POLICY_VERB_HOLD] = true,
                           [POLICY_VERB_INFEASIBLE] = true},
        [POLICY_HELD] = {[POLICY_VERB_HOLD] = true, [POLICY_VERB_INFEASIBLE] = true},
        [POLICY_RUNNING] =
            {[POLICY_VERB_KEEP] = true, [POLICY_VERB_RESIZE] = true, [POLICY_VERB_PAUSE] = true},
        [POLICY_PAUSED] = {[POLICY_VERB_RESUME] = true,
                           [POLICY_VERB_HOLD] = true,
                           [POLICY_VERB_INFEASIBLE] = true},
    };

    return verb < POLICY_VERB_MAX && fits[state][verb];
}

static const struct policy_vector *amount_in(const struct policy_amount *amounts, uint32_t count,
                                             uint32_t domain)
{
    for (uint32_t i = 0; i < count; i++)
        if (amounts[i].domain == domain)
            return &amounts[i].amount;
    return &zero;
}

static bool covers(const struct policy_amount *a, uint32_t a_count, const struct policy_amount *b,
                   uint32_t b_count, int first, int last)
{
    for (uint32_t i = 0; i < a_count; i++)
        for (int r = first; r <= last; r++)
            if (a[i].amount.of[r] != amount_in(b, b_count, a[i].domain)->of[r])
                return false;
    return true;
}

/* True if plan and present agree in every domain on the resources @first … @last. */
static bool same_places(const struct check *c, uint32_t j, int first, int last)
{
    const struct policy_job *job = &c->snapshot->jobs[j];
    const struct policy_amount *planned = amounts_of(c->plan, j);
    uint32_t count = c->plan->decisions[j].amount_count;

    return covers(planned, count, job->current, job->current_count, first, last) &&
           covers(job->current, job->current_count, planned, count, first, last);
}

/* The same for what a program keeps while it stands still. */
static bool same_stays(const struct check *c, uint32_t j)
{
    return same_places(c, j, POLICY_MEMORY, POLICY_MEMORY) &&
           same_places(c, j, POLICY_DEVICE, POLICY_RESOURCE_MAX - 1);
}

static int check_places(struct check *c, uint32_t j)
{
    const struct policy_job *job = &c->snapshot->jobs[j];
    const struct policy_decision *decision = &c->plan->decisions[j];
    const struct policy_amount *entry = c->plan->amounts + decision->amount_first;

    if (decision->amount_count > c->plan->amount_count ||
        decision->amount_first > c->plan->amount_count - decision->amount_count)
        return fail(c, POLICY_FAULT_PLACE, j);
    for (uint32_t i = 0; i < decision->amount_count; i++) {
        if (entry[i].domain >= c->snapshot->domain_count ||
            !policy_domain_within(c->snapshot, entry[i].domain, job->home) ||
            policy_span_domain(c->snapshot, job, entry[i].domain) !=
                policy_span_domain(c->snapshot, job, entry[0].domain))
            return fail(c, POLICY_FAULT_PLACE, j);
        for (uint32_t k = 0; k < i; k++)
            if (entry[k].domain == entry[i].domain)
                return fail(c, POLICY_FAULT_PLACE, j);
        for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
            if (entry[i].amount.of[r] < 0)
                return fail_amount(c, POLICY_FAULT_PLACE, j, r, entry[i].amount.of[r], 0);
    }
    return 0;
}

/* A job that will not run holds nothing; a paused job holds memory and devices where they are. */
static int check_stopped(struct check *c, uint32_t j)
{
    bool in_memory =
        c->snapshot->jobs[j].state == POLICY_RUNNING || c->snapshot->jobs[j].state == POLICY_PAUSED;

    for (int r = 0; r < POLICY_RESOURCE_MAX; r++) {
        int64_t total = policy_decision_total(c->plan, j, r);

        if (total != 0 && !(in_memory && policy_stays(r)))
            return fail_amount(c, POLICY_FAULT_HOLDS, j, r, total, 0);
    }
    if (in_memory && !same_stays(c, j))
        return fail(c, POLICY_FAULT_MEMORY, j);
    return 0;
}

/* A program's memory stays allocated, and its devices open, whatever the bounds say by now. */
static bool stays_in_use(const struct check *c, uint32_t j, int r, int64_t total)
{
    const struct policy_job *job = &c->snapshot->jobs[j];

    return policy_stays(r) && job->current_count &&
           total == policy_amount_total(job->current, job->current_count, r);
}

static int check_sizes(struct check *c, uint32_t j)
{
    const struct policy_job *job = &c->snapshot->jobs[j];

    for (int r = 0; r < POLICY_RESOURCE_MAX; r++) {
        int64_t total = policy_decision_total(c->plan, j, r);
        int64_t fixed = policy_job_fixed(job, r);
        bool beyond = r == POLICY_MCPU && c->plan->decisions[j].reason.user_mcpu && total > 0;

        /* Beyond its user's share, a pin is a maximum, and one core is the minimum. */
        if (beyond && (total < (fixed >= 0 ? fixed : job->min.of[r]) || total == POLICY_CORE_MCPU))
            continue;
        if (fixed >= 0 && total != fixed)
            return fail_amount(c,
                               job->pinned_by != POLICY_PIN_NONE && job->pinned.of[r]
                                   ? POLICY_FAULT_PINNED
                                   : POLICY_FAULT_RIGID,
                               j, r, total, fixed);
        if (fixed >= 0 || stays_in_use(c, j, r, total))
            continue;
        if (total < job->min.of[r] || (r == POLICY_MCPU && total == 0))
            return fail_amount(c, POLICY_FAULT_MINIMUM, j, r, total, job->min.of[r]);
        if (total > policy_job_most(job, r))
            return fail_amount(c, POLICY_FAULT_MAXIMUM, j, r, total, policy_job_most(job, r));
    }
    return 0;
}

/* True if the job's minimum fits an empty machine when all of it is placed in @domain. */
static bool fits_in(const struct check *c, const struct policy_job *job, uint32_t domain)
{
    for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
        for (uint32_t d = domain; d != POLICY_NO_PARENT; d = c->snapshot->domains[d].parent)
            if (policy_job_least(job, r) > policy_domain_capacity(c->snapshot, d, r))
                return false;
    return true;
}

/* True if the job would be late even with all cores that it can use on an empty machine. */
static bool deadline_is_lost(const struct check *c, const struct policy_job *job)
{
    const struct policy_curve *curve = &job->curve[POLICY_MCPU];
    int64_t mcpu = policy_job_most(job, POLICY_MCPU);
    uint64_t best = POLICY_UNKNOWN;

    if (job->deadline_ns == POLICY_NEVER || curve->count == 0 ||
        job->remaining_ns == POLICY_UNKNOWN)
        return false;
    for (uint32_t d = job->home; d != POLICY_NO_PARENT; d = c->snapshot->domains[d].parent) {
        int64_t capacity = policy_domain_capacity(c->snapshot, d, POLICY_MCPU);

        mcpu = capacity < mcpu ? capacity : mcpu;
    }
    for (uint32_t k = 1; k <= curve->count && k <= mcpu / POLICY_CORE_MCPU; k++) {
        uint64_t time = policy_time_with(job, POLICY_MCPU, k);

        best = time < best ? time : best;
    }
    return job->deadline_ns <= c->snapshot->now_ns || best > job->deadline_ns - c->snapshot->now_ns;
}

/* True if the job's span lets it lie all over @domain, but in no wider one. */
static bool is_largest_place(const struct check *c, const struct policy_job *job, uint32_t domain)
{
    if (domain != job->home && c->snapshot->domains[domain].level > job->span)
        return false;
    for (uint32_t d = domain + 1; d < c->snapshot->domain_count; d++)
        if (c->snapshot->domains[d].parent == domain && c->snapshot->domains[d].level <= job->span)
            return false;
    return true;
}

static int check_infeasible(struct check *c, uint32_t j)
{
    const struct policy_job *job = &c->snapshot->jobs[j];

    if (deadline_is_lost(c, job))
        return 0;
    for (uint32_t d = job->home; d < c->snapshot->domain_count; d++)
        if (policy_domain_within(c->snapshot, d, job->home) && is_largest_place(c, job, d) &&
            fits_in(c, job, d))
            return fail(c, POLICY_FAULT_FEASIBLE, j);
    return 0;
}

static int check_decision(struct check *c, uint32_t j)
{
    const struct policy_job *job = &c->snapshot->jobs[j];
    const struct policy_decision *decision = &c->plan->decisions[j];
    int r;

    if (decision->id != job->id)
        return fail(c, POLICY_FAULT_ID, j);
    if (!verb_fits_state(decision->verb, job->state))
        return fail(c, POLICY_FAULT_VERB, j);
    if (decision->verb == POLICY_VERB_PAUSE && !job->preemptible)
        return fail(c, POLICY_FAULT_PREEMPT, j);
    if (decision->reason.code == POLICY_REASON_NONE || decision->reason.code >= POLICY_REASON_MAX)
        return fail(c, POLICY_FAULT_REASON, j);
    r = check_places(c, j);
    if (r < 0)
        return r;
    if (decision->verb == POLICY_VERB_INFEASIBLE && check_infeasible(c, j) < 0)
        return -EINVAL;
    if (!verb_runs(decision->verb))
        return check_stopped(c, j);
    r = check_sizes(c, j);
    if (r < 0)
        return r;
    if (decision->verb == POLICY_VERB_RESUME && !same_stays(c, j))
        return fail(c, POLICY_FAULT_MEMORY, j);
    if (decision->verb == POLICY_VERB_KEEP && !same_places(c, j, 0, POLICY_RESOURCE_MAX - 1))
        return fail(c, POLICY_FAULT_NOT_KEPT, j);
    if (decision->verb == POLICY_VERB_RESIZE && same_places(c, j, 0, POLICY_RESOURCE_MAX - 1))
        return fail(c, POLICY_FAULT_NO_CHANGE, j);
    return 0;
}

static int64_t sum_in(const struct check *c, const struct policy_amount *amounts, uint32_t count,
                      uint32_t domain, int r)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < count; i++)
        if (policy_domain_within(c->snapshot, amounts[i].domain, domain))
            sum = add(sum, amounts[i].amount.of[r]);
    return sum;
}

/*
 * The amount that no plan can take out of the domain: minima of running jobs that cannot go
 * elsewhere, and what jobs hold there apart from cores. Counts jobs of @user, or EVERYBODY.
 */
static int64_t forced_in(const struct check *c, uint32_t domain, int r, uint32_t user)
{
    int64_t least = 0;

    for (uint32_t j = 0; j < c->snapshot->job_count; j++) {
        const struct policy_job *job = &c->snapshot->jobs[j];
        bool admitted, bound;
        int64_t need, held;

        if (user != EVERYBODY && job->user != user)
            continue;
        admitted = job->state == POLICY_RUNNING || job->state == POLICY_PAUSED;
        bound = policy_domain_within(c->snapshot, policy_job_place(c->snapshot, job), domain) &&
                verb_runs(c->plan->decisions[j].verb) && (admitted || r == POLICY_MCPU);
        need = bound ? policy_job_least(job, r) : 0;
        held = admitted && r != POLICY_MCPU ? sum_in(c, job->current, job->current_count, domain, r)
                                            : 0;

        least = add(least, need > held ? need : held);
    }
    return least;
}

/* A user whose jobs insist on more than their share takes nothing off the others' shares. */
static int64_t forced_by_users(const struct check *c, uint32_t domain, int r)
{
    int64_t sum = 0;

    for (uint32_t user = 0; user < c->snapshot->user_count; user++) {
        int64_t least = forced_in(c, domain, r, user), share = 0;

        for (uint32_t j = 0; j < c->snapshot->job_count && r == POLICY_MCPU; j++)
            if (c->snapshot->jobs[j].user == user && c->plan->decisions[j].user_mcpu > share)
                share = c->plan->decisions[j].user_mcpu;
        sum = add(sum, least > share ? least : share);
    }
    return sum;
}

static int64_t forced(const struct check *c, uint32_t domain, int r)
{
    int64_t all = forced_in(c, domain, r, EVERYBODY), users = forced_by_users(c, domain, r);

    return users > all ? users : all;
}

static int check_domain(struct check *c, uint32_t d)
{
    const struct policy_domain_use *use = &c->plan->domains[d];

    c->fault.in_domain = true;
    for (int r = 0; r < POLICY_RESOURCE_MAX; r++) {
        int64_t capacity = policy_domain_capacity(c->snapshot, d, r);
        int64_t used = 0;

        for (uint32_t j = 0; j < c->snapshot->job_count; j++)
            used = add(used,
                       sum_in(c, amounts_of(c->plan, j), c->plan->decisions[j].amount_count, d, r));
        if (used != use->used.of[r])
            return fail_amount(c, POLICY_FAULT_USE, d, r, use->used.of[r], used);
        if (used > capacity && used > forced(c, d, r))
            return fail_amount(c, POLICY_FAULT_CAPACITY, d, r, used, capacity);
        if (use->oversubscribed[r] != (used > capacity))
            return fail_amount(c, POLICY_FAULT_MARK, d, r, used, capacity);
    }
    return 0;
}

static int check_plan(struct check *c)
{
    if (c->plan->epoch != c->snapshot->epoch || c->plan->generation != c->snapshot->generation)
        return fail(c, POLICY_FAULT_STALE, 0);
    if (c->plan->next_wakeup_ns <= c->snapshot->now_ns)
        return fail(c, POLICY_FAULT_WAKEUP, 0);
    for (uint32_t j = 0; j < c->snapshot->job_count; j++)
        if (check_decision(c, j) < 0)
            return -EINVAL;
    for (uint32_t d = 0; d < c->snapshot->domain_count; d++)
        if (check_domain(c, d) < 0)
            return -EINVAL;
    return 0;
}

int policy_plan_check(const struct policy_snapshot *snapshot, const struct policy_plan *plan,
                      struct policy_fault *fault)
{
    struct check c = {.snapshot = snapshot, .plan = plan};
    int r = policy_snapshot_check(snapshot, &c.fault);

    if (r == 0)
        r = check_plan(&c);
    if (r < 0 && fault)
        *fault = c.fault;
    return r;
}
