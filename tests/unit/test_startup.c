/* SPDX-License-Identifier: Apache-2.0 */
#include "base/startup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct startup_row *row_of(const char *name)
{
    const struct startup_row *row = startup_row_of(name);

    assert_non_null(row);
    return row;
}

/* An environment: NAME, VALUE, NAME, VALUE, …, NULL */
static const char *lookup(const void *arg, const char *name)
{
    for (const char *const *pair = arg; *pair; pair += 2)
        if (strcmp(pair[0], name) == 0)
            return pair[1];
    return NULL;
}

static bool is_free(const char *name, const char *const *environment)
{
    return startup_free(row_of(name), lookup, environment);
}

static unsigned size_of(unsigned threads, unsigned request, unsigned min, unsigned max)
{
    return startup_of(threads, request, min, max, 8).size;
}

static void a_job_that_asks_for_nothing_keeps_its_sizes(void **state)
{
    struct startup s = startup_of(0, 0, 0, 0, 8);
    char value[STARTUP_VALUE_MAX];

    assert_int_equal(s.size, 0);
    assert_int_equal(s.most, 0);
    for (size_t i = 0; i < startup_rows; i++)
        assert_int_equal(startup_value(&startup_table[i], &s, value),
                         startup_table[i].kind == STARTUP_WAIT);
    assert_int_equal(size_of(0, 0, 4, 0), 0); /* a minimum alone limits nothing */
}

static void request_goes_before_max_and_neither_makes_a_pool_larger(void **state)
{
    assert_int_equal(size_of(0, 0, 0, 4), 4);
    assert_int_equal(size_of(0, 2, 0, 4), 2);
    assert_int_equal(size_of(0, 6, 0, 4), 4);
    assert_int_equal(size_of(0, 1, 3, 4), 3);
    assert_int_equal(size_of(0, 0, 0, 7), 7);
    assert_int_equal(size_of(0, 0, 0, 8), 0);
    assert_int_equal(size_of(0, 0, 0, 64), 0);
    assert_int_equal(size_of(0, 9, 0, 0), 0);
    assert_int_equal(startup_of(0, 0, 0, 64, 8).most, 64); /* pools that the agent resizes */
}

static void exactly_k_threads_are_k_also_beyond_the_cores(void **state)
{
    assert_int_equal(size_of(3, 1, 1, 6), 3);
    assert_int_equal(size_of(16, 0, 0, 0), 16);
}

static void each_variable_has_one_row_with_a_runtime(void **state)
{
    struct startup s = {.size = STARTUP_NUMBER_MAX, .most = STARTUP_NUMBER_MAX};
    char value[STARTUP_VALUE_MAX];

    for (size_t i = 0; i < startup_rows; i++) {
        assert_ptr_equal(row_of(startup_table[i].name), &startup_table[i]);
        assert_non_null(startup_table[i].runtime);
        assert_true(startup_value(&startup_table[i], &s, value));
        assert_in_range(strlen(value), 1, STARTUP_VALUE_MAX - 2);
        assert_string_not_equal(startup_table[i].name, "GOMAXPROCS");
    }
}

static void what_the_user_has_set_wins(void **state)
{
    static const char *const none[] = {NULL};
    static const char *const omp[] = {"OMP_NUM_THREADS", "3", NULL};
    static const char *const spins[] = {"GOMP_SPINCOUNT", "9", NULL};
    static const char *const policy[] = {"OMP_WAIT_POLICY", "active", NULL};
    static const char *const java[] = {"JDK_JAVA_OPTIONS", "-Xmx1g", NULL};
    static const char *const tools[] = {"JAVA_TOOL_OPTIONS", "-XX:ActiveProcessorCount=1", NULL};
    static const char *const max[] = {"TIDE_MAX", "3", NULL};

    for (size_t i = 0; i < startup_rows; i++)
        assert_true(startup_free(&startup_table[i], lookup, none));
    assert_false(is_free("OMP_NUM_THREADS", omp));
    assert_true(is_free("RAYON_NUM_THREADS", omp));
    assert_false(is_free("OMP_WAIT_POLICY", spins));
    assert_false(is_free("GOMP_SPINCOUNT", policy));
    assert_true(is_free("JDK_JAVA_OPTIONS", java)); /* his words follow ours, and override them */
    assert_false(is_free("JDK_JAVA_OPTIONS", tools));
    assert_true(is_free("TIDE_MAX", max));
}

static void what_an_earlier_start_has_set_is_not_the_users(void **state)
{
    const struct startup_row *omp = row_of("OMP_NUM_THREADS"), *java = row_of("JDK_JAVA_OPTIONS");
    struct startup earlier = {.size = 4, .set = UINT32_MAX}, none = {.size = 4};
    struct startup not_omp = {.size = 4, .set = ~(UINT32_C(1) << (omp - startup_table))};

    assert_null(startup_own(omp, &earlier, "4"));
    assert_string_equal(startup_own(omp, &earlier, "40"), "40");
    assert_string_equal(startup_own(omp, &earlier, "3"), "3");
    assert_string_equal(startup_own(omp, &none, "4"), "4");
    assert_string_equal(startup_own(omp, &not_omp, "4"), "4"); /* the user's, by chance the same */
    assert_null(startup_own(row_of("RAYON_NUM_THREADS"), &not_omp, "4"));
    assert_null(startup_own(omp, &earlier, NULL));
    assert_null(startup_own(java, &earlier, "-XX:ActiveProcessorCount=4"));
    assert_string_equal(startup_own(java, &earlier, "-XX:ActiveProcessorCount=4 -Xmx1g"), "-Xmx1g");
    assert_string_equal(startup_own(java, &earlier, "-XX:ActiveProcessorCount=42"),
                        "-XX:ActiveProcessorCount=42");
    assert_null(startup_own(row_of("TIDE_MAX"), &none, "3"));
    assert_null(startup_own(row_of("OMP_WAIT_POLICY"), &earlier, "passive"));
    assert_string_equal(startup_own(row_of("OMP_WAIT_POLICY"), &none, "passive"), "passive");
}

static void a_mark_is_read_as_it_was_written(void **state)
{
    static const char *const wrong[] = {"",      "4",     "4:8",           "4:8:", "4:8:0q",
                                        "-4:8:", "x:8:0", "4:8:123456789", NULL};
    struct startup s = {.size = 4096, .most = 4096, .set = UINT32_MAX}, again;
    char mark[STARTUP_MARK_MAX];

    startup_mark(&s, mark);
    assert_true(startup_read_mark(mark, &again));
    assert_int_equal(again.size, s.size);
    assert_int_equal(again.most, s.most);
    assert_int_equal(again.set, s.set);
    for (const char *const *text = wrong; *text; text++)
        assert_false(startup_read_mark(*text, &again));
    assert_false(startup_read_mark(NULL, &again));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_asks_for_nothing_keeps_its_sizes),
        cmocka_unit_test(request_goes_before_max_and_neither_makes_a_pool_larger),
        cmocka_unit_test(exactly_k_threads_are_k_also_beyond_the_cores),
        cmocka_unit_test(each_variable_has_one_row_with_a_runtime),
        cmocka_unit_test(what_the_user_has_set_wins),
        cmocka_unit_test(what_an_earlier_start_has_set_is_not_the_users),
        cmocka_unit_test(a_mark_is_read_as_it_was_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
