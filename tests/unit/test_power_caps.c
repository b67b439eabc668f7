/* SPDX-License-Identifier: Apache-2.0 */
#include "power/cap/caps.h"
#include "test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static bool in_force(const struct caps *c, uint64_t now, uint64_t *uw, enum cap_source *source,
                     uint64_t *next)
{
    *uw = 0;
    *source = CAP_SOURCE_MAX;
    return caps_in_force(c, now, uw, source, next);
}

static void without_a_cap_nothing_is_in_force(void **state)
{
    struct caps none = {0};
    enum cap_source source;
    uint64_t uw, next;

    (void)state;
    assert_false(in_force(&none, 5, &uw, &source, &next));
    assert_true(next == CAP_NO_END);
}

static void the_smallest_cap_is_in_force(void **state)
{
    struct caps c = {
        .of = {[CAP_CONFIG] = {.uw = 200, .until_ns = CAP_NO_END, .held = true},
               [CAP_PERSON] = {.uw = 90, .until_ns = 50, .kind = CAP_ADVICE, .held = true},
               [CAP_LEASE] = {.uw = 100, .until_ns = 30, .kind = CAP_BUDGET, .held = true}}};
    enum cap_source source;
    uint64_t uw, next;

    (void)state;
    assert_true(in_force(&c, 10, &uw, &source, &next));
    assert_int_equal(uw, 90);
    assert_int_equal(source, CAP_PERSON);
    assert_int_equal(next, 30);
    assert_true(in_force(&c, 50, &uw, &source, &next));
    assert_int_equal(uw, 200);
    assert_int_equal(source, CAP_CONFIG);
    assert_true(next == CAP_NO_END);
}

static void only_a_breaker_falls_to_its_floor(void **state)
{
    struct caps c = {
        .of = {[CAP_LEASE] = {.uw = 100, .floor_uw = 40, .until_ns = 30, .held = true}}};
    enum cap_source source;
    uint64_t uw, next;

    (void)state;
    assert_true(in_force(&c, 29, &uw, &source, &next));
    assert_int_equal(uw, 100);
    assert_true(in_force(&c, 30, &uw, &source, &next));
    assert_int_equal(uw, 40);
    c.of[CAP_LEASE].floor_uw = 300; /* an end never gives more */
    assert_true(in_force(&c, 30, &uw, &source, &next));
    assert_int_equal(uw, 100);
    c.of[CAP_LEASE].floor_uw = 0; /* and 0 would mean no cap */
    assert_true(in_force(&c, 30, &uw, &source, &next));
    assert_int_equal(uw, 1);
    c.of[CAP_LEASE].kind = CAP_BUDGET;
    assert_false(in_force(&c, 30, &uw, &source, &next));
}

/* An area without a cap lends it: a breaker's floor follows when nobody renews it. */
static void an_open_cap_holds_nothing_but_its_end_does(void **state)
{
    struct caps c = {
        .of = {[CAP_PERSON] = {.uw = 90, .until_ns = 20, .held = true},
               [CAP_LEASE] = {.uw = CAP_OPEN, .floor_uw = 40, .until_ns = 30, .held = true}}};
    enum cap_source source;
    uint64_t uw, next;

    (void)state;
    assert_true(in_force(&c, 10, &uw, &source, &next));
    assert_int_equal(uw, 90);
    c.of[CAP_PERSON].held = false;
    assert_false(in_force(&c, 29, &uw, &source, &next));
    assert_int_equal(next, 30);
    assert_true(in_force(&c, 30, &uw, &source, &next));
    assert_int_equal(uw, 40);
    assert_int_equal(source, CAP_LEASE);
}

static void between_changes_that_it_names_nothing_changes(void **state)
{
    (void)state;
    random_state = 3;
    for (int run = 0; run < 2000; run++) {
        struct caps c = {0};
        uint64_t uw, next, later_uw, later_next, now = random_below(60);
        enum cap_source source, later;

        for (int s = 0; s < CAP_SOURCE_MAX; s++)
            c.of[s] = (struct cap){.uw = 1 + random_below(5),
                                   .floor_uw = random_below(5),
                                   .until_ns = one_in(3) ? CAP_NO_END : random_below(60),
                                   .kind = random_below(CAP_KIND_MAX),
                                   .held = one_in(2)};
        in_force(&c, now, &uw, &source, &next);
        assert_true(next > now);
        for (uint64_t t = now; t < 70 && t < next; t++) {
            in_force(&c, t, &later_uw, &later, &later_next);
            assert_int_equal(later_uw, uw);
            assert_int_equal(later, source);
            assert_int_equal(later_next, next);
        }
    }
}

static void sources_and_kinds_have_names(void **state)
{
    (void)state;
    assert_string_equal(cap_source_name(CAP_LEASE), "lease");
    assert_string_equal(cap_kind_name(CAP_BUDGET), "budget");
    assert_string_equal(cap_source_name(CAP_SOURCE_MAX), "?");
    assert_string_equal(cap_kind_name(CAP_KIND_MAX), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_cap_nothing_is_in_force),
        cmocka_unit_test(the_smallest_cap_is_in_force),
        cmocka_unit_test(only_a_breaker_falls_to_its_floor),
        cmocka_unit_test(an_open_cap_holds_nothing_but_its_end_does),
        cmocka_unit_test(between_changes_that_it_names_nothing_changes),
        cmocka_unit_test(sources_and_kinds_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
