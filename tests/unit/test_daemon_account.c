/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Budgets of the loop's time: of one account, of several together, and who comes first. --wrap
 * sends the clock here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/link/account.h"

#define BURST   200
#define CROWD   40
#define COST_NS 50000 /* of one message */

static uint64_t now_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    *ret = (struct timespec){.tv_sec = (time_t)(now_ns / NS_PER_S),
                             .tv_nsec = (long)(now_ns % NS_PER_S)};
    return 0;
}

static struct accounts table;
static struct account_sum sum;

static int begin(void **unused)
{
    now_ns = 1000 * NS_PER_S;
    table = (struct accounts){.size = sizeof(struct account), .burst = BURST};
    sum = (struct account_sum){.rate = 2 * ACCOUNT_RATE, .burst = 2 * BURST};
    return 0;
}

static int end(void **unused)
{
    accounts_free(&table);
    return 0;
}

static struct account *open_one(uint64_t key, bool shares)
{
    struct account *a = account_find(&table, key, 0);

    assert_non_null(a);
    a->connections = 1;
    a->sum = shares ? &sum : NULL;
    return a;
}

/* The loop's time that accounts from key 1 on get in a second in which all want all of it. */
static uint64_t second(uint64_t served_ns[CROWD + 1])
{
    uint64_t until = now_ns + NS_PER_S, all = 0;

    while (now_ns < until) {
        bool served = false;

        for (struct account *a = table.first; a && !served; a = a->next) {
            if (a->key == 0 || !account_has(&table, a))
                continue;
            account_last(&table, a);
            account_charge(a, COST_NS);
            served_ns[a->key] += COST_NS;
            all += COST_NS;
            served = true;
        }
        now_ns += served ? COST_NS : NS_PER_MS;
    }
    return all;
}

static void one_has_its_burst_and_then_a_tenth(void **unused)
{
    uint64_t served[CROWD + 1] = {0};

    open_one(1, false);
    second(served);
    assert_in_range(second(served), NS_PER_S / 10 - 5 * NS_PER_MS, NS_PER_S / 10 + 5 * NS_PER_MS);
}

static void many_together_have_two_tenths_and_each_its_part(void **unused)
{
    uint64_t served[CROWD + 1] = {0};

    for (unsigned i = 1; i <= CROWD; i++)
        open_one(i, true);
    second(served); /* the burst */
    for (unsigned i = 1; i <= CROWD; i++)
        served[i] = 0;
    assert_in_range(second(served), NS_PER_S / 5 - 5 * NS_PER_MS, NS_PER_S / 5 + 5 * NS_PER_MS);
    for (unsigned i = 1; i <= CROWD; i++)
        assert_in_range(served[i], NS_PER_S / 5 / CROWD - NS_PER_MS,
                        NS_PER_S / 5 / CROWD + NS_PER_MS);
}

/* A user that speaks seldom is the first of those that wait as soon as there is a token. */
static void a_crowd_does_not_starve_who_comes_seldom(void **unused)
{
    uint64_t served[CROWD + 1] = {0}, began;
    struct account *seldom = open_one(0, true);

    for (unsigned i = 1; i <= CROWD; i++)
        open_one(i, true);
    second(served);
    for (unsigned i = 0; i < 20; i++) {
        second(served);
        began = now_ns;
        while (!account_has(&table, seldom))
            now_ns += NS_PER_MS;
        assert_true(now_ns - began <= 20 * NS_PER_MS);
        assert_ptr_equal(table.first, seldom);
        account_charge(seldom, COST_NS);
    }
}

static void whoever_has_no_sum_does_not_wait_for_it(void **unused)
{
    uint64_t served[CROWD + 1] = {0};
    struct account *user = open_one(0, false);

    for (unsigned i = 1; i <= CROWD; i++)
        open_one(i, true);
    second(served);
    assert_true(account_has(&table, user));
}

static void an_account_in_debt_is_remembered_and_one_that_is_full_forgotten(void **unused)
{
    struct account *a = open_one(7, true);

    assert_true(account_has(&table, a));
    account_charge(a, 300 * NS_PER_MS);
    a->connections = 0;
    assert_ptr_equal(account_find(&table, 7, 0), a);
    assert_false(account_has(&table, a));
    now_ns += 10 * NS_PER_S;
    open_one(8, true); /* forgets 7 */
    assert_null(table.first->next);
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(one_has_its_burst_and_then_a_tenth),
        T(many_together_have_two_tenths_and_each_its_part),
        T(a_crowd_does_not_starve_who_comes_seldom),
        T(whoever_has_no_sum_does_not_wait_for_it),
        T(an_account_in_debt_is_remembered_and_one_that_is_full_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
