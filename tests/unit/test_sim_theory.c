/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole runs against queueing theory: Poisson arrivals, single-threaded jobs, mean times known in
 * closed form. The chance is seeded, so a run is always the same; 200,000 jobs come within 2 %.
 */
#include "sim_build.h"

#include "sim/engine/metrics.h"

#include <math.h>

#define JOBS 200000

enum size { EXPONENTIAL, CONSTANT };

struct queue {
    struct sim_source source; /* first: the engine hands these back */
    struct sim_metrics metrics;
    uint64_t seed, given;
    enum size size;
    double rate; /* arrivals per second; a job has one second of work on average */
    double now_s;
};

static struct queue queue;

static double exponential(struct queue *q)
{
    q->seed = q->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return -log(((double)(q->seed >> 11) + 0.5) / 9007199254740992.0);
}

static int queue_next(struct sim_source *source, struct sim_job *ret_job, struct error *err)
{
    struct queue *q = (struct queue *)source;
    double work_s = q->size == CONSTANT ? 1 : exponential(q);

    if (q->given == JOBS)
        return 0;
    q->now_s += exponential(q) / q->rate;
    *ret_job = (struct sim_job){
        .id = ++q->given,
        .arrival_ns = (uint64_t)(q->now_s * 1e9),
        .work_ns = 1 + (uint64_t)(work_s * 1e9),
        .told_ns = POLICY_UNKNOWN,
        .curve = &linear,
        .min = 1,
        .max = 1,
        .request = 1,
        .stock_threads = 1,
        .malleability = POLICY_RIGID,
        .weight = 1,
        .deadline_ns = POLICY_NEVER,
    };
    return 1;
}

static int queue_record(struct sim_sink *sink, const struct sim_record *record)
{
    sim_metrics_add(&queue.metrics, record);
    return 0;
}

/* Mean turnaround, of jobs of one second. */
static double turnaround_s(const struct policy *policy, uint32_t cores, double load, enum size size)
{
    const struct sim_machine machine = {.cores = cores, .numa = 1, .smt = 1};
    const struct sim_options options = {.policy = policy, .resolution_ns = 1, .check = true};
    struct sim_sink sink = {.record = queue_record};
    struct sim_totals totals;
    double value[SIM_METRIC_MAX];
    struct error err;

    memset(&queue, 0, sizeof(queue));
    queue.source.next = queue_next;
    queue.size = size;
    queue.rate = load * cores;
    assert_int_equal(sim_run(&machine, &queue.source, &options, &sink, &totals, &err), 0);
    sim_metrics_finish(&queue.metrics, &machine, &totals, value);
    assert_int_equal(totals.finished, JOBS);
    assert_true(fabs(value[SIM_USEFUL_CORES] / (load * cores) - 1) < 0.02);
    return value[SIM_TURNAROUND];
}

static void expect_near(double measured, double theory)
{
    if (fabs(measured / theory - 1) > 0.02)
        fail_msg("%f s, theory says %f s", measured, theory);
}

/* Time in a queue with @cores servers (Erlang's C), the same for processor sharing. */
static double erlang_s(uint32_t cores, double load)
{
    double offered = load * cores, term = 1, sum = 0, last;

    for (uint32_t k = 1; k <= cores; k++) {
        sum += term;
        term *= offered / k;
    }
    last = term / (1 - load);
    return 1 + last / (sum + last) / (cores * (1 - load));
}

static void one_core_shared_by_all(void **state)
{
    expect_near(turnaround_s(NULL, 1, 0.6, EXPONENTIAL), 1 / (1 - 0.6));
}

static void sharing_does_not_care_how_sizes_vary(void **state)
{
    expect_near(turnaround_s(NULL, 1, 0.6, CONSTANT), 1 / (1 - 0.6));
}

static void many_cores_shared_by_all(void **state)
{
    expect_near(erlang_s(1, 0.6), 2.5);
    expect_near(turnaround_s(NULL, 4, 0.75, EXPONENTIAL), erlang_s(4, 0.75));
    expect_near(turnaround_s(NULL, 16, 0.9, EXPONENTIAL), erlang_s(16, 0.9));
}

/* First come, first served: as many as there are cores, by id. */
static void first_come(const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    uint32_t cores = (uint32_t)(snapshot->domains[0].capacity.of[POLICY_MCPU] / POLICY_CORE_MCPU);

    for (uint32_t j = 0; j < snapshot->job_count; j++)
        if (snapshot->jobs[j].state == POLICY_RUNNING)
            decide_keep(snapshot, plan, j);
        else if (j < cores) /* those in front of it run */
            decide(snapshot, plan, j, POLICY_VERB_START, POLICY_CORE_MCPU);
        else
            decide(snapshot, plan, j, POLICY_VERB_HOLD, 0);
}

static void first_come_first_served(void **state)
{
    script = first_come;
    expect_near(turnaround_s(&scripted, 1, 0.6, EXPONENTIAL), 1 / (1 - 0.6));
    /* Pollaczek-Khinchine: of jobs that are all the same, the wait is half as long */
    expect_near(turnaround_s(&scripted, 1, 0.6, CONSTANT), 1 + 0.6 / (2 * (1 - 0.6)));
    expect_near(turnaround_s(&scripted, 4, 0.75, EXPONENTIAL), erlang_s(4, 0.75));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_core_shared_by_all),
        cmocka_unit_test(sharing_does_not_care_how_sizes_vary),
        cmocka_unit_test(many_cores_shared_by_all),
        cmocka_unit_test(first_come_first_served),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
