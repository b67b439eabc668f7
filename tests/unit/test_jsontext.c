/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jsontext.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct jsontext make(const char *text)
{
    struct jsontext json = {strdup(text), strlen(text)};

    assert_non_null(json.text);
    return json;
}

static struct json_span check(const struct jsontext *json)
{
    struct json_span whole;
    struct error err = {0};

    if (jsontext_check(json, &whole, &err) < 0)
        fail_msg("%s: %s", json->text, err.text);
    return whole;
}

static void json_is_taken_and_nothing_else(void **state)
{
    static const char *const good[] = {
        "{}",
        " [ ] ",
        "\"\\u00e9\\n\\/\"",
        "-0.5e+3",
        "0",
        "[1,{\"a\":[true,false,null]}]\n",
        "18446744073709551615",
        "{\"a\":1,\"a\":2}",
        "\"\xc3\xa9\"",
    };
    static const char *const bad[] = {
        "",      " ",    "{",       "}",           "[1,]",      "{\"a\":1,}", "{\"a\" 1}",
        "{a:1}", "01",   "1.",      "-",           "1e",        "+1",         "tru",
        "nulls", "\"",   "\"\\x\"", "\"\\u12g4\"", "\"\n\"",    "[1 2]",      "{} {}",
        "[}",    "\"\\", "\"\\u12", "{\"a\":}",    "{\"a\":1]", "'a'",        "//\n1",
    };
    struct json_span whole;
    struct error err;

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        _cleanup_jsontext_ struct jsontext json = make(good[i]);

        check(&json);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        _cleanup_jsontext_ struct jsontext json = make(bad[i]);

        if (jsontext_check(&json, &whole, &err) != -EBADMSG)
            fail_msg("%s was taken", bad[i]);
    }
}

static void complaint_has_the_line(void **state)
{
    _cleanup_jsontext_ struct jsontext json = make("{\n \"a\": 1,\n \"b\" 2\n}\n");
    struct json_span whole;
    struct error err;

    assert_int_equal(jsontext_check(&json, &whole, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "line 3"));
}

static void deep_text_is_refused_before_the_stack_ends(void **state)
{
    enum { DEPTH = 1000000 };
    struct jsontext json = {malloc(DEPTH + 1), DEPTH};
    struct json_span whole;
    struct error err;

    assert_non_null(json.text);
    memset(json.text, '[', DEPTH);
    json.text[DEPTH] = '\0';
    assert_int_equal(jsontext_check(&json, &whole, &err), -EBADMSG);
    free(json.text);
}

static void member_is_found_however_it_is_written(void **state)
{
    _cleanup_jsontext_ struct jsontext json =
        make("{\"x\":{\"env\":0}, \"e\\u006ev\" : [ \"L\\u0044=1\" ,2],\"twice\":1,\"twice\":2}");
    struct json_span whole = check(&json), env, other;
    struct json_item item = {0};
    size_t rest;

    assert_int_equal(jsontext_member(&json, whole, "env", &env), 0);
    assert_true(jsontext_opens(&json, env, '['));
    assert_true(jsontext_next(&json, env, &item));
    assert_true(jsontext_begins(&json, item.value, "LD=", &rest));
    assert_int_equal(json.text[rest], '1');
    assert_true(jsontext_is(&json, item.value, "LD=1"));
    assert_false(jsontext_is(&json, item.value, "LD="));
    assert_false(jsontext_begins(&json, item.value, "LD=12", NULL));
    assert_true(jsontext_next(&json, env, &item));
    assert_false(jsontext_next(&json, env, &item));
    assert_int_equal(jsontext_member(&json, whole, "en", &other), -ENOENT);
    assert_int_equal(jsontext_member(&json, whole, "twice", &other), -EEXIST);
    assert_int_equal(jsontext_member(&json, env, "env", &other), -EINVAL);
}

static void assert_appended(const char *before, const char *item, const char *after)
{
    _cleanup_jsontext_ struct jsontext json = make(before);

    assert_int_equal(jsontext_append(&json, check(&json), item), 0);
    assert_string_equal(json.text, after);
    assert_int_equal(json.len, strlen(after));
    check(&json);
}

static void appended_item_is_spaced_like_the_first(void **state)
{
    assert_appended("[]", "1", "[1]");
    assert_appended(" { }", "\"a\":1", " {\"a\":1 }");
    assert_appended("[1, 2]", "3", "[1, 2,3]");
    assert_appended("[\n  1,\n  2\n]\n", "3", "[\n  1,\n  2,\n  3\n]\n");
    assert_appended("{\n\t\"a\": {\"b\": [9]}\n}", "\"c\": 1",
                    "{\n\t\"a\": {\"b\": [9]},\n\t\"c\": 1\n}");
}

static void assert_removed(const char *before, const char *name, const char *after)
{
    _cleanup_jsontext_ struct jsontext json = make(before);

    assert_int_equal(jsontext_remove(&json, check(&json), name), 0);
    assert_string_equal(json.text, after);
    check(&json);
}

static void removed_member_takes_its_comma_along(void **state)
{
    _cleanup_jsontext_ struct jsontext json = make("{\"a\":1}");

    assert_removed("{\"a\":1}", "a", "{}");
    assert_removed("{ \"a\":1, \"b\":2 }", "a", "{ \"b\":2 }");
    assert_removed("{ \"a\":1, \"b\":2 }", "b", "{ \"a\":1 }");
    assert_removed("{\"a\":1,\"b\":2,\"c\":3}", "b", "{\"a\":1,\"c\":3}");
    assert_int_equal(jsontext_remove(&json, check(&json), "b"), -ENOENT);
}

static void removing_what_was_appended_gives_the_same_bytes(void **state)
{
    static const char *const texts[] = {"{}", "{ }", "{\n}\n", "{\"a\":1}", " {\n  \"a\": 1\n} "};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        _cleanup_jsontext_ struct jsontext json = make(texts[i]);

        assert_int_equal(jsontext_append(&json, check(&json), "\"new\": {\"x\": 1}"), 0);
        assert_int_equal(jsontext_remove(&json, check(&json), "new"), 0);
        assert_string_equal(json.text, texts[i]);
    }
}

static void quoted_text_is_a_string_again(void **state)
{
    char *quoted = jsontext_quote("a\"b\\c\n\x1f\xc3\xa9");

    assert_string_equal(quoted, "\"a\\\"b\\\\c\\u000a\\u001f\xc3\xa9\"");
    free(quoted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_taken_and_nothing_else),
        cmocka_unit_test(complaint_has_the_line),
        cmocka_unit_test(deep_text_is_refused_before_the_stack_ends),
        cmocka_unit_test(member_is_found_however_it_is_written),
        cmocka_unit_test(appended_item_is_spaced_like_the_first),
        cmocka_unit_test(removed_member_takes_its_comma_along),
        cmocka_unit_test(removing_what_was_appended_gives_the_same_bytes),
        cmocka_unit_test(quoted_text_is_a_string_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
