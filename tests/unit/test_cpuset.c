/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpuset.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct cpuset parsed(const char *text)
{
    struct cpuset set;

    assert_int_equal(cpuset_parse(text, &set), 0);
    return set;
}

static void list_syntax_is_read_as_the_kernel_writes_it(void **state)
{
    struct cpuset set = parsed("0-3,8,10-11\n");

    assert_int_equal(cpuset_count(&set), 7);
    assert_true(cpuset_has(&set, 0) && cpuset_has(&set, 3) && cpuset_has(&set, 8));
    assert_false(cpuset_has(&set, 4) || cpuset_has(&set, 9) || cpuset_has(&set, 12));
    set = parsed("");
    assert_int_equal(cpuset_count(&set), 0);
    set = parsed("\n");
    assert_int_equal(cpuset_count(&set), 0);
    set = parsed("1023");
    assert_true(cpuset_has(&set, 1023));
}

static void malformed_lists_are_refused_and_change_nothing(void **state)
{
    static const char *const bad[] = {",", "1,",    "1,,2", "-1",   "1-",    "3-1", "1 2",
                                      "a", "1-2-3", "0x1",  "1\n2", "1\n\n", " 1",  "1, 2"};
    struct cpuset before = parsed("5"), set = before;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(cpuset_parse(bad[i], &set), -EINVAL);
        assert_true(cpuset_equal(&set, &before));
    }
    assert_int_equal(cpuset_parse("1024", &set), -ERANGE);
    assert_int_equal(cpuset_parse("0-99999999999999999999", &set), -ERANGE);
    assert_true(cpuset_equal(&set, &before));
}

static void format_is_the_inverse_of_parse(void **state)
{
    static const char *const lists[] = {
        "", "0", "0-1", "0-3,8,10-11", "0-1023", "63-64,127-128", "1,3,5,7"};
    char text[CPUSET_TEXT_MAX];

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct cpuset set = parsed(lists[i]);

        assert_int_equal(cpuset_format(&set, text, sizeof(text)), strlen(lists[i]));
        assert_string_equal(text, lists[i]);
    }
}

static void the_longest_text_fits_and_a_short_buffer_is_noticed(void **state)
{
    char text[CPUSET_TEXT_MAX];
    struct cpuset set, again;

    cpuset_zero(&set);
    for (unsigned cpu = 1; cpu < CPUSET_MAX_CPUS; cpu += 2)
        cpuset_add(&set, cpu);
    assert_true(cpuset_format(&set, text, sizeof(text)) > 0);
    assert_int_equal(cpuset_parse(text, &again), 0);
    assert_true(cpuset_equal(&set, &again));

    set = parsed("10-11");
    assert_int_equal(cpuset_format(&set, text, 5), -ENOSPC);
    assert_string_equal(text, "");
    assert_int_equal(cpuset_format(&set, text, 6), 5);
    assert_int_equal(cpuset_format(&set, text, 0), -ENOSPC);
}

static void numbers_beyond_the_maximum_are_no_members(void **state)
{
    struct cpuset set;

    cpuset_zero(&set);
    cpuset_add(&set, CPUSET_MAX_CPUS);
    cpuset_add(&set, 4000000000u);
    assert_int_equal(cpuset_count(&set), 0);
    assert_false(cpuset_has(&set, CPUSET_MAX_CPUS));
    cpuset_add(&set, 1023);
    cpuset_remove(&set, CPUSET_MAX_CPUS + 1023);
    assert_int_equal(cpuset_count(&set), 1);
    cpuset_remove(&set, 1023);
    assert_int_equal(cpuset_count(&set), 0);
}

static void next_walks_every_member_in_order(void **state)
{
    struct cpuset set = parsed("2,63-65,1023");
    static const int want[] = {2, 63, 64, 65, 1023};
    size_t n = 0;

    for (int cpu = cpuset_next(&set, 0); cpu >= 0; cpu = cpuset_next(&set, (unsigned)cpu + 1))
        assert_int_equal(cpu, want[n++]);
    assert_int_equal(n, 5);
    assert_int_equal(cpuset_next(&set, 1024), -1);
}

static void the_intersection_may_be_stored_over_an_operand(void **state)
{
    struct cpuset a = parsed("0-7"), b = parsed("4-11"), want = parsed("4-7");

    cpuset_and(&a, &a, &b);
    assert_true(cpuset_equal(&a, &want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_syntax_is_read_as_the_kernel_writes_it),
        cmocka_unit_test(malformed_lists_are_refused_and_change_nothing),
        cmocka_unit_test(format_is_the_inverse_of_parse),
        cmocka_unit_test(the_longest_text_fits_and_a_short_buffer_is_noticed),
        cmocka_unit_test(numbers_beyond_the_maximum_are_no_members),
        cmocka_unit_test(next_walks_every_member_in_order),
        cmocka_unit_test(the_intersection_may_be_stored_over_an_operand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
