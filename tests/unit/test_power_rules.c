/* SPDX-License-Identifier: Apache-2.0 */
#include "test_power_rules.h"

#define DAILY 127
#define WORK  31

static void caps_combine_by_the_minimum_and_floors_belong_to_their_area(void **state)
{
    const struct power_rule rules[] = {
        rule(RULE_CAP, "unlp", W(2000)), rule(RULE_CAP, "unlp/lab3", W(1200)),
        rule(RULE_FLOOR, "unlp", W(300)), rule(RULE_FLOOR, "unlp/lab3", W(100)),
        rule(RULE_FLOOR, "unlp/lab3", W(50))};
    struct rule_set s = set_of(rules, 5);
    struct rule_now now = at(MONDAY);
    struct rule_view v;

    rules_view(&s, "unlp/lab3", &now, &v);
    assert_int_equal(v.cap_uw, W(1200));
    assert_int_equal(v.cap_by, 1);
    assert_int_equal(v.floor_uw, W(100));
    assert_int_equal(v.floor_by, 3);
    rules_view(&s, "unlp/lab3/window", &now, &v);
    assert_int_equal(v.cap_by, 1);
    assert_int_equal(v.floor_uw, 0);
    rules_view(&s, "unlp/lab", &now, &v);
    assert_int_equal(v.cap_by, 0);
    rules_view(&s, "unl", &now, &v);
    assert_true(v.cap_uw == RULE_UNLIMITED && v.cap_by == RULE_NONE);
    assert_int_equal(v.next_utc_s, INT64_MAX);
}

static void the_strictest_kind_of_all_caps_stays_in_force(void **state)
{
    struct power_rule rules[] = {rule(RULE_CAP, "a", W(1200)), rule(RULE_CAP, "a", W(800))};
    struct rule_set s = set_of(rules, 2);
    struct rule_now now = at(MONDAY);
    struct rule_view v;

    rules[0].kind = KIND_BREAKER;
    rules[1].kind = KIND_ADVICE;
    rules_view(&s, "a", &now, &v);
    assert_int_equal(v.cap_uw, W(800));
    assert_int_equal(v.kind, KIND_BREAKER);
    rules[0].kind = KIND_BUDGET;
    rules_view(&s, "a", &now, &v);
    assert_int_equal(v.kind, KIND_BUDGET);
}

static void a_window_opens_and_closes_on_the_minute_of_its_zone(void **state)
{
    /* Buenos Aires is three hours behind UTC all year. */
    const struct power_rule rules[] = {
        rule(RULE_CAP, "a", W(1200)),
        in_window(rule(RULE_CAP, "a", W(800)), WORK, 18 * 60, 23 * 60, 0)};
    struct rule_set s = set_of(rules, 2);
    struct rule_now now = at(AT(0, 20, 59) + 59);
    struct rule_view v;

    rules_view(&s, "a", &now, &v);
    assert_int_equal(v.cap_uw, W(1200));
    assert_int_equal(v.next_utc_s, AT(0, 21, 0));
    now.utc_s = AT(0, 21, 0);
    rules_view(&s, "a", &now, &v);
    assert_int_equal(v.cap_uw, W(800));
    assert_int_equal(v.cap_by, 1);
    assert_int_equal(v.next_utc_s, AT(1, 2, 0));
    now.utc_s = AT(5, 21, 0); /* Saturday */
    rules_view(&s, "a", &now, &v);
    assert_int_equal(v.cap_uw, W(1200));
}

static void without_a_clock_every_restriction_holds_and_no_promise_of_a_window(void **state)
{
    const struct power_rule rules[] = {
        in_window(rule(RULE_CAP, "a", W(800)), WORK, 18 * 60, 23 * 60, 0),
        in_window(rule(RULE_FLOOR, "a", W(100)), DAILY, 0, 1440, 0),
        in_window(rule(RULE_BUDGET, "a", KWH(9)), WORK, 18 * 60, 23 * 60, 0),
        in_window(rule(RULE_SCALE, "a", 500), WORK, 18 * 60, 23 * 60, 0)};
    struct rule_set s = set_of(rules, 4);
    struct rule_now now = at(AT(0, 12, 0));
    struct rule_view v;

    rules_view(&s, "a", &now, &v);
    assert_true(v.cap_uw == RULE_UNLIMITED && v.budget_uj == RULE_UNLIMITED);
    assert_true(v.scale_permille == 1000 && v.floor_uw == W(100));
    now.synchronised = false;
    rules_view(&s, "a", &now, &v);
    assert_true(v.cap_uw == W(800) && v.budget_uj == KWH(9));
    assert_true(v.scale_permille == 500 && v.floor_uw == 0);
    assert_int_equal(v.next_utc_s, INT64_MAX);
}

static void a_window_of_an_unknown_zone_counts_as_without_a_clock(void **state)
{
    const struct power_rule rules[] = {
        rule(RULE_CAP, "a", W(1200)),
        in_window(rule(RULE_CAP, "a", W(800)), WORK, 18 * 60, 23 * 60, 1),
        in_window(rule(RULE_FLOOR, "a", W(100)), DAILY, 0, 1440, 1),
        in_window(rule(RULE_FLOOR, "a", W(50)), DAILY, 0, 1440, 0)};
    const struct zone nowhere = {.name = "Europe/Atlantis"};
    const struct zone *const table[] = {&zones[0], &nowhere};
    struct rule_set s = {rules, 4, table, 2};
    struct rule_now now = at(AT(0, 12, 0));
    struct rule_fault fault;
    struct rule_view v;

    rules_view(&s, "a", &now, &v);
    assert_true(v.cap_uw == W(800) && v.floor_uw == W(50));
    assert_int_equal(rules_check(&s, MONDAY, &fault), 0);
}

/* Nobody knows whether the windows meet; the hub, which knows its zones, has checked it. */
static void windows_of_an_unknown_zone_contradict_nothing(void **state)
{
    const struct power_rule rules[] = {
        in_window(rule(RULE_CAP, "a", W(200)), DAILY, 18 * 60, 23 * 60, 1),
        in_window(rule(RULE_FLOOR, "a", W(300)), DAILY, 8 * 60, 18 * 60, 0)};
    const struct zone nowhere = {.name = "Europe/Atlantis"};
    const struct zone *const table[] = {&zones[0], &nowhere};
    struct rule_set s = {rules, 2, table, 2};
    struct rule_fault fault;

    assert_int_equal(rules_check(&s, MONDAY, &fault), 0);
    s.zone = zone_table; /* in Berlin they do */
    assert_int_equal(rules_check(&s, MONDAY, &fault), -EINVAL);
}

static void what_nobody_knows_fulfils_no_condition(void **state)
{
    struct power_rule rules[] = {rule(RULE_CAP, "a", W(8)), rule(RULE_CAP, "a", W(7)),
                                 rule(RULE_OFF, "a", 0)};
    struct rule_set s = set_of(rules, 3);
    struct rule_now now = at(MONDAY);
    struct rule_view v;

    rules[0].condition = IF_CARBON;
    rules[0].above = 400;
    rules[1].condition = IF_PRICE;
    rules[1].above = 200;
    rules[2].condition = IF_ABSENT;
    rules[2].absent_s = 900;
    strcpy(rules[2].off, "ac lights");
    rules_view(&s, "a", &now, &v);
    assert_int_equal(v.cap_uw, RULE_UNLIMITED);
    assert_int_equal(rules_next(&s, "a/b", &now, RULE_OFF, 0), RULE_NONE);
    now.carbon = 400;
    now.price = 201;
    now.absent_s = 899;
    rules_view(&s, "a", &now, &v);
    assert_int_equal(v.cap_by, 1);
    assert_int_equal(rules_next(&s, "a/b", &now, RULE_OFF, 0), RULE_NONE);
    now.carbon = 401;
    now.price = 200;
    now.absent_s = 900;
    rules_view(&s, "a", &now, &v);
    assert_int_equal(v.cap_by, 0);
    assert_int_equal(rules_next(&s, "a/b", &now, RULE_OFF, 0), 2);
    assert_int_equal(rules_next(&s, "a/b", &now, RULE_OFF, 3), RULE_NONE);
    assert_int_equal(rules_next(&s, "b", &now, RULE_OFF, 0), RULE_NONE);
}

static void a_path_has_single_slashes_and_plain_names(void **state)
{
    static const char *const good[] = {"a", "unlp/lab3", "a.b/c-d/e_f",
                                       "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a"};
    static const char *const bad[] = {
        "",     "/",        "/a",   "a/",
        "a//b", "Lab",      "a b",  "a/\t",
        "a/*",  "\xc3\xa9", "a/#",  ".",
        "..",   "a/..",     "a/.b", "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a"};
    char area[AREA_PATH_MAX];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        memset(area, 'x', sizeof(area));
        strcpy(area, good[i]);
        assert_true(area_valid(area));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        memset(area, 'x', sizeof(area));
        strcpy(area, bad[i]);
        assert_false(area_valid(area));
    }
    memset(area, 'x', sizeof(area)); /* without an end */
    assert_false(area_valid(area));
    assert_true(area_below("a/b", "a") && area_below("a", "a"));
    assert_false(area_below("ab", "a") || area_below("a", "a/b"));
}

static int set_up(void **state)
{
    read_zone(&zones[0], "America/Argentina/Buenos_Aires");
    read_zone(&zones[1], "Europe/Berlin");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caps_combine_by_the_minimum_and_floors_belong_to_their_area),
        cmocka_unit_test(the_strictest_kind_of_all_caps_stays_in_force),
        cmocka_unit_test(a_window_opens_and_closes_on_the_minute_of_its_zone),
        cmocka_unit_test(without_a_clock_every_restriction_holds_and_no_promise_of_a_window),
        cmocka_unit_test(a_window_of_an_unknown_zone_counts_as_without_a_clock),
        cmocka_unit_test(windows_of_an_unknown_zone_contradict_nothing),
        cmocka_unit_test(what_nobody_knows_fulfils_no_condition),
        cmocka_unit_test(a_path_has_single_slashes_and_plain_names),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
