/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/division/share.h"

#include "base/minmax.h"

#include "policy/division/order.h"

#define NOBODY UINT32_MAX

enum settled { SETTLED_NOT, SETTLED_LOW, SETTLED_HIGH };

/* Returns @mcpu in units, rounded up, at most those of the largest machine. */
static int64_t units_up(const struct sharing *s, int64_t mcpu)
{
    return smaller(mcpu / s->unit_mcpu + (mcpu % s->unit_mcpu != 0),
                   POLICY_CORES_MAX * POLICY_CORE_MCPU / s->unit_mcpu);
}

size_t sharing_bytes(const struct policy_snapshot *snapshot)
{
    return snapshot->job_count * (sizeof(struct share) + sizeof(uint32_t)) +
           snapshot->domain_count * sizeof(uint32_t);
}

void sharing_init(struct sharing *s, struct layout *layout, void *scratch)
{
    uint32_t jobs = layout->snapshot->job_count;

    *s = (struct sharing){.layout = layout, .unit_mcpu = POLICY_CORE_MCPU, .share = scratch};
    s->member = (uint32_t *)(s->share + jobs);
    s->head = s->member + jobs;
    for (uint32_t j = 0; j < jobs; j++)
        s->share[j] = (struct share){.next = NOBODY};
    for (uint32_t d = 0; d < layout->snapshot->domain_count; d++)
        s->head[d] = NOBODY;
}

void sharing_join(struct sharing *s, uint32_t j, int64_t weight, int64_t least_mcpu,
                  int64_t most_mcpu)
{
    struct share *share = &s->share[j];
    uint32_t place = layout_place(s->layout, j);

    share->joined = true;
    share->weight = weight;
    share->least_mcpu = least_mcpu;
    share->most_mcpu = most_mcpu;
    share->min = units_up(s, least_mcpu);
    share->max = share->cores = units_up(s, most_mcpu);
    share->base = s->minima_first ? share->min : 0;
    share->next = s->head[place];
    s->head[place] = j;
    layout_reason(s->layout, j, POLICY_REASON_MAXIMUM, most_mcpu, 0, 0, 0);
}

/* ---- filling a domain ------------------------------------------------------------------------ */

/* Returns the level at which a domain is full: `cores`, above their bases, shared by `weight`. */
struct level {
    int64_t cores;
    int64_t weight;
    int64_t jobs;
};

static struct level level_of_unsettled(const struct sharing *s, uint32_t count, int64_t cores)
{
    struct level level = {.cores = cores};

    for (uint32_t i = 0; i < count; i++) {
        const struct share *share = &s->share[s->member[i]];

        if (share->settled) {
            level.cores -= share->settled == SETTLED_LOW ? share->min : share->cores;
        } else {
            level.cores -= share->base;
            level.weight += share->weight;
            level.jobs++;
        }
    }
    return level;
}

/*
 * Settles the jobs whose bound holds them at this level and at the final one. If the minima add
 * more than the maxima take away, the level can only fall, and jobs below their minimum stay there.
 * Otherwise it can only rise. Returns whether any was settled.
 */
static bool settle_round(struct sharing *s, uint32_t count, const struct level *level)
{
    int64_t low = 0, high = 0;
    bool any = false;

    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < count; i++) {
            struct share *share = &s->share[s->member[i]];
            int64_t quota = level->cores * share->weight + share->base * level->weight;
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
static void round_shares(struct sharing *s, uint32_t count, const struct level *level)
{
    int64_t rest = level->cores;
    uint32_t open = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = s->member[i];
        int64_t quota = level->cores * s->share[j].weight;

        if (s->share[j].settled)
            continue;
        s->share[j].cores = s->share[j].base + quota / level->weight;
        s->share[j].over = quota % level->weight;
        rest -= quota / level->weight;
        s->member[open++] = j; /* the settled ones are no longer needed */
    }
    if (rest == 0)
        return;
    order_sort(s->member, open, larger_remainder, s->share);
    for (int64_t i = 0; i < rest; i++)
        s->share[s->member[i]].cores++;
}

static void explain_level(struct sharing *s, uint32_t count, const struct level *level)
{
    bool weighted = false;
    int64_t mcpu = level->cores * s->unit_mcpu;
    int64_t whole_mcpu = s->capacity_mcpu - s->capacity_mcpu % s->unit_mcpu;

    for (uint32_t i = 0; i < count; i++)
        weighted |= !s->share[s->member[i]].settled &&
                    s->share[s->member[i]].weight * level->jobs != level->weight;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = s->member[i];
        struct share *share = &s->share[j];
        int64_t quota = share->base * s->unit_mcpu + mcpu * share->weight / level->weight;

        if (share->settled == SETTLED_LOW && (!share->cut || share->cores > share->min))
            layout_reason(s->layout, j, POLICY_REASON_MINIMUM, share->least_mcpu, quota, 0, 0);
        else if (share->settled == SETTLED_HIGH && !share->cut)
            layout_reason(s->layout, j, POLICY_REASON_MAXIMUM, share->most_mcpu, quota, 0, 0);
        else if (!share->settled && s->minima_first)
            layout_reason(s->layout, j, POLICY_REASON_ABOVE_MINIMUM, share->least_mcpu,
                          share->weight, level->weight, mcpu);
        else if (!share->settled && weighted)
            layout_reason(s->layout, j, POLICY_REASON_WEIGHTED_SHARE, share->weight, level->weight,
                          mcpu, level->jobs);
        else if (!share->settled)
            layout_reason(s->layout, j, POLICY_REASON_EQUAL_SHARE, mcpu, level->jobs, whole_mcpu,
                          0);
    }
}

static void share_out(struct sharing *s, uint32_t count, int64_t cores)
{
    struct level level, last;

    for (uint32_t i = 0; i < count; i++)
        s->share[s->member[i]].settled = SETTLED_NOT;
    level = last = level_of_unsettled(s, count, cores);
    while (level.jobs && settle_round(s, count, &level)) {
        last = level;
        level = level_of_unsettled(s, count, cores);
    }
    explain_level(s, count, level.jobs ? &level : &last);
    for (uint32_t i = 0; i < count; i++) {
        struct share *share = &s->share[s->member[i]];

        share->cut |= share->settled != SETTLED_HIGH;
        if (share->settled == SETTLED_LOW)
            share->cores = share->min;
    }
    if (level.jobs)
        round_shares(s, count, &level);
}

/*
 * Whole cores for all minima exceed the capacity: every job gets its minimum to the thousandth, and
 * the plan says so if even these exceed it.
 */
static void squeeze(struct sharing *s, uint32_t count, int64_t left_mcpu)
{
    int64_t minima = 0;

    for (uint32_t i = 0; i < count; i++)
        minima += s->share[s->member[i]].least_mcpu;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = s->member[i];
        struct share *share = &s->share[j];
        int64_t least = share->least_mcpu;

        share->cores = share->min;
        share->cut = share->squeezed = true;
        if (minima <= left_mcpu)
            layout_reason(s->layout, j, POLICY_REASON_MINIMUM, least, left_mcpu / count, 0, 0);
        else if (share->min > 1)
            layout_reason(s->layout, j, POLICY_REASON_MINIMA, least, minima, left_mcpu,
                          s->capacity_mcpu);
        else
            layout_reason(s->layout, j, POLICY_REASON_ONE_THREAD, count, left_mcpu,
                          s->capacity_mcpu, 0);
    }
}

static void fill_domain(struct sharing *s, uint32_t domain)
{
    int64_t left = s->layout->left[domain].of[POLICY_MCPU];
    int64_t left_mcpu = left > 0 ? left : 0;
    int64_t cores = left_mcpu / s->unit_mcpu;
    int64_t minima = 0, maxima = 0;
    uint32_t count = 0;

    s->capacity_mcpu = s->layout->capacity[domain].of[POLICY_MCPU];
    for (uint32_t j = s->head[domain]; j != NOBODY; j = s->share[j].next) {
        s->member[count++] = j;
        minima += s->share[j].min;
        maxima += s->share[j].cores;
    }
    if (minima > cores)
        squeeze(s, count, left_mcpu);
    else if (maxima > cores)
        share_out(s, count, cores);
}

/* Leaves first: children stand behind their parents, and hand their jobs over to them. */
static void fill_tree(struct sharing *s)
{
    for (uint32_t d = s->layout->snapshot->domain_count; d-- > 0;) {
        uint32_t parent = s->layout->snapshot->domains[d].parent;
        uint32_t j = s->head[d];

        if (j == NOBODY)
            continue;
        fill_domain(s, d);
        if (d == 0)
            break;
        while (s->share[j].next != NOBODY)
            j = s->share[j].next;
        s->share[j].next = s->head[parent];
        s->head[parent] = s->head[d];
    }
}

void sharing_fill(struct sharing *s)
{
    fill_tree(s);
    for (uint32_t j = 0; j < s->layout->snapshot->job_count; j++)
        if (s->share[j].joined)
            layout_use(s->layout, layout_place(s->layout, j), POLICY_MCPU,
                       s->share[j].cores * s->unit_mcpu);
}

/* ---- lending --------------------------------------------------------------------------------- */

static void lend(struct sharing *s, uint32_t j)
{
    struct share *share = &s->share[j];
    const struct policy_job *job = &s->layout->snapshot->jobs[j];
    int64_t lent = smaller(job->lent * POLICY_CORE_MCPU / s->unit_mcpu,
                           share->cores - units_up(s, policy_job_least(job, POLICY_MCPU)));

    if (lent <= 0 || share->squeezed)
        return;
    layout_reason(s->layout, j, POLICY_REASON_LENT, share->cores * s->unit_mcpu,
                  lent * s->unit_mcpu, 0, 0);
    share->cores -= lent;
    layout_use(s->layout, layout_place(s->layout, j), POLICY_MCPU, -lent * s->unit_mcpu);
}

/* Borrowers get what lenders left: before, no domain had room for a job below its maximum. */
static void borrow(struct sharing *s, uint32_t j)
{
    struct share *share = &s->share[j];
    uint32_t place = layout_place(s->layout, j);
    int64_t borrowed = s->layout->snapshot->jobs[j].borrowed * POLICY_CORE_MCPU / s->unit_mcpu;
    int64_t granted = smaller(borrowed, share->max - share->cores);

    if (granted <= 0)
        return;
    granted = smaller(granted, layout_left(s->layout, place, POLICY_MCPU) / s->unit_mcpu);
    if (granted <= 0)
        return;
    layout_reason(s->layout, j, POLICY_REASON_BORROWED, share->cores * s->unit_mcpu,
                  granted * s->unit_mcpu, 0, 0);
    share->cores += granted;
    layout_use(s->layout, place, POLICY_MCPU, granted * s->unit_mcpu);
}

void sharing_lend(struct sharing *s, const uint32_t *by_rank)
{
    uint32_t jobs = s->layout->snapshot->job_count;

    for (uint32_t i = 0; i < jobs; i++)
        if (s->share[by_rank[i]].joined)
            lend(s, by_rank[i]);
    for (uint32_t i = 0; i < jobs; i++)
        if (s->share[by_rank[i]].joined)
            borrow(s, by_rank[i]);
}

int64_t sharing_mcpu(const struct sharing *s, uint32_t j)
{
    const struct share *share = &s->share[j];

    if (share->squeezed)
        return share->least_mcpu;
    return smaller(share->cores * s->unit_mcpu, share->most_mcpu);
}
