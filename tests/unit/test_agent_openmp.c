/* SPDX-License-Identifier: Apache-2.0 */
/* Which number of threads an OpenMP program's thread gets: the rule alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/process/number.h"

#include "test_random.h"

static void a_number_chosen_by_the_runtime_grows_to_the_machines(void **unused)
{
    struct number_wish wish = {.target = 6, .limit = 2, .machine = 8, .chosen = 2};

    assert_int_equal(thread_number(2, &wish), 6);
    wish.target = 12;
    assert_int_equal(thread_number(2, &wish), 8);
    wish.target = 1;
    assert_int_equal(thread_number(2, &wish), 1);
    wish.target = 0; /* no daemon: the process's own limit */
    assert_int_equal(thread_number(2, &wish), 2);
    wish.limit = 0; /* which nobody has read yet */
    assert_int_equal(thread_number(2, &wish), 2);
}

static void the_users_number_is_the_most_and_comes_back(void **unused)
{
    struct number_wish wish = {.target = 6, .limit = 2, .machine = 8, .chosen = 4, .sized = true};

    assert_int_equal(thread_number(4, &wish), 4);
    wish.target = 3;
    assert_int_equal(thread_number(4, &wish), 3);
    wish.target = 0;
    assert_int_equal(thread_number(4, &wish), 4);
}

static void a_number_that_the_program_set_is_the_most(void **unused)
{
    struct number_wish wish = {.target = 4, .limit = 2, .machine = 8, .chosen = 2};

    assert_int_equal(thread_number(1, &wish), 1); /* omp_set_num_threads(1) */
    assert_int_equal(thread_number(3, &wish), 3);
    assert_int_equal(thread_number(5, &wish), 4);
    assert_int_equal(thread_number(2, &wish), 4); /* it put the runtime's back */
}

static void nobody_gets_less_than_one_or_more_than_the_most(void **unused)
{
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t held = 1 + random_below(9);
        struct number_wish wish = {.machine = 1 + random_below(9),
                                   .chosen = 1 + random_below(9),
                                   .sized = random_below(2)};
        uint32_t most =
            wish.sized || wish.machine < held || wish.chosen != held ? held : wish.machine;
        uint32_t number;

        wish.target = random_below(12);
        wish.limit = random_below(5);
        number = thread_number(held, &wish);
        assert_in_range(number, 1, most);
        if (wish.target)
            assert_int_equal(number, wish.target < most ? wish.target : most);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_chosen_by_the_runtime_grows_to_the_machines),
        cmocka_unit_test(the_users_number_is_the_most_and_comes_back),
        cmocka_unit_test(a_number_that_the_program_set_is_the_most),
        cmocka_unit_test(nobody_gets_less_than_one_or_more_than_the_most),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
