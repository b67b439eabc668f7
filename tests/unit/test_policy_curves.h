/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of policies by speed-up, size and deadline: curves, and cases small enough to
 * try all allocations.
 */
#pragma once

#include "policy/model/curve.h"
#include "test_policy_scene.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define RANDOM_SNAPSHOTS TIMES(20000)
#define BRUTE_CASES      10000
#define CURVE_MAX        40

static uint32_t table[BUILD_JOBS][CURVE_MAX], envelope[BUILD_JOBS][CURVE_MAX];

static bool gated; /* by the cost of a resize; else policies reach their aim at once */

static inline void decide_by(struct outcome *o, const char *text)
{
    struct policy_spec spec = choice(text);

    scene.snapshot.at_once = !gated; /* the policy itself; test_policy_gate.c tests the gate */
    decide_into(o, &spec);
}

static inline void decide(const char *text)
{
    decide_by(&outcome, text);
}

static inline int64_t mcpu_of(const struct outcome *o, uint32_t job)
{
    return policy_decision_total(&o->plan, job, POLICY_MCPU);
}

static inline int64_t cores_of(uint32_t job)
{
    return mcpu_of(&outcome, job) / POLICY_CORE_MCPU;
}

/* ---- curves ---------------------------------------------------------------------------------- */

static inline void give_curve(uint32_t job, uint32_t count, bool concave)
{
    struct policy_curve *curve = &scene.jobs[job].curve[POLICY_MCPU];

    *curve = (struct policy_curve){table[job], NULL, count, 1000};
    if (concave)
        return;
    curve_envelope(table[job], count, envelope[job]);
    curve->envelope_permille = envelope[job];
}

/* Amdahl's law, rounded down. */
static inline void give_amdahl(uint32_t job, uint32_t parallel_permille)
{
    for (uint32_t k = 1; k <= CURVE_MAX; k++)
        table[job][k - 1] =
            (uint32_t)(UINT64_C(1000000) * k /
                       ((1000 - parallel_permille) * (uint64_t)k + parallel_permille));
    give_curve(job, CURVE_MAX, false);
}

/* Each core adds no more than the one before; the later ones may take speed away. */
static inline void give_random_concave(uint32_t job, uint32_t count)
{
    int64_t step = 1000, speed = 0;

    for (uint32_t k = 0; k < count; k++) {
        if (speed + step < 1)
            step = 1 - speed;
        speed += step;
        table[job][k] = (uint32_t)speed;
        step -= random_below(one_in(3) ? 400 : 100);
    }
    /* the floor of 1 bends the end upwards */
    while (count > 1 && table[job][count - 1] == 1)
        count--;
    give_curve(job, count, true);
}

/* As measured tables are: steps at powers of two, plateaus, noise. */
static inline void give_random_table(uint32_t job, uint32_t count)
{
    uint32_t speed = 1000;

    for (uint32_t k = 0; k < count; k++) {
        if (k > 0 && !one_in(3))
            speed += random_below(1500);
        table[job][k] = k == 0 ? 1000 : speed - random_below(speed / 20);
    }
    give_curve(job, count, false);
}

static inline uint32_t speed_of(uint32_t job, int64_t cores)
{
    const struct policy_curve *curve = &scene.jobs[job].curve[POLICY_MCPU];

    if (cores == 0)
        return 0;
    return curve->speedup_permille[(cores < curve->count ? cores : curve->count) - 1];
}

static inline int64_t machine_cores(void)
{
    return scene.domains[0].capacity.of[POLICY_MCPU] / POLICY_CORE_MCPU;
}

static inline void random_small_case(uint32_t n, bool concave)
{
    uint32_t cores;

    random_state = n;
    cores = 1 + random_below(12);
    scene_init(&scene, cores, 0);
    for (uint32_t i = 1 + random_below(6); i > 0; i--) {
        struct policy_job *job = scene_job(&scene);
        uint32_t index = scene.snapshot.job_count - 1;

        job->arrival_ns = random_below(4);
        job->weight = 1 + random_below(4);
        /* more jobs that have to run than cores would leave nothing to choose */
        if (index >= cores || one_in(3))
            job->state = POLICY_QUEUED;
        if (concave)
            give_random_concave(index, 1 + random_below(13));
        else
            give_random_table(index, 1 + random_below(13));
    }
}
