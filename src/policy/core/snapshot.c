/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/core/policy.h"

#include <errno.h>
#include <string.h>

void policy_job_init(struct policy_job *job, uint64_t id)
{
    memset(job, 0, sizeof(*job));
    job->id = id;
    job->state = POLICY_RUNNING;
    job->malleability = POLICY_MALLEABLE;
    job->weight = 1;
    job->min.of[POLICY_MCPU] = POLICY_CORE_MCPU;
    job->max.of[POLICY_MCPU] = POLICY_UNLIMITED;
    for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
        if (policy_stays(r))
            job->max.of[r] = POLICY_UNLIMITED;
    job->deadline_ns = POLICY_NEVER;
    job->remaining_ns = POLICY_UNKNOWN;
}

void policy_machine_init(struct policy_domain *root, int64_t mcpu, int64_t memory_bytes)
{
    memset(root, 0, sizeof(*root));
    root->parent = POLICY_NO_PARENT;
    root->level = POLICY_NODE;
    root->capacity.of[POLICY_MCPU] = mcpu;
    root->capacity.of[POLICY_MEMORY] = memory_bytes ? memory_bytes : POLICY_UNLIMITED;
    for (int r = POLICY_DEVICE; r < POLICY_RESOURCE_MAX; r++)
        root->capacity.of[r] = POLICY_UNLIMITED;
}

bool policy_domain_within(const struct policy_snapshot *snapshot, uint32_t domain,
                          uint32_t ancestor)
{
    /* A parent's index is smaller than its child's, so the walk up can stop at @ancestor's. */
    while (domain > ancestor)
        domain = snapshot->domains[domain].parent;
    return domain == ancestor;
}

uint32_t policy_span_domain(const struct policy_snapshot *snapshot, const struct policy_job *job,
                            uint32_t domain)
{
    while (domain != 0 && snapshot->domains[domain].level > job->span)
        domain = snapshot->domains[domain].parent;
    return domain;
}

uint32_t policy_job_place(const struct policy_snapshot *snapshot, const struct policy_job *job)
{
    uint32_t place;

    if (job->current_count == 0)
        return job->home;
    /* Both lie on the way from the amounts up to the root: the larger index is the narrower. */
    place = policy_span_domain(snapshot, job, job->current[0].domain);
    return place > job->home ? place : job->home;
}

int64_t policy_job_fixed(const struct policy_job *job, enum policy_resource resource)
{
    int64_t has = policy_amount_total(job->current, job->current_count, resource);

    if (job->pinned_by != POLICY_PIN_NONE && job->pinned.of[resource])
        return job->pinned.of[resource];
    if (job->malleability == POLICY_MALLEABLE)
        return -1;
    /* A program that began by itself has no allocation yet, so it has no size to stay at. */
    if (has || (job->current_count && resource != POLICY_MCPU))
        return has;
    return job->malleability == POLICY_RIGID && job->request.of[resource]
               ? job->request.of[resource]
               : -1;
}

int64_t policy_job_least(const struct policy_job *job, enum policy_resource resource)
{
    int64_t fixed = policy_job_fixed(job, resource);
    int64_t min = job->min.of[resource];

    if (fixed >= 0)
        return fixed;
    return resource == POLICY_MCPU && min < POLICY_CORE_MCPU ? POLICY_CORE_MCPU : min;
}

int64_t policy_job_most(const struct policy_job *job, enum policy_resource resource)
{
    int64_t max = job->max.of[resource];

    return resource == POLICY_MCPU && max < POLICY_CORE_MCPU ? POLICY_CORE_MCPU : max;
}

static uint64_t core_power_uw(const struct policy_snapshot *snapshot, uint32_t domain)
{
    while (snapshot->domains[domain].core_uw == 0 && domain != 0)
        domain = snapshot->domains[domain].parent;
    return snapshot->domains[domain].core_uw;
}

/* Most mcpu under the domain's power cap, at the power of the subtree's dearest core. */
static int64_t power_mcpu(const struct policy_snapshot *snapshot, uint32_t domain)
{
    uint64_t cap = snapshot->domains[domain].cap_uw;
    uint64_t core = 0, idle = 0;

    for (uint32_t i = domain; i < snapshot->domain_count; i++) {
        uint64_t own;

        if (!policy_domain_within(snapshot, i, domain))
            continue;
        own = core_power_uw(snapshot, i);
        core = own > core ? own : core;
        idle += snapshot->domains[i].idle_uw;
    }
    if (cap <= idle)
        return 0;
    if (core == 0)
        return POLICY_UNLIMITED;
    return (int64_t)((cap - idle) * POLICY_CORE_MCPU / core);
}

int64_t policy_domain_capacity(const struct policy_snapshot *snapshot, uint32_t domain,
                               enum policy_resource resource)
{
    int64_t capacity = snapshot->domains[domain].capacity.of[resource];

    if (resource == POLICY_MCPU && snapshot->domains[domain].cap_uw) {
        int64_t carried = power_mcpu(snapshot, domain);

        return carried < capacity ? carried : capacity;
    }
    return capacity;
}

int64_t policy_amount_total(const struct policy_amount *amounts, size_t count,
                            enum policy_resource resource)
{
    int64_t total = 0;

    for (size_t i = 0; i < count; i++)
        if (__builtin_add_overflow(total, amounts[i].amount.of[resource], &total))
            return INT64_MAX;
    return total;
}

int64_t policy_decision_total(const struct policy_plan *plan, uint32_t job,
                              enum policy_resource resource)
{
    const struct policy_decision *decision = &plan->decisions[job];

    return policy_amount_total(plan->amounts + decision->amount_first, decision->amount_count,
                               resource);
}

uint64_t policy_time_with(const struct policy_job *job, enum policy_resource resource,
                          uint32_t units)
{
    const struct policy_curve *curve = &job->curve[resource];
    uint64_t speedup, whole, time;

    if (job->remaining_ns == POLICY_UNKNOWN || curve->count == 0 || units == 0)
        return POLICY_UNKNOWN;
    speedup = curve->speedup_permille[(units < curve->count ? units : curve->count) - 1];
    /* remaining * 1000 / speedup, without overflow where the result fits */
    whole = job->remaining_ns / speedup;
    if (__builtin_mul_overflow(whole, 1000, &time) ||
        __builtin_add_overflow(time, job->remaining_ns % speedup * 1000 / speedup, &time))
        return POLICY_UNKNOWN;
    return time;
}

/* ---- check ----------------------------------------------------------------------------------- */

static int fault_set(struct policy_fault *fault, enum policy_fault_code code, uint32_t index)
{
    if (fault) {
        memset(fault, 0, sizeof(*fault));
        fault->code = code;
        fault->index = index;
        fault->in_domain = code == POLICY_FAULT_DOMAIN;
    }
    return -EINVAL;
}

static bool domain_is_well_formed(const struct policy_snapshot *snapshot, uint32_t index)
{
    const struct policy_domain *domain = &snapshot->domains[index];

    if (domain->level >= POLICY_LEVEL_MAX)
        return false;
    if (index == 0
            ? domain->parent != POLICY_NO_PARENT
            : domain->parent >= index || domain->level <= snapshot->domains[domain->parent].level)
        return false;
    for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
        if (domain->capacity.of[r] < 0)
            return false;
    return domain->capacity.of[POLICY_MCPU] <= POLICY_CORES_MAX * POLICY_CORE_MCPU &&
           domain->idle_uw <= POLICY_POWER_MAX && domain->core_uw <= POLICY_POWER_MAX &&
           domain->cap_uw <= POLICY_POWER_MAX;
}

static bool bounds_are_well_formed(const struct policy_job *job)
{
    for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
        if (job->min.of[r] < 0 || job->max.of[r] < job->min.of[r] || job->request.of[r] < 0 ||
            job->pinned.of[r] < 0 || (policy_stays(r) && job->pinned.of[r]))
            return false;
    return job->min.of[POLICY_MCPU] <= POLICY_CORES_MAX * POLICY_CORE_MCPU &&
           job->request.of[POLICY_MCPU] <= POLICY_CORES_MAX * POLICY_CORE_MCPU &&
           job->pinned.of[POLICY_MCPU] <= POLICY_CORES_MAX * POLICY_CORE_MCPU;
}

static bool current_is_well_formed(const struct policy_snapshot *snapshot,
                                   const struct policy_job *job)
{
    bool may_hold = job->state == POLICY_RUNNING || job->state == POLICY_PAUSED;

    if (job->current_count > (may_hold ? snapshot->domain_count : 0) ||
        (job->state == POLICY_PAUSED && job->current_count == 0))
        return false;
    for (uint32_t i = 0; i < job->current_count; i++) {
        const struct policy_amount *entry = &job->current[i];

        if (entry->domain >= snapshot->domain_count ||
            !policy_domain_within(snapshot, entry->domain, job->home) ||
            policy_span_domain(snapshot, job, entry->domain) !=
                policy_span_domain(snapshot, job, job->current[0].domain))
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (job->current[k].domain == entry->domain)
                return false;
        for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
            if (entry->amount.of[r] < 0)
                return false;
    }
    return policy_amount_total(job->current, job->current_count, POLICY_MCPU) <=
           POLICY_CORES_MAX * POLICY_CORE_MCPU;
}

#define TABLES_BITS 8

/*
 * Tables that this check found without a zero, by their address: walking tables costs more than all
 * other checks, and many jobs share a few.
 */
struct good_tables {
    const uint32_t *table[1 << TABLES_BITS];
    uint32_t count[1 << TABLES_BITS];
};

static bool has_zero(const uint32_t *table, uint32_t count, struct good_tables *good)
{
    size_t slot = (uint64_t)(uintptr_t)table * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TABLES_BITS);

    if (good->table[slot] == table && good->count[slot] == count)
        return false;
    for (uint32_t k = 0; k < count; k++)
        if (table[k] == 0)
            return true;
    good->table[slot] = table;
    good->count[slot] = count;
    return false;
}

static bool curves_are_well_formed(const struct policy_job *job, struct good_tables *good)
{
    for (int r = 0; r < POLICY_CURVE_MAX; r++) {
        const struct policy_curve *curve = &job->curve[r];

        if ((curve->count == 0) != (curve->speedup_permille == NULL) ||
            has_zero(curve->speedup_permille, curve->count, good))
            return false;
    }
    return true;
}

static enum policy_fault_code job_fault(const struct policy_snapshot *snapshot,
                                        const struct policy_job *job, struct good_tables *good)
{
    if (job->state >= POLICY_STATE_MAX || job->malleability >= POLICY_MALLEABILITY_MAX ||
        job->pinned_by >= POLICY_PIN_MAX || job->span >= POLICY_LEVEL_MAX)
        return POLICY_FAULT_ENUM;
    if (job->weight == 0 || job->weight > POLICY_WEIGHT_MAX)
        return POLICY_FAULT_WEIGHT;
    if (!bounds_are_well_formed(job))
        return POLICY_FAULT_BOUNDS;
    if (snapshot->user_count && job->user >= snapshot->user_count)
        return POLICY_FAULT_USER;
    if (job->home >= snapshot->domain_count || !current_is_well_formed(snapshot, job))
        return POLICY_FAULT_CURRENT;
    return curves_are_well_formed(job, good) ? POLICY_FAULT_NONE : POLICY_FAULT_CURVE;
}

/* Returns the index of a job with the id of an earlier one, or job_count. */
static uint32_t same_id(const struct policy_snapshot *snapshot)
{
    const struct policy_job *jobs = snapshot->jobs;
    uint32_t sorted = 1;

    while (sorted < snapshot->job_count && jobs[sorted - 1].id < jobs[sorted].id)
        sorted++;
    for (uint32_t i = sorted; i < snapshot->job_count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (jobs[k].id == jobs[i].id)
                return i;
    return snapshot->job_count;
}

static bool speeds_are_well_formed(const struct policy_snapshot *snapshot)
{
    if (snapshot->speed_count > POLICY_SPEEDS_MAX)
        return false;
    for (uint32_t i = 0; i < snapshot->speed_count; i++) {
        const struct policy_speed *speed = &snapshot->speeds[i];

        if (speed->cores == 0 || speed->cores > POLICY_CORES_MAX || speed->permille == 0 ||
            speed->permille > (i ? speed[-1].permille - 1 : POLICY_FASTEST))
            return false;
    }
    return true;
}

int policy_snapshot_check(const struct policy_snapshot *snapshot, struct policy_fault *fault)
{
    struct good_tables good = {0};
    uint32_t twin;

    if (snapshot->domain_count == 0 || snapshot->domain_count > POLICY_DOMAINS_MAX ||
        snapshot->job_count > POLICY_JOBS_MAX)
        return fault_set(fault, POLICY_FAULT_COUNT, 0);
    if (!speeds_are_well_formed(snapshot))
        return fault_set(fault, POLICY_FAULT_SPEED, 0);
    for (uint32_t i = 0; i < snapshot->domain_count; i++)
        if (!domain_is_well_formed(snapshot, i))
            return fault_set(fault, POLICY_FAULT_DOMAIN, i);
    for (uint32_t i = 0; i < snapshot->user_count; i++)
        if (snapshot->users[i].weight == 0 || snapshot->users[i].weight > POLICY_WEIGHT_MAX ||
            snapshot->users[i].most_mcpu <= 0)
            return fault_set(fault, POLICY_FAULT_USER, i);
    for (uint32_t i = 0; i < snapshot->job_count; i++) {
        enum policy_fault_code code = job_fault(snapshot, &snapshot->jobs[i], &good);

        if (code != POLICY_FAULT_NONE)
            return fault_set(fault, code, i);
    }
    twin = same_id(snapshot);
    if (twin < snapshot->job_count)
        return fault_set(fault, POLICY_FAULT_SAME_ID, twin);
    return 0;
}
