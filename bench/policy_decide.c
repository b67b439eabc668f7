/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long one decision takes, for every policy and each value of its first named parameter: 128
 * jobs on 64 cores, 10,000 jobs on 1,024 cores. Two situations: `run`, in which all jobs run and
 * none can be stopped, as tided has them; `queue`, in which some fill the machine, and the others
 * wait, some paused.
 *
 * Prints a table of the median, its 95 % interval and the 99th percentile, and whether the interval
 * lies below the goal; with --json the same as rows for bench/decide.py.
 */
#include "policy/core/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REPEATS_MAX 501
#define CURVES      8

static const struct size {
    uint32_t jobs, cores;
    double goal_us;
    uint32_t repeats;
} sizes[] = {{128, 64, 100, 501}, {10000, 1024, 10000, 101}};

static const char *const situations[] = {"run", "queue"};

/* Storage of one measurement. */
struct stage {
    struct policy_snapshot snapshot;
    struct policy_domain machine;
    struct policy_domain_use use;
    struct policy_job *jobs;
    struct policy_amount *held;
    uint32_t *speedup[CURVES];
    struct policy_plan plan;
};

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

static void *allocate(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);

    if (!p)
        exit(1);
    return p;
}

/* Amdahl's law with parallel fractions of 0.5 … 0.99, for as many cores as there are. */
static void fill_curves(struct stage *s, uint32_t cores)
{
    static const uint32_t permille[CURVES] = {500, 700, 800, 900, 950, 970, 980, 990};

    for (int c = 0; c < CURVES; c++) {
        s->speedup[c] = allocate(cores, sizeof(uint32_t));
        for (uint32_t k = 1; k <= cores; k++)
            s->speedup[c][k - 1] = 1000000 * k / ((1000 - permille[c]) * k + permille[c]);
    }
}

/* Bounds, requests, work and times differ from job to job, and from one repeat to the next. */
static void fill_jobs(struct stage *s, uint32_t count, uint32_t cores, bool queue, uint32_t seed)
{
    int64_t free = cores;

    for (uint32_t j = 0; j < count; j++) {
        struct policy_job *job = &s->jobs[j];
        uint32_t request, has;

        seed = seed * 1664525 + 1013904223;
        request = 1 + (seed >> 20) % 8;
        has = queue ? request : 1;
        policy_job_init(job, j + 1);
        job->arrival_ns = seed >> 12;
        job->weight = 1 + (seed >> 28);
        job->priority = (int32_t)(seed >> 25) % 4;
        job->request.of[POLICY_MCPU] = request * POLICY_CORE_MCPU;
        if (seed & 0x40000)
            job->max.of[POLICY_MCPU] = request * POLICY_CORE_MCPU;
        job->run_ns = (uint64_t)(seed >> 8) * 1000;
        job->wait_ns = (uint64_t)(seed >> 4) * 1000;
        job->remaining_ns = (uint64_t)(seed >> 2) * 1000;
        job->deadline_ns = s->snapshot.now_ns + (uint64_t)(seed >> 1) * 1000;
        job->curve[POLICY_MCPU] =
            (struct policy_curve){s->speedup[seed >> 24 & (CURVES - 1)], NULL, cores, 1000};
        job->current = &s->held[j];
        s->held[j] = (struct policy_amount){.amount.of = {has * POLICY_CORE_MCPU}};
        if (!queue || has <= free) {
            job->current_count = 1;
            job->preemptible = queue;
            free -= has;
        } else {
            job->state = j % 8 ? POLICY_QUEUED : POLICY_PAUSED;
            job->current_count = job->state == POLICY_PAUSED;
        }
    }
}

static void make_room(struct stage *s, const struct policy *policy)
{
    struct policy_room room;

    policy_room(policy, &s->snapshot, &room);
    s->plan = (struct policy_plan){.domains = &s->use,
                                   .amount_room = room.amounts,
                                   .scratch_room = room.scratch_bytes,
                                   .state_room = room.state_bytes};
    s->plan.decisions = allocate(s->snapshot.job_count, sizeof(*s->plan.decisions));
    s->plan.amounts = allocate(room.amounts, sizeof(*s->plan.amounts));
    s->plan.scratch = allocate(room.scratch_bytes, 1);
    s->plan.state_out = allocate(room.state_bytes, 1);
}

static void stage_done(struct stage *s)
{
    for (int c = 0; c < CURVES; c++)
        free(s->speedup[c]);
    free(s->jobs);
    free(s->held);
    free(s->plan.decisions);
    free(s->plan.amounts);
    free(s->plan.scratch);
    free(s->plan.state_out);
}

/* The interval of the median is that of its ranks, 95 %. */
static void report(const char *name, const char *situation, const struct size *size, uint64_t *took,
                   bool json)
{
    static const char *separator = "[";
    uint32_t n = size->repeats, around = 0;
    double p50, low, high, p99;

    qsort(took, n, sizeof(took[0]), compare);
    while ((around + 1) * (around + 1) <= n) /* 1.96 deviations, which are half a root each */
        around++;
    p50 = (double)took[n / 2] / 1000;
    low = (double)took[n / 2 - around] / 1000;
    high = (double)took[n / 2 + around] / 1000;
    p99 = (double)took[n * 99 / 100] / 1000;
    if (json)
        printf("%s\n{\"policy\": \"%s\", \"situation\": \"%s\", \"jobs\": %u, \"cores\": %u, "
               "\"repeats\": %u, \"p50_us\": %.1f, \"low_us\": %.1f, \"high_us\": %.1f, "
               "\"p99_us\": %.1f, \"goal_us\": %.0f}",
               separator, name, situation, size->jobs, size->cores, n, p50, low, high, p99,
               size->goal_us);
    else
        printf("%-32s %-6s %6u %6u %9.1f %9.1f … %-9.1f %9.1f %7.0f %s\n", name, situation,
               size->jobs, size->cores, p50, low, high, p99, size->goal_us,
               high <= size->goal_us ? "met" : "missed");
    fflush(stdout);
    separator = ",";
}

static int measure(const struct policy_spec *spec, const struct size *size, int situation,
                   bool json)
{
    static uint64_t took[REPEATS_MAX];
    struct stage s = {.snapshot = {.now_ns = UINT64_C(1000000000000), .domain_count = 1}};
    char name[POLICY_SPEC_TEXT_MAX];
    int r = 0;

    s.jobs = allocate(size->jobs, sizeof(*s.jobs));
    s.held = allocate(size->jobs, sizeof(*s.held));
    s.snapshot.domains = &s.machine;
    s.snapshot.jobs = s.jobs;
    s.snapshot.job_count = size->jobs;
    s.snapshot.params = spec->params;
    policy_machine_init(&s.machine, (int64_t)size->cores * POLICY_CORE_MCPU, 0);
    s.machine.core_uw = 1000000;
    fill_curves(&s, size->cores);
    fill_jobs(&s, size->jobs, size->cores, false, 1); /* all hold something: the most room */
    make_room(&s, spec->policy);
    policy_spec_text(spec, name, sizeof(name));
    for (uint32_t i = 0; i < size->repeats && r == 0; i++) {
        uint64_t start;

        fill_jobs(&s, size->jobs, size->cores, situation == 1, i);
        start = now_ns();
        r = policy_decide(spec->policy, &s.snapshot, &s.plan);
        took[i] = now_ns() - start;
    }
    if (r == 0)
        report(name, situations[situation], size, took, json);
    else
        fprintf(stderr, "%s: %s\n", name, strerror(-r));
    stage_done(&s);
    return r;
}

/* With the defaults, and once for each other value of the first parameter that has names. */
static int measure_policy(const struct policy *policy, bool json)
{
    struct policy_spec spec = {.policy = policy};
    const struct policy_param *named = NULL;
    int64_t *value = &spec.params[0];

    for (uint32_t i = policy->param_count; i-- > 0;) {
        spec.params[i] = policy->params[i].def;
        if (policy->params[i].names) {
            named = &policy->params[i];
            value = &spec.params[i];
        }
    }
    for (*value = named ? named->min : *value; !named || *value <= named->max; ++*value) {
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
            for (int situation = 0; situation < 2; situation++)
                if (measure(&spec, &sizes[k], situation, json) < 0)
                    return -1;
        if (!named)
            break;
    }
    return 0;
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;

    if (!json)
        printf("%-32s %-6s %6s %6s %9s %9s … %-9s %9s %7s\n", "policy", "", "jobs", "cores",
               "p50 [us]", "low", "high", "p99 [us]", "goal");
    for (size_t i = 0; i < policy_count(); i++)
        if (measure_policy(policy_at(i), json) < 0)
            return 1;
    if (json)
        printf("\n]\n");
    return 0;
}
