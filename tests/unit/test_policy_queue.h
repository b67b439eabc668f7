/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of policies with a queue. */
#pragma once

#include "test_policy_scene.h"

static uint64_t saved_state[1024];

/* The state of the plan is the next snapshot's. */
static inline void keep_state(void)
{
    scene.snapshot.state = saved_state;
    scene.snapshot.state_size = outcome.plan.state_size;
    memcpy(saved_state, outcome.state, outcome.plan.state_size);
}

static inline void decide(const char *text)
{
    struct policy_spec spec = choice(text);

    decide_into(&outcome, &spec);
}

/* A job of one core at least that asks for @cores. */
static inline struct policy_job *asks(int64_t cores)
{
    struct policy_job *job = scene_job(&scene);

    job->state = POLICY_QUEUED;
    job->request.of[POLICY_MCPU] = CORES(cores);
    return job;
}

static inline struct policy_job *runs_with(int64_t cores, int64_t request)
{
    struct policy_job *job = asks(request);

    job->state = POLICY_RUNNING;
    scene_hold(&scene, job, 0, cores, 0);
    return job;
}
