/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores jobs get: properties over random machines and jobs, and the preferences by example.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy/core/cores.h"
#include "sanitized.h"
#include "test_random.h"

#include <string.h>

#define JOBS_MAX 12
#define ROUNDS   TIMES(20000)

static struct cpuset range(unsigned from, unsigned to)
{
    struct cpuset set;

    cpuset_zero(&set);
    for (unsigned c = from; c <= to; c++)
        cpuset_add(&set, c);
    return set;
}

/* @nodes NUMA nodes of equal size; with @smt, CPUs 2n and 2n+1 are one core. */
static void machine_init(struct cores_machine *m, unsigned cpus, unsigned nodes, bool smt)
{
    memset(m, 0, sizeof(*m));
    m->cpus = m->usable = range(0, cpus - 1);
    for (unsigned c = 0; c < cpus; c++) {
        m->node[c] = (uint16_t)(c * nodes / cpus);
        m->core[c] = (uint16_t)(smt ? c & ~1u : c);
        m->speed[c] = CORES_SPEED_MAX;
    }
}

static void slow_down(struct cores_machine *m, unsigned from, unsigned to)
{
    for (unsigned c = from; c <= to; c++) {
        m->speed[c] = 600;
        m->group[c] = 1;
    }
}

static bool overlap(const struct cpuset *a, const struct cpuset *b)
{
    struct cpuset both;

    cpuset_and(&both, a, b);
    return cpuset_count(&both) > 0;
}

static void random_jobs(const struct cores_machine *m, struct cores_job *jobs, unsigned n)
{
    unsigned cpus = cpuset_count(&m->cpus);
    struct cpuset free = m->cpus;

    memset(jobs, 0, n * sizeof(*jobs));
    for (unsigned i = 0; i < n; i++) {
        unsigned first = random_below(cpus);

        jobs[i].exclusive = random_below(3) > 0;
        jobs[i].count = 1 + random_below(cpus);
        if (random_below(4) == 0)
            jobs[i].allowed = range(first, first + random_below(cpus - first));
        for (unsigned c = 0; c < cpus; c++)
            if (random_below(n) == 0 && cpuset_has(&free, c)) {
                cpuset_add(&jobs[i].current, c);
                cpuset_remove(&free, c);
            }
    }
}

/* The answer becomes the present. */
static void settle(struct cores_job *jobs, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (jobs[i].overlaps)
            cpuset_zero(&jobs[i].current);
        else
            jobs[i].current = jobs[i].assigned;
}

static unsigned nodes_of(const struct cores_machine *m, const struct cpuset *set)
{
    struct cpuset nodes;

    cpuset_zero(&nodes);
    for (unsigned c = 0; c < CPUSET_MAX_CPUS; c++)
        if (cpuset_has(set, c))
            cpuset_add(&nodes, m->node[c]);
    return cpuset_count(&nodes);
}

static void check(const struct cores_machine *m, const struct cores_job *jobs, unsigned n)
{
    bool fence = !cpuset_equal(&m->cpus, &m->usable);

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
        cpuset_and(&inside, &jobs[i].assigned, &m->usable);
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
    struct cores_machine m;

    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned cpus = 1 + random_below(32), n = 1 + random_below(JOBS_MAX);

        machine_init(&m, cpus, 1 + random_below(cpus > 1 ? 2 : 1), random_below(2));
        if (random_below(3) == 0)
            slow_down(&m, random_below(cpus), cpus - 1);
        if (random_below(4) == 0)
            m.usable = range(random_below(cpus), cpus - 1);
        random_jobs(&m, jobs, n);
        memcpy(again, jobs, sizeof(jobs));
        cores_assign(&m, jobs, n);
        check(&m, jobs, n);
        cores_assign(&m, again, n);
        assert_memory_equal(jobs, again, n * sizeof(jobs[0])); /* the same again */
    }
}

static void what_is_in_place_stays_when_nothing_changes(void **unused)
{
    struct cores_job jobs[JOBS_MAX];
    struct cores_machine m;

    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned cpus = 2 + random_below(30), n = 1 + random_below(JOBS_MAX);

        machine_init(&m, cpus, 1 + random_below(4), random_below(2));
        if (random_below(3) == 0)
            slow_down(&m, random_below(cpus), cpus - 1);
        random_jobs(&m, jobs, n);
        cores_assign(&m, jobs, n);
        settle(jobs, n);
        cores_assign(&m, jobs, n);
        for (unsigned i = 0; i < n; i++)
            if (jobs[i].exclusive && !jobs[i].overlaps)
                assert_true(cpuset_equal(&jobs[i].current, &jobs[i].assigned));
    }
}

/* On one NUMA node, when all jobs get what they want, a job moves no further than it must. */
static void nothing_moves_that_need_not(void **unused)
{
    struct cores_job jobs[4];
    struct cores_machine m;

    for (unsigned round = 0; round < ROUNDS; round++) {
        machine_init(&m, 16, 1, random_below(2));
        memset(jobs, 0, sizeof(jobs));
        for (unsigned i = 0; i < 4; i++) {
            jobs[i].exclusive = true;
            jobs[i].count = 1 + random_below(4);
        }
        cores_assign(&m, jobs, 4);
        settle(jobs, 4);
        for (unsigned i = 0; i < 4; i++)
            jobs[i].count = 1 + random_below(4);
        cores_assign(&m, jobs, 4);
        for (unsigned i = 0; i < 4; i++) {
            unsigned had = cpuset_count(&jobs[i].current);
            struct cpuset kept;

            cpuset_and(&kept, &jobs[i].current, &jobs[i].assigned);
            assert_int_equal(cpuset_count(&jobs[i].assigned), jobs[i].count);
            assert_int_equal(cpuset_count(&kept), had < jobs[i].count ? had : jobs[i].count);
        }
    }
}

static void who_lacks_a_core_finds_none_free_nor_one_to_be_had(void **unused)
{
    struct cores_job jobs[JOBS_MAX];
    struct cores_machine m;

    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned cpus = 2 + random_below(14), n = 1 + random_below(JOBS_MAX);
        struct cpuset free;

        machine_init(&m, cpus, 1 + random_below(2), random_below(2));
        if (random_below(3) == 0)
            slow_down(&m, 0, random_below(cpus));
        random_jobs(&m, jobs, n);
        for (unsigned i = 0; i < n; i++)
            jobs[i].exclusive = true;
        cores_assign(&m, jobs, n);
        free = m.usable;
        for (unsigned i = 0; i < n; i++)
            for (unsigned c = 0; c < cpus && !jobs[i].overlaps; c++)
                if (cpuset_has(&jobs[i].assigned, c))
                    cpuset_remove(&free, c);
        for (unsigned i = 0; i < n; i++) {
            if (!jobs[i].overlaps && cpuset_count(&jobs[i].assigned) == jobs[i].count)
                continue;
            assert_false(overlap(&free, &jobs[i].choice));
            for (unsigned k = 0; k < n; k++)
                if (k != i && !jobs[k].overlaps && overlap(&jobs[k].assigned, &jobs[i].choice))
                    assert_false(overlap(&free, &jobs[k].choice));
        }
    }
}

static void a_job_grows_by_siblings_then_within_its_node(void **unused)
{
    struct cores_job job = {.exclusive = true, .count = 4};
    struct cpuset wanted = range(8, 11);
    struct cores_machine m;

    machine_init(&m, 16, 2, true);
    job.current = range(9, 9);
    cores_assign(&m, &job, 1);
    assert_true(cpuset_equal(&job.assigned, &wanted));
}

static void a_job_shrinks_to_whole_cores_of_one_node(void **unused)
{
    struct cores_job job = {.exclusive = true, .count = 2};
    struct cpuset wanted = range(8, 9);
    struct cores_machine m;

    machine_init(&m, 16, 2, true);
    job.current = range(7, 9); /* a thread on one node, a core on the other */
    cores_assign(&m, &job, 1);
    assert_true(cpuset_equal(&job.assigned, &wanted));
}

static void new_jobs_go_where_they_fit_and_leave_room(void **unused)
{
    struct cores_job jobs[3] = {{.exclusive = true, .count = 3},
                                {.exclusive = true, .count = 1},
                                {.exclusive = true, .count = 4}};
    struct cpuset first = range(0, 2), second = range(3, 3), third = range(4, 7);
    struct cores_machine m;

    machine_init(&m, 8, 2, false);
    cores_assign(&m, jobs, 3);
    assert_true(cpuset_equal(&jobs[0].assigned, &first));
    assert_true(cpuset_equal(&jobs[1].assigned, &second));
    assert_true(cpuset_equal(&jobs[2].assigned, &third));
}

static void small_jobs_do_not_share_a_core_while_whole_ones_are_free(void **unused)
{
    struct cores_job jobs[4];
    struct cores_machine m;

    machine_init(&m, 8, 1, true);
    memset(jobs, 0, sizeof(jobs));
    for (unsigned i = 0; i < 4; i++)
        jobs[i] = (struct cores_job){.exclusive = true, .count = 1};
    cores_assign(&m, jobs, 4);
    for (unsigned i = 0; i < 4; i++)
        assert_true(cpuset_has(&jobs[i].assigned, 2 * i));
}

static void who_has_few_choices_is_not_robbed_of_them(void **unused)
{
    struct cores_job jobs[2] = {{.exclusive = true, .count = 2}, {.exclusive = true, .count = 1}};
    struct cores_machine m;

    machine_init(&m, 4, 1, false);
    jobs[1].allowed = range(0, 0);
    cores_assign(&m, jobs, 2);
    assert_true(cpuset_has(&jobs[1].assigned, 0));
    assert_int_equal(cpuset_count(&jobs[0].assigned), 2);

    /* also when the other one is there already: it moves by one */
    jobs[0].current = range(0, 1);
    cpuset_zero(&jobs[1].current);
    cores_assign(&m, jobs, 2);
    assert_true(cpuset_has(&jobs[1].assigned, 0) && cpuset_has(&jobs[0].assigned, 1));
    assert_int_equal(cpuset_count(&jobs[0].assigned), 2);
    assert_false(jobs[1].overlaps);
}

static void a_scattered_job_is_gathered_when_there_is_room(void **unused)
{
    struct cores_job jobs[2] = {{.exclusive = true, .count = 4}, {.exclusive = true, .count = 2}};
    struct cpuset wanted = range(4, 7);
    struct cores_machine m;

    machine_init(&m, 8, 2, false);
    jobs[0].current = range(3, 6);
    jobs[1].current = range(0, 1);
    cores_assign(&m, jobs, 2);
    assert_true(cpuset_equal(&jobs[0].assigned, &wanted));
    jobs[1].current = range(6, 7); /* no room: it stays where it is */
    jobs[0].current = range(2, 5);
    cores_assign(&m, jobs, 2);
    assert_true(cpuset_equal(&jobs[0].assigned, &jobs[0].current) ||
                nodes_of(&m, &jobs[0].assigned) == 1);
}

static void a_job_that_outgrows_its_node_is_gathered_in_another_of_its_own(void **unused)
{
    struct cores_job jobs[2] = {{.exclusive = true, .count = 3}, {.exclusive = true, .count = 8}};
    struct cpuset wanted = range(8, 15);
    struct cores_machine m;

    machine_init(&m, 16, 2, true);
    jobs[0].current = range(0, 2);
    jobs[1].current = range(3, 10); /* most of it where there is no room for all */
    cores_assign(&m, jobs, 2);
    assert_true(cpuset_equal(&jobs[0].assigned, &jobs[0].current));
    assert_true(cpuset_equal(&jobs[1].assigned, &wanted));
}

static void siblings_of_anothers_core_are_left_to_it(void **unused)
{
    struct cores_job jobs[3] = {{.exclusive = true, .count = 3},
                                {.exclusive = true, .count = 2},
                                {.exclusive = true, .count = 1}};
    struct cpuset pair = range(2, 3);
    struct cores_machine m;

    machine_init(&m, 6, 1, true);
    jobs[0].current = range(0, 1);
    jobs[1].current = range(2, 2);
    jobs[2].current = range(4, 4);
    cores_assign(&m, jobs, 3); /* 3 and 5 are free, and the first job chooses first */
    assert_true(cpuset_equal(&jobs[1].assigned, &pair));
    assert_true(cpuset_has(&jobs[0].assigned, 5));
}

static unsigned parted_cores(const struct cores_machine *m, const struct cores_job *jobs,
                             unsigned n)
{
    unsigned parted = 0;

    for (unsigned c = 0; c < cpuset_count(&m->cpus); c += 2)
        for (unsigned i = 0; i < n; i++)
            for (unsigned k = 0; k < n; k++)
                parted += i != k && cpuset_has(&jobs[i].assigned, c) &&
                          cpuset_has(&jobs[k].assigned, c + 1);
    return parted;
}

/* The last of five gets what four with odd shares have of their last cores: four are parted then.
 */
static void few_cores_are_parted_when_odd_shares_grow_again(void **unused)
{
    struct cores_job jobs[5];
    struct cores_machine m;

    machine_init(&m, 64, 4, true);
    for (unsigned gone = 0; gone < 5; gone++) {
        memset(jobs, 0, sizeof(jobs));
        for (unsigned n = 1; n <= 5; n++) {
            jobs[n - 1].exclusive = true;
            for (unsigned i = 0; i < n; i++)
                jobs[i].count = 64 / n + (i < 64 % n);
            cores_assign(&m, jobs, n);
            settle(jobs, n);
        }
        assert_true(parted_cores(&m, jobs, 5) <= 4);
        memmove(jobs + gone, jobs + gone + 1, (4 - gone) * sizeof(jobs[0]));
        for (unsigned i = 0; i < 4; i++)
            jobs[i].count = 16;
        cores_assign(&m, jobs, 4);
        assert_true(parted_cores(&m, jobs, 4) <= 5); /* one is mended, two odd pairs meet */
    }
}

static void a_thousand_cores_are_assigned_as_a_matter_of_course(void **unused)
{
    static struct cores_job jobs[256];
    static struct cores_machine m;
    unsigned given = 0;

    machine_init(&m, CPUSET_MAX_CPUS, 8, true);
    for (unsigned i = 0; i < 256; i++)
        jobs[i] = (struct cores_job){.exclusive = true, .count = 1 + i % 7};
    cores_assign(&m, jobs, 256);
    for (unsigned i = 0; i < 256; i++) {
        given += cpuset_count(&jobs[i].assigned);
        assert_int_equal(nodes_of(&m, &jobs[i].assigned), 1);
    }
    assert_int_equal(given, 1018); /* all they want */
}

static void the_others_share_what_exclusive_jobs_leave(void **unused)
{
    struct cores_job jobs[3] = {{.count = 0}, {.exclusive = true, .count = 2}, {.count = 0}};
    struct cpuset rest = range(2, 3);
    struct cores_machine m;

    machine_init(&m, 4, 1, false);
    cores_assign(&m, jobs, 3);
    assert_true(cpuset_equal(&jobs[0].assigned, &rest));
    assert_true(cpuset_equal(&jobs[2].assigned, &rest));
}

static void more_jobs_than_cores_overlap_and_say_so(void **unused)
{
    struct cores_job jobs[3] = {{.exclusive = true, .count = 1},
                                {.exclusive = true, .count = 1},
                                {.exclusive = true, .count = 1}};
    struct cores_machine m;

    machine_init(&m, 2, 1, false);
    cores_assign(&m, jobs, 3);
    assert_false(jobs[0].overlaps || jobs[1].overlaps);
    assert_true(jobs[2].overlaps);
    assert_int_equal(cpuset_count(&jobs[2].assigned), 2);
}

static void cores_of_other_users_fence_shared_jobs_too(void **unused)
{
    struct cores_job job = {0};
    struct cores_machine m;

    machine_init(&m, 4, 1, false);
    m.usable = range(0, 2);
    cores_assign(&m, &job, 1);
    assert_true(cpuset_equal(&job.assigned, &m.usable));
}

/* Eight slow single cores before four fast ones of two threads each: 0-7, 8-15. */
static void machine_init_hybrid(struct cores_machine *m)
{
    machine_init(m, 16, 1, true);
    for (unsigned c = 0; c < 8; c++)
        m->core[c] = (uint16_t)c;
    slow_down(m, 0, 7);
}

static struct cpuset every_second(unsigned from, unsigned to)
{
    struct cpuset set = range(from, from);

    for (unsigned c = from + 2; c <= to; c += 2)
        cpuset_add(&set, c);
    return set;
}

static void fast_cores_go_first_and_slow_ones_before_anothers_siblings(void **unused)
{
    struct cores_job jobs[5];
    struct cpuset slow = range(0, 1);
    struct cores_machine m;

    machine_init_hybrid(&m);
    memset(jobs, 0, sizeof(jobs));
    for (unsigned i = 0; i < 5; i++) {
        jobs[i].exclusive = true;
        jobs[i].count = i < 4 ? 1 : 2;
    }
    cores_assign(&m, jobs, 5);
    for (unsigned i = 0; i < 4; i++)
        assert_true(cpuset_has(&jobs[i].assigned, 8 + 2 * i));
    assert_true(cpuset_equal(&jobs[4].assigned, &slow));
}

static void a_job_moves_to_fast_cores_that_come_free_and_gives_up_slow_ones(void **unused)
{
    struct cores_job job = {.exclusive = true, .count = 5, .current = range(0, 4)};
    struct cpuset moved = every_second(8, 14), fewer = moved;
    struct cores_machine m;

    machine_init_hybrid(&m);
    cores_assign(&m, &job, 1);
    cpuset_add(&moved, 4); /* the fifth stays: no fast core is whole any more */
    assert_true(cpuset_equal(&job.assigned, &moved));
    job.current = job.assigned;
    job.count = 4;
    cores_assign(&m, &job, 1);
    assert_true(cpuset_equal(&job.assigned, &fewer));
}

static unsigned of_group(const struct cores_machine *m, const struct cpuset *set, unsigned group)
{
    unsigned count = 0;

    for (int c = cpuset_next(set, 0); c >= 0; c = cpuset_next(set, (unsigned)c + 1))
        count += m->group[c] == group;
    return count;
}

/* Whatever the jobs had before: plans divide the fast cores otherwise when a job comes or goes. */
static void each_job_gets_so_many_of_each_speed(void **state)
{
    random_state = 3;

    for (unsigned round = 0; round < ROUNDS / 10; round++) {
        struct cores_job jobs[JOBS_MAX] = {0};
        struct cores_machine m;
        unsigned cpus = 2 * (2 + random_below(12)), fast = 1 + random_below(cpus - 1);
        unsigned n = 1 + random_below(JOBS_MAX), left[2] = {fast, cpus - fast};

        machine_init(&m, cpus, 1, one_in(2));
        slow_down(&m, fast, cpus - 1);
        for (int again = 0; again < 3; again++) {
            unsigned rest[2] = {left[0], left[1]};

            for (unsigned i = 0; i < n; i++) {
                jobs[i].count = 0;
                jobs[i].current = jobs[i].assigned;
                for (unsigned g = 0; g < 2; g++) {
                    jobs[i].of_speed[g] = random_below(rest[g] + 1);
                    rest[g] -= jobs[i].of_speed[g];
                    jobs[i].count += jobs[i].of_speed[g];
                }
                jobs[i].exclusive = jobs[i].count > 0;
            }
            for (int twice = 0; twice < 2; twice++) {
                struct cpuset before[JOBS_MAX];

                cores_assign(&m, jobs, n);
                for (unsigned i = 0; i < n; i++) {
                    for (unsigned g = 0; g < 2 && jobs[i].exclusive; g++)
                        assert_int_equal(of_group(&m, &jobs[i].assigned, g), jobs[i].of_speed[g]);
                    if (twice && jobs[i].exclusive)
                        assert_true(cpuset_equal(&before[i], &jobs[i].assigned));
                    before[i] = jobs[i].current = jobs[i].assigned;
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exclusive_jobs_never_share_a_core_with_anybody),
        cmocka_unit_test(what_is_in_place_stays_when_nothing_changes),
        cmocka_unit_test(nothing_moves_that_need_not),
        cmocka_unit_test(who_lacks_a_core_finds_none_free_nor_one_to_be_had),
        cmocka_unit_test(a_job_grows_by_siblings_then_within_its_node),
        cmocka_unit_test(a_job_shrinks_to_whole_cores_of_one_node),
        cmocka_unit_test(new_jobs_go_where_they_fit_and_leave_room),
        cmocka_unit_test(small_jobs_do_not_share_a_core_while_whole_ones_are_free),
        cmocka_unit_test(who_has_few_choices_is_not_robbed_of_them),
        cmocka_unit_test(a_scattered_job_is_gathered_when_there_is_room),
        cmocka_unit_test(a_job_that_outgrows_its_node_is_gathered_in_another_of_its_own),
        cmocka_unit_test(siblings_of_anothers_core_are_left_to_it),
        cmocka_unit_test(few_cores_are_parted_when_odd_shares_grow_again),
        cmocka_unit_test(a_thousand_cores_are_assigned_as_a_matter_of_course),
        cmocka_unit_test(the_others_share_what_exclusive_jobs_leave),
        cmocka_unit_test(more_jobs_than_cores_overlap_and_say_so),
        cmocka_unit_test(cores_of_other_users_fence_shared_jobs_too),
        cmocka_unit_test(fast_cores_go_first_and_slow_ones_before_anothers_siblings),
        cmocka_unit_test(each_job_gets_so_many_of_each_speed),
        cmocka_unit_test(a_job_moves_to_fast_cores_that_come_free_and_gives_up_slow_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
