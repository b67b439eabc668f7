/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of Slurm's plugin that need no Slurm: option, answer of tide-slurm, running it. */
#include "slurm/helper.h"
#include "slurm/range.h"
#include "slurm/record.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- range ---- */

static void a_range_has_two_numbers(void **state)
{
    struct range r = {7, 7};

    assert_int_equal(range_parse("2-8", &r), 0);
    assert_true(r.min == 2 && r.max == 8);
    assert_int_equal(range_parse("1-1", &r), 0);
    assert_int_equal(range_parse("0001-4096", &r), 0);
    assert_true(r.min == 1 && r.max == RANGE_MAX);
}

static void other_texts_are_no_range(void **state)
{
    static const char *const texts[] = {
        "",     "-",   "2",    "2-",    "-8",  "2-8-9", "2--8", "+2-8",  " 2-8",   "2-8 ",
        "2 -8", "a-b", "2-8x", "0x1-2", "2,8", "2-8\n", "١-٢",  "2\t-8", "1e1-20", "2-+8"};
    struct range r = {7, 7};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(range_parse(texts[i], &r), -EINVAL);
    assert_int_equal(range_parse(NULL, &r), -EINVAL);
    assert_true(r.min == 7 && r.max == 7);
}

static void numbers_out_of_range_are_refused(void **state)
{
    static const char *const texts[] = {
        "0-8", "3-2", "1-4097", "4097-4097", "1-99999999999999999999", "4294967297-4294967298",
        "0-0"};
    struct range r = {7, 7};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(range_parse(texts[i], &r), -ERANGE);
    assert_true(r.min == 7 && r.max == 7);
}

/* ---- records ---- */

static void records_set_and_remove(void **state)
{
    char text[] = "A=1\0B\0C=x=y\0=bad\0D=\0";
    char *at = text, *name, *value;

    assert_true(record_whole(text, sizeof(text)));
    assert_int_equal(record_next(&at, &name, &value), 1);
    assert_string_equal(name, "A");
    assert_string_equal(value, "1");
    assert_int_equal(record_next(&at, &name, &value), 1);
    assert_string_equal(name, "B");
    assert_null(value);
    assert_int_equal(record_next(&at, &name, &value), 1);
    assert_string_equal(value, "x=y");
    assert_int_equal(record_next(&at, &name, &value), 1);
    assert_string_equal(name, "D");
    assert_string_equal(value, "");
    assert_int_equal(record_next(&at, &name, &value), 0);
}

static void a_cut_answer_is_no_answer(void **state)
{
    static const char text[] = "A=1\0B=2\0"; /* and the literal's own NUL */

    for (size_t n = 0; n < sizeof(text); n++)
        assert_false(record_whole(text, n));
    assert_true(record_whole(text, sizeof(text)));
    assert_true(record_whole("", 1));
}

/* ---- helper ---- */

static long run(const char *script, unsigned timeout_ms, char *buf, size_t size)
{
    char *argv[] = {"/bin/sh", "-c", (char *)script, NULL};
    char *envp[] = {"GIVEN=yes", NULL};

    return helper_run(argv, envp, timeout_ms, buf, size);
}

static void a_helper_has_the_environment_and_its_output_is_read(void **state)
{
    char buf[64];

    assert_int_equal(run("printf $GIVEN", 30000, buf, sizeof(buf)), 3);
    assert_memory_equal(buf, "yes", 3);
    assert_int_equal(run("printf 1234567", 30000, buf, 8), 7);
}

static void a_helper_that_fails_is_told(void **state)
{
    char *none[] = {"/nonexistent/tide-slurm", NULL}, *envp[] = {NULL};
    char buf[64];

    assert_int_equal(run("printf half; exit 1", 30000, buf, sizeof(buf)), -ECHILD);
    assert_int_equal(run("kill -9 $$", 30000, buf, sizeof(buf)), -ECHILD);
    assert_int_equal(helper_run(none, envp, 30000, buf, sizeof(buf)), -ECHILD);
    assert_int_equal(run("printf 12345678", 30000, buf, 8), -EMSGSIZE);
}

static void a_helper_that_takes_too_long_is_killed_with_what_it_started(void **state)
{
    char buf[64];

    assert_int_equal(run("sleep 1000", 100, buf, sizeof(buf)), -ETIMEDOUT);
    assert_int_equal(run("exec >&-; sleep 1000", 100, buf, sizeof(buf)), -ETIMEDOUT);
    /* A child that outlives the shell keeps the pipe open: it would be read for ever. */
    assert_int_equal(run("sleep 1000 & exit 0", 100, buf, sizeof(buf)), -ETIMEDOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_has_two_numbers),
        cmocka_unit_test(other_texts_are_no_range),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(records_set_and_remove),
        cmocka_unit_test(a_cut_answer_is_no_answer),
        cmocka_unit_test(a_helper_has_the_environment_and_its_output_is_read),
        cmocka_unit_test(a_helper_that_fails_is_told),
        cmocka_unit_test(a_helper_that_takes_too_long_is_killed_with_what_it_started),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
