/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores jobs get: properties over random machines and jobs, and the preferences by example.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "node/cores.h"

#include <string.h>

#define JOBS_MAX 12
#define ROUNDS   20000

static uint64_t state = 88172645463325252ull;

static unsigned random_below(unsigned n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state % n);
}

static struct cpuset range(unsigned from, unsigned to)
{
    struct cpuset set;

    cpuset_zero(&set);
    for (unsigned c = from; c <= to; c++)
        cpuset_add(&set, c);
    return set;
}

/* @nodes NUMA nodes of equal size; with @smt, CPUs 2n and 2n+1 are one core. */
static void machine(unsigned cpus, unsigned nodes, bool smt, struct topology *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->online = range(0, cpus - 1);
    ret->cpus = cpus;
    ret->nodes = nodes;
    for (unsigned c = 0; c < cpus; c++) {
        cpuset_add(&ret->node[c * nodes / cpus], c);
        ret->core[c] = (uint16_t)(smt ? c & ~1u : c);
    }
}

static bool overlap(const struct cpuset *a, const struct cpuset *b)
{
    struct cpuset both;

    cpuset_and(&both, a, b);
    return cpuset_count(&both) > 0;
}

static void random_jobs(const struct topology *t, struct cores_job *jobs, unsigned n)
{
    struct cpuset free = t->online;

    memset(jobs, 0, n * sizeof(*jobs));
    for (unsigned i = 0; i < n; i++) {
        unsigned first = random_below(t->cpus);

        jobs[i].exclusive = random_below(3) > 0;
        jobs[i].count = 1 + random_below(t->cpus);
        if (random_below(4) == 0)
            jobs[i].allowed = range(first, first + random_below(t->cpus - first));
        for (unsigned c = 0; c < t->cpus; c++)
            if (random_below(n) == 0 && cpuset_has(&free, c)) {
                cpuset_add(&jobs[i].current, c);
                cpuset_remove(&free, c);
            }
    }
}

static void check(const struct cpuset *usable, const struct cores_job *jobs, unsigned n)
{
    bool fence = false;

    for (unsigned i = 0; i < n; i++)
        fence |= jobs[i].exclusive;
    for (unsigned i = 0; i < n; i++) {
        struct cpuset inside;

        if (!fence) {
            assert_int_equal(cpuset_count(&jobs[i].assigned), 0);
            continue;
        }
        if (jobs[i].overlaps)
            continue;
        assert_true(cpuset_count(&jobs[i].assigned) > 0);
        cpuset_and(&inside, &jobs[i].assigned, usable);
        assert_true(cpuset_equal(&inside, &jobs[i].assigned));
        if (cpuset_count(&jobs[i].allowed) > 0) {
            cpuset_and(&inside, &jobs[i].assigned, &jobs[i].allowed);
            assert_true(cpuset_equal(&inside, &jobs[i].assigned));
        }
        if (jobs[i].exclusive)
            assert_true(cpuset_count(&jobs[i].assigned) <= jobs[i].count);
        for (unsigned k = 0; k < i; k++)
            if (!jobs[k].overlaps && (jobs[i].exclusive || jobs[k].exclusive))
                assert_false(overlap(&jobs[i].assigned, &jobs[k].assigned));
    }
}

static void exclusive_jobs_never_share_a_core_with_anybody(void **unused)
{
    struct cores_job jobs[JOBS_MAX], again[JOBS_MAX];
    struct topology t;

    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned cpus = 1 + random_below(32), n = 1 + random_below(JOBS_MAX);

        machine(cpus, 1 + random_below(cpus > 1 ? 2 : 1), random_below(2), &t);
        random_jobs(&t, jobs, n);
        memcpy(again, jobs, sizeof(jobs));
        cores_assign(&t.online, &t.online, &t, jobs, n);
        check(&t.online, jobs, n);
        cores_assign(&t.online, &t.online, &t, again, n);
        assert_memory_equal(jobs, again, n * sizeof(jobs[0])); /* the same again */
    }
}

static void what_is_in_place_stays_when_nothing_changes(void **unused)
{
    struct cores_job jobs[JOBS_MAX];
    struct topology t;

    for (unsigned round = 0; round < ROUNDS / 10; round++) {
        unsigned cpus = 2 + random_below(30), n = 1 + random_below(JOBS_MAX);

        machine(cpus, 1 + random_below(2), random_below(2), &t);
        random_jobs(&t, jobs, n);
        cores_assign(&t.online, &t.online, &t, jobs, n);
        for (unsigned i = 0; i < n; i++)
            if (!jobs[i].overlaps)
                jobs[i].current = jobs[i].assigned;
            else
                cpuset_zero(&jobs[i].current);
        cores_assign(&t.online, &t.online, &t, jobs, n);
        for (unsigned i = 0; i < n; i++)
            if (jobs[i].exclusive && !jobs[i].overlaps)
                assert_true(cpuset_equal(&jobs[i].current, &jobs[i].assigned));
    }
}

static void a_job_grows_by_siblings_then_within_its_node(void **unused)
{
    struct cores_job job = {.exclusive = true, .count = 4};
    struct topology t;
    struct cpuset wanted = range(8, 11);

    machine(16, 2, true, &t);
    job.current = range(9, 9);
    cores_assign(&t.online, &t.online, &t, &job, 1);
    assert_true(cpuset_equal(&job.assigned, &wanted));
}

static void a_new_job_goes_to_the_emptier_node(void **unused)
{
    struct cores_job jobs[2] = {{.exclusive = true, .count = 3}, {.exclusive = true, .count = 3}};
    struct topology t;
    struct cpuset first = range(0, 2), second = range(4, 6);

    machine(8, 2, false, &t);
    cores_assign(&t.online, &t.online, &t, jobs, 2);
    assert_true(cpuset_equal(&jobs[0].assigned, &first));
    assert_true(cpuset_equal(&jobs[1].assigned, &second));
}

static void the_others_share_what_exclusive_jobs_leave(void **unused)
{
    struct cores_job jobs[3] = {{0}, {.exclusive = true, .count = 2}, {0}};
    struct topology t;
    struct cpuset rest = range(2, 3);

    machine(4, 1, false, &t);
    cores_assign(&t.online, &t.online, &t, jobs, 3);
    assert_true(cpuset_equal(&jobs[0].assigned, &rest));
    assert_true(cpuset_equal(&jobs[2].assigned, &rest));
}

static void more_jobs_than_cores_overlap_and_say_so(void **unused)
{
    struct cores_job jobs[3] = {{.exclusive = true, .count = 1},
                                {.exclusive = true, .count = 1},
                                {.exclusive = true, .count = 1}};
    struct topology t;

    machine(2, 1, false, &t);
    cores_assign(&t.online, &t.online, &t, jobs, 3);
    assert_false(jobs[0].overlaps || jobs[1].overlaps);
    assert_true(jobs[2].overlaps);
    assert_int_equal(cpuset_count(&jobs[2].assigned), 2);
}

static void cores_of_other_users_fence_shared_jobs_too(void **unused)
{
    struct cores_job job = {0};
    struct topology t;
    struct cpuset usable = range(0, 2);

    machine(4, 1, false, &t);
    cores_assign(&t.online, &usable, &t, &job, 1);
    assert_true(cpuset_equal(&job.assigned, &usable));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exclusive_jobs_never_share_a_core_with_anybody),
        cmocka_unit_test(what_is_in_place_stays_when_nothing_changes),
        cmocka_unit_test(a_job_grows_by_siblings_then_within_its_node),
        cmocka_unit_test(a_new_job_goes_to_the_emptier_node),
        cmocka_unit_test(the_others_share_what_exclusive_jobs_leave),
        cmocka_unit_test(more_jobs_than_cores_overlap_and_say_so),
        cmocka_unit_test(cores_of_other_users_fence_shared_jobs_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
