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

/* Shares add up to the machine, unless it is smaller than the daemons are many: then 1 each. */
static void shares_add_up_and_nobody_goes_without(void **unused)
{
    for (unsigned round = 0; round < 20000; round++) {
        struct share_claim all[8];
        unsigned n = 1 + random_below(8), cpus = 1 + random_below(64), sum = 0, above_one = 0;

        memset(all, 0, sizeof(all));
        for (unsigned i = 0; i < n; i++)
            all[i] = (struct share_claim){
                .uid = 1000 + i / 2, .pid = (int)(10 + i), .jobs = 1 + random_below(20)};
        for (unsigned i = 0; i < n; i++) {
            unsigned share = machine_share_divide(all, n, &all[i], cpus);

            assert_true(share >= 1);
            sum += share;
            above_one += share > 1;
            for (unsigned k = 0; k < i; k++) /* more jobs, not fewer cores */
                if (all[k].jobs >= all[i].jobs)
                    assert_true(machine_share_divide(all, n, &all[k], cpus) + 1 >= share);
        }
        assert_true(sum >= cpus || above_one == 0 || sum >= n);
        if (n <= cpus)
            assert_in_range(sum, cpus, cpus + n); /* the floor of 1 may add a few */
    }
}

static void the_order_of_the_files_does_not_matter(void **unused)
{
    struct share_claim a = {.uid = 1, .pid = 5, .jobs = 1}, b = {.uid = 2, .pid = 4, .jobs = 1},
                       c = {.uid = 2, .pid = 9, .jobs = 1};
    struct share_claim one[] = {a, b, c}, two[] = {c, a, b};

    for (unsigned cpus = 1; cpus < 20; cpus++)
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(machine_share_divide(one, 3, &one[i], cpus),
                             machine_share_divide(two, 3, &one[i], cpus));
    assert_int_equal(machine_share_divide(one, 3, &a, 8), 3);
    assert_int_equal(machine_share_divide(one, 3, &b, 8), 3);
    assert_int_equal(machine_share_divide(one, 3, &c, 8), 2);
}

static void alone_or_without_jobs_the_machine_is_ours(void **unused)
{
    struct share_claim self = {.uid = 1, .pid = 5, .jobs = 3}, idle = {.uid = 1, .pid = 5};

    assert_int_equal(machine_share_divide(&self, 1, &self, 7), 7);
    assert_int_equal(machine_share_divide(&idle, 1, &idle, 7), 7);
}

static struct cpuset cores(const char *list)
{
    struct cpuset set;

    assert_int_equal(cpuset_parse(list, &set), 0);
    return set;
}

static void of_two_that_took_one_core_exactly_one_keeps_it(void **unused)
{
    struct share_claim a = {.uid = 1, .pid = 5, .jobs = 1}, b = {.uid = 2, .pid = 4, .jobs = 1};
    struct cpuset machine = cores("0-3"), usable, wanted = cores("0-1,3"), left = cores("0,3");

    a.cores = cores("0-1");
    b.cores = cores("1-2");
    machine_share_usable(&b, 1, &a, &machine, &usable);
    assert_true(cpuset_equal(&usable, &wanted));
    wanted = cores("2-3");
    machine_share_usable(&a, 1, &b, &machine, &usable);
    assert_true(cpuset_equal(&usable, &wanted));
    a.cores = cores(""); /* a holds nothing: what b has is b's */
    machine_share_usable(&b, 1, &a, &machine, &usable);
    assert_true(cpuset_equal(&usable, &left));
    b.cores = machine;
    machine_share_usable(&b, 1, &a, &machine, &usable);
    assert_true(cpuset_equal(&usable, &machine)); /* nowhere to go: shared */
}

static void a_claim_is_read_as_it_was_written(void **unused)
{
    struct share_claim c;

    assert_int_equal(machine_share_parse("1 1000 77 123456 3 0-1,5\n", &c), 0);
    assert_int_equal(c.uid, 1000);
    assert_int_equal(c.pid, 77);
    assert_int_equal(c.start, 123456);
    assert_int_equal(c.jobs, 3);
    assert_int_equal(cpuset_count(&c.cores), 3);
    assert_true(cpuset_has(&c.cores, 5));
    assert_int_equal(machine_share_parse("1 1000 77 123456 3 \n", &c), 0);
    assert_int_equal(cpuset_count(&c.cores), 0);
}

static void an_absurd_number_of_jobs_is_cut(void **unused)
{
    struct share_claim c;

    assert_int_equal(machine_share_parse("1 1000 77 5 4000000000 \n", &c), 0);
    assert_int_equal(c.jobs, 512);
}

static void anything_else_is_no_claim(void **unused)
{
    static const char *const bad[] = {"",
                                      "\n",
                                      "1",
                                      "1 2 3 4",
                                      "2 1000 77 5 1 0\n",
                                      "1 a 77 5 1 0\n",
                                      "1 1000 0 5 1 0\n",
                                      "1 1000 -7 5 1 0\n",
                                      "1 1000 77 5 1 x\n",
                                      "1 1000 77 5 1 3-1\n",
                                      "1 1000 77 5 1 9999\n"};
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
        cmocka_unit_test(alone_or_without_jobs_the_machine_is_ours),
        cmocka_unit_test(of_two_that_took_one_core_exactly_one_keeps_it),
        cmocka_unit_test(a_claim_is_read_as_it_was_written),
        cmocka_unit_test(an_absurd_number_of_jobs_is_cut),
        cmocka_unit_test(anything_else_is_no_claim),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
