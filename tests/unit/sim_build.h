/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios, runs and policies written by hand, for the tests of the simulator. One thread; the
 * structs are large: keep them static.
 */
#pragma once

#include "policy/core/policy.h"

#include "base/fnv.h"
#include "sim/engine/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RUN_JOBS     512
#define RUN_SEGMENTS 16384

#define MS     UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

/* A scenario and, after run(), what happened. Source and sink are embedded: see container below. */
struct run {
    struct sim_machine machine;
    struct sim_options options;
    struct sim_job jobs[RUN_JOBS];
    uint32_t job_count;

    struct sim_source source;
    struct sim_sink sink;
    uint32_t given;
    struct sim_record records[RUN_JOBS + 1]; /* by id; .job points into jobs */
    uint32_t record_count;
    struct sim_segment segments[RUN_SEGMENTS];
    uint32_t segment_count;
    uint64_t decisions_hash;
    struct sim_totals totals;
    struct error error;
};

static const uint32_t linear_speeds[] = {1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000};
static const uint32_t half_serial_speeds[] = {1000, 1333, 1500, 1600}; /* Amdahl, f = 0.5 */
static const struct sim_curve linear = {linear_speeds, NULL, 8};
static const struct sim_curve half_serial = {half_serial_speeds, NULL, 4};

static inline int run_next(struct sim_source *source, struct sim_job *ret_job, struct error *err)
{
    struct run *run = (struct run *)((char *)source - offsetof(struct run, source));

    (void)err;
    if (run->given == run->job_count)
        return 0;
    *ret_job = run->jobs[run->given++];
    return 1;
}

static inline int run_record(struct sim_sink *sink, const struct sim_record *record)
{
    struct run *run = (struct run *)((char *)sink - offsetof(struct run, sink));
    struct sim_record *mine = &run->records[record->job->id];

    assert_null(mine->job); /* each job once */
    *mine = *record;
    mine->job = &run->jobs[record->job->id - 1];
    run->record_count++;
    return 0;
}

static inline int run_segment(struct sim_sink *sink, const struct sim_segment *segment)
{
    struct run *run = (struct run *)((char *)sink - offsetof(struct run, sink));

    assert_true(run->segment_count < RUN_SEGMENTS);
    run->segments[run->segment_count] = *segment;
    run->segments[run->segment_count++].job = &run->jobs[segment->job->id - 1];
    return 0;
}

static inline int run_decision(struct sim_sink *sink, const struct policy_snapshot *snapshot,
                               const struct policy_plan *plan)
{
    struct run *run = (struct run *)((char *)sink - offsetof(struct run, sink));
    uint64_t hash = fnv_bytes(run->decisions_hash, &snapshot->now_ns, sizeof(snapshot->now_ns));

    for (uint32_t i = 0; i < snapshot->job_count; i++) {
        hash = fnv_bytes(hash, &snapshot->jobs[i].remaining_ns, sizeof(uint64_t));
        hash = fnv_bytes(hash, &plan->decisions[i].verb, sizeof(uint32_t));
    }
    run->decisions_hash =
        fnv_bytes(hash, plan->amounts, plan->amount_count * sizeof(plan->amounts[0]));
    return 0;
}

/* A lone machine without losses; policy `equal`, every plan checked. */
static inline void run_init(struct run *run, uint32_t cores)
{
    memset(run, 0, sizeof(*run));
    run->machine = (struct sim_machine){.cores = cores, .numa = 1, .smt = 1};
    run->options =
        (struct sim_options){.policy = policy_find("equal"), .resolution_ns = 1, .check = true};
    run->source.next = run_next;
    run->sink = (struct sim_sink){run_segment, run_record, run_decision};
}

/* Adds a malleable job with linear speed-up. */
static inline struct sim_job *run_job(struct run *run, uint64_t arrival_ns, uint64_t work_ns)
{
    struct sim_job *job = &run->jobs[run->job_count++];

    *job = (struct sim_job){
        .id = run->job_count,
        .arrival_ns = arrival_ns,
        .work_ns = work_ns,
        .told_ns = work_ns,
        .curve = &linear,
        .told_curve = &linear,
        .request = 1,
        .min = 1,
        .stock_threads = 1,
        .malleability = POLICY_MALLEABLE,
        .weight = 1,
        .preemptible = true,
        .deadline_ns = POLICY_NEVER,
    };
    snprintf(job->name, sizeof(job->name), "job-%u", run->job_count);
    return job;
}

/* Runs it, also for a second time; 0 or -errno. */
static inline int run_try(struct run *run)
{
    run->given = run->record_count = run->segment_count = 0;
    run->decisions_hash = FNV_START;
    memset(run->records, 0, sizeof(run->records));
    memset(run->segments, 0, sizeof(run->segments));
    memset(&run->totals, 0, sizeof(run->totals));
    memset(&run->error, 0, sizeof(run->error));
    return sim_run(&run->machine, &run->source, &run->options, &run->sink, &run->totals,
                   &run->error);
}

static inline void run_all(struct run *run)
{
    int r = run_try(run);

    if (r < 0)
        print_error("%s\n", run->error.text);
    assert_int_equal(r, 0);
    assert_int_equal(run->totals.finished, run->job_count);
}

static inline uint64_t finish_of(const struct run *run, uint64_t id)
{
    return run->records[id].finish_ns;
}

/* Times worked out by hand: speeds are rounded down to 32 fractional bits, finishes up to a ns. */
#define assert_at(ns, expected_ns) assert_in_range(ns, expected_ns, (expected_ns) + 8)

/* ---- a policy written by hand ---------------------------------------------------------------- */

/* The scripted policy's decision; each job's is preset to keep or hold. */
typedef void (*script_fn)(const struct policy_snapshot *snapshot, struct policy_plan *plan);
static script_fn script;

static inline void script_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room)
{
    *ret_room = (struct policy_room){.amounts = 2 * snapshot->job_count, .state_bytes = 8};
}

/* The job's decision; @mcpu of the root domain, and the memory that it asked for. */
static inline void decide(const struct policy_snapshot *snapshot, struct policy_plan *plan,
                          uint32_t j, enum policy_verb verb, int64_t mcpu)
{
    struct policy_amount *entry = &plan->amounts[plan->amount_count];

    plan->decisions[j].verb = verb;
    plan->decisions[j].reason.code = POLICY_REASON_PRIORITY;
    plan->decisions[j].amount_first = (uint32_t)plan->amount_count;
    *entry = (struct policy_amount){0};
    entry->amount.of[POLICY_MCPU] = mcpu;
    entry->amount.of[POLICY_MEMORY] = snapshot->jobs[j].min.of[POLICY_MEMORY];
    if (mcpu || entry->amount.of[POLICY_MEMORY]) {
        plan->decisions[j].amount_count = 1;
        plan->amount_count++;
    }
}

static inline void decide_keep(const struct policy_snapshot *snapshot, struct policy_plan *plan,
                               uint32_t j)
{
    decide(snapshot, plan, j, POLICY_VERB_KEEP,
           policy_amount_total(snapshot->jobs[j].current, snapshot->jobs[j].current_count,
                               POLICY_MCPU));
}

static inline int script_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                                struct policy_plan *plan)
{
    (void)policy;
    script(snapshot, plan);
    return 0;
}

static const struct policy scripted = {
    .name = "scripted", .room = script_room, .decide = script_decide};
