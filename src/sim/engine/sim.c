/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop. Events: a job finishes, a job arrives, the policy wants to be asked. */
#include "sim/engine/sim.h"
#include "sim/engine/engine.h"
#include "sim/engine/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "simulation-failed"

/* After this many events in a row without progress, the policy moves jobs and lets none work. */
#define IDLE_EVENTS_MAX 100000

/* Each phase is an event: shorter ones belong into the curve. */
#define SERIAL_MIN_NS UINT64_C(1000000)

/* Reads the source, one job ahead. */
struct intake {
    struct sim_source *source;
    struct sim_job next;
    bool more;
};

/* ---- jobs from the source -------------------------------------------------------------------- */

static const char *curve_fault(const struct sim_curve *curve)
{
    if (curve->count == 0 || curve->count > SIM_CORES_MAX || !curve->speedup_permille)
        return "a speed-up table needs 1 to 65536 entries";
    if (curve->speedup_permille[0] != 1000)
        return "a speed-up table begins with 1000 permille, one core's speed";
    for (uint32_t k = 0; k < curve->count; k++)
        if (curve->speedup_permille[k] == 0)
            return "a speed-up is 0";
    return NULL;
}

static const char *bounds_fault(const struct sim_job *job)
{
    if (job->min > SIM_CORES_MAX || job->max > SIM_CORES_MAX || job->request > SIM_CORES_MAX)
        return "min, max and request are at most 65536 cores";
    if (job->max && job->max < job->min)
        return "max is below min";
    if (job->malleability >= POLICY_MALLEABILITY_MAX)
        return "unknown malleability";
    if (job->malleability == POLICY_RIGID && job->request == 0)
        return "a rigid job needs a request";
    if (job->stock_threads == 0 || job->stock_threads > SIM_CORES_MAX)
        return "stock_threads is 1 to 65536";
    if (job->weight == 0 || job->weight > POLICY_WEIGHT_MAX)
        return "weight is 1 to 10000";
    if (job->memory_bytes < 0)
        return "memory is negative";
    if (job->idle_permille >= 1000)
        return "idle is less than 1000 permille";
    if (job->serial_permille >= 1000 ||
        (job->serial_permille && job->serial_every_ns < SERIAL_MIN_NS))
        return "serial is less than 1000 permille, of at least a millisecond";
    if (job->waste_permille > 100000)
        return "waste is at most 100000 permille";
    if (job->requests && (job->processes > 1 && job->workers > job->processes))
        return "each process serves one request";
    if (job->requests && (job->workers == 0 || job->workers > SIM_CORES_MAX))
        return "workers is 1 to 65536";
    if (job->requests && job->requests->count == 0)
        return "a server has at least one request";
    return NULL;
}

static const char *time_fault(const struct sim_job *job)
{
    if (job->arrival_ns > SIM_TIME_MAX / 2)
        return "it arrives too late";
    if (job->work_ns == 0 || job->work_ns > SIM_TIME_MAX)
        return "its work must be above 0 and at most 292 years";
    if (job->start_ns > SIM_TIME_MAX / 2)
        return "its start takes too long";
    if (job->told_ns == 0)
        return "the work told to the policy is 0";
    if (job->deadline_ns != POLICY_NEVER && job->deadline_ns > SIM_TIME_MAX)
        return "its deadline is too late";
    for (int a = 0; a < POLICY_ACTION_MAX; a++)
        if (job->cost_ns[a] > SIM_TIME_MAX / 2)
            return "the cost of an action is too high";
    return NULL;
}

static int check_job(const struct sim_job *job, const struct sim_job *last, struct error *err)
{
    const char *fault = NULL;

    if (!memchr(job->name, 0, sizeof(job->name)))
        return error_set(err, -EINVAL, "job %llu: its name does not end",
                         (unsigned long long)job->id);
    if (job->id <= last->id)
        fault = "ids must increase, from 1";
    else if (job->arrival_ns < last->arrival_ns)
        fault = "it arrives before the job in front of it; sort them by arrival";
    else if (!job->curve)
        fault = "it has no speed-up table";
    if (!fault && job->curve != last->curve) /* the last job's curve was valid */
        fault = curve_fault(job->curve);
    if (!fault && job->told_curve && job->told_curve != last->told_curve)
        fault = curve_fault(job->told_curve);
    fault = fault ? fault : bounds_fault(job);
    fault = fault ? fault : time_fault(job);
    if (!fault)
        return 0;
    return error_set(err, -EINVAL, "job %llu (%s): %s", (unsigned long long)job->id, job->name,
                     fault);
}

static int fetch(struct intake *in, struct error *err)
{
    struct sim_job last = in->next;
    int r = in->source->next(in->source, &in->next, err);

    if (r < 0)
        return r;
    in->more = r > 0;
    return in->more ? check_job(&in->next, &last, err) : 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Sets *ret_changed if a policy would see it: phases show nowhere in a snapshot. */
static int end_due(struct engine *e, bool *ret_changed)
{
    for (uint32_t i = 0; i < e->running_count; i++) {
        struct live *l = e->running[i];
        int r = 0;

        if (l->finish_ns > e->now_ns)
            continue;
        if (l->starting)
            live_started(e, l);
        else if (l->server) {
            live_served(e, l);
            if (!server_is_done(l->server))
                continue;
            r = live_end(e, l, true);
        } else if (live_next_phase(e, l))
            continue;
        else
            r = live_end(e, l, true);
        *ret_changed = true;
        if (r < 0)
            return r;
    }
    return 0;
}

static int arrive(struct engine *e, const struct sim_job *job)
{
    struct live *l = live_new(e, job);
    int r = l ? snapshot_add(e, l) : -ENOMEM;

    if (r < 0)
        return r;
    if (e->totals.jobs++ == 0)
        e->totals.begin_ns = e->now_ns;
    if (e->alive > e->totals.most_alive)
        e->totals.most_alive = e->alive;
    if (l->server)
        e->next_request_ns = e->now_ns;
    if (e->options->policy)
        return 0;
    l->held[0].amount.of[POLICY_MCPU] = (int64_t)job->stock_threads * POLICY_CORE_MCPU;
    l->held_count = 1;
    return live_start(e, l);
}

/* Finds the running jobs, their speeds, and when the first of them will be done. */
static void share_machine(struct engine *e)
{
    e->running_count = 0;
    e->next_finish_ns = POLICY_NEVER;
    for (uint32_t i = 0; i < e->count; i++)
        if (e->live[i]->state == POLICY_RUNNING) {
            e->tasks[e->running_count] = &e->live[i]->task;
            e->running[e->running_count++] = e->live[i];
        }
    e->power_uw = machine_share(&e->machine, e->tasks, e->running_count);
    e->usage = 0;
    for (uint32_t i = 0; i < e->running_count; i++) {
        struct live *l = e->running[i];

        e->usage += l->task.usage;
        if (l->rate != l->task.rate || l->usage != l->task.usage || l->waits != l->task.waits)
            live_set_rate(e, l);
        if (l->finish_ns < e->next_finish_ns)
            e->next_finish_ns = l->finish_ns;
    }
}

/* The next look comes a while after the last one, or after the first job began. */
static void plan_look(struct engine *e)
{
    if (!e->lends || e->running_count == 0) {
        e->next_look_ns = POLICY_NEVER;
        return;
    }
    if (e->next_look_ns == POLICY_NEVER)
        loans_begin(e);
    if (e->next_look_ns == POLICY_NEVER || e->next_look_ns <= e->now_ns)
        e->next_look_ns = e->now_ns + EXTRAS_LOOK_NS;
}

/* Handles all events of one time: finishes, arrivals, then one decision. */
static int turn(struct engine *e, struct intake *in, uint64_t now_ns)
{
    bool changed = now_ns >= e->next_wakeup_ns || now_ns >= e->next_decide_ns;
    int r;

    e->energy += e->totals.jobs ? (sim_sum)e->power_uw * (now_ns - e->now_ns) : 0;
    e->busy += (sim_sum)e->usage * (now_ns - e->now_ns);
    e->now_ns = now_ns;
    r = end_due(e, &changed);
    while (r == 0 && in->more && in->next.arrival_ns == now_ns) {
        r = arrive(e, &in->next);
        changed = true;
        if (r == 0)
            r = fetch(in, e->err);
    }
    if (r < 0)
        return r;
    snapshot_compact(e);
    if (now_ns >= e->next_request_ns)
        servers_turn(e);
    if (changed)
        e->next_wakeup_ns = e->next_decide_ns = POLICY_NEVER;
    if (changed && e->options->policy && e->alive) {
        r = snapshot_decide(e);
        snapshot_compact(e);
    }
    if (r == 0 && now_ns >= e->next_look_ns)
        r = loans_look(e);
    if (r == 0)
        share_machine(e);
    plan_look(e);
    return r;
}

/* ---- the run --------------------------------------------------------------------------------- */

static sim_sum work_left(const struct engine *e)
{
    sim_sum left = 0;

    for (uint32_t i = 0; i < e->count; i++) {
        live_settle(e->live[i], e->now_ns);
        left += e->live[i]->left;
    }
    return left;
}

/* Sends the records of jobs that will never end. */
static int give_up(struct engine *e, const char *why)
{
    int r = error_set(e->err, -EDEADLK, "%u jobs are left at %llu ns, the first is %llu (%s): %s",
                      e->alive, (unsigned long long)e->now_ns,
                      (unsigned long long)e->live[0]->job.id, e->live[0]->job.name, why);

    for (uint32_t i = 0; i < e->count; i++) {
        int sent = live_end(e, e->live[i], false);

        if (sent < 0)
            return sent;
    }
    return r;
}

static int loop(struct engine *e, struct intake *in)
{
    sim_sum left_before = 0;
    uint64_t idle_events = 0;

    for (;;) {
        uint64_t arrival_ns = in->more ? in->next.arrival_ns : POLICY_NEVER;
        uint64_t before = e->totals.finished + e->totals.jobs + e->progress;
        uint64_t next_ns = arrival_ns < e->next_finish_ns ? arrival_ns : e->next_finish_ns;
        int r;

        next_ns = e->next_wakeup_ns < next_ns ? e->next_wakeup_ns : next_ns;
        next_ns = e->alive && e->next_request_ns < next_ns ? e->next_request_ns : next_ns;
        next_ns = e->alive && e->next_decide_ns < next_ns ? e->next_decide_ns : next_ns;
        if (next_ns == POLICY_NEVER && e->alive == 0)
            return 0;
        if (next_ns == POLICY_NEVER && e->running_count == 0)
            return give_up(e, "nothing runs, and the policy starts nothing");
        next_ns = e->next_look_ns < next_ns ? e->next_look_ns : next_ns;
        if (next_ns > SIM_TIME_MAX)
            return error_set(e->err, -EOVERFLOW, "the run would last longer than 292 years");
        r = turn(e, in, next_ns);
        if (r < 0)
            return r;
        if (before != e->totals.finished + e->totals.jobs + e->progress)
            idle_events = 0;
        else if (++idle_events % IDLE_EVENTS_MAX == 0) {
            sim_sum left = work_left(e);

            if (left == left_before && e->alive)
                return give_up(e, "the policy changes jobs so often that none makes progress");
            left_before = left;
        }
    }
}

static int check_options(const struct sim_options *options, struct error *err)
{
    if (options->resolution_ns == 0 || options->resolution_ns > SIM_TIME_MAX)
        return error_set(err, -EINVAL, "options: resolution_ns is 1 or more");
    return 0;
}

int sim_run(const struct sim_machine *machine, struct sim_source *source,
            const struct sim_options *options, struct sim_sink *sink, struct sim_totals *ret_totals,
            struct error *err)
{
    struct engine e = {
        .machine = *machine,
        .options = options,
        .sink = sink,
        .err = err,
        .next_finish_ns = POLICY_NEVER,
        .next_wakeup_ns = POLICY_NEVER,
        .next_look_ns = POLICY_NEVER,
        .next_request_ns = POLICY_NEVER,
        .next_decide_ns = POLICY_NEVER,
        .promises = options->policy && options->split == 0,
        .lends = options->policy && options->extras && machine->placement == SIM_SHARED &&
                 machine->cap_uw == 0,
    };
    struct intake in = {.source = source};
    int r = machine_check(machine, err);

    if (r == 0)
        r = check_options(options, err);
    if (!options->policy)
        e.machine.placement = SIM_SHARED; /* without control no job is fenced */
    if (r < 0)
        return r;
    r = snapshot_init(&e);
    if (r == 0)
        r = fetch(&in, err);
    if (r == 0)
        r = loop(&e, &in);
    if (r == -ENOMEM)
        error_set(err, r, "out of memory with %u jobs alive", e.alive);
    if (r == 0 || r == -EDEADLK)
        *ret_totals = e.totals;
    snapshot_done(&e);
    return r;
}
