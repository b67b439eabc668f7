/* SPDX-License-Identifier: Apache-2.0 */
#include "node/cores.h"

static void set_minus(struct cpuset *set, const struct cpuset *less)
{
    for (unsigned i = 0; i < CPUSET_WORDS; i++)
        set->word[i] &= ~less->word[i];
}

static void permitted(const struct cores_job *job, const struct cpuset *from, struct cpuset *ret)
{
    *ret = *from;
    if (cpuset_count(&job->allowed) > 0)
        cpuset_and(ret, from, &job->allowed);
}

static unsigned node_free(const struct topology *topology, int node, const struct cpuset *free)
{
    struct cpuset both;

    if (node < 0)
        return 0;
    cpuset_and(&both, &topology->node[node], free);
    return cpuset_count(&both);
}

/* Larger is better; the lowest CPU wins among equals. */
static unsigned score(const struct topology *topology, const struct cpuset *have,
                      const struct cpuset *free, unsigned cpu)
{
    struct cpuset siblings, common;
    int node = topology_node_of(topology, cpu);
    unsigned points = node_free(topology, node, free); /* at most CPUSET_MAX_CPUS */

    topology_siblings(topology, cpu, &siblings);
    cpuset_and(&common, &siblings, have);
    if (cpuset_count(&common) > 0)
        points += 8 * CPUSET_MAX_CPUS;
    if (node >= 0 && node_free(topology, node, have) > 0)
        points += 4 * CPUSET_MAX_CPUS;
    cpuset_and(&common, &siblings, free); /* a core of which nobody has a part */
    if (cpuset_count(&common) == cpuset_count(&siblings))
        points += 2 * CPUSET_MAX_CPUS;
    return points;
}

static int best_of(const struct topology *topology, const struct cpuset *have,
                   const struct cpuset *candidates, const struct cpuset *free)
{
    int best = -1;
    unsigned best_score = 0;

    for (int c = cpuset_next(candidates, 0); c >= 0; c = cpuset_next(candidates, (unsigned)c + 1)) {
        unsigned s = score(topology, have, free, (unsigned)c);

        if (best < 0 || s > best_score) {
            best = c;
            best_score = s;
        }
    }
    return best;
}

/* Keeps of what it has as many as it still gets. */
static void keep(const struct topology *topology, struct cores_job *job, struct cpuset *free)
{
    struct cpuset mine;

    permitted(job, free, &mine);
    cpuset_and(&mine, &mine, &job->current);
    while (cpuset_count(&job->assigned) < job->count) {
        int c = best_of(topology, &job->assigned, &mine, &mine);

        if (c < 0)
            break;
        cpuset_remove(&mine, (unsigned)c);
        cpuset_add(&job->assigned, (unsigned)c);
    }
    set_minus(free, &job->assigned);
}

static void grow(const struct topology *topology, struct cores_job *job, struct cpuset *free)
{
    struct cpuset candidates;

    while (cpuset_count(&job->assigned) < job->count) {
        int c;

        permitted(job, free, &candidates);
        c = best_of(topology, &job->assigned, &candidates, free);
        if (c < 0)
            break;
        cpuset_remove(free, (unsigned)c);
        cpuset_add(&job->assigned, (unsigned)c);
    }
}

/* The set must not be empty: with no core left the job shares what it may use. */
static void assign_rest(struct cores_job *job, const struct cpuset *free,
                        const struct cpuset *usable, const struct cpuset *machine)
{
    permitted(job, free, &job->assigned);
    if (cpuset_count(&job->assigned) > 0)
        return;
    job->overlaps = true;
    permitted(job, usable, &job->assigned);
    if (cpuset_count(&job->assigned) == 0)
        permitted(job, machine, &job->assigned);
}

void cores_assign(const struct cpuset *machine, const struct cpuset *usable,
                  const struct topology *topology, struct cores_job *jobs, size_t n)
{
    struct cpuset free = *usable;
    bool fence = !cpuset_equal(machine, usable);

    for (size_t i = 0; i < n; i++) {
        cpuset_zero(&jobs[i].assigned);
        jobs[i].overlaps = false;
        fence |= jobs[i].exclusive;
    }
    if (!fence)
        return;
    for (size_t i = 0; i < n; i++)
        if (jobs[i].exclusive)
            keep(topology, &jobs[i], &free);
    for (size_t i = 0; i < n; i++)
        if (jobs[i].exclusive)
            grow(topology, &jobs[i], &free);
    for (size_t i = 0; i < n; i++)
        if (cpuset_count(&jobs[i].assigned) == 0)
            assign_rest(&jobs[i], &free, usable, machine);
}
