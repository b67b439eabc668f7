/* SPDX-License-Identifier: Apache-2.0 */
/* One job's life: its progress, and the effects of start, resize, pause and end on it. */
#include "sim/engine/engine.h"
#include "sim/engine/server.h"

#include <stdlib.h>

struct live *live_new(struct engine *e, const struct sim_job *job)
{
    struct live *l = calloc(1, sizeof(*l) + e->domain_count * sizeof(l->held[0]));

    if (!l)
        return NULL;
    l->job = *job;
    if (job->requests && !(l->server = server_new(job))) {
        free(l);
        return NULL;
    }
    l->state = POLICY_QUEUED;
    l->state_ns = l->settled_ns = e->now_ns;
    l->finish_ns = POLICY_NEVER;
    l->starting = job->start_ns > 0;
    l->left = (sim_sum)(l->starting ? job->start_ns : job->work_ns) << 32;
    l->record.start_ns = l->record.finish_ns = POLICY_NEVER;
    l->record.alone_ns = machine_alone_ns(&e->machine, job);
    return l;
}

void live_free(struct live *l)
{
    if (l)
        free(l->server);
    free(l);
}

uint64_t live_done(const struct live *l)
{
    if (l->server)
        return (uint64_t)(l->server->done >> 32);
    return l->starting ? 0 : (uint64_t)((((sim_sum)l->job.work_ns << 32) - l->left) >> 32);
}

void live_settle(struct live *l, uint64_t now_ns)
{
    uint64_t from = l->settled_ns > l->stalled_ns ? l->settled_ns : l->stalled_ns;
    sim_sum done = now_ns > from ? (sim_sum)l->rate * (now_ns - from) : 0;

    if (l->server && !l->starting)
        server_progress(l->server, done);
    else
        l->left -= done < l->left ? done : l->left;
    l->busy += (sim_sum)l->usage * (now_ns - l->settled_ns);
    l->waited += (sim_sum)l->waits * (now_ns - l->settled_ns);
    l->settled_ns = now_ns;
}

/* The phase in which the job is after the work that it has done. */
static void find_phase(struct live *l)
{
    l->serial =
        !l->starting && !l->server &&
        machine_is_serial(&l->job, ((sim_sum)l->job.work_ns << 32) - l->left, &l->phase_left);
}

/* No further phase follows before the end of the job, or of its start. */
static bool ends_with_phase(const struct live *l)
{
    return l->starting || l->phase_left >= l->left;
}

/* Work until something ends or changes; 0: nothing is to be done. */
static sim_sum until_next(const struct live *l)
{
    if (l->server && !l->starting)
        return l->server->served ? server_left(l->server) : 0;
    return ends_with_phase(l) ? l->left : l->phase_left;
}

void live_set_rate(struct engine *e, struct live *l)
{
    uint64_t step = e->options->resolution_ns;
    uint64_t from = l->stalled_ns > e->now_ns ? l->stalled_ns : e->now_ns;
    sim_sum finish;

    live_settle(l, e->now_ns);
    l->rate = l->task.rate;
    l->usage = l->task.usage;
    l->waits = l->task.waits;
    find_phase(l);
    finish = from + (until_next(l) + l->rate - 1) / l->rate;
    if (l->server && !l->starting && !l->server->served)
        finish = POLICY_NEVER;
    else if (!l->server && ends_with_phase(l))
        finish = (finish + step - 1) / step * step;
    l->finish_ns = finish <= SIM_TIME_MAX ? (uint64_t)finish : POLICY_NEVER;
}

/* ---- transitions ----------------------------------------------------------------------------- */

/* Closes the stretch of time in which the job held its present cores. */
static int end_segment(struct engine *e, struct live *l)
{
    struct sim_segment segment = {&l->job, l->segment_ns, e->now_ns, l->mcpu};

    l->segment_ns = e->now_ns;
    if (l->state == POLICY_QUEUED || segment.begin_ns == segment.end_ns)
        return 0;
    l->held_mcpu_ns += (sim_sum)l->mcpu * (segment.end_ns - segment.begin_ns);
    return e->sink && e->sink->segment ? e->sink->segment(e->sink, &segment) : 0;
}

static void change_state(struct engine *e, struct live *l, enum policy_state state)
{
    uint64_t passed = e->now_ns - l->state_ns;

    if (l->state == POLICY_RUNNING)
        l->record.run_ns += passed;
    else
        l->record.wait_ns += passed;
    l->state = state;
    l->state_ns = e->now_ns;
}

static bool has_own_cores(const struct live *l)
{
    for (uint32_t i = 0; i < POLICY_SPEEDS_MAX; i++)
        if (l->of_speed[i])
            return true;
    return false;
}

/* Takes the job's present cores into account; it makes no progress for @cost_ns. */
static void hold(struct engine *e, struct live *l, uint64_t cost_ns)
{
    uint64_t until = e->now_ns + cost_ns;
    uint32_t with_cores = 0;
    struct sim_job job = l->job;
    int64_t used;

    l->mcpu = policy_amount_total(l->held, l->held_count, POLICY_MCPU);
    for (uint32_t i = 0; i < l->held_count; i++)
        with_cores += l->held[i].amount.of[POLICY_MCPU] > 0;
    find_phase(l);
    used = l->mcpu +
           (int64_t)extras_of(&l->loan, (uint32_t)(l->mcpu / POLICY_CORE_MCPU)) * POLICY_CORE_MCPU +
           (int64_t)l->beyond * POLICY_CORE_MCPU;
    if (used > POLICY_CORE_MCPU && (l->starting || l->serial))
        used = POLICY_CORE_MCPU;
    job.idle_permille = l->starting ? 0 : job.idle_permille;
    if (l->server && !l->starting)
        machine_serve(&e->machine, &job, used, l->server->served,
                      server_threads(l->server, (uint32_t)(used / POLICY_CORE_MCPU)),
                      with_cores > 1, &l->task);
    else
        machine_hold(&e->machine, &job, used, with_cores > 1, &l->task);
    machine_own_cores(&e->machine, has_own_cores(l) ? l->of_speed : NULL,
                      has_own_cores(l) && used >= POLICY_CORE_MCPU
                          ? (uint32_t)(used / POLICY_CORE_MCPU)
                          : e->machine.cores,
                      &l->task);
    /* Its group keeps the weight of its share; without control each thread has one. */
    if (e->options->policy && !l->starting)
        l->task.weight = (uint64_t)(l->mcpu + l->weighs);
    l->stalled_ns = until > l->stalled_ns ? until : l->stalled_ns;
    l->rate = 0; /* set anew below, also if unchanged: the finish has moved */
}

int live_start(struct engine *e, struct live *l)
{
    bool resumes = l->state == POLICY_PAUSED;
    uint64_t cost_ns = l->job.cost_ns[resumes ? POLICY_ACTION_PAUSE : POLICY_ACTION_START];
    int r = end_segment(e, l);

    if (resumes)
        l->change_ns = e->now_ns;
    else
        l->record.start_ns = e->now_ns;
    change_state(e, l, POLICY_RUNNING);
    l->settled_ns = e->now_ns;
    hold(e, l, cost_ns > l->owed_ns ? cost_ns : l->owed_ns);
    return r;
}

void live_started(struct engine *e, struct live *l)
{
    live_settle(l, e->now_ns);
    l->starting = false;
    l->left = (sim_sum)l->job.work_ns << 32;
    hold(e, l, 0);
}

void live_hold(struct engine *e, struct live *l)
{
    live_settle(l, e->now_ns);
    hold(e, l, 0);
}

void live_served(struct engine *e, struct live *l)
{
    live_settle(l, e->now_ns);
    server_finish(l->server, e->now_ns);
    e->progress++;
    hold(e, l, 0);
}

bool live_next_phase(struct engine *e, struct live *l)
{
    live_settle(l, e->now_ns);
    if (l->left == 0)
        return false;
    hold(e, l, 0);
    return true;
}

int live_resize(struct engine *e, struct live *l)
{
    int r = end_segment(e, l);

    live_settle(l, e->now_ns);
    l->record.resizes++;
    l->change_ns = e->now_ns;
    hold(e, l, l->job.cost_ns[POLICY_ACTION_RESIZE]);
    return r;
}

int live_lend(struct engine *e, struct live *l)
{
    live_settle(l, e->now_ns);
    l->record.resizes++;
    hold(e, l, l->job.cost_ns[POLICY_ACTION_RESIZE]);
    return 0;
}

int live_pause(struct engine *e, struct live *l)
{
    int r = end_segment(e, l);

    live_settle(l, e->now_ns);
    change_state(e, l, POLICY_PAUSED);
    l->record.pauses++;
    l->change_ns = e->now_ns;
    l->owed_ns = l->stalled_ns > e->now_ns ? l->stalled_ns - e->now_ns : 0;
    l->stalled_ns = e->now_ns;
    l->mcpu = 0;
    l->rate = l->usage = l->waits = 0;
    l->finish_ns = POLICY_NEVER;
    return r;
}

/* ---- the end --------------------------------------------------------------------------------- */

static uint64_t saturated(sim_sum value)
{
    return value < UINT64_MAX ? (uint64_t)value : UINT64_MAX;
}

int live_end(struct engine *e, struct live *l, bool finished)
{
    struct sim_record *record = &l->record;
    struct sim_totals *totals = &e->totals;
    struct sim_served served;
    int r = end_segment(e, l);

    live_settle(l, e->now_ns);
    change_state(e, l, l->state);
    record->job = &l->job;
    record->finish_ns = finished ? e->now_ns : POLICY_NEVER;
    record->core_ns = saturated(l->held_mcpu_ns / POLICY_CORE_MCPU);
    record->busy_ns = saturated(l->busy >> 32);
    record->useful_ns = live_done(l);
    if (l->server) {
        served = (struct sim_served){.requests = l->server->ended,
                                     .seconds = l->server->seconds.judged,
                                     .kept = l->server->seconds.kept,
                                     .latency_ns = &l->server->latency_ns};
        record->served = &served;
        e->server_count--;
    }
    totals->finished += finished;
    totals->infeasible += record->infeasible;
    totals->late += record->late;
    if (finished) {
        totals->end_ns = e->now_ns;
        totals->work_end_ns = l->server ? totals->work_end_ns : e->now_ns;
        totals->energy_uj = e->energy / 1000000000;
    }
    totals->core_ns += l->held_mcpu_ns / POLICY_CORE_MCPU;
    totals->busy_ns += l->busy >> 32;
    totals->useful_ns += record->useful_ns;
    totals->resizes += record->resizes;
    totals->pauses += record->pauses;
    if (r == 0 && e->sink && e->sink->record)
        r = e->sink->record(e->sink, record);
    e->live[l->index] = NULL;
    e->alive--;
    live_free(l);
    return r;
}
