/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fluid model: between two events every job has one speed, the mean over its phases.
 *
 * Alone, with k threads, a job progresses at S(k), its curve, and keeps D(k) = S(k)(1 + w(1 - 1/k))
 * cores busy, at most k: short serial parts leave gaps, synchronisation costs CPU time. A job that
 * has serial phases of some length (struct sim_job) is one thread in these; they are events. One
 * that gets x of its D cores progresses at S(k) x/D, less what the machine takes away. One that
 * sleeps a part i of its time alone keeps (1 - i) D cores busy, and takes i + (1 - i) s of its time
 * when it computes s times slower: D/x, but at least what its own D and the others' mean demands
 * are to the cores, as they are often awake together though not on average.
 *
 *   shared     jobs whose demands add up to less than the cores disturb nobody. Otherwise the cores
 *              are shared by weight, nobody above its demand (water-filling).
 *   exclusive  x is D as long as the jobs' cores fit the machine; what a job leaves idle stays so.
 *   quota      as shared, nobody above its quota.
 *
 * Oversubscription, contention and NUMA: see struct sim_machine. SMT: with b hardware threads busy
 * on p cores, those above p add only the gain: all progress at (p + gain (b - p)) / b. A power cap
 * slows everybody down by what the busy cores draw too much (RAPL, with power linear in speed).
 *
 * Cores of several speeds: where cores overlap, the fastest are the busy ones, and all jobs
 * progress with their mean speed. A job with cores of its own progresses with the mean speed of
 * those that it uses, the fastest of them in its serial phases.
 */
#include "sim/engine/machine.h"

#include <errno.h>

#define ERROR_WORD "simulation-failed"

#define FULL UINT64_C(1000) /* permille */

/* a * b / c, rounded down; the result must fit */
static uint64_t scale(uint64_t a, uint64_t b, uint64_t c)
{
    return (uint64_t)((sim_sum)a * b / c);
}

/* a times a factor of 32 fractional bits */
static uint64_t times(uint64_t a, uint64_t factor)
{
    return (uint64_t)((sim_sum)a * factor >> 32);
}

uint32_t sim_curve_speed(const struct sim_curve *curve, uint32_t cores)
{
    return curve->speedup_permille[(cores < curve->count ? cores : curve->count) - 1];
}

static int check_speeds(const struct sim_machine *m, struct error *err)
{
    uint64_t cores = 0;

    if (m->speed_count > POLICY_SPEEDS_MAX)
        return error_set(err, -EINVAL, "machine: speeds has %u groups of cores; give at most %d",
                         m->speed_count, POLICY_SPEEDS_MAX);
    for (uint32_t i = 0; i < m->speed_count; i++) {
        cores += m->speeds[i].cores;
        if (i == 0 ? m->speeds[i].permille != FULL
                   : m->speeds[i].permille >= m->speeds[i - 1].permille || !m->speeds[i].permille)
            return error_set(err, -EINVAL,
                             "machine: speeds begins with the fastest cores, of speed 1, and falls "
                             "from group to group");
    }
    if (m->speed_count && cores != m->cores)
        return error_set(err, -EINVAL, "machine: speeds counts %llu cores of %u",
                         (unsigned long long)cores, m->cores);
    return 0;
}

int machine_check(const struct sim_machine *m, struct error *err)
{
    if (m->cores == 0 || m->cores > SIM_CORES_MAX)
        return error_set(err, -EINVAL, "machine: cores is %u; give 1 to %u", m->cores,
                         SIM_CORES_MAX);
    if (m->numa == 0 || m->cores % m->numa)
        return error_set(err, -EINVAL,
                         "machine: %u cores cannot be divided into %u equal NUMA nodes", m->cores,
                         m->numa);
    if (m->smt == 0 || m->cores % m->smt)
        return error_set(err, -EINVAL,
                         "machine: cores counts hardware threads: %u is no multiple "
                         "of smt, %u",
                         m->cores, m->smt);
    if (m->smt_gain_permille > FULL || m->contention_permille >= FULL || m->numa_permille >= FULL)
        return error_set(err, -EINVAL,
                         "machine: smt_gain is at most 1000 permille, contention and "
                         "numa less than that");
    if (m->memory_bytes < 0)
        return error_set(err, -EINVAL, "machine: memory is negative");
    if (m->idle_uw > POLICY_POWER_MAX || m->core_uw > POLICY_POWER_MAX ||
        m->cap_uw > POLICY_POWER_MAX)
        return error_set(err, -EINVAL, "machine: a power is above %llu W",
                         (unsigned long long)(POLICY_POWER_MAX / 1000000));
    if (m->cap_uw && m->cap_uw <= m->idle_uw)
        return error_set(err, -EINVAL,
                         "machine: the power cap leaves nothing above the idle power");
    if ((unsigned)m->placement >= SIM_PLACEMENT_MAX)
        return error_set(err, -EINVAL, "machine: unknown placement %d", (int)m->placement);
    return check_speeds(m, err);
}

/* ---- cores of several speeds ----------------------------------------------------------------- */

/* Mean speed of the fastest @cores (32 fractional bits, above 0) of these, as a factor. */
static uint64_t fastest(const struct sim_machine *m, const uint32_t *of_speed, uint64_t cores)
{
    uint64_t left = cores;
    sim_sum speed = 0;

    for (uint32_t i = 0; i < m->speed_count && left; i++) {
        uint64_t group = (of_speed ? of_speed[i] : m->speeds[i].cores) * MACHINE_ONE;
        uint64_t used = group < left ? group : left;

        speed += (sim_sum)used * m->speeds[i].permille;
        left -= used;
    }
    return left == cores ? MACHINE_ONE : (uint64_t)((speed << 32) / FULL / (cores - left));
}

void machine_own_cores(const struct sim_machine *m, const uint32_t *of_speed, uint32_t threads,
                       struct machine_task *task)
{
    if (m->placement == SIM_EXCLUSIVE && m->speed_count > 1)
        task->speed = times(task->speed, fastest(m, of_speed, threads * MACHINE_ONE));
}

/* ---- one job, alone -------------------------------------------------------------------------- */

void machine_hold(const struct sim_machine *m, const struct sim_job *job, int64_t mcpu, bool spread,
                  struct machine_task *ret_task)
{
    uint64_t held = scale((uint64_t)mcpu, MACHINE_ONE, POLICY_CORE_MCPU);
    uint32_t threads = mcpu < POLICY_CORE_MCPU ? 1 : (uint32_t)(mcpu / POLICY_CORE_MCPU);
    uint64_t speed = scale(sim_curve_speed(job->curve, threads), MACHINE_ONE, FULL);
    uint64_t most = threads * MACHINE_ONE;
    uint64_t demand =
        speed + scale(speed, (uint64_t)job->waste_permille * (threads - 1), FULL * threads);

    demand = scale(demand < most ? demand : most, FULL - job->idle_permille, FULL);
    if (spread || threads > m->cores / m->numa)
        speed = scale(speed, FULL - m->numa_permille, FULL);
    *ret_task = (struct machine_task){
        .speed = speed,
        .demand = demand,
        .limit = m->placement == SIM_SHARED || demand < held ? demand : held,
        .weight = (uint64_t)mcpu,
        .idle_permille = job->idle_permille,
    };
}

/* Speed with @cores, at least one, which need not be whole; linear in between. */
static uint64_t speed_with(const struct sim_curve *curve, uint64_t cores)
{
    uint32_t whole = (uint32_t)(cores / MACHINE_ONE);
    uint64_t low = scale(sim_curve_speed(curve, whole), MACHINE_ONE, FULL);
    uint64_t high = scale(sim_curve_speed(curve, whole + 1), MACHINE_ONE, FULL);
    uint64_t part = cores % MACHINE_ONE;

    return high >= low ? low + times(high - low, part) : low - times(low - high, part);
}

void machine_serve(const struct sim_machine *m, const struct sim_job *job, int64_t mcpu,
                   uint32_t requests, uint32_t most, bool spread, struct machine_task *ret_task)
{
    uint64_t held = scale((uint64_t)mcpu, MACHINE_ONE, POLICY_CORE_MCPU);
    uint32_t threads = mcpu < POLICY_CORE_MCPU ? 1 : (uint32_t)(mcpu / POLICY_CORE_MCPU);
    uint64_t each = threads * MACHINE_ONE / (requests ? requests : 1), speed, busy;

    each = most && most * MACHINE_ONE < each ? most * MACHINE_ONE : each;
    speed = busy = each;
    if (each >= MACHINE_ONE) {
        speed = speed_with(job->curve, each);
        busy = speed + (uint64_t)((sim_sum)speed * job->waste_permille * (each - MACHINE_ONE) /
                                  ((sim_sum)FULL * each));
        busy = busy < each ? busy : each;
    }
    busy *= requests;
    if (spread || threads > m->cores / m->numa)
        speed = scale(speed, FULL - m->numa_permille, FULL);
    *ret_task = (struct machine_task){
        .speed = speed,
        .demand = busy,
        .limit = m->placement == SIM_SHARED || busy < held ? busy : held,
        .weight = (uint64_t)mcpu,
    };
}

bool machine_is_serial(const struct sim_job *job, sim_sum done, sim_sum *ret_left)
{
    sim_sum every = (sim_sum)job->serial_every_ns << 32;
    sim_sum parallel = every / FULL * (FULL - job->serial_permille), at;

    if (job->serial_permille == 0) {
        *ret_left = ((sim_sum)job->work_ns << 32) - done;
        return false;
    }
    at = done % every;
    *ret_left = (at < parallel ? parallel : every) - at;
    return at >= parallel;
}

/* Work of the job in serial phases. */
static uint64_t serial_work(const struct sim_job *job)
{
    uint64_t every = job->serial_every_ns, rest, parallel;

    if (job->serial_permille == 0)
        return 0;
    parallel = scale(every, FULL - job->serial_permille, FULL);
    rest = job->work_ns % every;
    return job->work_ns / every * (every - parallel) + (rest > parallel ? rest - parallel : 0);
}

uint64_t machine_alone_ns(const struct sim_machine *m, const struct sim_job *job)
{
    uint32_t most = job->max && job->max < m->cores ? job->max : m->cores;
    uint32_t cores = job->request && job->request < most ? job->request : most;
    struct machine_task task, *only = &task;
    uint64_t serial = serial_work(job);
    sim_sum alone;

    machine_hold(m, job, cores * POLICY_CORE_MCPU, false, &task);
    machine_own_cores(m, NULL, cores, &task);
    machine_share(m, &only, 1);
    alone = job->start_ns + (((sim_sum)(job->work_ns - serial) << 32) + task.rate - 1) / task.rate;
    machine_hold(m, job, POLICY_CORE_MCPU, false, &task);
    machine_share(m, &only, 1);
    alone += (((sim_sum)serial << 32) + task.rate - 1) / task.rate;
    return alone < UINT64_MAX ? (uint64_t)alone : UINT64_MAX;
}

/* ---- all jobs -------------------------------------------------------------------------------- */

/*
 * Water-filling: every task gets its weight's part of @cores, or its limit if that is less, which
 * raises the level for the others. A task below the present level is below the final one.
 */
static void fill_by_weight(struct machine_task *const *tasks, uint32_t count, uint64_t cores)
{
    uint64_t left = cores, weight = 0;
    bool rising = true;

    for (uint32_t i = 0; i < count; i++) {
        tasks[i]->settled = false;
        weight += tasks[i]->weight;
    }
    while (rising) {
        uint64_t level_left = left, level_weight = weight;

        rising = false;
        for (uint32_t i = 0; i < count; i++) {
            struct machine_task *t = tasks[i];

            if (t->settled || (sim_sum)t->limit * level_weight > (sim_sum)t->weight * level_left)
                continue;
            t->usage = t->limit;
            t->settled = rising = true;
            left -= t->usage;
            weight -= t->weight;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        if (!tasks[i]->settled)
            tasks[i]->usage = scale(left, tasks[i]->weight, weight);
}

/* Shrinks all fences when they need more cores than there are; no job fills a gap. */
static void shrink_fences(struct machine_task *const *tasks, uint32_t count, uint64_t cores)
{
    uint64_t held = 0;

    for (uint32_t i = 0; i < count; i++)
        held += tasks[i]->weight;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t fence = scale(cores, tasks[i]->weight, held);

        tasks[i]->usage = tasks[i]->limit < fence ? tasks[i]->limit : fence;
    }
}

/* Sets each job's usage; returns how many cores could be busy if there were enough of them. */
static sim_sum share_cores(const struct sim_machine *m, struct machine_task *const *tasks,
                           uint32_t count)
{
    uint64_t cores = m->cores * MACHINE_ONE;
    uint64_t held = 0;
    sim_sum runnable = 0;

    for (uint32_t i = 0; i < count; i++) {
        tasks[i]->usage = tasks[i]->limit;
        runnable += tasks[i]->limit;
        held += tasks[i]->weight;
    }
    if (m->placement == SIM_EXCLUSIVE && held > (uint64_t)m->cores * POLICY_CORE_MCPU)
        shrink_fences(tasks, count, cores);
    else if (runnable > cores)
        fill_by_weight(tasks, count, cores);
    return runnable;
}

/* All jobs' losses to oversubscription, SMT and the power cap; sets the power drawn. */
static uint64_t common_factor(const struct sim_machine *m, sim_sum runnable, uint64_t busy,
                              uint64_t *ret_power_uw)
{
    uint64_t cores = m->cores * MACHINE_ONE, pairs = cores / m->smt;
    uint64_t dynamic_uw = times(busy, m->core_uw);
    uint64_t factor = MACHINE_ONE;

    if (runnable > cores) {
        sim_sum lost = (runnable - cores) * m->oversubscription_permille;

        factor = (uint64_t)(((sim_sum)cores * FULL << 32) / ((sim_sum)cores * FULL + lost));
    }
    if (busy > pairs)
        factor = scale(factor, pairs + scale(busy - pairs, m->smt_gain_permille, FULL), busy);
    if (m->speed_count > 1 && m->placement != SIM_EXCLUSIVE && busy)
        factor = times(factor, fastest(m, NULL, busy));
    if (m->cap_uw && dynamic_uw > m->cap_uw - m->idle_uw) {
        factor = scale(factor, m->cap_uw - m->idle_uw, dynamic_uw);
        dynamic_uw = m->cap_uw - m->idle_uw;
    }
    *ret_power_uw = m->idle_uw + dynamic_uw;
    return factor;
}

/* Sets the job's rate, and takes the time that it sleeps off its usage. */
static void progress(const struct sim_machine *m, struct machine_task *t, sim_sum runnable)
{
    uint64_t awake = FULL - t->idle_permille, slower, crowd;

    t->rate = t->usage < t->demand ? scale(t->speed, t->usage, t->demand) : t->speed;
    if (t->idle_permille == 0 || t->usage == 0)
        return;
    slower = scale(t->demand, MACHINE_ONE, t->usage);
    crowd = (uint64_t)((runnable - t->limit + scale(t->demand, FULL, awake)) / m->cores);
    if (m->placement == SIM_SHARED && crowd > slower)
        slower = crowd;
    if (slower <= MACHINE_ONE)
        return;
    t->rate = (uint64_t)(((sim_sum)t->speed * FULL << 32) /
                         ((sim_sum)t->idle_permille * MACHINE_ONE + (sim_sum)awake * slower));
    t->usage = scale(t->demand, t->rate, t->speed);
}

uint64_t machine_share(const struct sim_machine *m, struct machine_task *const *tasks,
                       uint32_t count)
{
    const uint64_t full = FULL * m->cores * MACHINE_ONE;
    sim_sum runnable = share_cores(m, tasks, count);
    uint64_t busy = 0, power_uw, factor;

    for (uint32_t i = 0; i < count; i++) {
        tasks[i]->waits = tasks[i]->limit - tasks[i]->usage;
        progress(m, tasks[i], runnable);
        busy += tasks[i]->usage;
    }
    factor = common_factor(m, runnable, busy, &power_uw);
    for (uint32_t i = 0; i < count; i++) {
        struct machine_task *t = tasks[i];
        uint64_t rate = times(t->rate, factor);

        if (m->contention_permille)
            rate = scale(rate, full - m->contention_permille * (busy - t->usage), full);
        t->rate = rate ? rate : 1;
    }
    return power_uw;
}
