/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the simulator is: 100,000 jobs on 256 cores, at several loads (work that arrives over
 * what all cores can do). Arrivals are Poisson, work is lognormal, parallel fractions 0.5 to 0.99.
 * Prints the time on the clock and of the CPU (more on the clock: the machine was not idle), jobs
 * per second, the share of the time in policy_decide(), jobs alive at most and the peak of this
 * program's memory so far.
 *
 * usage: sim_speed [policy [jobs [cores [loads in percent …]]]]
 */
#include "policy/policy.h"
#include "sim/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define CURVES    50
#define MEAN_WORK 600e9 /* ns */
#define SIGMA     1.5   /* of the logarithm */

static uint32_t speeds[CURVES][SIM_CORES_MAX];
static struct sim_curve curves[CURVES];

struct generator {
    struct sim_source source; /* first: the engine hands it back */
    uint64_t seed;
    uint64_t given, count;
    double now_ns, gap_ns;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* In (0, 1): splitmix64 */
static double uniform(struct generator *g)
{
    uint64_t z = g->seed += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

static int next(struct sim_source *source, struct sim_job *ret_job, struct error *err)
{
    struct generator *g = (struct generator *)source;
    double normal = sqrt(-2 * log(uniform(g))) * cos(2 * 3.14159265358979 * uniform(g));
    uint32_t request = 1u << (uint32_t)(uniform(g) * 5);
    const struct sim_curve *curve = &curves[(uint32_t)(uniform(g) * CURVES)];

    (void)err;
    if (g->given == g->count)
        return 0;
    g->now_ns -= g->gap_ns * log(uniform(g));
    *ret_job = (struct sim_job){
        .id = ++g->given,
        .arrival_ns = (uint64_t)g->now_ns,
        .work_ns = 1 + (uint64_t)(MEAN_WORK * exp(SIGMA * normal - SIGMA * SIGMA / 2)),
        .curve = curve,
        .told_curve = curve,
        .request = request,
        .min = 1,
        .stock_threads = request,
        .malleability = POLICY_MALLEABLE,
        .weight = 1,
        .preemptible = true,
        .deadline_ns = POLICY_NEVER,
        .cost_ns = {[POLICY_ACTION_RESIZE] = 1000000},
    };
    ret_job->told_ns = ret_job->work_ns;
    return 1;
}

static void make_curves(uint32_t cores)
{
    for (uint32_t c = 0; c < CURVES; c++) {
        double serial = 0.5 - 0.49 * c / (CURVES - 1);

        for (uint32_t k = 1; k <= cores; k++)
            speeds[c][k - 1] = (uint32_t)(1000 * k / (serial * k + 1 - serial));
        curves[c] = (struct sim_curve){speeds[c], NULL, cores};
    }
}

static int measure(const struct policy *policy, uint64_t jobs, uint32_t cores, uint32_t percent)
{
    struct sim_machine machine = {.cores = cores, .numa = 1, .smt = 1, .contention_permille = 100};
    struct sim_options options = {.policy = policy, .resolution_ns = 1000, .clock_ns = now_ns};
    struct generator g = {
        .source = {next}, .count = jobs, .gap_ns = MEAN_WORK / cores * 100 / percent};
    struct sim_totals totals;
    struct rusage usage, before;
    struct error err;
    uint64_t begin = now_ns();
    double took, cpu;
    int r;

    getrusage(RUSAGE_SELF, &before);
    r = sim_run(&machine, &g.source, &options, NULL, &totals, &err);

    if (r < 0) {
        fprintf(stderr, "sim_speed: %s\n", err.text);
        return r;
    }
    took = (double)(now_ns() - begin) / 1e9;
    getrusage(RUSAGE_SELF, &usage);
    cpu = (double)(usage.ru_utime.tv_sec - before.ru_utime.tv_sec) +
          (double)(usage.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e6;
    printf("%-16s %8llu %6u %5u%% %8.2f %8.2f %10.0f %8.1f%% %8u %9.1f\n",
           policy ? policy->name : "none", (unsigned long long)jobs, cores, percent, took, cpu,
           (double)jobs / took, (double)totals.decide_ns / took / 1e7, totals.most_alive,
           (double)usage.ru_maxrss / 1024);
    return 0;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : policy_find("response") ? "response" : "equal";
    uint64_t jobs = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;
    uint32_t cores = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 256;
    static const char *const defaults[] = {"50", "80", "95"};
    const char *const *loads = argc > 4 ? (const char *const *)argv + 4 : defaults;
    int count = argc > 4 ? argc - 4 : 3;

    if (cores == 0 || cores > SIM_CORES_MAX || jobs == 0) {
        fprintf(stderr, "usage: sim_speed [policy [jobs [cores [loads in percent ...]]]]\n");
        return 2;
    }
    make_curves(cores);
    printf("%-16s %8s %6s %6s %8s %10s %9s %8s %9s\n", "policy", "jobs", "cores", "load",
           "time [s]", "jobs/s", "deciding", "alive", "peak MiB");
    for (int i = 0; i < count; i++)
        if (measure(policy_find(name), jobs, cores, (uint32_t)strtoul(loads[i], NULL, 10)) < 0)
            return 1;
    return 0;
}
