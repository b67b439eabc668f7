/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/usage.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/job/census.h"
#include "daemon/job/job.h"
#include "host/cgroup/cgroup.h"
#include "host/proc/proc.h"

#include <stdio.h>

#define BUSY_KEEP       0.7  /* weight of the old value, each second */
#define BUSY_HYSTERESIS 0.75 /* a smaller difference in cores changes nothing */
#define RESERVE_PART    16   /* of the machine's memory, for all that is no job … */
#define RESERVE_MAX     (UINT64_C(4) << 30) /* … at most */

/* ---- measuring ---- */

/* Processor time of its processes so far. */
struct sum {
    uint64_t cpu_ns, memory_bytes;
};

/* A child that nobody waits for takes its time along when it ends: that second is not measured. */
static void measure_cores(const struct daemon *d, struct usage *u, uint64_t cpu_ns, uint64_t now)
{
    uint32_t most = cpuset_count(&d->cpus);

    if (u->looked_ns && now > u->looked_ns && cpu_ns >= u->cpu_ns) {
        double sample = (double)(cpu_ns - u->cpu_ns) / (double)(now - u->looked_ns);

        u->busy = BUSY_KEEP * u->busy + (1 - BUSY_KEEP) * sample;
    }
    u->looked_ns = now;
    u->cpu_ns = cpu_ns;
    if (u->busy > u->cores + BUSY_HYSTERESIS || u->busy < u->cores - BUSY_HYSTERESIS)
        u->cores = (uint32_t)(u->busy + 0.5);
    if (u->cores > most)
        u->cores = most;
}

/* CPU time of the job's own control group, that of ended children included. 0: nobody counts it. */
static uint64_t group_time(const struct job *j)
{
    char path[CGROUP_NAME_MAX + 1];
    uint64_t ns;

    if (!(j->placed.groups & CGROUP_CPU))
        return 0;
    snprintf(path, sizeof(path), "/%.*s/%s", CGROUP_NAME_MAX - PROTO_ID_MAX - 2, j->daemon->group,
             j->id);
    return cgroup_read_time(j->daemon->cgroup, path, &ns) == 0 ? ns : 0;
}

/*
 * CPU time so far. A child that ended between two looks, and for which nobody waited, is in the
 * group's time alone; a process that could not be moved into the group is in the sum alone.
 */
static uint64_t time_so_far(struct usage *u, uint64_t seen_ns, uint64_t group_ns)
{
    bool fell = seen_ns < u->seen_ns, grouped = group_ns && u->group_ns;
    uint64_t more = fell ? 0 : seen_ns - u->seen_ns;

    if (grouped && group_ns >= u->group_ns && group_ns - u->group_ns > more)
        more = group_ns - u->group_ns;
    u->seen_ns = seen_ns;
    u->group_ns = group_ns;
    return fell && !grouped ? 0 : u->cpu_ns + more;
}

static bool off(uint64_t a, uint64_t b)
{
    return (a > b ? a - b : b - a) >= USAGE_GRAIN_BYTES;
}

/* Returns true if the job counts with other cores or memory than before. */
static bool take(struct job *j, const struct sum *sum, uint64_t now)
{
    struct usage *u = &j->observed.usage;
    uint32_t cores = u->cores;
    bool changed;

    if (j->admission.phase != JOB_RUNNING) {
        u->looked_ns = 0; /* not measured while it does not run */
        u->group_ns = 0;
        return false;
    }
    measure_cores(j->daemon, u, time_so_far(u, sum->cpu_ns, group_time(j)), now);
    u->memory_bytes = sum->memory_bytes;
    changed = off(u->memory_bytes, u->told_bytes);
    if (changed)
        u->told_bytes = u->memory_bytes;
    return changed || (u->cores != cores && !job_reported(j));
}

bool usage_look(struct daemon *d, uint64_t now)
{
    struct census c;
    size_t i = 0;
    bool changed = false;

    if (!d->jobs->first || census_take(d, &c) < 0)
        return false;
    census_by_job(&c);
    for (struct job *j = d->jobs->first; j; j = j->next) {
        struct sum sum = {0};
        struct usage *u = &j->observed.usage;
        uint64_t bytes;

        u->n_pids = 0;
        for (; i < c.n && c.entry[i].job == j; i++) {
            sum.cpu_ns += c.entry[i].cpu_ns;
            if (u->n_pids++ < USAGE_PIDS_MAX)
                u->pids[u->n_pids - 1] = c.entry[i].pid;
            if (proc_read_own_memory(d->root, c.entry[i].pid, &bytes) == 0)
                sum.memory_bytes += bytes;
        }
        changed |= take(j, &sum, now);
    }
    census_done(&c);
    return changed;
}

/* ---- memory ---- */

uint64_t usage_memory_asked(const struct job *j)
{
    uint64_t asked = (uint64_t)j->asked.attributes.memory_bytes, limit = j->observed.memory.counts;

    return asked == 0 || (limit && limit < asked) ? limit : asked;
}

uint64_t usage_memory(const struct job *j)
{
    uint64_t asked = usage_memory_asked(j);

    return j->observed.usage.memory_bytes > asked ? j->observed.usage.memory_bytes : asked;
}

uint64_t usage_machine_memory(const struct daemon *d)
{
    uint64_t bytes, limit;

    if (d->config.memory_bytes != CONFIG_MEMORY_MACHINE)
        return d->config.memory_bytes;
    if (proc_read_memory_total(d->root, &bytes) < 0)
        return 0;
    if (d->cgroup && cgroup_read_memory_limit(d->cgroup, 0, &limit) == 0 && limit < bytes)
        bytes = limit;
    return bytes - (bytes / RESERVE_PART < RESERVE_MAX ? bytes / RESERVE_PART : RESERVE_MAX);
}
