/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/core/cores.h"

#include <string.h>

#define NOBODY SIZE_MAX

/*
 * The CPUs given out so far, counted by core and NUMA node, so that judging a CPU is cheap. The
 * counts of `mine` belong to the job in hand.
 */
struct assignment {
    const struct cores_machine *machine;
    struct cores_job *jobs;
    size_t n;
    unsigned end;    /* above the highest CPU */
    unsigned usable; /* number of usable CPUs */
    struct cpuset free;
    uint16_t threads[CPUSET_MAX_CPUS]; /* usable CPUs of each core */
    uint16_t free_in_core[CPUSET_MAX_CPUS];
    uint16_t free_in_node[CPUSET_MAX_CPUS];
    uint16_t mine_in_core[CPUSET_MAX_CPUS];
    uint16_t mine_in_node[CPUSET_MAX_CPUS];
    uint32_t mine_in_group[CORES_SPEEDS];
    unsigned mine;
    bool full; /* no CPU will be left */
};

static bool is_empty(const struct cpuset *set)
{
    for (unsigned w = 0; w < CPUSET_WORDS; w++)
        if (set->word[w])
            return false;
    return true;
}

static void permit(const struct cores_job *job, const struct cpuset *from, struct cpuset *ret)
{
    if (is_empty(&job->allowed))
        *ret = *from;
    else
        cpuset_and(ret, from, &job->allowed);
}

static void release(struct assignment *a, unsigned cpu)
{
    cpuset_add(&a->free, cpu);
    a->free_in_core[a->machine->core[cpu]]++;
    a->free_in_node[a->machine->node[cpu]]++;
}

static void begin(struct assignment *a, const struct cores_machine *machine, struct cores_job *jobs,
                  size_t n)
{
    memset(a, 0, sizeof(*a));
    a->machine = machine;
    a->jobs = jobs;
    a->n = n;
    for (unsigned c = 0; c < CPUSET_MAX_CPUS; c++)
        if (cpuset_has(&machine->usable, c)) {
            a->end = c + 1;
            a->usable++;
            a->threads[machine->core[c]]++;
            release(a, c);
        }
}

/* ---- one job at a time ----------------------------------------------------------------------- */

static void count_mine(struct assignment *a, unsigned cpu, int sign)
{
    a->mine = (unsigned)((int)a->mine + sign);
    a->mine_in_core[a->machine->core[cpu]] += (uint16_t)sign;
    a->mine_in_node[a->machine->node[cpu]] += (uint16_t)sign;
    a->mine_in_group[a->machine->group[cpu]] += (uint32_t)sign;
}

/* Counts every CPU of the job, or none any more. */
static void serve(struct assignment *a, const struct cores_job *job, int sign)
{
    for (unsigned c = 0; c < a->end; c++)
        if (cpuset_has(&job->assigned, c))
            count_mine(a, c, sign);
}

static void give(struct assignment *a, struct cores_job *job, unsigned cpu)
{
    cpuset_remove(&a->free, cpu);
    a->free_in_core[a->machine->core[cpu]]--;
    a->free_in_node[a->machine->node[cpu]]--;
    cpuset_add(&job->assigned, cpu);
    count_mine(a, cpu, 1);
}

static void take(struct assignment *a, struct cores_job *job, unsigned cpu)
{
    release(a, cpu);
    cpuset_remove(&job->assigned, cpu);
    count_mine(a, cpu, -1);
}

enum {
    BELOW_NODE = 2 * CPUSET_MAX_CPUS,
    SPEED = 2 * BELOW_NODE, /* for each step of it */
    WHOLE_CORE = SPEED * (CORES_SPEED_MAX + 1),
    OWN_NODE = 2 * WHOLE_CORE,
    OWN_CORE = 2 * OWN_NODE,
    WISHED = 2 * OWN_CORE
};

static bool has_wish(const struct cores_job *job)
{
    for (unsigned i = 0; i < CORES_SPEEDS; i++)
        if (job->of_speed[i])
            return true;
    return false;
}

/* Whether the job lacks CPUs of this one's speed. */
static bool is_wished(const struct assignment *a, const struct cores_job *job, unsigned cpu)
{
    unsigned group = a->machine->group[cpu];

    return a->mine_in_group[group] < job->of_speed[group];
}

/*
 * How well a free CPU suits the job in hand, which still needs @need CPUs. The NUMA node counts
 * least: fullest first among NUMA nodes with room for all of them, emptiest first among the others.
 */
static unsigned score(const struct assignment *a, const struct cores_job *job, unsigned cpu,
                      unsigned need)
{
    unsigned core = a->machine->core[cpu], node = a->machine->node[cpu];
    unsigned room = a->free_in_node[node];
    bool whole = a->free_in_core[core] == a->threads[core];
    unsigned points = room >= need ? BELOW_NODE - room : room;

    points += a->machine->speed[cpu] * SPEED;
    if (is_wished(a, job, cpu))
        points += WISHED;
    if (a->mine_in_core[core])
        points += OWN_CORE;
    if (a->mine_in_node[node])
        points += OWN_NODE;
    /* Where another job gets the sibling anyway, whole cores are for jobs that need all of one. */
    if (whole == (!a->full || need >= a->threads[core]))
        points += WHOLE_CORE;
    return points;
}

/* Returns the best free CPU for the job, in NUMA node @node (or, if that is NULL, anywhere); -1:
 * none. */
static int best_free(const struct assignment *a, const struct cores_job *job, unsigned need,
                     const uint16_t *node)
{
    unsigned best_score = 0;
    int best = -1;

    for (unsigned c = 0; c < a->end; c++) {
        unsigned s;

        if (!cpuset_has(&a->free, c) || !cpuset_has(&job->choice, c) ||
            (node && a->machine->node[c] != *node))
            continue;
        s = score(a, job, c, need);
        if (best < 0 || s > best_score) {
            best = (int)c;
            best_score = s;
        }
    }
    return best;
}

/*
 * Returns the job's CPU that it misses least: in the NUMA node where it has fewest, then a slow
 * one, then on a core of which it has least, highest number first.
 */
static int worst_own(const struct assignment *a, const struct cores_job *job)
{
    unsigned worst_score = 0;
    int worst = -1;

    for (unsigned c = 0; c < a->end; c++) {
        unsigned s = a->mine_in_node[a->machine->node[c]] * (CORES_SPEED_MAX + 1u);

        s = (s + a->machine->speed[c]) * (CPUSET_MAX_CPUS + 1u) +
            a->mine_in_core[a->machine->core[c]];
        if (cpuset_has(&job->assigned, c) && (worst < 0 || s <= worst_score)) {
            worst = (int)c;
            worst_score = s;
        }
    }
    return worst;
}

/* The job keeps all CPUs that it may, and then gives up the surplus. */
static void keep(struct assignment *a, struct cores_job *job)
{
    for (unsigned c = 0; c < a->end; c++)
        if (cpuset_has(&job->current, c) && cpuset_has(&a->free, c) &&
            cpuset_has(&job->choice, c) && (!has_wish(job) || is_wished(a, job, c)))
            give(a, job, c);
    while (a->mine > job->count)
        take(a, job, (unsigned)worst_own(a, job));
    serve(a, job, -1);
}

/* Grows the job to its wanted count; with @own only by free CPUs of its own cores. */
static void grow(struct assignment *a, struct cores_job *job, bool own)
{
    serve(a, job, 1);
    while (a->mine < job->count) {
        int c = best_free(a, job, job->count - a->mine, NULL);

        if (c < 0 || (own && !a->mine_in_core[a->machine->core[c]]))
            break;
        give(a, job, (unsigned)c);
    }
    serve(a, job, -1);
}

/* ---- between jobs ---------------------------------------------------------------------------- */

/* After job @last (NOBODY: first) in the order of choices, then of places; NOBODY: no more. */
static size_t next_by_choices(const struct assignment *a, size_t last)
{
    size_t next = NOBODY;

    for (size_t i = 0; i < a->n; i++) {
        const struct cores_job *job = &a->jobs[i];
        bool behind = last == NOBODY || job->choices > a->jobs[last].choices ||
                      (job->choices == a->jobs[last].choices && i > last);

        if (job->exclusive && behind && (next == NOBODY || job->choices < a->jobs[next].choices))
            next = i;
    }
    return next;
}

/* Among equals, no job takes a sibling of another's core while another CPU is free. */
static void grow_all(struct assignment *a)
{
    size_t first = next_by_choices(a, NOBODY), end;

    for (; first != NOBODY; first = end) {
        for (end = first; end != NOBODY && a->jobs[end].choices == a->jobs[first].choices;
             end = next_by_choices(a, end))
            grow(a, &a->jobs[end], true);
        for (size_t i = first; i != end; i = next_by_choices(a, i))
            grow(a, &a->jobs[i], false);
    }
}

static size_t owner_of(const struct assignment *a, unsigned cpu)
{
    for (size_t i = 0; i < a->n; i++)
        if (cpuset_has(&a->jobs[i].assigned, cpu))
            return i;
    return NOBODY;
}

/* Hands over @cpu, if its owner finds a free one instead. */
static bool trade(struct assignment *a, struct cores_job *job, unsigned cpu)
{
    size_t owner = owner_of(a, cpu);
    struct cores_job *other;
    int instead;

    if (owner == NOBODY || &a->jobs[owner] == job)
        return false;
    other = &a->jobs[owner];
    serve(a, other, 1);
    instead = best_free(a, other, 1, NULL);
    if (instead >= 0) {
        take(a, other, cpu);
        give(a, other, (unsigned)instead);
    }
    serve(a, other, -1);
    if (instead < 0)
        return false;
    serve(a, job, 1);
    give(a, job, cpu);
    serve(a, job, -1);
    return true;
}

static void trade_for_all(struct assignment *a, struct cores_job *job)
{
    unsigned has = 0;

    for (unsigned c = 0; c < a->end; c++)
        has += cpuset_has(&job->assigned, c);
    for (unsigned c = 0; c < a->end && has < job->count; c++)
        if (cpuset_has(&job->choice, c))
            has += trade(a, job, c);
}

/* Returns the NUMA node where it has most CPUs, of those with room for all of them. */
static bool find_home(const struct assignment *a, const struct cores_job *job, uint16_t *ret)
{
    uint16_t room[CPUSET_MAX_CPUS] = {0};
    unsigned most = 0;

    for (unsigned c = 0; c < a->end; c++)
        room[a->machine->node[c]] += cpuset_has(&job->assigned, c) ||
                                     (cpuset_has(&a->free, c) && cpuset_has(&job->choice, c));
    for (unsigned c = 0; c < a->end; c++) {
        uint16_t node = a->machine->node[c];

        if (room[node] >= a->mine && a->mine_in_node[node] > most) {
            most = a->mine_in_node[node];
            *ret = node;
        }
    }
    return most > 0;
}

/* Moves the job's CPUs in other NUMA nodes home. True if one moved. */
static bool gather(struct assignment *a, struct cores_job *job)
{
    bool moved = false;
    uint16_t home;

    serve(a, job, 1);
    if (find_home(a, job, &home))
        for (unsigned c = 0; c < a->end; c++) {
            if (!cpuset_has(&job->assigned, c) || a->machine->node[c] == home)
                continue;
            give(a, job, (unsigned)best_free(a, job, 1, &home));
            take(a, job, c);
            moved = true;
        }
    serve(a, job, -1);
    return moved;
}

/* Returns the fastest whole free core of the NUMA node of @cpu that is faster; -1: there is none.
 */
static int faster_than(const struct assignment *a, const struct cores_job *job, unsigned cpu)
{
    const struct cores_machine *m = a->machine;
    int best = -1;

    for (unsigned c = 0; c < a->end; c++)
        if (cpuset_has(&a->free, c) && cpuset_has(&job->choice, c) && m->node[c] == m->node[cpu] &&
            a->free_in_core[m->core[c]] == a->threads[m->core[c]] &&
            m->speed[c] > m->speed[best < 0 ? cpu : (unsigned)best])
            best = (int)c;
    return best;
}

/* True if one of its CPUs moved to a faster one. */
static bool speed_up(struct assignment *a, struct cores_job *job)
{
    bool moved = false;

    if (has_wish(job))
        return false;
    serve(a, job, 1);
    for (unsigned c = 0; c < a->end; c++) {
        int faster = cpuset_has(&job->assigned, c) ? faster_than(a, job, c) : -1;

        if (faster < 0)
            continue;
        give(a, job, (unsigned)faster);
        take(a, job, c);
        moved = true;
    }
    serve(a, job, -1);
    return moved;
}

/* One job may need a CPU that another leaves. Each round serves one, until no CPU moves. */
static void settle_all(struct assignment *a)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (size_t i = 0; i < a->n; i++)
            if (a->jobs[i].exclusive) {
                grow(a, &a->jobs[i], false);
                trade_for_all(a, &a->jobs[i]);
            }
        for (size_t i = 0; i < a->n; i++)
            if (a->jobs[i].exclusive)
                moved |= gather(a, &a->jobs[i]) || speed_up(a, &a->jobs[i]);
    }
}

/* The set must not be empty: without a core left, the job shares the CPUs that it may use. */
static void assign_rest(const struct assignment *a, struct cores_job *job)
{
    const struct cpuset *sources[] = {&a->free, &a->machine->usable, &a->machine->cpus};

    for (unsigned i = 0; i < 3 && is_empty(&job->assigned); i++) {
        job->overlaps = i > 0;
        permit(job, sources[i], &job->assigned);
    }
}

static void find_choices(const struct assignment *a, struct cores_job *job)
{
    permit(job, &a->machine->usable, &job->choice);
    job->choices = 0;
    for (unsigned c = 0; c < a->end; c++)
        job->choices += cpuset_has(&job->choice, c);
}

static void assign_exclusive(struct assignment *a)
{
    size_t wanted = 0;

    for (size_t i = 0; i < a->n; i++) {
        find_choices(a, &a->jobs[i]);
        if (a->jobs[i].exclusive) {
            wanted += a->jobs[i].count;
            keep(a, &a->jobs[i]);
        }
    }
    a->full = wanted >= a->usable;
    grow_all(a);
    settle_all(a);
}

void cores_assign(const struct cores_machine *machine, struct cores_job *jobs, size_t n)
{
    bool fence = !cpuset_equal(&machine->cpus, &machine->usable);
    struct assignment a;

    for (size_t i = 0; i < n; i++) {
        cpuset_zero(&jobs[i].assigned);
        jobs[i].overlaps = false;
        fence |= jobs[i].exclusive;
    }
    if (!fence)
        return;
    begin(&a, machine, jobs, n);
    assign_exclusive(&a);
    for (size_t i = 0; i < n; i++)
        if (is_empty(&jobs[i].assigned))
            assign_rest(&a, &jobs[i]);
}
