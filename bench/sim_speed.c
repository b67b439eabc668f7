/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the simulator is: 100,000 jobs on 256 cores. Arrivals are Poisson, work is lognormal,
 * parallel fractions 0.5 to 0.99; the load is the work that arrives over what all cores can do.
 * Prints a line for each seed: the time, that of the CPU (less where the machine was not idle), its
 * part in policy_decide() in thousandths, jobs alive at most and the peak of the program's memory.
 * With --json, the same as objects for bench/simulate.py.
 *
 * usage: sim_speed [--json] [POLICY|none [JOBS [CORES [PERCENT [SEEDS]]]]]
 */
#include "policy/core/policy.h"
#include "sim/engine/sim.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

struct result {
    struct sim_totals totals;
    double seconds, cpu_seconds, peak_mib;
};

static double cpu_seconds(const struct rusage *usage)
{
    return (double)usage->ru_utime.tv_sec + (double)usage->ru_utime.tv_usec / 1e6;
}

static int run(const struct policy *policy, uint64_t jobs, uint32_t cores, uint32_t percent,
               uint64_t seed, struct result *ret_result)
{
    struct sim_machine machine = {.cores = cores, .numa = 1, .smt = 1, .contention_permille = 100};
    struct sim_options options = {.policy = policy, .resolution_ns = 1000, .clock_ns = now_ns};
    struct generator g = {
        .source = {next}, .seed = seed, .count = jobs, .gap_ns = MEAN_WORK / cores * 100 / percent};
    struct rusage before, after;
    struct error err;
    uint64_t begin = now_ns();
    int r;

    getrusage(RUSAGE_SELF, &before);
    r = sim_run(&machine, &g.source, &options, NULL, &ret_result->totals, &err);
    if (r < 0) {
        fprintf(stderr, "sim_speed: %s\n", err.text);
        return r;
    }
    getrusage(RUSAGE_SELF, &after);
    ret_result->seconds = (double)(now_ns() - begin) / 1e9;
    ret_result->cpu_seconds = cpu_seconds(&after) - cpu_seconds(&before);
    ret_result->peak_mib = (double)after.ru_maxrss / 1024;
    return 0;
}

static void print_row(const char *policy, uint64_t jobs, uint32_t cores, uint32_t percent,
                      uint64_t seed, const struct result *result, bool json)
{
    const char *format =
        json ? "{\"policy\": \"%s\", \"jobs\": %llu, \"cores\": %u, \"load_percent\": %u, "
               "\"seed\": %llu, \"seconds\": %.3f, \"cpu_seconds\": %.3f, "
               "\"deciding_permille\": %.0f, \"alive\": %u, \"peak_mib\": %.1f}\n"
             : "%-16s %8llu %6u %6u %6llu %8.2f %8.2f %8.0f %8u %9.1f\n";

    printf(format, policy, (unsigned long long)jobs, cores, percent, (unsigned long long)seed,
           result->seconds, result->cpu_seconds,
           (double)result->totals.decide_ns / result->seconds / 1e6, result->totals.most_alive,
           result->peak_mib);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    char **arg = argv + 1 + json;
    const char *name = *arg ? *arg++ : "response";
    uint64_t jobs = *arg ? strtoull(*arg++, NULL, 10) : 100000;
    uint32_t cores = *arg ? (uint32_t)strtoul(*arg++, NULL, 10) : 256;
    uint32_t percent = *arg ? (uint32_t)strtoul(*arg++, NULL, 10) : 80;
    uint64_t seeds = *arg ? strtoull(*arg++, NULL, 10) : 1;
    const struct policy *policy = policy_find(name);

    if (cores == 0 || cores > SIM_CORES_MAX || jobs == 0 || percent == 0 || *arg ||
        (!policy && strcmp(name, "none") != 0)) {
        fprintf(stderr,
                "usage: sim_speed [--json] [POLICY|none [JOBS [CORES [PERCENT [SEEDS]]]]]\n");
        return 2;
    }
    make_curves(cores);
    if (!json)
        printf("%-16s %8s %6s %6s %6s %8s %8s %8s %8s %9s\n", "policy", "jobs", "cores", "load %",
               "seed", "time [s]", "CPU [s]", "deciding", "alive", "peak MiB");
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct result result;

        if (run(policy, jobs, cores, percent, seed, &result) < 0)
            return 1;
        print_row(name, jobs, cores, percent, seed, &result, json);
    }
    return 0;
}
