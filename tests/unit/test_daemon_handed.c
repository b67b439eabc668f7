/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/energy/handed.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define S UINT64_C(1000000000)
#define J UINT64_C(1000000)

static struct handed h;
static struct error err;

static int watts(const char *name, uint64_t seconds, uint64_t uw)
{
    const struct handed_reading r = {.name = name, .has_uw = true, .uw = uw, .error_permille = 10};

    return handed_take(&h, &r, seconds * S, &err);
}

static int joules(const char *name, uint64_t seconds, uint64_t uj)
{
    const struct handed_reading r = {.name = name, .has_uj = true, .uj = uj};

    return handed_take(&h, &r, seconds * S, &err);
}

static int clear(void **state)
{
    memset(&h, 0, sizeof(h));
    return 0;
}

static void one_reading_is_no_energy_yet(void **state)
{
    assert_int_equal(watts("plug", 10, 50 * J), 0);
    assert_null(handed_best(&h, 10 * S));
    assert_int_equal(watts("plug", 20, 70 * J), 0);
    assert_ptr_equal(handed_best(&h, 20 * S), &h.of[0]);
    assert_int_equal(h.of[0].pending.uj, 600 * J);
    assert_int_equal(h.of[0].pending.low_uj, 594 * J);
    assert_int_equal(h.of[0].pending.basis, POWER_MEASURED);
    assert_int_equal(h.of[0].uw, 70 * J);
}

static void a_source_that_is_silent_is_away(void **state)
{
    watts("plug", 10, 50 * J);
    watts("plug", 20, 50 * J);
    assert_non_null(handed_best(&h, 50 * S));
    assert_null(handed_best(&h, 51 * S));
    watts("plug", 60, 50 * J); /* too far from the last one to know what was in between */
    assert_null(handed_best(&h, 60 * S));
    watts("plug", 61, 50 * J);
    assert_non_null(handed_best(&h, 61 * S));
}

static void the_newest_source_counts(void **state)
{
    watts("a", 10, 50 * J);
    watts("a", 11, 50 * J);
    joules("b", 11, 0);
    joules("b", 12, 30 * J);
    assert_string_equal(handed_best(&h, 12 * S)->sensor.name, "b");
    assert_int_equal(handed_best(&h, 12 * S)->uw, 30 * J);
    watts("a", 13, 50 * J);
    assert_string_equal(handed_best(&h, 13 * S)->sensor.name, "a");
}

/* A plug that counts in steps of 3.6 kJ has not drawn 0 W in between. */
static void a_coarse_counter_that_stands_still_tells_nothing(void **state)
{
    joules("plug", 10, 3600 * J);
    joules("plug", 20, 7200 * J);
    memset(&h.of[0].pending, 0, sizeof(h.of[0].pending));
    for (unsigned t = 21; t < 40; t++)
        joules("plug", t, 7200 * J);
    assert_int_equal(h.of[0].pending.basis, POWER_UNKNOWN);
    assert_int_equal(h.of[0].uw, 360 * J);
    assert_non_null(handed_best(&h, 60 * S)); /* and is not away */
    joules("plug", 40, 10800 * J);
    assert_int_equal(h.of[0].pending.uj, 3600 * J);
    assert_int_equal(h.of[0].uw, 180 * J);
}

static void a_reset_is_no_energy(void **state)
{
    joules("plug", 10, 7200 * J);
    joules("plug", 11, 5 * J);
    assert_null(handed_best(&h, 11 * S));
    assert_int_equal(h.of[0].pending.uj, 0);
    joules("plug", 12, UINT64_MAX); /* a lie */
    assert_null(handed_best(&h, 12 * S));
    assert_int_equal(h.of[0].pending.uj, 0);
}

static void a_source_that_now_counts_begins_anew(void **state)
{
    watts("plug", 10, 50 * J);
    watts("plug", 11, 50 * J);
    joules("plug", 12, 1000 * J);
    assert_null(handed_best(&h, 12 * S));
    joules("plug", 13, 1040 * J);
    assert_int_equal(h.of[0].pending.uj, 50 * J + 40 * J);
}

static void a_ninth_source_takes_the_place_of_one_that_is_away(void **state)
{
    char name[8];

    for (unsigned i = 0; i < HANDED_MAX; i++) {
        snprintf(name, sizeof(name), "m%u", i);
        assert_int_equal(watts(name, 10 + i, J), 0);
    }
    assert_int_equal(watts("new", 30, J), -ENOSPC);
    assert_int_equal(watts("new", 41, J), 0); /* m0 was last heard at 10 s */
    assert_string_equal(h.of[0].sensor.name, "new");
    assert_int_equal(h.n, HANDED_MAX);
}

static void what_is_no_reading_is_refused(void **state)
{
    struct handed_reading r = {.name = "a"};

    assert_int_equal(handed_take(&h, &r, S, &err), -EINVAL);
    r.has_uw = true;
    r.uw = POWER_UW_MAX + 1;
    assert_int_equal(handed_take(&h, &r, S, &err), -EINVAL);
    r.uw = 1;
    r.error_permille = HANDED_ERROR + 1;
    assert_int_equal(handed_take(&h, &r, S, &err), -EINVAL);
    assert_int_equal(watts("", 1, J), -EINVAL);
    assert_int_equal(watts("a/b", 1, J), -EINVAL);
    assert_int_equal(watts("\xc3\xa4", 1, J), -EINVAL);
    assert_int_equal(h.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_reading_is_no_energy_yet, clear),
        cmocka_unit_test_setup(a_source_that_is_silent_is_away, clear),
        cmocka_unit_test_setup(the_newest_source_counts, clear),
        cmocka_unit_test_setup(a_coarse_counter_that_stands_still_tells_nothing, clear),
        cmocka_unit_test_setup(a_reset_is_no_energy, clear),
        cmocka_unit_test_setup(a_source_that_now_counts_begins_anew, clear),
        cmocka_unit_test_setup(a_ninth_source_takes_the_place_of_one_that_is_away, clear),
        cmocka_unit_test_setup(what_is_no_reading_is_refused, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
