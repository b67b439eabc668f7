/* SPDX-License-Identifier: Apache-2.0 */
#include "base/suggest.h"

#include "base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const char *const words[] = {"run", "ps", "set", "top", "explain", "policy"};

static void distance_counts_single_edits(void **state)
{
    assert_int_equal(suggest_distance("set", "set"), 0);
    assert_int_equal(suggest_distance("set", "sett"), 1);
    assert_int_equal(suggest_distance("set", "st"), 1);
    assert_int_equal(suggest_distance("set", "get"), 1);
    assert_int_equal(suggest_distance("set", "est"), 1);
    assert_int_equal(suggest_distance("", "set"), 3);
    assert_int_equal(suggest_distance("explain", "policy"), suggest_distance("policy", "explain"));
}

static void nearest_is_found_within_two_edits(void **state)
{
    assert_string_equal(suggest_nearest("sett", words, ARRAY_LEN(words)), "set");
    assert_string_equal(suggest_nearest("polcy", words, ARRAY_LEN(words)), "policy");
    assert_string_equal(suggest_nearest("xeplian", words, ARRAY_LEN(words)), "explain");
    assert_null(suggest_nearest("scheduler", words, ARRAY_LEN(words)));
}

static void word_with_nothing_in_common_is_not_suggested(void **state)
{
    /* Two edits make any word of two letters out of any other. */
    assert_null(suggest_nearest("ab", words, 2));
    assert_null(suggest_nearest("", words, ARRAY_LEN(words)));
}

static void long_words_stay_within_bounds(void **state)
{
    char word[4096];

    for (size_t i = 0; i < sizeof(word); i++)
        word[i] = (char)('a' + i % 26);
    word[sizeof(word) - 1] = '\0';
    assert_null(suggest_nearest(word, words, ARRAY_LEN(words)));
    assert_int_equal(suggest_distance(word, word), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distance_counts_single_edits),
        cmocka_unit_test(nearest_is_found_within_two_edits),
        cmocka_unit_test(word_with_nothing_in_common_is_not_suggested),
        cmocka_unit_test(long_words_stay_within_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
