/* SPDX-License-Identifier: Apache-2.0 */
#include "test_power_rules.h"
#include "test_random.h"

#define DAILY 127

static struct rule_fault found;

static int check(const struct power_rule *rules, uint32_t count)
{
    struct rule_set s = set_of(rules, count);

    memset(&found, 0xee, sizeof(found));
    return rules_check(&s, MONDAY, &found);
}

static void a_floor_above_a_cap_is_found_in_the_window_alone(void **state)
{
    struct power_rule rules[] = {
        rule(RULE_CAP, "unlp/lab3", W(1200)), rule(RULE_FLOOR, "unlp/lab3", W(300)),
        in_window(rule(RULE_CAP, "unlp/lab3", W(800)), 31, 18 * 60, 23 * 60, 0)};

    assert_int_equal(check(rules, 3), 0);
    rules[2].amount = W(299);
    assert_int_equal(check(rules, 3), -EINVAL);
    assert_int_equal(found.code, RULE_FLOOR_ABOVE_CAP);
    assert_true(found.rule == 1 && found.other == 2);
    assert_true(found.value == W(300) && found.bound == W(299));
    assert_int_equal(found.at_utc_s, AT(0, 21, 0));
    rules[1] = in_window(rules[1], 31, 9 * 60, 18 * 60, 0); /* ends when the cap begins */
    assert_int_equal(check(rules, 3), 0);
    rules[1].window.to_min++;
    assert_int_equal(check(rules, 3), -EINVAL);
}

static void floors_of_areas_below_add_up(void **state)
{
    struct power_rule rules[] = {rule(RULE_CAP, "u", W(500)), rule(RULE_FLOOR, "u/a", W(200)),
                                 rule(RULE_FLOOR, "u/b/x", W(200)), rule(RULE_FLOOR, "u/b", W(50)),
                                 rule(RULE_FLOOR, "u/c", W(100))};

    assert_int_equal(check(rules, 5), 0);
    rules[4].amount++;
    assert_int_equal(check(rules, 5), -EINVAL);
    assert_int_equal(found.code, RULE_FLOORS_ABOVE_PARENT);
    assert_true(found.rule == 0 && found.value == W(500) + 1 && found.bound == W(500));
    rules[0] = rule(RULE_CAP, "u/b", W(199)); /* of a child alone */
    assert_int_equal(check(rules, 5), -EINVAL);
    assert_int_equal(found.code, RULE_FLOOR_ABOVE_CAP); /* which bounds the room below, too */
    assert_true(found.rule == 2 && found.other == 0);
}

/* 08:00-09:00 in Buenos Aires is 12:00-13:00 in Berlin in winter and 13:00-14:00 in summer. */
static void windows_that_meet_in_summer_only_are_found(void **state)
{
    struct power_rule rules[] = {
        in_window(rule(RULE_FLOOR, "a", W(300)), DAILY, 8 * 60, 9 * 60, 0),
        in_window(rule(RULE_CAP, "a", W(200)), DAILY, 13 * 60, 14 * 60, 1)};

    assert_int_equal(check(rules, 2), -EINVAL);
    assert_int_equal(found.code, RULE_FLOOR_ABOVE_CAP);
    assert_true(found.at_utc_s > AT(120, 0, 0)); /* the last Sunday of March */
    rules[1].window.from_min += 60;
    rules[1].window.to_min += 60;
    assert_int_equal(check(rules, 2), 0);
}

static void a_budget_holds_the_floors_of_every_day(void **state)
{
    struct power_rule rules[] = {
        rule(RULE_BUDGET, "a", KWH(24)), rule(RULE_FLOOR, "a/b", W(1000)),
        in_window(rule(RULE_FLOOR, "a/c", W(1000)), 1 << 6, 12 * 60, 13 * 60, 0)};

    assert_int_equal(check(rules, 2), 0);
    assert_int_equal(check(rules, 3), -EINVAL);
    assert_int_equal(found.code, RULE_BUDGET_BELOW_FLOOR);
    assert_true(found.value == KWH(25) && found.bound == KWH(24));
    assert_int_equal(found.at_utc_s, AT(6, 3, 0)); /* Sunday's midnight there */
}

static void the_same_said_twice_is_refused(void **state)
{
    struct power_rule rules[] = {rule(RULE_CAP, "a", W(5)), rule(RULE_CAP, "a/b", W(5)),
                                 rule(RULE_CAP, "a", W(6))};

    assert_int_equal(check(rules, 3), -EINVAL);
    assert_true(found.code == RULE_TWICE && found.rule == 2 && found.other == 0);
    rules[2].kind = KIND_ADVICE;
    assert_int_equal(check(rules, 3), 0);
    rules[2].kind = KIND_BREAKER;
    rules[2] = in_window(rules[2], DAILY, 5, 10, 0);
    assert_int_equal(check(rules, 3), 0);
}

static void what_a_peer_may_have_broken_is_refused(void **state)
{
    struct power_rule good = in_window(rule(RULE_CAP, "a", W(5)), DAILY, 5, 10, 0), r;

    assert_int_equal(check(&good, 1), 0);
#define REFUSED(change, what)                                                                      \
    do {                                                                                           \
        r = good;                                                                                  \
        change;                                                                                    \
        assert_int_equal(check(&r, 1), -EINVAL);                                                   \
        assert_int_equal(found.code, what);                                                        \
    } while (0)
    REFUSED(r.verb = RULE_VERB_MAX, RULE_MALFORMED);
    REFUSED(r.condition = IF_MAX, RULE_MALFORMED);
    REFUSED(r.kind = KIND_MAX, RULE_MALFORMED);
    REFUSED(r.window.zone = 2, RULE_MALFORMED);
    REFUSED(r.window.days = 0, RULE_MALFORMED);
    REFUSED(r.window.from_min = 1440, RULE_MALFORMED);
    REFUSED(r.window.to_min = 1441, RULE_MALFORMED);
    REFUSED(r.amount = RULE_AMOUNT_MAX + 1, RULE_MALFORMED);
    REFUSED(r.verb = RULE_OFF, RULE_MALFORMED);
    REFUSED((r.verb = RULE_SCALE, r.amount = 1001), RULE_MALFORMED);
    REFUSED(memset(r.off, 'x', sizeof(r.off)), RULE_MALFORMED);
    REFUSED(memset(r.area, 'x', sizeof(r.area)), RULE_NO_AREA);
    REFUSED(r.area[0] = '\0', RULE_NO_AREA);
}

static void a_full_set_is_checked_and_a_window_too_many_refused(void **state)
{
    struct power_rule *rules = calloc(RULES_MAX + 1, sizeof(*rules));

    for (uint32_t i = 0; i < RULES_MAX; i++) {
        char area[AREA_PATH_MAX];
        uint32_t w = i % RULES_WINDOWS_MAX;

        snprintf(area, sizeof(area), "u/f%u/r%u", i % 8, i / 8);
        rules[i] = in_window(rule(i % 2 ? RULE_CAP : RULE_FLOOR, area, W(i % 2 ? 50 : 10)), DAILY,
                             w * 5, w * 5 + 60, 0);
    }
    assert_int_equal(check(rules, RULES_MAX), 0);
    rules[RULES_MAX - 1].window.days = 1;
    assert_int_equal(check(rules, RULES_MAX), -EINVAL);
    assert_true(found.code == RULE_WINDOWS && found.rule == RULES_MAX - 1);
    assert_int_equal(check(rules, RULES_MAX + 1), -EINVAL);
    assert_int_equal(found.code, RULE_MALFORMED);
    free(rules);
}

/* ---- against every quarter of an hour of a year ---- */

static const char *const places[] = {"u", "u/a", "u/a/x", "u/a/y", "u/b"};
#define PLACES       5
#define RANDOM_RULES 6

static uint64_t needed(const struct rule_set *s, const bool *open, const char *area, bool *bad)
{
    uint64_t sum = 0, cap = UINT64_MAX;

    for (int i = 0; i < PLACES; i++)
        if (area_below(places[i], area) && strcmp(places[i], area) != 0 &&
            !strchr(places[i] + strlen(area) + 1, '/'))
            sum += needed(s, open, places[i], bad);
    for (uint32_t i = 0; i < s->count; i++) {
        const struct power_rule *r = &s->rule[i];

        if (!open[i])
            continue;
        if (r->verb == RULE_FLOOR && strcmp(r->area, area) == 0 && r->amount > sum)
            sum = r->amount;
        if (r->verb == RULE_CAP && area_below(area, r->area) && r->amount < cap)
            cap = r->amount;
    }
    if (sum > cap)
        *bad = true;
    return sum;
}

static bool broken_at(const struct rule_set *s, int64_t utc_s)
{
    struct rule_now now = at(utc_s);
    bool bad = false, open[RANDOM_RULES];

    for (uint32_t i = 0; i < s->count; i++)
        open[i] = rule_open(s, i, &now);
    needed(s, open, "u", &bad);
    return bad;
}

static void it_finds_what_a_look_at_each_quarter_of_a_year_finds(void **state)
{
    int refused = 0;

    for (int seed = 0; seed < 40; seed++) {
        struct power_rule rules[RANDOM_RULES];
        struct rule_set s = set_of(rules, RANDOM_RULES);
        bool bad = false;

        random_state = (uint64_t)seed;
        for (int i = 0; i < RANDOM_RULES; i++) {
            rules[i] = rule(one_in(2) ? RULE_CAP : RULE_FLOOR, places[random_below(PLACES)], 0);
            rules[i].amount =
                rules[i].verb == RULE_CAP ? 20 + random_below(100) : 1 + random_below(100);
            if (one_in(2))
                rules[i] = in_window(rules[i], 1 + random_below(127), random_below(96) * 15,
                                     random_below(97) * 15, random_below(2));
        }
        if (check(rules, RANDOM_RULES) < 0 && found.code == RULE_TWICE)
            continue;
        for (int64_t t = MONDAY; !bad && t < AT(366, 0, 0); t += 900)
            bad = broken_at(&s, t);
        assert_int_equal(check(rules, RANDOM_RULES) < 0, bad);
        if (bad)
            assert_true(broken_at(&s, found.at_utc_s));
        refused += bad;
    }
    assert_in_range(refused, 8, 32); /* else the drawn sets show nothing */
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
        cmocka_unit_test(a_floor_above_a_cap_is_found_in_the_window_alone),
        cmocka_unit_test(floors_of_areas_below_add_up),
        cmocka_unit_test(windows_that_meet_in_summer_only_are_found),
        cmocka_unit_test(a_budget_holds_the_floors_of_every_day),
        cmocka_unit_test(the_same_said_twice_is_refused),
        cmocka_unit_test(what_a_peer_may_have_broken_is_refused),
        cmocka_unit_test(a_full_set_is_checked_and_a_window_too_many_refused),
        cmocka_unit_test(it_finds_what_a_look_at_each_quarter_of_a_year_finds),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
