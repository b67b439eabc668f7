/* SPDX-License-Identifier: Apache-2.0 */
/* src/kube/api/watch_delta.c: the deltas that a consumer gets from lists and watches. */
#include "kube/api/lenient_json.h"
#include "kube/api/watch_delta.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The deltas so far, as "+a@1 ~a@2 -a S". */
static char heard[4096];

static void hear(void *arg, enum watch_change change, json_t *object)
{
    static const char marks[] = "+~-S";
    const json_t *meta = json_object_get(object, "metadata");
    const char *name = json_string_value(json_object_get(meta, "name"));
    const char *uid = json_string_value(json_object_get(meta, "uid"));
    size_t len = strlen(heard);

    (void)arg;
    snprintf(heard + len, sizeof(heard) - len, "%s%c%s%s%s", len ? " " : "", marks[change],
             name ? name : "", uid ? "/" : "", uid ? uid : "");
}

static int set_up(void **state)
{
    heard[0] = '\0';
    *state = watch_delta_new(hear, NULL);
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    watch_delta_free(*state);
    return 0;
}

static void expect(const char *text)
{
    assert_string_equal(heard, text);
    heard[0] = '\0';
}

static json_t *object(const char *name, const char *uid, const char *version)
{
    return json_pack("{s:{s:s,s:s,s:s,s:s}}", "metadata", "namespace", "n", "name", name, "uid",
                     uid, "resourceVersion", version);
}

static int event(struct watch_delta *k, const char *type, const char *name, const char *uid,
                 const char *version)
{
    json_t *all = json_pack("{s:s,s:o}", "type", type, "object", object(name, uid, version));
    char *line = json_dumps(all, 0);
    int r = watch_delta_event(k, line, strlen(line), NULL);

    free(line);
    json_decref(all);
    return r;
}

/* @items is taken over. */
static void list(struct watch_delta *k, const char *version, json_t *items)
{
    json_t *all =
        json_pack("{s:{s:s},s:o}", "metadata", "resourceVersion", version, "items", items);
    const char *next = NULL;

    watch_delta_list_begin(k);
    assert_int_equal(watch_delta_list_page(k, all, &next, NULL), 0);
    assert_string_equal(next, "");
    watch_delta_list_end(k);
    json_decref(all);
}

static void begin_with_a_and_b(struct watch_delta *k)
{
    list(k, "10", json_pack("[o,o]", object("a", "ua", "3"), object("b", "ub", "7")));
    expect("+a/ua +b/ub S");
    assert_string_equal(watch_delta_version(k), "10");
}

static void events_are_told_once_each(void **state)
{
    struct watch_delta *k = *state;

    begin_with_a_and_b(k);
    assert_int_equal(event(k, "MODIFIED", "a", "ua", "11"), 0);
    assert_int_equal(event(k, "MODIFIED", "a", "ua", "11"), 0);
    assert_int_equal(event(k, "ADDED", "c", "uc", "12"), 0);
    assert_int_equal(event(k, "DELETED", "b", "ub", "13"), 0);
    assert_int_equal(event(k, "DELETED", "b", "ub", "13"), 0);
    expect("~a/ua +c/uc -b/ub");
    assert_string_equal(watch_delta_version(k), "13");
    assert_int_equal(watch_delta_count(k), 2);
}

static void a_bookmark_moves_the_version_and_nothing_else(void **state)
{
    struct watch_delta *k = *state;
    const char *line =
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"99\"}}}";

    begin_with_a_and_b(k);
    assert_int_equal(watch_delta_event(k, line, strlen(line), NULL), 0);
    expect("");
    assert_string_equal(watch_delta_version(k), "99");
}

static void a_new_list_tells_only_the_difference(void **state)
{
    struct watch_delta *k = *state;

    begin_with_a_and_b(k);
    list(k, "30", json_pack("[o,o]", object("b", "ub", "25"), object("c", "uc", "21")));
    expect("~b/ub +c/uc -a/ua S");
    list(k, "31", json_pack("[o,o]", object("b", "ub", "25"), object("c", "uc", "21")));
    expect("S");
}

static void an_object_made_anew_under_the_same_name_is_another(void **state)
{
    struct watch_delta *k = *state;

    begin_with_a_and_b(k);
    list(k, "30", json_pack("[o,o]", object("a", "ua2", "25"), object("b", "ub", "7")));
    expect("-a/ua +a/ua2 S");
    /* The end of the first comes late: it is not the second's. */
    assert_int_equal(event(k, "DELETED", "a", "ua", "31"), 0);
    expect("");
}

static void a_uid_that_begins_like_another_is_another(void **state)
{
    struct watch_delta *k = *state;

    begin_with_a_and_b(k);
    list(k, "30", json_pack("[o,o]", object("a", "u", "25"), object("b", "ub", "7")));
    expect("-a/ua +a/u S");
}

static void a_list_that_breaks_off_takes_nothing_away(void **state)
{
    struct watch_delta *k = *state;
    json_t *page = json_pack("{s:{s:s,s:s},s:[o]}", "metadata", "resourceVersion", "20", "continue",
                             "t", "items", object("b", "ub", "15"));
    const char *next = NULL;

    begin_with_a_and_b(k);
    watch_delta_list_begin(k);
    assert_int_equal(watch_delta_list_page(k, page, &next, NULL), 0);
    assert_string_equal(next, "t");
    expect("~b/ub");
    assert_string_equal(watch_delta_version(k), "10");
    list(k, "30", json_pack("[o,o]", object("a", "ua", "3"), object("b", "ub", "15")));
    expect("S");
    json_decref(page);
}

static void what_is_learnt_is_not_told_again_nor_undone_by_older_news(void **state)
{
    struct watch_delta *k = *state;
    json_t *newer = object("a", "ua", "15"), *made = object("c", "uc", "16"),
           *old = object("b", "ub", "9");

    begin_with_a_and_b(k);
    watch_delta_learn(k, newer);
    watch_delta_learn(k, made);
    watch_delta_learn(k, old); /* the watch is ahead of it: it may have been deleted since */
    expect("~a/ua +c/uc");
    assert_int_equal(event(k, "MODIFIED", "a", "ua", "12"), 0);
    assert_int_equal(event(k, "MODIFIED", "a", "ua", "15"), 0);
    assert_int_equal(event(k, "ADDED", "c", "uc", "16"), 0);
    expect("");
    assert_int_equal(event(k, "MODIFIED", "a", "ua", "17"), 0);
    expect("~a/ua");
    json_decref(newer);
    json_decref(made);
    json_decref(old);
}

static void a_list_older_than_what_is_learnt_deletes_nothing(void **state)
{
    struct watch_delta *k = *state;
    json_t *made = object("c", "uc", "40");

    begin_with_a_and_b(k);
    watch_delta_learn(k, made);
    expect("+c/uc");
    list(k, "39", json_pack("[o,o]", object("a", "ua", "3"), object("b", "ub", "7")));
    expect("S");
    list(k, "41", json_pack("[o,o]", object("a", "ua", "3"), object("b", "ub", "7")));
    expect("-c/uc S");
    json_decref(made);
}

static void an_expired_version_asks_for_a_list(void **state)
{
    const char *gone = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,"
                       "\"reason\":\"Expired\",\"message\":\"too old\"}}";
    const char *other = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":500}}";
    struct error err = {0};

    begin_with_a_and_b(*state);
    assert_int_equal(watch_delta_event(*state, gone, strlen(gone), &err), -ESTALE);
    assert_non_null(strstr(err.text, "too old"));
    assert_int_equal(watch_delta_event(*state, other, strlen(other), &err), -EREMOTEIO);
}

static void garbage_is_refused_and_changes_nothing(void **state)
{
    static const char *const lines[] = {
        "",
        "{",
        "[]",
        "null",
        "{\"type\":\"ADDED\"}",
        "{\"type\":1,\"object\":{}}",
        "{\"type\":\"ADDED\",\"object\":{}}",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":[]}}",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"x\",\"uid\":\"u\"}}}",
        ("{\"type\":\"NEW\",\"object\":{\"metadata\":{\"name\":\"x\",\"uid\":\"u\","
         "\"resourceVersion\":\"1\"}}}"),
        "{\"type\":\"BOOKMARK\",\"object\":{}}",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\"",
    };
    struct error err = {0};

    begin_with_a_and_b(*state);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        assert_int_equal(watch_delta_event(*state, lines[i], strlen(lines[i]), &err), -EBADMSG);
    expect("");
    assert_string_equal(watch_delta_version(*state), "10");
}

/* Values that any user can write into an object, and that jansson refuses. */
static void what_jansson_refuses_is_made_readable(void **state)
{
    static const struct {
        const char *text, *read;
    } cases[] = {
        {"{\"a\\u0000\":\"\\u0000b\"}", "{\"a\xef\xbf\xbd\":\"\xef\xbf\xbd"
                                        "b\"}"},
        {"[\"\\\\u0000\\u0000\\\\\"]", "[\"\\\\u0000\xef\xbf\xbd\\\\\"]"},
        {"[9223372036854775807,-9223372036854775807,9223372036854775808]",
         "[9223372036854775807,-9223372036854775807,9.22337203685477e18]"},
        {"[-123456789012345678901234567890, 7]", "[-1.2345678901234568e29,7]"},
        {"[\"123456789012345678901234567890\",12345678901234567890.5,99999999999999999999]",
         "[\"123456789012345678901234567890\",1.2345678901234567e19,9.999999999999999e19]"},
        {"[\"\\u0000\", \"\\\"}]{[\", 1e-7]", "[\"\xef\xbf\xbd\",\"\\\"}]{[\",1e-7]"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *json = lenient_json_load(cases[i].text, strlen(cases[i].text));
        json_t *expected = json_loads(cases[i].read, 0, NULL);

        assert_null(json_loads(cases[i].text, 0, NULL));
        assert_non_null(json);
        assert_non_null(expected);
        if (!json_equal(json, expected))
            fail_msg("%s: %s", cases[i].text, json_dumps(json, JSON_COMPACT));
        json_decref(json);
        json_decref(expected);
    }
    assert_null(lenient_json_load("{\"a\":\"\\u0000\"", 13));
    assert_null(lenient_json_load("", 0));
    (void)state;
}

static void what_lies_too_deep_is_empty(void **state)
{
    enum { DEEP = 100000 };
    char *text = malloc(2 * DEEP + 32);
    json_t *json, *at;
    int depth = 0;

    memset(text, '[', DEEP);
    memcpy(text + DEEP, "{\"]\":7}", 7);
    memset(text + DEEP + 7, ']', DEEP - 1);
    strcpy(text + 2 * DEEP + 6, ",8]");
    json = lenient_json_load(text, strlen(text));
    assert_non_null(json);
    assert_int_equal(json_integer_value(json_array_get(json, 1)), 8);
    for (at = json; json_array_size(at) > 0; at = json_array_get(at, 0))
        depth++;
    assert_int_equal(depth, LENIENT_JSON_DEPTH_MAX);
    json_decref(json);
    free(text);
    (void)state;
}

/*
 * Random changes of a model, of which the consumer sees a stream that is cut, repeated from older
 * versions and listed anew at random: what it was told must make the same set.
 */
static json_t *told;

static void follow(void *arg, enum watch_change change, json_t *object_)
{
    const json_t *meta = json_object_get(object_, "metadata");
    const char *name = json_string_value(json_object_get(meta, "name"));
    json_t *uid = json_object_get(meta, "uid");

    (void)arg;
    if (change == WATCH_ADDED)
        assert_null(json_object_get(told, name));
    if (change == WATCH_CHANGED || change == WATCH_DELETED)
        assert_true(json_equal(json_object_get(told, name), uid));
    if (change == WATCH_ADDED || change == WATCH_CHANGED)
        json_object_set(told, name, uid);
    if (change == WATCH_DELETED)
        json_object_del(told, name);
}

static void a_consumer_of_any_stream_ends_with_the_truth(void **state)
{
    enum { NAMES = 8, STEPS = 20000 };
    struct watch_delta *k = watch_delta_new(follow, NULL);
    unsigned uid[NAMES] = {0}, changed[NAMES] = {0}, seed = 7, version = 1, uids = 0;

    (void)state;
    told = json_object();
    list(k, "1", json_array());
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)rand_r(&seed) % NAMES, what = (unsigned)rand_r(&seed) % 16;
        char name[16], u[16], v[16];
        const char *type = uid[i] == 0 ? "ADDED" : what < 6 ? "DELETED" : "MODIFIED";

        if (uid[i] == 0)
            uid[i] = ++uids;
        changed[i] = ++version;
        snprintf(name, sizeof(name), "o%u", i);
        snprintf(u, sizeof(u), "u%u", uid[i]);
        snprintf(v, sizeof(v), "%u", version);
        if (type[0] == 'D')
            uid[i] = 0;
        if (what == 15) { /* missed, then listed */
            json_t *items = json_array();

            for (unsigned n = 0; n < NAMES; n++) {
                char its[3][16];

                snprintf(its[0], 16, "o%u", n);
                snprintf(its[1], 16, "u%u", uid[n]);
                snprintf(its[2], 16, "%u", changed[n]);
                if (uid[n])
                    json_array_append_new(items, object(its[0], its[1], its[2]));
            }
            list(k, v, items);
            continue;
        }
        for (unsigned times = what % 3 == 0 ? 2 : 1; times > 0; times--)
            assert_int_equal(event(k, type, name, u, v), 0);
        if (what == 14 && type[0] != 'D') { /* the consumer learns of it too late for a delta */
            json_t *again = object(name, u, v);

            watch_delta_learn(k, again);
            json_decref(again);
        }
    }
    for (unsigned n = 0; n < NAMES; n++) {
        char name[16], u[16];
        const char *last;

        snprintf(name, sizeof(name), "o%u", n);
        snprintf(u, sizeof(u), "u%u", uid[n]);
        last = json_string_value(json_object_get(told, name));
        if (uid[n])
            assert_string_equal(last, u);
        else
            assert_null(last);
    }
    json_decref(told);
    watch_delta_free(k);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(events_are_told_once_each),
        TEST(a_bookmark_moves_the_version_and_nothing_else),
        TEST(a_new_list_tells_only_the_difference),
        TEST(an_object_made_anew_under_the_same_name_is_another),
        TEST(a_uid_that_begins_like_another_is_another),
        TEST(a_list_that_breaks_off_takes_nothing_away),
        TEST(what_is_learnt_is_not_told_again_nor_undone_by_older_news),
        TEST(a_list_older_than_what_is_learnt_deletes_nothing),
        TEST(an_expired_version_asks_for_a_list),
        TEST(garbage_is_refused_and_changes_nothing),
        cmocka_unit_test(what_jansson_refuses_is_made_readable),
        cmocka_unit_test(what_lies_too_deep_is_empty),
        cmocka_unit_test(a_consumer_of_any_stream_ends_with_the_truth),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
