/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies with a queue over whole runs of mixed jobs that compete for cores and memory: every plan
 * is valid, and every job ends, also after pauses.
 */
#include "sim_build.h"
#include "test_random.h"

#define JOBS  120
#define SEEDS 4

static struct run simulated;

/* Eight cores with twice the work that they can do while jobs come; 16 GiB with odd seeds. */
static void build(uint64_t seed)
{
    uint64_t now = 0;

    random_state = seed;
    run_init(&simulated, 8);
    simulated.machine.memory_bytes = seed % 2 ? INT64_C(16) << 30 : 0;
    simulated.machine.numa = 1 + (uint32_t)seed / 2 % 2;
    for (uint32_t i = 0; i < JOBS; i++) {
        struct sim_job *job = run_job(&simulated, now, (1 + random_below(200)) * (uint64_t)SECOND);

        now += random_below(12) * (uint64_t)SECOND;
        job->request = 1 + random_below(8);
        job->min = 1 + random_below(2) * (job->request > 1);
        job->memory_bytes = seed % 2 ? (int64_t)random_below(9) << 30 : 0;
        job->malleability = random_below(2) ? POLICY_MALLEABLE : random_below(3);
        job->priority = (int32_t)random_below(4);
        job->preemptible = random_below(4) != 0;
        job->cost_ns[POLICY_ACTION_PAUSE] = SECOND;
        job->cost_ns[POLICY_ACTION_RESIZE] = SECOND / 10;
    }
}

static void run_choice(const char *policy, uint32_t choice)
{
    static const char *const own[] = {"", "/ageing=30s", "/quantum=10s"};
    struct policy_spec spec;
    int kind = policy[0] == 'p' ? choice % 2 : policy[0] == 'r' ? 2 : 0;
    char text[POLICY_SPEC_TEXT_MAX];

    snprintf(text, sizeof(text), "%s%s", policy, own[kind]);
    assert_int_equal(policy_spec_parse(text, &spec, &simulated.error), 0);
    spec.params[policy_param_find(spec.policy, "reassignment")] = choice % 3;
    spec.params[policy_param_find(spec.policy, "variant")] = choice / 3 % 4;
    spec.params[policy_param_find(spec.policy, "resize")] = choice / 12 % 2;
    simulated.options.policy = spec.policy;
    simulated.options.params = spec.params;
    if (run_try(&simulated) < 0)
        fail_msg("%s, choice %u: %s", text, choice, simulated.error.text);
    assert_int_equal(simulated.totals.finished, JOBS);
}

static void every_job_ends_under_every_choice(void **state)
{
    static const char *const policies[] = {"fcfs", "priority", "round-robin"};
    uint64_t pauses = 0;

    for (uint64_t seed = 0; seed < SEEDS; seed++)
        for (uint32_t i = 0; i < 3; i++)
            for (uint32_t choice = 0; choice < 24; choice++) {
                build(seed);
                run_choice(policies[i], choice);
                pauses += simulated.totals.pauses;
                assert_true(i > 0 || simulated.totals.pauses == 0);
            }
    assert_true(pauses > 1000);
}

/* Turns are fair: of equal jobs that fill the machine, none ends long before the others. */
static void round_robin_ends_equal_jobs_together(void **state)
{
    struct policy_spec spec;

    run_init(&simulated, 8);
    for (int i = 0; i < 6; i++) {
        struct sim_job *job = run_job(&simulated, 0, 800 * (uint64_t)SECOND);

        job->request = 8;
        job->malleability = POLICY_RIGID;
        job->preemptible = true;
    }
    assert_int_equal(policy_spec_parse("round-robin/quantum=10s", &spec, &simulated.error), 0);
    simulated.options.policy = spec.policy;
    simulated.options.params = spec.params;
    run_all(&simulated);
    for (uint32_t id = 1; id <= 6; id++)
        assert_in_range(finish_of(&simulated, id), 550 * SECOND, 600 * SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_ends_under_every_choice),
        cmocka_unit_test(round_robin_ends_equal_jobs_together),
    };

    return cmocka_run_group_tests_name("queues over time", tests, NULL, NULL);
}
