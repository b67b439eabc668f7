/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers in the simulator: latencies worked out by hand and by queueing theory, and promises,
 * which the daemon's own code keeps beside batch jobs under any policy.
 */
#include "sim/engine/metrics.h"
#include "sim/input/random.h"

#include "sanitized.h"
#include "sim_build.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define REQUESTS 200000
#define MINUTE   (60 * SECOND)

static struct run run;
static uint64_t arrivals[2][REQUESTS], works[2][REQUESTS];
static struct sim_requests requests[2];

/* The outcome of the servers, by id. */
static struct {
    uint64_t requests, seconds, kept, p50_ns, p99_ns;
} served[8];

static int note(struct sim_sink *sink, const struct sim_record *record)
{
    if (record->served) {
        const struct sim_served *s = record->served;

        served[record->job->id].requests = s->requests;
        served[record->job->id].seconds = s->seconds;
        served[record->job->id].kept = s->kept;
        served[record->job->id].p50_ns = sim_quantiles_at(s->latency_ns, 500);
        served[record->job->id].p99_ns = sim_quantiles_at(s->latency_ns, 990);
    }
    return run_record(sink, record);
}

/* A square wave of Poisson arrivals: @high a second, or @low in the second half of each period. */
struct load {
    uint32_t slo_ms, work_us, seconds;
    double high, low;
    uint32_t period_ms; /* 0: high alone */
    bool fixed;         /* each has its work, instead of an exponential one */
};

static void fill(uint32_t n, const struct load *load, uint64_t seed)
{
    double now = 0, peak = load->high > load->low ? load->high : load->low;
    size_t count = 0;

    for (uint64_t i = 0; now < load->seconds; i++) {
        struct rng rng = rng_at(seed, n ? "b" : "a", i);
        bool low =
            load->period_ms && fmod(now * 1000, load->period_ms) >= (double)load->period_ms / 2;

        now -= log(1 - rng_unit(&rng)) / peak;
        if (rng_unit(&rng) * peak >= (low ? load->low : load->high))
            continue;
        assert_true(count < REQUESTS);
        arrivals[n][count] = (uint64_t)(now * 1e9);
        works[n][count] =
            (uint64_t)(load->work_us * 1000.0 * (load->fixed ? 1 : -log(1 - rng_unit(&rng))));
        works[n][count] = works[n][count] ? works[n][count] : 1;
        count++;
    }
    requests[n] = (struct sim_requests){arrivals[n], works[n], count};
}

static struct sim_job *server(uint32_t n, uint64_t slo_ns, const struct sim_curve *curve)
{
    struct sim_job *job = run_job(&run, 0, SECOND);

    run.sink.record = note;
    job->requests = &requests[n];
    job->slo_ns = slo_ns;
    job->curve = curve;
    job->told_curve = NULL;
    job->told_ns = POLICY_UNKNOWN;
    job->request = 0;
    job->workers = 16;
    job->stock_threads = run.machine.cores;
    job->preemptible = false;
    return job;
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void given(uint32_t n, size_t count, const uint64_t *at_ms, const uint64_t *work_ms)
{
    for (size_t i = 0; i < count; i++) {
        arrivals[n][i] = at_ms[i] * MS;
        works[n][i] = work_ms[i] * MS;
    }
    requests[n] = (struct sim_requests){arrivals[n], works[n], count};
}

static void assert_near(double value, double want, double part)
{
    if (fabs(value - want) > part * want)
        fail_msg("%g is not within %g of %g", value, part, want);
}

/* The server alone: two requests of 100 ms, the second one 50 ms later. */
static void one_after_the_other_on_two_cores(void **state)
{
    run_init(&run, 2);
    given(0, 2, (const uint64_t[]){0, 50}, (const uint64_t[]){100, 100});
    server(0, 0, &linear);
    run_all(&run);
    assert_at(finish_of(&run, 1), 100 * MS); /* twice as fast, each alone */
    assert_near((double)served[1].p99_ns, 50e6, 0.01);
    assert_int_equal(served[1].requests, 2);
    assert_at(run.records[1].useful_ns, 200 * MS);
    assert_at(run.records[1].busy_ns, 200 * MS);
}

static void requests_share_cores_and_a_queue_is_in_order(void **state)
{
    run_init(&run, 2);
    given(0, 3, (const uint64_t[]){0, 0, 0}, (const uint64_t[]){100, 100, 50});
    server(0, 0, &half_serial);
    run.jobs[0].workers = 2;
    run_all(&run);
    /* Two with a core each until 100 ms; the third has both: 50 / 1.333. */
    assert_near((double)served[1].p50_ns, 100e6, 0.01);
    assert_in_range(finish_of(&run, 1), 137509000, 137510000);
    run.jobs[0].workers = 3;
    run_all(&run);
    /* 2/3 of a core each until 75 ms; 50 left of each, a core each. */
    assert_at(finish_of(&run, 1), 125 * MS);
}

static void a_server_ends_with_its_last_request_and_leaves_its_cores(void **state)
{
    run_init(&run, 4);
    given(0, 1, (const uint64_t[]){1000}, (const uint64_t[]){1000});
    server(0, 0, &linear);
    run_job(&run, 0, 10 * SECOND);
    run_all(&run);
    assert_at(finish_of(&run, 1), 1500 * MS);
    assert_at(finish_of(&run, 2), 1500 * MS + 7 * SECOND / 4);
    assert_int_equal(run.totals.work_end_ns, finish_of(&run, 2));
}

static void bad_servers_are_refused(void **state)
{
    run_init(&run, 2);
    given(0, 1, (const uint64_t[]){0}, (const uint64_t[]){1});
    server(0, 0, &linear)->workers = 0;
    assert_int_equal(run_try(&run), -EINVAL);
    run.jobs[0].workers = 3;
    run.jobs[0].processes = 2;
    assert_int_equal(run_try(&run), -EINVAL);
    run.jobs[0].workers = 1;
    requests[0].count = 0;
    assert_int_equal(run_try(&run), -EINVAL);
}

/* M/M/1, first come first served: the time in the system is exponential with mean 1 / (mu - l). */
static void one_core_is_the_queue_of_the_textbook(void **state)
{
    struct load load = {.work_us = 10000, .high = 60, .seconds = 3000};

    run_init(&run, 1);
    fill(0, &load, 1);
    server(0, 0, &linear)->workers = 1;
    run_all(&run);
    assert_near((double)served[1].p50_ns, 1e9 * log(2) / 40, 0.06);
    assert_near((double)served[1].p99_ns, 1e9 * log(100) / 40, 0.06);
}

/* M/G/1 with processor sharing: the mean depends on the mean work alone, here of equal ones. */
static void shared_cores_are_processor_sharing(void **state)
{
    struct load load = {.work_us = 10000, .high = 60, .seconds = 3000, .fixed = true};
    struct load random = {.work_us = 10000, .high = 60, .seconds = 3000};

    run_init(&run, 1);
    fill(0, &load, 1);
    server(0, 0, &linear)->workers = 1000;
    run_all(&run);
    assert_near((double)served[1].p50_ns, 20e6, 0.1);
    assert_near((double)run.records[1].busy_ns, 60 * 3000 * 10e6, 0.03);
    fill(0, &random, 1);
    run_all(&run);
    assert_near((double)run.records[1].busy_ns, (double)run.records[1].useful_ns, 0.0001);
}

/* ---- promises -------------------------------------------------------------------------------- */

/* On eight cores, beside a batch job that could use them all. */
static void beside_batch(const struct load *load, const char *policy, uint32_t split)
{
    struct sim_job *job;

    run_init(&run, 8);
    run.options.policy = policy ? policy_find(policy) : NULL;
    run.options.split = split;
    fill(0, load, 1);
    server(0, load->slo_ms * MS, &half_serial);
    job = run_job(&run, 0, (uint64_t)load->seconds * 8 * SECOND); /* longer than the server */
    job->told_ns = POLICY_UNKNOWN;
    job->stock_threads = 8;
    run_all(&run);
}

static double kept(uint32_t id)
{
    assert_true(served[id].seconds > 0);
    return (double)served[id].kept / (double)served[id].seconds;
}

static double mean_cores(uint32_t id)
{
    return (double)run.records[id].core_ns / (double)run.records[id].run_ns;
}

static const struct load steady[] = {
    {.slo_ms = 50, .work_us = 4000, .seconds = 600, .high = 100},
    {.slo_ms = 50, .work_us = 4000, .seconds = 400, .high = 400},
    {.slo_ms = 50, .work_us = 4000, .seconds = 200, .high = 800},
    {.slo_ms = 100, .work_us = 10000, .seconds = 600, .high = 200},
    {.slo_ms = 500, .work_us = 50000, .seconds = 600, .high = 40},
};

/* Where one core fewer than the fixed number that keeps it, or all, would be too few. */
static void a_promise_that_can_be_kept_is_kept_under_a_steady_load(void **state)
{
    static const char *const policies[] = {"equal", "response", "throughput", "weighted"};
    uint64_t seconds = 0, did = 0;

    for (size_t i = 0; i < sizeof(steady) / sizeof(steady[0]); i += TIMES(40) < 40 ? 2 : 1) {
        const char *policy = policies[i % 4];

        beside_batch(&steady[i], policy, 7); /* could it be kept? */
        assert_true(kept(1) >= 0.99);
        beside_batch(&steady[i], policy, 0);
        assert_true(kept(1) >= 0.98);
        assert_true(mean_cores(1) < 7);
        seconds += served[1].seconds;
        did += served[1].kept;
    }
    assert_true(did * 100 >= seconds * 99);
}

/*
 * Loads that change about as often as the stage looks, and as its windows and hold-offs are long:
 * cores are taken a bounded number of times, and what all cores keep is kept.
 */
static void no_load_around_the_control_period_makes_it_swing(void **state)
{
    static const uint32_t periods_ms[] = {100, 200, 500, 1000, 2000, 4000, 8000, 16000, 32000};
    uint64_t could = 0, did = 0;

    for (size_t i = 0; i < sizeof(periods_ms) / sizeof(periods_ms[0]);
         i += TIMES(40) < 40 ? 3 : 1) {
        struct load load = {.slo_ms = 50,
                            .work_us = 8000,
                            .seconds = 300,
                            .high = 500,
                            .low = i % 2 ? 0 : 50,
                            .period_ms = periods_ms[i]};
        uint32_t most = 30 + (load.period_ms < 16000 ? 0 : 6 * 300000 / load.period_ms);

        beside_batch(&load, "equal", 7);
        could += served[1].kept;
        beside_batch(&load, "equal", 0);
        did += served[1].kept;
        assert_true(kept(1) >= 0.95);
        assert_true(run.records[1].resizes <= 2 * most);
    }
    assert_true(did * 1000 >= could * 985);
}

/* Four processes that serve one request each, alone on four cores. */
static void of_processes(const struct load *load, uint32_t split)
{
    run_init(&run, 4);
    run.options.split = split;
    fill(0, load, 1);
    server(0, load->slo_ms * MS, &half_serial)->workers = 4;
    run.jobs[0].processes = 4;
    run_all(&run);
}

/* Even parts: a thread each. One request on four cores is 1.6 times as fast as on one. */
static void threads_of_processes_follow_the_requests_in_flight(void **state)
{
    struct load load = {.slo_ms = 500, .work_us = 40000, .seconds = 600, .high = 4, .fixed = true};

    of_processes(&load, 4);
    assert_near((double)served[1].p50_ns, 40e6, 0.02);
    of_processes(&load, 0);
    assert_near((double)served[1].p50_ns, 25e6, 0.02);
    load.high = 80; /* of 100 that even parts can serve */
    of_processes(&load, 4);
    assert_true(kept(1) >= 0.99);
    of_processes(&load, 0);
    assert_true(kept(1) >= 0.99);
}

static void without_control_or_with_too_few_cores_it_is_broken(void **state)
{
    struct load load = {.slo_ms = 50, .work_us = 8000, .seconds = 300, .high = 450};

    beside_batch(&load, NULL, 0);
    assert_true(kept(1) < 0.9);
    beside_batch(&load, "equal", 3);
    assert_true(kept(1) < 0.2);
    assert_near(mean_cores(1), 3, 0.001);
}

static void the_same_run_twice_is_the_same(void **state)
{
    struct load load = {
        .slo_ms = 50, .work_us = 8000, .seconds = 200, .high = 500, .period_ms = 3000};
    uint64_t hash, p99_ns, end_ns;

    beside_batch(&load, "equal", 0);
    hash = run.decisions_hash;
    p99_ns = served[1].p99_ns;
    end_ns = run.totals.end_ns;
    beside_batch(&load, "equal", 0);
    assert_true(hash == run.decisions_hash && p99_ns == served[1].p99_ns &&
                end_ns == run.totals.end_ns);
}

/* On two cores each of two has one: the batch job yields, and has what is left of both. */
static void where_its_own_core_is_too_few_the_others_yield(void **state)
{
    struct load load = {
        .slo_ms = 100, .work_us = 10000, .seconds = 300, .high = 120, .fixed = true};
    struct sim_job *job;
    double together;

    for (uint32_t split = 0; split < 2; split++) {
        run_init(&run, 2);
        run.options.split = split;
        fill(0, &load, 1);
        server(0, load.slo_ms * MS, &linear);
        job = run_job(&run, 0, 1000 * SECOND);
        job->min = 1;
        run_all(&run);
        if (split)
            assert_true(kept(1) < 0.05);
        else
            assert_true(kept(1) >= 0.95);
    }
    run_init(&run, 2);
    fill(0, &load, 1);
    server(0, load.slo_ms * MS, &linear);
    run_job(&run, 0, 200 * SECOND);
    run_all(&run);
    together =
        (double)(run.records[1].busy_ns + run.records[2].busy_ns) / (double)run.totals.end_ns;
    assert_true(together > 1.5); /* 1.2 for the server, which uses both cores or none */
    run.jobs[1].user = 7;        /* another user's job does not yield */
    run.jobs[1].work_ns = 1000 * SECOND;
    run_all(&run);
    assert_true(kept(1) < 0.05);
}

static void two_servers_and_a_training(const struct load *load)
{
    run_init(&run, 8);
    for (unsigned i = 0; i < 2; i++) {
        fill(i, load, i + 1);
        server(i, load->slo_ms * MS, &half_serial);
    }
    run_job(&run, 0, 1000 * SECOND);
    run_all(&run);
}

/* Each of two servers needs more than half of the cores: neither has them for good. */
static void two_promises_that_exclude_each_other_share(void **state)
{
    struct load load = {.slo_ms = 50, .work_us = 8000, .seconds = 300, .high = 560};

    two_servers_and_a_training(&load);
    assert_true(mean_cores(1) > 2.5 && mean_cores(2) > 2.5);
    assert_true(run.records[1].resizes <= 150 && run.records[2].resizes <= 150);
    assert_int_equal(run.totals.finished, 3);
}

/* Two that both can be kept are both kept. */
static void two_promises_that_fit_are_both_kept(void **state)
{
    struct load load = {.slo_ms = 50, .work_us = 4000, .seconds = 300, .high = 250};

    two_servers_and_a_training(&load);
    assert_true(kept(1) >= 0.98 && kept(2) >= 0.98);
}

/* Its user's share bounds a promise. */
static void another_users_job_keeps_its_share(void **state)
{
    struct load load = {.slo_ms = 50, .work_us = 8000, .seconds = 120, .high = 700};

    run_init(&run, 8);
    fill(0, &load, 1);
    server(0, load.slo_ms * MS, &half_serial);
    run_job(&run, 0, 10 * SECOND);
    run_job(&run, 0, 400 * SECOND)->user = 7;
    run_all(&run);
    assert_in_range(finish_of(&run, 3), 50 * SECOND, 100 * SECOND + 8); /* four cores, or more */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other_on_two_cores),
        cmocka_unit_test(requests_share_cores_and_a_queue_is_in_order),
        cmocka_unit_test(a_server_ends_with_its_last_request_and_leaves_its_cores),
        cmocka_unit_test(bad_servers_are_refused),
        cmocka_unit_test(one_core_is_the_queue_of_the_textbook),
        cmocka_unit_test(shared_cores_are_processor_sharing),
        cmocka_unit_test(a_promise_that_can_be_kept_is_kept_under_a_steady_load),
        cmocka_unit_test(no_load_around_the_control_period_makes_it_swing),
        cmocka_unit_test(threads_of_processes_follow_the_requests_in_flight),
        cmocka_unit_test(without_control_or_with_too_few_cores_it_is_broken),
        cmocka_unit_test(the_same_run_twice_is_the_same),
        cmocka_unit_test(where_its_own_core_is_too_few_the_others_yield),
        cmocka_unit_test(two_promises_that_exclude_each_other_share),
        cmocka_unit_test(two_promises_that_fit_are_both_kept),
        cmocka_unit_test(another_users_job_keeps_its_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
