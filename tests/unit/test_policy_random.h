/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random snapshots for the tests of policies: number n is the same on every machine. A flavour
 * chooses their contents, so that a property is tested where it is promised.
 */
#pragma once

#include "sanitized.h"
#include "test_policy_build.h"
#include "test_random.h"

enum flavour {
    WITH_TREE = 1 << 0,      /* NUMA nodes, homes, spans */
    WITH_LENDING = 1 << 1,   /* lent and borrowed cores */
    WITH_FRACTIONS = 1 << 2, /* bounds, capacities and pins in thousandths */
    WITH_FIXED = 1 << 3,     /* pinned, rigid, moldable, queued, paused, memory */
    WITH_WEIGHTS = 1 << 4,
    WITH_TASKS = 1 << 5,   /* parameter servers and workers */
    WITH_HISTORY = 1 << 6, /* run and wait times, priorities, preemptible */
    FLAVOURS = 1 << 7
};

/* Devices are drawn aside: scenes are otherwise those that they were without. */
#define RANDOM_DEVICES 0x5bd1e995u

static inline int64_t random_mcpu(unsigned flavour, uint32_t cores)
{
    if (flavour & WITH_FRACTIONS && one_in(3))
        return random_below(cores * POLICY_CORE_MCPU + 1);
    return CORES(random_below(cores + 1));
}

static inline void random_tree(struct scene *scene, unsigned flavour)
{
    uint32_t cores = 1 + random_below(one_in(4) ? 128 : 16);

    scene_init(scene, cores, one_in(2) ? 0 : GIB(64));
    scene->domains[0].capacity.of[POLICY_MCPU] = random_mcpu(flavour, cores) + CORES(1);
    if (flavour & WITH_TREE) {
        scene->domains[0].level = POLICY_CLUSTER;
        for (uint32_t n = 1 + random_below(3); n > 0; n--) {
            uint32_t node = scene_domain(scene, 0, POLICY_NODE, 0, GIB(32));

            scene->domains[node].capacity.of[POLICY_MCPU] = random_mcpu(flavour, cores) + CORES(1);
            for (uint32_t m = random_below(3); m > 0; m--) {
                uint32_t numa = scene_domain(scene, node, POLICY_NUMA, 0, GIB(16));

                scene->domains[numa].capacity.of[POLICY_MCPU] = random_mcpu(flavour, cores / 2 + 1);
            }
        }
        if (one_in(4)) {
            scene->domains[1].core_uw = 3000000;
            scene->domains[1].cap_uw = 1 + random_below(100000000);
        }
    }
    for (uint32_t d = 0; flavour & WITH_TASKS && d < scene->snapshot.domain_count; d++) {
        scene->domains[d].capacity.of[POLICY_PS] = one_in(2) ? POLICY_UNLIMITED : random_below(8);
        scene->domains[d].capacity.of[POLICY_WORKER] =
            one_in(2) ? POLICY_UNLIMITED : random_below(16);
    }
}

static inline void random_holding(struct scene *scene, struct policy_job *job)
{
    uint32_t first = random_below(scene->snapshot.domain_count);
    uint32_t second = random_below(scene->snapshot.domain_count);
    uint32_t cores;

    if (!policy_domain_within(&scene->snapshot, first, job->home))
        first = job->home;
    cores = random_below(8); /* one after the other: compilers evaluate arguments in any order */
    scene_hold(scene, job, first, cores, one_in(2) ? GIB(random_below(3)) : 0);
    if (second != first && policy_domain_within(&scene->snapshot, second, job->home) &&
        policy_span_domain(&scene->snapshot, job, first) ==
            policy_span_domain(&scene->snapshot, job, second)) {
        cores = random_below(4);
        scene_hold(scene, job, second, cores, GIB(random_below(2)));
    }
}

static inline void random_fixed(struct policy_job *job, unsigned flavour)
{
    uint64_t aside;

    static const uint8_t states[] = {POLICY_RUNNING, POLICY_RUNNING, POLICY_RUNNING,
                                     POLICY_QUEUED,  POLICY_PAUSED,  POLICY_HELD};

    job->state = states[random_below(sizeof(states))];
    job->malleability = one_in(2) ? POLICY_MALLEABLE : random_below(POLICY_MALLEABILITY_MAX);
    job->request.of[POLICY_MCPU] = one_in(2) ? random_mcpu(flavour, 8) : 0;
    job->request.of[POLICY_MEMORY] = one_in(2) ? GIB(random_below(40)) : 0;
    job->min.of[POLICY_MEMORY] = one_in(2) ? GIB(random_below(8)) : 0;
    aside = random_state;
    random_state ^= RANDOM_DEVICES;
    for (int r = POLICY_DEVICE; r < POLICY_RESOURCE_MAX && one_in(3); r++)
        job->request.of[r] = job->min.of[r] = random_below(3);
    random_state = aside;
    if (one_in(4)) {
        job->pinned_by = 1 + random_below(POLICY_PIN_MAX - 1);
        job->pinned.of[POLICY_MCPU] = random_mcpu(flavour, 12);
    }
}

static inline void random_tasks(struct policy_job *job)
{
    for (int r = POLICY_PS; r <= POLICY_WORKER; r++) {
        job->min.of[r] = one_in(2) ? random_below(3) : 0;
        job->max.of[r] = job->min.of[r] + random_below(4);
        job->request.of[r] = random_below(5);
        if (job->pinned_by != POLICY_PIN_NONE && one_in(2))
            job->pinned.of[r] = random_below(4);
    }
}

static inline void random_history(struct policy_job *job, uint64_t now_ns)
{
    job->priority = (int32_t)random_below(4) - 1;
    job->preemptible = !one_in(3);
    job->run_ns = random_below(4) * SECOND * 30;
    job->wait_ns = random_below(300) * SECOND;
    job->change_ns = one_in(3) ? 0 : now_ns - random_below(60) * SECOND;
}

static inline void random_job(struct scene *scene, unsigned flavour)
{
    uint64_t aside;
    struct policy_job *job = scene_job(scene);

    job->id = 1 + random_below(1000000) * (uint64_t)BUILD_JOBS + (uint64_t)(job - scene->jobs);
    job->arrival_ns = random_below(8); /* some of the same age */
    if (flavour & WITH_WEIGHTS)
        job->weight = 1 + random_below(one_in(3) ? POLICY_WEIGHT_MAX : 5);
    if (one_in(2))
        job->min.of[POLICY_MCPU] = random_mcpu(flavour, 6);
    if (one_in(2))
        job->max.of[POLICY_MCPU] = job->min.of[POLICY_MCPU] + random_mcpu(flavour, 12);
    if (flavour & WITH_TREE) {
        job->home = random_below(scene->snapshot.domain_count);
        job->span = random_below(POLICY_LEVEL_MAX);
    }
    if (flavour & WITH_LENDING) {
        job->lent = one_in(3) ? random_below(8) : 0;
        job->borrowed = one_in(3) ? random_below(8) : 0;
    }
    if (flavour & WITH_FIXED)
        random_fixed(job, flavour);
    if (flavour & WITH_TASKS)
        random_tasks(job);
    if (flavour & WITH_HISTORY)
        random_history(job, scene->snapshot.now_ns);
    if (job->state == POLICY_PAUSED || (job->state == POLICY_RUNNING && one_in(2)))
        random_holding(scene, job);
    for (uint32_t i = 0; flavour & WITH_TASKS && i < job->current_count; i++) {
        scene->held[job - scene->jobs][i].amount.of[POLICY_PS] = random_below(3);
        scene->held[job - scene->jobs][i].amount.of[POLICY_WORKER] = random_below(3);
    }
    aside = random_state;
    random_state ^= RANDOM_DEVICES;
    for (uint32_t i = 0; flavour & WITH_FIXED && i < job->current_count && one_in(3); i++)
        scene->held[job - scene->jobs][i].amount.of[POLICY_DEVICE + 1] = random_below(3);
    random_state = aside;
}

/* Snapshot number @n: the same one on every machine. */
static inline void random_scene(struct scene *scene, uint32_t n, unsigned flavour)
{
    uint64_t aside;

    random_state = n;
    random_tree(scene, flavour);
    aside = random_state;
    random_state ^= RANDOM_DEVICES;
    for (int r = POLICY_DEVICE; flavour & WITH_FIXED && r < POLICY_RESOURCE_MAX && one_in(2); r++)
        scene->domains[0].capacity.of[r] = random_below(6);
    random_state = aside;
    for (uint32_t i = random_below(one_in(3) ? 40 : 6) + 1; i > 0; i--)
        random_job(scene, flavour);
}

static inline bool same_reason(const struct policy_reason *a, const struct policy_reason *b)
{
    return a->code == b->code && memcmp(a->arg, b->arg, sizeof(a->arg)) == 0 &&
           a->used_mcpu == b->used_mcpu && a->capacity_mcpu == b->capacity_mcpu;
}

/* Whether decision @i of @a is decision @k of @b, amounts and reason included. */
static inline bool same_decision(const struct outcome *a, uint32_t i, const struct outcome *b,
                                 uint32_t k)
{
    const struct policy_decision *x = &a->decisions[i], *y = &b->decisions[k];

    return x->id == y->id && x->verb == y->verb && x->amount_count == y->amount_count &&
           same_reason(&x->reason, &y->reason) &&
           memcmp(a->amounts + x->amount_first, b->amounts + y->amount_first,
                  x->amount_count * sizeof(struct policy_amount)) == 0;
}

/* Puts the jobs of the scene into another order; @from[i] is where job i stood before. */
static inline void random_shuffle(struct scene *scene, uint32_t *from)
{
    uint32_t count = scene->snapshot.job_count;

    for (uint32_t i = 0; i < count; i++)
        from[i] = i;
    for (uint32_t i = count; i-- > 1;) {
        uint32_t k = random_below(i + 1), index = from[i];
        struct policy_job job = scene->jobs[i];

        scene->jobs[i] = scene->jobs[k];
        scene->jobs[k] = job;
        from[i] = from[k];
        from[k] = index;
    }
}
