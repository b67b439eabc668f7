/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/areas.h"
#include "hub/tree/carbon.h"
#include "hub/tree/doubts.h"
#include "hub/tree/in_force.h"
#include "hub/tree/place.h"
#include "hub/tree/units.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define NOW_MS INT64_C(1795392000000) /* 2026-11-23 00:00 UTC */
#define NOW_S  UINT64_C(1795392000)
#define HEAD   "version: 1\norg: unlp\n"
#define FIRST  HEAD "areas: [{area: unlp/lab3, unit: lab3}]\nrules: [{area: unlp, cap: 5 kW}]\n"
#define SECOND HEAD "areas: [{area: unlp/lab3, unit: lab3}]\nrules: [{area: unlp, cap: 4 kW}]\n"

static char dir[64], path[96];
static struct in_force p;
static struct error err;

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(name);
}

static int set_up(void **state)
{
    strcpy(dir, "/tmp/tide-tree-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/policy.yaml", dir);
    return 0;
}

static int tear_down(void **state)
{
    in_force_done(&p);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *text, uint64_t edition, int wanted)
{
    assert_int_equal(in_force_put(dir, text, strlen(text), edition, NOW_MS, &p, &err), wanted);
}

/* As a new process of the hub finds it. */
static int read_again(void)
{
    in_force_done(&p);
    return in_force_read(dir, NOW_MS, &p, &err);
}

static void write_text(const char *text)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* ---- areas ---- */

static void areas_are_a_tree_with_parents_first(void **state)
{
    static const char text[] =
        HEAD "areas:\n- {area: unlp/a.b, unit: ab}\n- {area: unlp/a/x/y, unit: y}\n"
             "- {area: unlp/b, name: B}\nrules: [{area: unlp/c/z, cap: 1 W}]\n";
    static const struct {
        const char *path;
        uint32_t parent, end;
    } wanted[] = {{"unlp", AREA_NONE, 8}, {"unlp/a", 0, 4},   {"unlp/a/x", 1, 4},
                  {"unlp/a/x/y", 2, 4},   {"unlp/a.b", 0, 5}, {"unlp/b", 0, 6},
                  {"unlp/c", 0, 8},       {"unlp/c/z", 6, 8}};

    put(text, 0, 0);
    assert_int_equal(p.areas.count, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_string_equal(p.areas.area[i].path, wanted[i].path);
        assert_int_equal(p.areas.area[i].parent, wanted[i].parent);
        assert_int_equal(p.areas.area[i].end, wanted[i].end);
        assert_int_equal(areas_find(&p.areas, wanted[i].path), i);
    }
    assert_string_equal(p.areas.area[3].entry->unit, "y");
    assert_null(p.areas.area[1].entry);
    assert_int_equal(areas_find(&p.areas, "unlp/d"), AREA_NONE);
}

static void units_within_another_units_area_add_up_to_nothing_more(void **state)
{
    static const char text[] =
        HEAD "areas:\n- {area: unlp/a, unit: a}\n- {area: unlp/a/x, name: X}\n"
             "- {area: unlp/a/x/y, unit: y}\n- {area: unlp/b, name: B}\n"
             "- {area: unlp/b/z, unit: z}\nrules: [{area: unlp/c, cap: 1 W}]\n";
    static const char *const topmost[] = {"unlp/a", "unlp/b/z"};
    uint32_t n = 0;

    put(text, 0, 0);
    for (uint32_t i = 0; i < p.areas.count; i++)
        if (areas_topmost(&p.areas, i)) {
            assert_true(n < 2);
            assert_string_equal(p.areas.area[i].path, topmost[n++]);
        }
    assert_int_equal(n, 2);
    assert_true(areas_have_unit(&p.areas, areas_find(&p.areas, "unlp/a/x/y")));
    assert_false(areas_have_unit(&p.areas, areas_find(&p.areas, "unlp/a/x")));
}

static void add_doubt(void *arg, uint32_t line, uint32_t column, const char *text)
{
    snprintf((char *)arg + strlen(arg), 1024 - strlen(arg), "%u: %s\n", (unsigned)line, text);
}

static const char *doubts(const struct units *units)
{
    static char text[1024];

    text[0] = '\0';
    assert_int_equal(doubts_of(&p.rules, units, add_doubt, text), 0);
    return text;
}

static void what_nobody_keeps_is_doubted(void **state)
{
    static const char text[] = HEAD "areas:\n- {area: unlp/lab3, unit: lab3}\n"
                                    "- {area: unlp/lab4, unit: lab4}\nrules:\n"
                                    "- {area: unlp/lab33, cap: 5 W, floor: 1 W}\n"
                                    "- {room: unlp/lab3/corner, cap: 5 W}\n"
                                    "- {room: unlp/lab3, when: absent 15 min, off: [ac, lihgts]}\n"
                                    "- {area: unlp, when: absent 60 min, off: fan}\n";
    static const char areas[] =
        "7: no unit stands in unlp/lab33 or below it: nobody keeps this rule\n"
        "8: no unit stands in unlp/lab3/corner or below it: nobody keeps this rule\n";
    char wanted[512];
    struct units *u;
    struct unit *lab3;

    assert_int_equal(units_new(&u), 0);
    put(text, 0, 0);
    assert_string_equal(doubts(NULL), areas);
    assert_string_equal(doubts(u), areas); /* nobody has heard of them */
    lab3 = units_make(u, "lab3");
    lab3->state = (struct payload_state){
        .online = true, .switches = 2, .item = {{.name = "ac"}, {.name = "lights"}}};
    snprintf(wanted, sizeof(wanted), "%s9: no unit in unlp/lab3 or below it has a switch '%s'\n",
             areas, "lihgts");
    assert_string_equal(doubts(u), wanted); /* lab4 may have a fan */
    units_make(u, "lab4")->state.online = true;
    snprintf(wanted + strlen(wanted), sizeof(wanted) - strlen(wanted),
             "10: no unit in unlp or below it has a switch 'fan'\n");
    assert_string_equal(doubts(u), wanted);
    lab3->state.online = false;
    assert_string_equal(doubts(u), areas);
    units_free(u);
    put(HEAD "rules: [{area: unlp/lab33, cap: 5 W}]\n", 0, 0);
    assert_string_equal(doubts(NULL), ""); /* it does not say where units stand */
}

/* ---- the policy's number ---- */

static void a_number_only_grows(void **state)
{
    uint64_t before;

    assert_int_equal(in_force_read(dir, NOW_MS, &p, &err), 0);
    assert_int_equal(p.number, 0);
    put(FIRST, 0, 0);
    assert_int_equal(p.number, NOW_S);
    assert_int_equal(p.edition, NOW_S);
    assert_int_equal(p.valid_until_ms, NOW_MS + INT64_C(7) * 86400000);
    put(SECOND, NOW_S, 0);
    assert_int_equal(p.number, NOW_S + 1);
    assert_int_equal(in_force_renew(dir, NOW_MS + 86400000, &p, &err), 0);
    assert_int_equal(p.number, NOW_S + 86400);
    assert_int_equal(p.edition, NOW_S + 1);
    assert_int_equal(p.valid_until_ms, NOW_MS + INT64_C(8) * 86400000);
    before = p.number;
    assert_int_equal(read_again(), 1);
    assert_int_equal(p.number, before);
    assert_int_equal(p.edition, NOW_S + 1);
    assert_string_equal(p.text, SECOND);
    assert_int_equal(in_force_read(dir, NOW_MS, &p, &err), 0); /* nothing new */
    put(FIRST, 0, 0); /* at a time before: somebody set the clock back */
    assert_int_equal(p.number, before + 1);
}

static void an_editor_of_an_old_text_is_refused(void **state)
{
    put(FIRST, 0, 0);
    put(SECOND, p.edition, 0);
    put(FIRST, NOW_S, -ESTALE);
    assert_non_null(strstr(err.text, "the policy was changed meanwhile"));
    assert_string_equal(p.text, SECOND);
    assert_int_equal(in_force_renew(dir, NOW_MS, &p, &err), 0);
    put(FIRST, NOW_S + 1, 0); /* a renewal is no change of the text */
}

static void what_is_wrong_changes_nothing(void **state)
{
    put(FIRST, 0, 0);
    put(HEAD "rules: [{area: unlp, cap: 5}]\n", 0, -EINVAL);
    assert_non_null(strstr(err.text, "3:27: '5' is no amount"));
    assert_string_equal(p.text, FIRST);
    assert_int_equal(read_again(), 1);
    assert_string_equal(p.text, FIRST);
    assert_int_equal(p.number, NOW_S);
}

static void ten_megabytes_are_refused_and_change_nothing(void **state)
{
    size_t len = 10 << 20;
    char *text = malloc(len + 1);

    put(FIRST, 0, 0);
    assert_non_null(text);
    memset(text, 'a', len);
    text[len] = '\0';
    put(text, 0, -E2BIG);
    write_text(text);
    assert_true(in_force_read(dir, NOW_MS, &p, &err) < 0);
    assert_non_null(strstr(err.text, "policy.yaml"));
    assert_string_equal(p.text, FIRST);
    free(text);
}

static void a_text_that_somebody_else_wrote_gets_a_number_of_its_own(void **state)
{
    put(FIRST, 0, 0);
    assert_int_equal(in_force_leave(dir, SECOND, strlen(SECOND), &err), 0);
    assert_int_equal(in_force_read(dir, NOW_MS, &p, &err), 1);
    assert_int_equal(p.number, NOW_S + 1);
    assert_int_equal(p.edition, NOW_S + 1);
    assert_string_equal(p.text, SECOND);
    write_text(FIRST); /* by hand, without our line */
    assert_int_equal(read_again(), 1);
    assert_int_equal(p.number, NOW_S);
    assert_string_equal(p.text, FIRST);
    write_text(SECOND);
    assert_int_equal(in_force_read(dir, NOW_MS - 5000, &p, &err),
                     1); /* the hub that runs knows its number */
    assert_int_equal(p.number, NOW_S + 1);
    write_text("# threadtide policy 5 5 5 5\n" FIRST); /* as if an older file was put back */
    assert_int_equal(in_force_read(dir, NOW_MS, &p, &err), 1);
    assert_int_equal(p.number, NOW_S + 2);
}

static void a_hub_that_cannot_write_keeps_its_policy(void **state)
{
    put(FIRST, 0, 0);
    assert_int_equal(in_force_put("/proc/self", SECOND, strlen(SECOND), 0, NOW_MS, &p, &err) < 0,
                     1);
    assert_true(in_force_renew("/proc/self", NOW_MS + 5000, &p, &err) < 0);
    assert_int_equal(p.number, NOW_S);
    assert_string_equal(p.text, FIRST);
}

/* ---- where a new unit stands ---- */

static void a_new_unit_is_put_into_the_list_and_the_rest_stays(void **state)
{
    static const struct {
        const char *before, *after;
    } cases[] = {
        {HEAD "rules: []\n", HEAD "areas:\n- {area: unlp/x, unit: x}\nrules: []\n"},
        {HEAD "areas: []\nrules: []\n", HEAD "areas: [{area: unlp/x, unit: x}]\nrules: []\n"},
        {HEAD "areas: [{area: unlp/a, unit: a}]\nrules: []\n",
         HEAD "areas: [{area: unlp/x, unit: x}, {area: unlp/a, unit: a}]\nrules: []\n"},
        {HEAD "areas:   # all\n\n  # first\n  - {area: unlp/a, unit: a}\nrules: []\n",
         HEAD "areas:   # all\n  - {area: unlp/x, unit: x}\n\n  # first\n"
              "  - {area: unlp/a, unit: a}\nrules: []\n"},
        {"rules: []\n" HEAD "areas:", "rules: []\n" HEAD "areas:\n- {area: unlp/x, unit: x}\n"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = NULL;

        assert_int_equal(place_in_text(cases[i].before, "unlp/x", "x", &text), 0);
        assert_string_equal(text, cases[i].after);
        put(text, 0, 0);
        assert_string_equal(policy_unit(&p.rules, "x")->area, "unlp/x");
        free(text);
    }
}

/* ---- the grid's carbon intensity ---- */

static void carbon_of_now_and_two_days_is_read(void **state)
{
    struct carbon c = {0};
    char text[4096] = "# from the grid\n\n";

    assert_int_equal(carbon_parse("", NOW_MS, &c, &err), 0);
    assert_int_equal(carbon_at(&c, NOW_MS), RULE_UNKNOWN);
    for (int hour = 60; hour > -10; hour--)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%ld %d # hour\n",
                 (long)NOW_S + hour * 3600L, 300 + hour);
    assert_int_equal(carbon_parse(text, NOW_MS + 1800000, &c, &err), 0);
    assert_int_equal(c.count, 49);
    assert_int_equal(c.hour[0].g, 300);
    assert_int_equal(carbon_at(&c, NOW_MS + 5 * 3600000), 305);
    assert_int_equal(carbon_at(&c, NOW_MS - 3600000), RULE_UNKNOWN);
    assert_int_equal(
        carbon_parse("2026-11-23T00:00Z 350.2\n2026-11-23T00:00Z 400", NOW_MS, &c, &err), 0);
    assert_int_equal(c.count, 1);
    assert_int_equal(carbon_at(&c, NOW_MS + 3599999), 400);
    assert_int_equal(carbon_at(&c, NOW_MS + 3600000),
                     RULE_UNKNOWN); /* nobody told it any further */
}

static void what_is_no_carbon_intensity_is_refused_with_its_line(void **state)
{
    static const char *const bad[] = {"2026-11-23T00:00Z",      "2026-11-23T00:00Z -5",
                                      "2026-11-23T00:00Z nan",  "2026-11-23T00:00Z 350 g",
                                      "2026-11-23T00:00 350",   "18:00Z 350x",
                                      "1795392000 99999999",    "1795392000 1e3",
                                      "99999999999999999999 5", "x 5"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[128];
        struct carbon c;

        snprintf(text, sizeof(text), "1795392000 5\n%s\n", bad[i]);
        if (carbon_parse(text, NOW_MS, &c, &err) != -EINVAL)
            fail_msg("'%s' is taken", bad[i]);
        assert_memory_equal(err.text, "2: no time and intensity", 24);
    }
}

/* ---- units ---- */

static void units_are_found_by_name(void **state)
{
    struct units *u;
    char name[32];

    assert_int_equal(units_new(&u), 0);
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "lab%d", i);
        assert_null(units_find(u, name));
        assert_string_equal(units_make(u, name)->name, name);
    }
    assert_int_equal(units_count(u), 3000);
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "lab%d", i);
        assert_ptr_equal(units_find(u, name), units_at(u, (size_t)i));
        assert_ptr_equal(units_make(u, name), units_at(u, (size_t)i));
    }
    units_free(u);
}

static void an_old_draw_is_unknown_and_not_zero(void **state)
{
    struct unit u = {
        .state.online = true, .demand = {.draw = {5, 4, 6, POWER_MEASURED}}, .demand_ms = NOW_MS};

    assert_int_equal(unit_draw(&u, NOW_MS + 1000).uw, 5);
    assert_int_equal(unit_draw(&u, NOW_MS + UNITS_DRAW_MS).basis, POWER_UNKNOWN);
    u.state.online = false;
    assert_int_equal(unit_draw(&u, NOW_MS + 1000).basis, POWER_UNKNOWN);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(areas_are_a_tree_with_parents_first),
        TEST(units_within_another_units_area_add_up_to_nothing_more),
        TEST(what_nobody_keeps_is_doubted),
        TEST(a_number_only_grows),
        TEST(an_editor_of_an_old_text_is_refused),
        TEST(what_is_wrong_changes_nothing),
        TEST(ten_megabytes_are_refused_and_change_nothing),
        TEST(a_text_that_somebody_else_wrote_gets_a_number_of_its_own),
        TEST(a_hub_that_cannot_write_keeps_its_policy),
        TEST(a_new_unit_is_put_into_the_list_and_the_rest_stays),
        cmocka_unit_test(carbon_of_now_and_two_days_is_read),
        cmocka_unit_test(what_is_no_carbon_intensity_is_refused_with_its_line),
        cmocka_unit_test(units_are_found_by_name),
        cmocka_unit_test(an_old_draw_is_unknown_and_not_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
