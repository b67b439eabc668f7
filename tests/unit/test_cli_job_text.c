/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/views/job_text.h"

#include "base/cleanup.h"
#include "proto/attribute.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void assert_text(const char *json, enum job_field field, const char *expected)
{
    json_t *job = json_loads(json, 0, NULL);
    char text[64];

    assert_non_null(job);
    job_text(job, field, text, sizeof(text));
    assert_string_equal(text, expected);
    json_decref(job);
}

static void unknown_is_a_dash(void **state)
{
    for (enum job_field f = 0; f < JOB_FIELD_MAX; f++) {
        assert_text("{}", f, "-");
        assert_text("{\"progress\":null,\"pids\":[],\"name\":7,\"target\":\"x\"}", f, "-");
    }
}

static void pids_beyond_the_first_are_counted(void **state)
{
    assert_text("{\"pids\":[17]}", JOB_PIDS, "17");
    assert_text("{\"pids\":[17,18,19]}", JOB_PIDS, "17 +2");
}

static void oversubscribed_target_has_the_mark(void **state)
{
    assert_text("{\"target\":8,\"oversubscribed\":true}", JOB_TARGET, "8!");
    assert_text("{\"target\":8,\"oversubscribed\":false}", JOB_TARGET, "8");
    assert_text("{\"active\":8,\"oversubscribed\":true}", JOB_ACTIVE, "8");
}

static void allowed_is_a_decimal_number_of_cores(void **state)
{
    assert_text("{\"allowed\":2}", JOB_ALLOWED, "2");
    assert_text("{\"allowed\":1.5}", JOB_ALLOWED, "1.5");
}

static void progress_shows_total_and_unit_when_known(void **state)
{
    assert_text("{\"progress\":{\"done\":12,\"total\":50,\"unit\":\"steps\",\"rate\":3.14159}}",
                JOB_PROGRESS, "12/50 steps");
    assert_text("{\"progress\":{\"done\":12,\"total\":0,\"unit\":\"\"}}", JOB_PROGRESS, "12");
    assert_text("{\"progress\":{\"rate\":3.14159}}", JOB_RATE, "3.14/s");
    assert_text("{\"progress\":{\"rate\":1234567.8}}", JOB_RATE, "1234568/s");
}

static void watts_and_energy_have_three_digits_and_unknown_is_no_0(void **state)
{
    assert_text("{\"power_uw\":83500000}", JOB_POWER, "83.5 W");
    assert_text("{\"power_uw\":0}", JOB_POWER, "0 W");
    assert_text("{\"power_uw\":1210000000}", JOB_POWER, "1.21 kW");
    assert_text("{\"power_uw\":450000}", JOB_POWER, "450 mW");
    assert_text("{\"power_uw\":999960000}", JOB_POWER, "1000 W");
    assert_text("{\"power_uw\":null}", JOB_POWER, "-");
    assert_text("{\"energy_uj\":12340000}", JOB_ENERGY, "12.3 J");
    assert_text("{\"energy_uj\":0}", JOB_ENERGY, "0 J");
    assert_text("{\"energy_uj\":4210000000000}", JOB_ENERGY, "1.17 kWh");
    assert_text("{\"energy_uj\":3600000000}", JOB_ENERGY, "1.00 Wh");
    assert_text("{\"energy_low_uj\":1800000000,\"energy_high_uj\":7200000000}", JOB_BETWEEN,
                "0.50 to 2.00 Wh");
    assert_text("{\"energy_low_uj\":1,\"energy_high_uj\":null}", JOB_BETWEEN, "-");
    assert_text("{\"energy_basis\":\"modelled\"}", JOB_BASIS, "modelled");
}

static void who_has_not_begun_has_no_threads_but_a_time_of_waiting(void **state)
{
    static const enum job_field dashes[] = {JOB_CORES,  JOB_ALLOWED, JOB_TARGET,
                                            JOB_ACTIVE, JOB_MAX,     JOB_RATE};
    const char *queued =
        "{\"state\":\"queued\",\"submitted\":true,\"wait_s\":75.9,\"cores\":\"0-7\","
        "\"allowed\":8,\"target\":8,\"active\":8,\"max\":8,"
        "\"progress\":{\"rate\":2},\"priority\":0,\"request\":4}";

    for (size_t i = 0; i < ARRAY_LEN(dashes); i++)
        assert_text(queued, dashes[i], "-");
    assert_text(queued, JOB_PROGRESS, "waits 1min15s");
    assert_text(queued, JOB_WAITED, "1min15s");
    assert_text(queued, JOB_PRIORITY, "0");
    assert_text(queued, JOB_REQUEST, "4");
    assert_text("{\"state\":\"held\",\"target\":8}", JOB_TARGET, "-");
    assert_text("{\"state\":\"running\",\"target\":8,\"wait_s\":0}", JOB_TARGET, "8");
    assert_text("{\"state\":\"running\",\"submitted\":false,\"wait_s\":0}", JOB_WAITED, "-");
}

static void durations_read_as_they_are_given(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{-1, "0s"},         {0.9, "0s"},      {59.9, "59s"},    {60, "1min0s"},
                 {3599, "59min59s"}, {3600, "1h0min"}, {7500, "2h5min"}, {86399, "23h59min"},
                 {86400, "1d0h"},    {1e6, "11d13h"}};
    char text[32];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        job_text_duration(cases[i].seconds, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
    }
}

static void long_text_is_cut(void **state)
{
    json_t *job = json_pack("{s:s}", "name", "0123456789");
    char text[5];

    job_text(job, JOB_NAME, text, sizeof(text));
    assert_string_equal(text, "0123");
    json_decref(job);
}

static void assert_change(long from, long to, const char *expected)
{
    json_t *answer = json_pack("{s:I, s:I}", "from", (json_int_t)from, "to", (json_int_t)to);
    char text[64];

    job_text_change(answer, text, sizeof(text));
    assert_string_equal(text, expected);
    json_decref(answer);
}

static void change_is_told_in_words_that_fit_its_numbers(void **state)
{
    assert_change(4, 2, "4 -> 2 threads");
    assert_change(2, 1, "2 -> 1 thread");
    assert_change(1, 1, "stays at 1 thread");
    assert_change(3, 3, "stays at 3 threads");
    assert_change(0, 2, "2 threads");
    assert_change(0, 0, "automatic"); /* never "0 threads": nobody has none */
    assert_change(3, 0, "automatic");
}

static void a_split_names_each_process_and_what_it_uses(void **state)
{
    static const char text[] =
        "{\"split\": [{\"pid\": 17, \"name\": \"python\", \"threads\": 3, \"used\": 2.94},"
        "{\"pid\": 18, \"name\": \"python\", \"threads\": 1, \"used\": null}]}";
    json_t *split = json_loads(text, 0, NULL), *none = json_loads("{\"split\": null}", 0, NULL);
    char buf[128];

    assert_non_null(split);
    job_text_split(split, buf, sizeof(buf));
    assert_string_equal(buf, "3 python 17 (uses 2.9) + 1 python 18");
    job_text_split(split, buf, 12);
    assert_string_equal(buf, "3 python 17");
    job_text_split(none, buf, sizeof(buf));
    assert_string_equal(buf, "");
    json_decref(split);
    json_decref(none);
}

static void terms_name_each_attribute_that_is_a_number_by_its_option(void **state)
{
    json_t *job = json_pack("{ss si}", "placement", "shared", "weight", 100);
    char buf[JOB_TERMS_MAX];

    assert_non_null(job);
    job_text_terms(job, buf, sizeof(buf));
    assert_string_equal(buf, "shared, weight 100");
    for (each_attribute(a))
        json_object_set_new(job, a->shown ? a->shown : a->key, json_integer(7));
    json_object_set_new(job, "placement", json_string("quota"));
    job_text_terms(job, buf, sizeof(buf));
    assert_string_equal(buf, "quota, weight 7, min 7, max 7, priority 7, class 7, request 7");
    job_text_terms(job, buf, 20);
    assert_string_equal(buf, "quota, weight 7, mi");
    json_decref(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_is_a_dash),
        cmocka_unit_test(pids_beyond_the_first_are_counted),
        cmocka_unit_test(oversubscribed_target_has_the_mark),
        cmocka_unit_test(allowed_is_a_decimal_number_of_cores),
        cmocka_unit_test(progress_shows_total_and_unit_when_known),
        cmocka_unit_test(watts_and_energy_have_three_digits_and_unknown_is_no_0),
        cmocka_unit_test(who_has_not_begun_has_no_threads_but_a_time_of_waiting),
        cmocka_unit_test(durations_read_as_they_are_given),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(change_is_told_in_words_that_fit_its_numbers),
        cmocka_unit_test(a_split_names_each_process_and_what_it_uses),
        cmocka_unit_test(terms_name_each_attribute_that_is_a_number_by_its_option),
    };

    setenv("LC_ALL", "C", 1); /* arrows in ASCII */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
