/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots and plans with storage of fixed size, for the tests of policies. One thread; the
 * structs are large: keep them static.
 */
#pragma once

#include "policy/core/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define BUILD_JOBS    64
#define BUILD_DOMAINS 64
#define BUILD_HELD    4 /* entries of `current` of one job */

#define CORES(n) ((int64_t)((n)*POLICY_CORE_MCPU))
#define GIB(n)   ((int64_t)(n) << 30)
#define SECOND   UINT64_C(1000000000)

/* A snapshot with its arrays. */
struct scene {
    struct policy_snapshot snapshot;
    struct policy_domain domains[BUILD_DOMAINS];
    struct policy_job jobs[BUILD_JOBS];
    struct policy_amount held[BUILD_JOBS][BUILD_HELD];
};

/* A plan with its arrays. */
struct outcome {
    struct policy_plan plan;
    struct policy_decision decisions[BUILD_JOBS];
    struct policy_domain_use domains[BUILD_DOMAINS];
    struct policy_amount amounts[BUILD_JOBS * (BUILD_HELD + 1)];
    uint64_t scratch[16384];
    uint64_t state[1024];
};

static inline void scene_init(struct scene *scene, int64_t cores, int64_t memory_bytes)
{
    memset(scene, 0, sizeof(*scene));
    policy_machine_init(&scene->domains[0], CORES(cores), memory_bytes);
    scene->snapshot = (struct policy_snapshot){
        .now_ns = 100 * SECOND,
        .epoch = 7,
        .generation = 42,
        .domains = scene->domains,
        .domain_count = 1,
        .jobs = scene->jobs,
    };
}

static inline uint32_t scene_domain(struct scene *scene, uint32_t parent, enum policy_level level,
                                    int64_t cores, int64_t memory_bytes)
{
    uint32_t index = scene->snapshot.domain_count++;

    scene->domains[index] = (struct policy_domain){
        .parent = parent,
        .level = level,
        .id = index,
        .capacity.of = {CORES(cores), memory_bytes, 0, 0},
    };
    return index;
}

/* A job with the defaults of policy_job_init, its index as id and age. */
static inline struct policy_job *scene_job(struct scene *scene)
{
    uint32_t index = scene->snapshot.job_count++;
    struct policy_job *job = &scene->jobs[index];

    policy_job_init(job, index + 1);
    job->arrival_ns = (index + 1) * SECOND;
    job->current = scene->held[index];
    return job;
}

/* The job holds this, too. */
static inline void scene_hold(struct scene *scene, struct policy_job *job, uint32_t domain,
                              int64_t cores, int64_t memory_bytes)
{
    scene->held[job - scene->jobs][job->current_count++] =
        (struct policy_amount){domain, {{CORES(cores), memory_bytes, 0, 0}}};
}

static inline void outcome_init(struct outcome *outcome)
{
    memset(outcome, 0xa5, sizeof(*outcome)); /* a plan must not rely on former contents */
    outcome->plan = (struct policy_plan){
        .decisions = outcome->decisions,
        .domains = outcome->domains,
        .amounts = outcome->amounts,
        .amount_room = sizeof(outcome->amounts) / sizeof(outcome->amounts[0]),
        .scratch = outcome->scratch,
        .scratch_room = sizeof(outcome->scratch),
        .state_out = outcome->state,
        .state_room = sizeof(outcome->state),
    };
}

/* Begins a plan written by hand: every job's decision follows with outcome_decide, in order. */
static inline void outcome_begin(struct outcome *outcome, const struct scene *scene)
{
    outcome_init(outcome);
    outcome->plan.epoch = scene->snapshot.epoch;
    outcome->plan.generation = scene->snapshot.generation;
    outcome->plan.next_wakeup_ns = POLICY_NEVER;
}

static inline void outcome_decide(struct outcome *outcome, const struct policy_job *job,
                                  uint32_t index, enum policy_verb verb,
                                  enum policy_reason_code reason)
{
    outcome->decisions[index] = (struct policy_decision){
        .id = job->id,
        .verb = verb,
        .amount_first = (uint32_t)outcome->plan.amount_count,
        .reason.code = reason,
    };
}

/* Adds an amount to the decision made last. */
static inline struct policy_vector *outcome_amount(struct outcome *outcome, uint32_t index,
                                                   uint32_t domain, int64_t cores,
                                                   int64_t memory_bytes)
{
    struct policy_amount *entry = &outcome->amounts[outcome->plan.amount_count++];

    outcome->decisions[index].amount_count++;
    *entry = (struct policy_amount){domain, {{CORES(cores), memory_bytes, 0, 0}}};
    return &entry->amount;
}

/* Accounts and checks; the code of the fault, POLICY_FAULT_NONE for a plan that is right. */
static inline enum policy_fault_code outcome_fault(const struct scene *scene,
                                                   struct outcome *outcome)
{
    struct policy_fault fault = {0};
    int r;

    policy_plan_account(&scene->snapshot, &outcome->plan);
    r = policy_plan_check(&scene->snapshot, &outcome->plan, &fault);
    assert_int_equal(r == 0, fault.code == POLICY_FAULT_NONE);
    return fault.code;
}
