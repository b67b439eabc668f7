/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long one decision takes, for every policy: 128 jobs on 64 cores, 10,000 jobs on 1,024 cores.
 * Prints a table: median and 99th percentile. Bounds differ from job to job, so that shares are
 * clamped; jobs stand in the order of their ids, as the daemon gives them.
 */
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define REPEATS 501

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void fill(struct policy_job *jobs, uint32_t count, uint32_t repeat)
{
    uint32_t seed = repeat;

    for (uint32_t j = 0; j < count; j++) {
        seed = seed * 1664525 + 1013904223;
        policy_job_init(&jobs[j], j + 1);
        jobs[j].arrival_ns = seed >> 12;
        jobs[j].weight = 1 + (seed >> 28);
        if (seed & 0x40000)
            jobs[j].max.of[POLICY_MCPU] = (1 + (seed >> 20) % 8) * POLICY_CORE_MCPU;
        if (count <= 128 && j % 16 == 0)
            jobs[j].min.of[POLICY_MCPU] = jobs[j].max.of[POLICY_MCPU] < 3 * POLICY_CORE_MCPU
                                              ? POLICY_CORE_MCPU
                                              : 3 * POLICY_CORE_MCPU;
    }
}

static int measure(const struct policy *policy, uint32_t job_count, int64_t cores)
{
    static uint64_t took[REPEATS];
    struct policy_domain machine;
    struct policy_domain_use use;
    struct policy_job *jobs = calloc(job_count, sizeof(*jobs));
    struct policy_snapshot snapshot = {
        .domains = &machine, .domain_count = 1, .jobs = jobs, .job_count = job_count};
    struct policy_plan plan = {.domains = &use};
    struct policy_room room;
    int r = 0;

    if (!jobs)
        return -1;
    policy_machine_init(&machine, cores * POLICY_CORE_MCPU, 0);
    fill(jobs, job_count, 1);
    policy_room(policy, &snapshot, &room);
    plan.decisions = calloc(job_count, sizeof(*plan.decisions));
    plan.amounts = calloc(room.amounts, sizeof(*plan.amounts));
    plan.scratch = malloc(room.scratch_bytes);
    plan.state_out = malloc(room.state_bytes + 1);
    plan.amount_room = room.amounts;
    plan.scratch_room = room.scratch_bytes;
    plan.state_room = room.state_bytes;
    for (uint32_t i = 0; i < REPEATS && r == 0; i++) {
        uint64_t start;

        fill(jobs, job_count, i);
        start = now_ns();
        r = plan.decisions && plan.amounts && plan.scratch && plan.state_out
                ? policy_decide(policy, &snapshot, &plan)
                : -1;
        took[i] = now_ns() - start;
    }
    qsort(took, REPEATS, sizeof(took[0]), compare);
    if (r == 0) {
        uint64_t p50 = took[REPEATS / 2], p99 = took[REPEATS * 99 / 100];

        printf("%-12s %6u %6lld %12.1f %12.1f\n", policy->name, job_count, (long long)cores,
               (double)p50 / 1000, (double)p99 / 1000);
    }
    free(jobs);
    free(plan.decisions);
    free(plan.amounts);
    free(plan.scratch);
    free(plan.state_out);
    return r;
}

int main(void)
{
    printf("%-12s %6s %6s %12s %12s\n", "policy", "jobs", "cores", "p50 [us]", "p99 [us]");
    for (size_t i = 0; i < policy_count(); i++)
        if (measure(policy_at(i), 128, 64) || measure(policy_at(i), 128, 1024) ||
            measure(policy_at(i), 10000, 1024) || measure(policy_at(i), 10000, 65536)) {
            fprintf(stderr, "%s: no decision\n", policy_at(i)->name);
            return 1;
        }
    return 0;
}
