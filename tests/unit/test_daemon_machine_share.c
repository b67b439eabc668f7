/* SPDX-License-Identifier: Apache-2.0 */
/* The division of one machine between daemons, and the text of a claim. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/plan/machine_share.h"

#include <errno.h>
#include <string.h>

static uint64_t state = 88172645463325252ull;

static unsigned random_below(unsigned n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state % n);
}

static struct share_claim claim(uid_t uid, pid_t pid, uint32_t jobs)
{
    return (struct share_claim){.uid = uid, .pid = pid, .jobs = jobs};
}

/* Shares add up to the machine, unless it is smaller than the daemons are many: then 1 each. */
static void shares_add_up_and_nobody_goes_without(void **unused)
{
    for (unsigned round = 0; round < 20000; round++) {
        struct share_claim all[8];
        unsigned n = 1 + random_below(8), cpus = 1 + random_below(64), sum = 0, above_one = 0;

        for (unsigned i = 0; i < n; i++)
            all[i] = claim(1000 + i / 2, (int)(10 + i), 1 + random_below(20));
        for (unsigned i = 0; i < n; i++) {
            unsigned share = machine_share_divide(all, n, &all[i], cpus);

            assert_true(share >= 1);
            sum += share;
            above_one += share > 1;
            for (unsigned k = 0; k < i; k++) /* more jobs of the same user, not fewer cores */
                if (all[k].uid == all[i].uid && all[k].jobs >= all[i].jobs)
                    assert_true(machine_share_divide(all, n, &all[k], cpus) + 1 >= share);
        }
        assert_true(sum >= cpus || above_one == 0 || sum >= n);
        if (n <= cpus)
            assert_in_range(sum, cpus, cpus + n); /* the floor of 1 may add a few */
    }
}

static void the_order_of_the_files_does_not_matter(void **unused)
{
    struct share_claim a = claim(1, 5, 1), b = claim(2, 4, 1), c = claim(2, 9, 1);
    struct share_claim one[] = {a, b, c}, two[] = {c, a, b};

    for (unsigned cpus = 1; cpus < 20; cpus++)
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(machine_share_divide(one, 3, &one[i], cpus),
                             machine_share_divide(two, 3, &one[i], cpus));
    assert_int_equal(machine_share_divide(one, 3, &a, 9), 5);
    assert_int_equal(machine_share_divide(one, 3, &b, 9), 2);
    assert_int_equal(machine_share_divide(one, 3, &c, 9), 2);
}

/* One user writes as many files as are read, with as many jobs as a file may name. */
static void a_user_has_one_share_by_however_many_files(void **unused)
{
    for (unsigned files = 1; files < MACHINE_SHARE_MAX; files++)
        for (unsigned cpus = 2; cpus <= 64; cpus++) {
            struct share_claim all[MACHINE_SHARE_MAX + 1];

            for (unsigned i = 0; i < files; i++) {
                all[i] = claim(1000, (int)(10 + i), 512);
                all[i].used = CPUSET_MAX_CPUS; /* counts of root's daemon alone */
            }
            all[files] = claim(1001, 5, 1);
            assert_int_equal(machine_share_divide(all, files + 1, &all[files], cpus), cpus / 2);
        }
}

static void nobodys_claims_take_cores_from_roots_daemon(void **unused)
{
    struct share_claim all[MACHINE_SHARE_MAX];
    struct cpuset machine, usable;

    assert_int_equal(cpuset_parse("0-7", &machine), 0);
    for (unsigned i = 0; i < MACHINE_SHARE_MAX; i++) {
        all[i] = claim(1000 + i, (int)(10 + i), 512);
        all[i].cores = machine;
    }
    all[7] = claim(0, 700, 1);
    assert_int_equal(machine_share_divide(all, MACHINE_SHARE_MAX, &all[7], 8), 8);
    machine_share_usable(all, MACHINE_SHARE_MAX, &all[7], &machine, &usable);
    assert_true(cpuset_equal(&usable, &machine));
    all[8] = claim(0, 800, 3); /* another one of root's does */
    assert_int_equal(machine_share_divide(all, MACHINE_SHARE_MAX, &all[7], 8), 2);
}

static void users_daemons_divide_what_roots_jobs_leave(void **unused)
{
    struct share_claim all[] = {claim(1000, 5, 1), claim(0, 6, 9), claim(1001, 7, 100)};

    all[1].used = 3;
    assert_int_equal(machine_share_divide(all, 3, &all[0], 8), 3);
    assert_int_equal(machine_share_divide(all, 3, &all[2], 8), 2);
    assert_int_equal(machine_share_divide(all, 3, &all[1], 8), 8);
    all[1].used = 8;
    assert_int_equal(machine_share_divide(all, 3, &all[0], 8), 1);
    all[1].used = 4000000000;
    assert_int_equal(machine_share_divide(all, 3, &all[0], 8), 1);
}

static void alone_or_without_jobs_the_machine_is_ours(void **unused)
{
    struct share_claim self = claim(1, 5, 3), idle = claim(1, 5, 0);

    assert_int_equal(machine_share_divide(&self, 1, &self, 7), 7);
    assert_int_equal(machine_share_divide(&idle, 1, &idle, 7), 7);
}

static struct cpuset cores(const char *list)
{
    struct cpuset set;

    assert_int_equal(cpuset_parse(list, &set), 0);
    return set;
}

static void expect_usable(const struct share_claim *all, size_t n, const struct share_claim *self,
                          const char *list)
{
    struct cpuset machine = cores("0-3"), wanted = cores(list), usable;

    machine_share_usable(all, n, self, &machine, &usable);
    assert_true(cpuset_equal(&usable, &wanted));
}

static void of_two_that_took_one_core_exactly_one_keeps_it(void **unused)
{
    struct share_claim all[] = {claim(1, 5, 1), claim(2, 4, 1)};

    all[0].cores = cores("0-1");
    all[1].cores = cores("1-2");
    expect_usable(all, 2, &all[0], "0-1,3");
    expect_usable(all, 2, &all[1], "2-3");
    all[0].cores = cores(""); /* a holds no cores, so b keeps all of its own */
    expect_usable(all, 2, &all[0], "0,3");
}

static void a_user_holds_no_more_cores_than_the_share(void **unused)
{
    struct share_claim all[] = {claim(1, 5, 1), claim(1, 6, 1), claim(2, 4, 1), claim(0, 9, 1)};

    all[0].cores = cores("0,2"); /* a half of the machine by each of two files */
    all[1].cores = cores("1,3");
    expect_usable(all, 3, &all[2], "2-3");
    all[3].cores = cores("1-3"); /* root's are all respected */
    all[3].used = 3;
    all[1].jobs = all[0].jobs = 0;
    all[0].cores = all[1].cores = cores("");
    expect_usable(all, 4, &all[2], "0");
    all[3].cores = cores("0-3");
    expect_usable(all, 4, &all[2], "0-3"); /* nowhere to go: shared */
}

static void a_claim_is_read_as_it_was_written(void **unused)
{
    struct share_claim c;

    assert_int_equal(machine_share_parse("2 77 3 6 0-1,5\n", &c), 0);
    assert_int_equal(c.pid, 77);
    assert_int_equal(c.jobs, 3);
    assert_int_equal(c.used, 6);
    assert_int_equal(cpuset_count(&c.cores), 3);
    assert_true(cpuset_has(&c.cores, 5));
    assert_int_equal(machine_share_parse("2 77 3 6 \n", &c), 0);
    assert_int_equal(cpuset_count(&c.cores), 0);
}

static void absurd_numbers_are_cut(void **unused)
{
    struct share_claim c;

    assert_int_equal(machine_share_parse("2 77 4000000000 4000000000 \n", &c), 0);
    assert_int_equal(c.jobs, 512);
    assert_int_equal(c.used, CPUSET_MAX_CPUS);
}

static void anything_else_is_no_claim(void **unused)
{
    static const char *const bad[] = {"",
                                      "\n",
                                      "2",
                                      "2 3 4",
                                      "1 1000 77 123456 3 0-1\n", /* of an earlier version */
                                      "3 77 1 1 0\n",
                                      "2 a 1 1 0\n",
                                      "2 0 1 1 0\n",
                                      "2 -7 1 1 0\n",
                                      "2 77 1 1 x\n",
                                      "2 77 1 1 3-1\n",
                                      "2 77 1 1 9999\n"};
    struct share_claim c = {.pid = 42};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_true(machine_share_parse(bad[i], &c) < 0);
        assert_int_equal(c.pid, 42); /* untouched */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_add_up_and_nobody_goes_without),
        cmocka_unit_test(the_order_of_the_files_does_not_matter),
        cmocka_unit_test(a_user_has_one_share_by_however_many_files),
        cmocka_unit_test(nobodys_claims_take_cores_from_roots_daemon),
        cmocka_unit_test(users_daemons_divide_what_roots_jobs_leave),
        cmocka_unit_test(alone_or_without_jobs_the_machine_is_ours),
        cmocka_unit_test(of_two_that_took_one_core_exactly_one_keeps_it),
        cmocka_unit_test(a_user_holds_no_more_cores_than_the_share),
        cmocka_unit_test(a_claim_is_read_as_it_was_written),
        cmocka_unit_test(absurd_numbers_are_cut),
        cmocka_unit_test(anything_else_is_no_claim),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
