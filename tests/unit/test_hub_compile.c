/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/compile/explain.h"
#include "hub/compile/policy.h"
#include "hub/compile/when.h"
#include "hub/compile/yaml.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MONDAY INT64_C(1795392000) /* 2026-11-23 00:00 UTC */
#define HEAD   "version: 1\norg: unlp\n# a line of its own\n"

static const char design[] =
    HEAD "zone: America/Argentina/Buenos_Aires\n"
         "tariff:\n"
         "  unit: EUR\n"
         "  price: 0.12 EUR/kWh\n"
         "  windows: [{when: \"Mon-Fri 18:00-23:00\", price: 0.305 EUR/kWh}]\n"
         "rules:\n"
         "- {area: unlp/lab3, cap: 1200 W, floor: 300 W, kind: breaker}\n"
         "- {area: unlp/lab3, when: \"Mon-Fri 18:00-23:00\", cap: 0.8 kW, kind: advice}\n"
         "- {area: unlp, budget: 90 kWh/day, shape: tariff}\n"
         "- {area: unlp/lab9, scale: 50 %}\n"
         "- {area: unlp, when: carbon > 400 g/kWh, scale: 12.5 %}\n"
         "- {room: unlp/lab3, when: absent 15 min, off: [ac, lights]}\n";

static int compile(const char *text, struct power_policy *ret, struct error *err)
{
    memset(err, 0, sizeof(*err));
    return policy_compile(text, strlen(text), NULL, MONDAY, ret, err);
}

static void the_policy_of_the_design_becomes_rules(void **state)
{
    struct rule_now now = {MONDAY + 22 * 3600, true, 401, RULE_UNKNOWN, 900};
    struct power_policy p;
    struct rule_view v;
    struct error err;

    assert_int_equal(compile(design, &p, &err), 0);
    assert_int_equal(p.set.count, 7);
    assert_string_equal(p.org, "unlp");
    assert_int_equal(p.set.rule[0].line, 10);
    assert_int_equal(p.set.rule[0].column, 26);
    rules_view(&p.set, "unlp/lab3", &now, &v);
    assert_int_equal(v.cap_uw, 800000000);
    assert_int_equal(v.kind, KIND_BREAKER);
    assert_int_equal(v.floor_uw, 300000000);
    assert_true(v.budget_uj == UINT64_C(90) * 3600000000000 && v.shape == SHAPE_TARIFF);
    assert_int_equal(v.scale_permille, 125);
    now.carbon = 400;
    rules_view(&p.set, "unlp/lab9", &now, &v);
    assert_int_equal(v.scale_permille, 500);
    assert_string_equal(p.set.rule[rules_next(&p.set, "unlp/lab3", &now, RULE_OFF, 0)].off,
                        "ac lights");
    assert_int_equal(policy_price(&p, MONDAY + 22 * 3600), 305);
    assert_int_equal(policy_price(&p, MONDAY + 20 * 3600), 120);
    policy_done(&p);
}

static void a_budget_may_follow_the_grids_carbon_intensity(void **state)
{
    static const char text[] = HEAD "rules: [{area: unlp, budget: 90 kWh/day, shape: carbon}]";
    char said[RULE_TEXT_MAX];
    struct power_policy p;
    struct error err;

    assert_int_equal(compile(text, &p, &err), 0);
    assert_int_equal(p.set.rule[0].shape, SHAPE_CARBON);
    explain_rule(&p, 0, said);
    assert_non_null(strstr(said, "by carbon intensity"));
    policy_done(&p);
}

static void areas_say_where_units_stand(void **state)
{
    static const char text[] = HEAD "valid: 30d\nareas:\n"
                                    "- {area: unlp/lab3, unit: lab3, name: \"Laboratorio 3\"}\n"
                                    "- {area: unlp/a.b, unit: ab}\n"
                                    "- {area: unlp/a, name: The A}\n"
                                    "- {area: unlp/a/b, unit: b}\nrules: []";
    struct power_policy p;
    struct error err;

    if (policy_compile(text, strlen(text), NULL, MONDAY, &p, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(p.area_count, 4);
    assert_int_equal(p.valid_s, 30 * 86400);
    assert_string_equal(policy_area(&p, "unlp/lab3")->name, "Laboratorio 3");
    assert_string_equal(policy_area(&p, "unlp/a/b")->unit, "b");
    assert_string_equal(policy_area(&p, "unlp/a")->unit, "");
    assert_null(policy_area(&p, "unlp"));
    assert_string_equal(policy_unit(&p, "ab")->area, "unlp/a.b");
    assert_int_equal(policy_unit(&p, "ab")->line, 7);
    assert_null(policy_unit(&p, ""));
    policy_done(&p);
}

static const struct {
    const char *text, *said;
} bad[] = {
    {"", "1:1: the text is empty"},
    {"version: 2\norg: a\nrules: []", "1:10: 'version: 1' is wanted"},
    {"org: a\nrules: []", "1:1: 'version: 1' is wanted"},
    {"version: 1\nrules: []", "1:1: 'org: NAME' is missing"},
    {"version: 1\norg: A b\nrules: []", "2:6: the organization's name"},
    {"version: 1\norg: a\n", "1:1: 'rules:' is missing"},
    {"version: 1\norg: a\nrule: []", "3:7: 'rule' is unknown here: did you mean 'rules'?"},
    {"version: 1\norg: a\nrules: 7", "3:8: a text, where it has to be as in 'rules: ["},
    {"- 1", "1:1: a list, where"},
    {"version: 1\norg: a\norg: b", "3:1: 'org' is given twice, first in line 2"},
    {"version: &x 1\norg: a", "1:10: an anchor"},
    {"version: 1\norg: *x", "2:6: an alias"},
    {"version: !!int 1", "1:10: a tag"},
    {"a: &x [1]", "1:4: an anchor"},
    {"a: !s {}", "1:4: a tag"},
    {"? [a]\n: b", "1:3: a key has to be a plain word"},
    {"a: 1\n---\nb: 1", "2:1: a second document"},
    {"version: 1\n\torg: a", "2:1: a tab: use blanks"},
    {"a: [1", "did not find expected ',' or ']'"},
    {"[[[[[[[[[[[[[[[[[", "1:17: more than 16 levels"},
    {"version: 1\norg: a\nzone: Mars/North\nrules: []", "3:7: there is no time zone 'Mars/North'"},
    {"version: 1\norg: a\nzone: ../../etc/passwd\nrules: []", "3:7: '../../etc/passwd' is no time"},
    {"version: 1\norg: a\nclasses: {x: 1}\nrules: []", "3:10: 'classes' is unknown here"},
    {"version: 1\norg: a\ntariff: {unit: EUR, price: 3}\nrules: []", "3:28: no price"},
    {HEAD "rules: [{area: unlp, cap: 1200}]", "4:27: '1200' is no amount for 'cap': use one as"},
    {HEAD "rules: [{area: unlp, cap: -5 W}]", "4:27: '-5 W' is no amount"},
    {HEAD "rules: [{area: unlp, cap: nan W}]", "4:27: 'nan W' is no amount"},
    {HEAD "rules: [{area: unlp, cap: 99999999999999999999 W}]", "is no amount"},
    {HEAD "rules: [{area: unlp, cap: [5 W]}]", "4:27: 'a list' is no amount"},
    {HEAD "rules: [{area: unlp, scale: 101 %}]", "4:29: '101 %' is no amount"},
    {HEAD "rules: [{area: unlp, budget: 9 kWh}]", "4:30: '9 kWh' is no amount"},
    {HEAD "rules: [{area: unlp}]", "4:9: the rule says nothing"},
    {HEAD "rules: [{cap: 1 W}]", "4:9: a rule names an 'area'"},
    {HEAD "rules: [{area: other/x, cap: 1 W}]", "4:16: 'other/x' does not lie in the organization"},
    {HEAD "rules: [{area: unlp//x, cap: 1 W}]", "4:16: an area is a path"},
    {HEAD "rules: [{area: unlp, room: unlp, cap: 1 W}]", "4:28: 'area' and 'room' mean the same"},
    {HEAD "rules: [{class: exam, cap: 1 W}]", "4:17: 'class' is unknown here"},
    {HEAD "rules: [{area: unlp, min: 5 %}]", "4:27: 'min' is unknown here"},
    {HEAD "rules: [{area: unlp, cap: 1 W, kind: hard}]", "4:38: 'kind' is breaker, budget or adv"},
    {HEAD "rules: [{area: unlp, floor: 1 W, kind: advice}]", "4:40: 'kind' belongs to a cap"},
    {HEAD "rules: [{area: unlp, cap: 1 W, shape: flat}]", "4:39: 'shape' belongs to a budget"},
    {HEAD "rules: [{area: unlp, budget: 1 kWh/day, shape: tariff}]", "4:48: 'shape: tariff' needs"},
    {HEAD "rules: [{area: unlp, budget: 1 kWh/day, shape: round}]",
     "4:48: 'shape' is flat, tariff or carbon"},
    {HEAD "rules: [{area: unlp, priority: 1}]", "4:32: 'priority' is unknown here"},
    {HEAD "rules: [{area: unlp, when: never, cap: 1 W}]", "4:28: 'never' is no condition"},
    {HEAD "rules: [{area: unlp, when: 18:00-25:00 UTC, cap: 1 W}]", "is no condition"},
    {HEAD "rules: [{area: unlp, when: \"18:00-19:00\", cap: 1 W}]", "names no time zone"},
    {HEAD "rules: [{area: unlp, when: price > 3 EUR/kWh, cap: 1 W}]", "a price needs 'tariff"},
    {HEAD "rules: [{area: unlp, when: carbon > 400, cap: 1 W}]", "'400' is no carbon intensity"},
    {HEAD "rules: [{area: unlp, when: absent 5, off: x}]", "4:28: '5' is no time"},
    {HEAD "rules: [{area: unlp, off: []}]", "4:27: 'off' names no switch"},
    {HEAD "rules: [{area: unlp, off: [A b]}]", "4:28: the name of a switch"},
    {HEAD "valid: 1d\nrules: []", "4:8: 'valid' is a time from 2d to 90d"},
    {HEAD "valid: 91d\nrules: []", "4:8: 'valid' is a time from 2d to 90d"},
    {HEAD "areas: {}\nrules: []", "4:8: a mapping, where it has to be as in 'areas: ["},
    {HEAD "areas: [{unit: lab3}]\nrules: []", "4:9: 'area' is missing"},
    {HEAD "areas: [{area: unlp/lab3}]\nrules: []", "4:9: an area has a 'unit', a 'name' or both"},
    {HEAD "areas: [{area: other/lab3, unit: a}]\nrules: []", "4:16: 'other/lab3' does not lie"},
    {HEAD "areas: [{area: unlp/LAB, unit: a}]\nrules: []", "4:16: an area is a path as unlp/lab3"},
    {HEAD "areas: [{area: unlp/a, unit: Lab_3}]\nrules: []", "4:30: 'Lab_3' is no name of a unit"},
    {HEAD "areas: [{area: unlp/a, unit: [x]}]\nrules: []", "4:30: 'a list' is no name of a unit"},
    {HEAD "areas: [{area: unlp/a, name: \"a\\e[31m\"}]\nrules: []", "4:30: a control character"},
    {HEAD "areas: [{area: unlp/a, name: \"\"}]\nrules: []",
     "4:30: an area's name has 1 to 95 bytes"},
    {HEAD
     "areas:\n- {area: unlp/a, unit: x}\n- {area: unlp/b, unit: y}\n- {area: unlp/c, unit: x}\n"
     "rules: []",
     "7:3: unit x stands in unlp/a already (line 5)"},
    {HEAD "areas:\n- {area: unlp/a, unit: x}\n- {area: unlp/a, name: A}\nrules: []",
     "6:3: area unlp/a has an entry already (line 5)"},
    {HEAD "rules:\n- {area: unlp, cap: 5 W}\n- {area: unlp/a, floor: 6 W}",
     "6:25: the floor of unlp/a, 6 W, is above the cap of 5 W in line 5"},
    {HEAD "rules:\n- {area: unlp, floor: 6 W}\n- {area: unlp, cap: 5 W, when: 18:00-19:00 "
          "Europe/Berlin}",
     "is above the cap of 5 W in line 6 on 2026-11-23 18:00 Europe/Berlin"},
    {HEAD "rules:\n- {area: unlp, cap: 5 W}\n- {area: unlp/a, floor: 3 W}\n- {area: unlp/b, "
          "floor: 3 W}",
     "5:21: the cap of unlp, 5 W, is below the sum of the floors in it, 6 W"},
    {HEAD "rules:\n- {area: unlp, cap: 5 W}\n- {area: unlp, cap: 6 W}",
     "6:21: line 5 says the same of unlp"},
    {HEAD "rules:\n- {area: unlp, budget: 1 kWh/day}\n- {area: unlp, floor: 42 W}",
     "5:24: the budget of unlp, 1 kWh/day, is below what its floors take in a day, 1.008 kWh/day"},
};

static void what_is_wrong_is_said_with_line_and_column(void **state)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct power_policy p;
        struct error err;

        assert_true(compile(bad[i].text, &p, &err) < 0);
        if (!strstr(err.text, bad[i].said))
            fail_msg("%s\n-> %s\ninstead of %s", bad[i].text, err.text, bad[i].said);
    }
}

static void what_is_too_much_is_refused_at_once(void **state)
{
    static char text[10 << 20];
    struct power_policy p;
    struct error err;
    size_t len;

    memset(text, ' ', sizeof(text));
    assert_int_equal(policy_compile(text, sizeof(text), NULL, MONDAY, &p, &err), -E2BIG);
    len = (size_t)snprintf(text, sizeof(text), HEAD "rules:\n");
    for (int i = 0; i <= RULES_MAX; i++)
        len +=
            (size_t)snprintf(text + len, sizeof(text) - len, "- {area: unlp/r%d, cap: 5 W}\n", i);
    assert_int_equal(policy_compile(text, len, NULL, MONDAY, &p, &err), -EINVAL);
    assert_non_null(strstr(err.text, "4101:"));
    assert_non_null(strstr(err.text, "more than 4096 rules"));
    len = 0;
    for (int i = 0; i < YAML_NODES_MAX + 2; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "- 1\n");
    assert_int_equal(policy_compile(text, len, NULL, MONDAY, &p, &err), -EINVAL);
    assert_non_null(strstr(err.text, "more than 65536 values"));
    len = 0;
    for (int i = 0; i < 300; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "k%d: 1\n", i);
    assert_int_equal(policy_compile(text, len, NULL, MONDAY, &p, &err), -EINVAL);
    assert_non_null(strstr(err.text, "257:1: more than 256 keys"));
}

static void amounts_come_out_without_a_rounding_error(void **state)
{
    static const struct {
        const char *text, *again;
        uint64_t uw;
    } powers[] = {{"1200 W", "1200 W", 1200000000},
                  {"1.2 kW", "1200 W", 1200000000},
                  {"12.345678901 kW", "12.345678901 kW", 12345678901},
                  {"0.1 W", "100 mW", 100000},
                  {"2MW", "2 MW", 2000000000000},
                  {"0 W", "0 mW", 0}};
    static const char *const wrong[] = {"",      "W",          "1",         "1 w",
                                        "1. W",  ".5 W",       "0.0001 mW", "1 W ",
                                        "1e3 W", "72058 MW 1", "99999 MW",  "1,5 W"};
    char text[AMOUNT_TEXT_MAX];
    uint64_t uw;

    for (size_t i = 0; i < sizeof(powers) / sizeof(powers[0]); i++) {
        assert_int_equal(amount_power(powers[i].text, &uw), 0);
        assert_int_equal(uw, powers[i].uw);
        amount_power_text(uw, text);
        assert_string_equal(text, powers[i].again);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(amount_power(wrong[i], &uw), -EINVAL);
    assert_int_equal(amount_budget("0.5 kWh/day", &uw), 0);
    amount_budget_text(uw, text);
    assert_string_equal(text, "500 Wh/day");
}

/* The hub's day and its units' (which have the list of zones alone) are the same. */
static void days_are_of_the_zone_or_of_the_first_that_is_named(void **state)
{
    static const struct {
        const char *text, *zone;
    } rows[] = {
        {"version: 1\norg: a\nrules: [{area: a, cap: 1 W}]\n", NULL},
        {"version: 1\norg: a\nrules: [{area: a, when: \"Mon-Fri 18:00-19:00 Europe/Berlin\", cap: "
         "1 W}]\n",
         "Europe/Berlin"},
        {"version: 1\norg: a\nrules: [{area: a, when: \"Mon-Fri 18:00-19:00 Europe/Berlin\", cap: "
         "1 W}]\n"
         "zone: America/Argentina/Buenos_Aires\n",
         "America/Argentina/Buenos_Aires"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct zone *zone;
        struct power_policy p;
        struct error err;

        assert_int_equal(policy_compile(rows[i].text, strlen(rows[i].text), NULL, MONDAY, &p, &err),
                         0);
        zone = policy_day_zone(&p);
        if (rows[i].zone)
            assert_string_equal(zone->name, rows[i].zone);
        else
            assert_null(zone);
        policy_done(&p);
    }
}

static void times_are_read_on_the_clock_of_the_zone(void **state)
{
    struct zones z = {0};
    struct error err;
    uint32_t berlin;
    int64_t at;
    char text[ZONES_TIME_MAX];

    assert_int_equal(zones_find(&z, "Europe/Berlin", &berlin, &err), 0);
    assert_int_equal(zones_time(z.zone[0], "18:30", MONDAY, &at), 0);
    assert_int_equal(at, MONDAY + 17 * 3600 + 1800);
    assert_int_equal(zones_time(z.zone[0], "00:30", MONDAY, &at), 0); /* it is 01:00 there */
    assert_int_equal(at, MONDAY + 23 * 3600 + 1800);
    assert_int_equal(zones_time(z.zone[0], "2026-07-01 12:00", MONDAY, &at), 0);
    zones_text(NULL, at, text);
    assert_string_equal(text, "2026-07-01 10:00");
    assert_int_equal(zones_time(z.zone[0], "2026-07-01T12:00Z", MONDAY, &at), 0);
    zones_text(z.zone[0], at, text);
    assert_string_equal(text, "2026-07-01 14:00");
    /* the last Sunday of October has 02:30 twice, that of March has it never */
    assert_int_equal(zones_time(z.zone[0], "2026-10-25 02:30", MONDAY, &at), 0);
    zones_text(NULL, at, text);
    assert_string_equal(text, "2026-10-25 00:30");
    assert_int_equal(zones_time(z.zone[0], "2026-03-29 02:30", MONDAY, &at), 0);
    zones_text(z.zone[0], at, text);
    assert_string_equal(text, "2026-03-29 03:30");
    assert_int_equal(zones_time(z.zone[0], "2026-02-31 12:00", MONDAY, &at), -EINVAL);
    assert_int_equal(zones_time(z.zone[0], "noon", MONDAY, &at), -EINVAL);
    zones_done(&z);
}

static void said(const struct power_policy *a, const struct power_policy *b, const char *wanted)
{
    char *text;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    explain_diff(a, b, f);
    fclose(f);
    assert_string_equal(text, wanted);
    free(text);
}

static void a_diff_names_what_came_went_and_changed(void **state)
{
    struct power_policy a, b;
    struct error err;

    assert_int_equal(
        compile(HEAD "rules: [{area: unlp, cap: 5 kW}, {area: unlp/a, floor: 1 W}]", &a, &err), 0);
    assert_int_equal(compile("version: 1\norg: unlp\nareas: [{area: unlp/a, unit: a}]\n"
                             "rules: [{area: unlp, scale: 5 %},"
                             "{area: unlp, cap: 4 kW}]",
                             &b, &err),
                     0);
    said(&a, &a, "");
    said(&a, &b,
         "+ area unlp/a: unit a\n"
         "- unlp/a: floor 1 W\n"
         "+ unlp: scale 5 %\n"
         "~ unlp: cap 4000 W (breaker); was: cap 5000 W (breaker)\n");
    policy_done(&a);
    policy_done(&b);
}

static void an_explanation_names_the_line_of_each_amount(void **state)
{
    struct rule_now now = {MONDAY + 22 * 3600, true, RULE_UNKNOWN, RULE_UNKNOWN, 0};
    struct power_policy p;
    struct error err;
    char *text;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    assert_int_equal(compile(design, &p, &err), 0);
    explain_area(&p, "unlp/lab3", p.set.zone[0], &now, f);
    fclose(f);
    assert_string_equal(text,
                        "unlp/lab3 on 2026-11-23 19:00 America/Argentina/Buenos_Aires\n"
                        "  cap       line 11   unlp/lab3: cap 800 W (advice), Mon-Fri 18:00-23:00 "
                        "America/Argentina/Buenos_Aires\n"
                        "            counts as breaker, since another cap above it is one\n"
                        "  floor     line 10   unlp/lab3: floor 300 W\n"
                        "  budget    line 12   unlp: budget 90 kWh/day, by tariff\n"
                        "  unknown   line 14   unlp: scale 12.5 %, carbon > 400 g/kWh\n"
                        "  price     0.305 EUR/kWh\n"
                        "  a window opens or closes next on 2026-11-23 23:00\n");
    free(text);
    policy_done(&p);
}

static const char shared[] = HEAD "areas:\n"
                                  "- {area: unlp/lab3, unit: lab3}\n"
                                  "- {area: unlp/lab4, unit: lab4}\n"
                                  "- {area: unlp/hall, name: Hall}\n"
                                  "rules:\n"
                                  "- {area: unlp, budget: 90 kWh/day}\n"
                                  "- {area: unlp/lab3, floor: 1 kW, budget: 60 kWh/day}\n";

/* 90 kWh less a floor of 25 hours, for two units; the hall has none. */
static void a_budget_of_several_units_says_what_each_has_without_the_hub(void **state)
{
    struct power_policy p;
    char text[RULE_TEXT_MAX];
    struct error err;

    if (compile(shared, &p, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(p.set.rule[0].alone == UINT64_C(32500) * 3600000000);
    assert_int_equal(p.set.rule[2].verb, RULE_BUDGET);
    assert_int_equal(p.set.rule[2].alone, 0);
    explain_rule(&p, 0, text);
    assert_string_equal(text, "unlp: budget 90 kWh/day, flat, shared by units (without the hub "
                              "32.5 kWh/day each, above its floor)");
    explain_rule(&p, 2, text);
    assert_string_equal(text, "unlp/lab3: budget 60 kWh/day, flat");
    policy_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_policy_of_the_design_becomes_rules),
        cmocka_unit_test(a_budget_may_follow_the_grids_carbon_intensity),
        cmocka_unit_test(areas_say_where_units_stand),
        cmocka_unit_test(a_budget_of_several_units_says_what_each_has_without_the_hub),
        cmocka_unit_test(what_is_wrong_is_said_with_line_and_column),
        cmocka_unit_test(what_is_too_much_is_refused_at_once),
        cmocka_unit_test(amounts_come_out_without_a_rounding_error),
        cmocka_unit_test(days_are_of_the_zone_or_of_the_first_that_is_named),
        cmocka_unit_test(times_are_read_on_the_clock_of_the_zone),
        cmocka_unit_test(a_diff_names_what_came_went_and_changed),
        cmocka_unit_test(an_explanation_names_the_line_of_each_amount),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
