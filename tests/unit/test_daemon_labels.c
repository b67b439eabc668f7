/* SPDX-License-Identifier: Apache-2.0 */
/* A container's labels: the requests that they express, and the handling of nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "daemon/containers/labels.h"

#include <string.h>

#define START_MS 1000000ull

static const struct job_request blank = {.asked = {.weight = 100, .placement = PLACEMENT_SHARED}};
static char note[JOB_REASON_MAX];

static struct job_request parse(const struct engine_label *labels, size_t n)
{
    struct job_request req = blank;

    labels_parse(labels, n, START_MS, &req, note, sizeof(note));
    return req;
}

static struct job_request parse_one(const char *key, const char *value)
{
    struct engine_label label = {key, value};

    return parse(&label, 1);
}

static void every_label_sets_its_member(void **unused)
{
    static const struct engine_label labels[] = {{"com.docker.compose.service", "train"},
                                                 {"io.threadtide.min", "2"},
                                                 {"io.threadtide.max", "6"},
                                                 {"io.threadtide.weight", "250"},
                                                 {"io.threadtide.priority", "-7"},
                                                 {"io.threadtide.class", "3"},
                                                 {"io.threadtide.request", "4"},
                                                 {"io.threadtide.memory", "1.5G"},
                                                 {"io.threadtide.placement", "exclusive"},
                                                 {"io.threadtide.deadline", "1h30min"},
                                                 {"io.threadtide.slo", "p99=50ms"},
                                                 {"io.threadtide.sized", "3"}};
    struct job_request req = parse(labels, ARRAY_LEN(labels));

    assert_string_equal(note, "");
    assert_int_equal(req.asked.min, 2);
    assert_int_equal(req.asked.max, 6);
    assert_int_equal(req.asked.weight, 250);
    assert_int_equal(req.asked.priority, -7);
    assert_int_equal(req.asked.class, 3);
    assert_int_equal(req.asked.request, 4);
    assert_int_equal(req.asked.memory_bytes, UINT64_C(3) << 29);
    assert_int_equal(req.asked.placement, PLACEMENT_EXCLUSIVE);
    assert_int_equal(req.asked.deadline_ms, START_MS + 5400000);
    assert_int_equal(req.asked.slo_us, 50000);
    assert_int_equal(req.sized, 3);
}

static void a_start_with_no_number_of_threads_is_left_out(void **unused)
{
    static const char *const wrong[] = {"", "0", "-1", "2x", " 2", "4097", "99999999999999999999"};

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        assert_int_equal(parse_one("io.threadtide.sized", wrong[i]).sized, 0);
        assert_non_null(strstr(note, "the number of threads that it was started with"));
    }
}

static void a_deadline_is_a_duration_or_a_date(void **unused)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } cases[] = {
        {"90s", START_MS + 90000},
        {"2026-11-21T18:30:00Z", 1795285800000},
        {"2026-11-21T18:30:00.25Z", 1795285800000},
        {"2026-11-21T19:30:00+01:00", 1795285800000},
        {"2026-11-21T13:00:00-05:30", 1795285800000},
        {"2026-11-21T18:30:00", 0},
        {"2026-11-21 18:30:00Z", 0},
        {"2026-11-21T18:30:00+0100", 0},
        {"2026-13-21T18:30:00Z", 0},
        {"1800-01-01T00:00:00Z", 0},
        {"", 0},
        {"-90s", 0},
        {"90", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job_request req = parse_one("io.threadtide.deadline", cases[i].text);

        assert_int_equal(req.asked.deadline_ms, cases[i].ms);
        assert_int_equal(*note == '\0', cases[i].ms > 0);
    }
}

static void nonsense_is_left_out_and_named(void **unused)
{
    static const char *const values[] = {"0",   "-1",  "4097", "1e2", "2 ", " 2",
                                         "two", "0x2", "2.5",  "",    "+2", "99999999999999999999"};

    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        struct job_request req = parse_one("io.threadtide.max", values[i]);

        assert_memory_equal(&req, &blank, sizeof(req));
        assert_non_null(strstr(note, "io.threadtide.max="));
        assert_non_null(strstr(note, "use 1 to 4096"));
    }
}

static void a_note_is_short_and_printable(void **unused)
{
    char value[100001];

    memset(value, '\033', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    parse_one("io.threadtide.weight", value);
    assert_true(strlen(note) < 100);
    assert_null(strchr(note, '\033'));
    parse_one("io.threadtide.\033[2J", "1");
    assert_string_equal(note, "there is no label io.threadtide.?[2J");
}

static void min_above_max_changes_neither(void **unused)
{
    static const struct engine_label labels[] = {{"io.threadtide.min", "5"},
                                                 {"io.threadtide.max", "4"}};
    struct job_request req = parse(labels, 2);

    assert_memory_equal(&req, &blank, sizeof(req));
    assert_non_null(strstr(note, "min is above max"));
}

static void the_first_fault_is_noted_and_the_others_are_counted(void **unused)
{
    static const struct engine_label labels[] = {
        {"io.threadtide.deadline", "a value that is cut, as it is long"},
        {"io.threadtide.max", "y"},
        {"io.threadtide.wieght", "2"},
        {"io.threadtide.min", "1"}};

    parse(labels, 4);
    assert_non_null(strstr(note, "deadline=a value that is cut, as"));
    assert_non_null(strstr(note, "T18:30:00Z; 2 more"));
    parse(labels + 1, 1);
    assert_string_equal(note, "label io.threadtide.max=y left out: use 1 to 4096");
}

static void elastic_is_who_has_a_label_of_ours(void **unused)
{
    static const struct {
        struct engine_label label;
        bool elastic;
    } cases[] = {
        {{"io.threadtide", "true"}, true},      {{"io.threadtide.min", "1"}, true},
        {{"io.threadtide.nonsense", ""}, true}, {{"io.threadtide", "false"}, false},
        {{"io.threadtides.min", "1"}, false},   {{"threadtide.min", "1"}, false},
        {{"xio.threadtide.min", "1"}, false},   {{"", "io.threadtide"}, false},
    };
    static const struct engine_label both[] = {{"io.threadtide.min", "1"},
                                               {"io.threadtide", "false"}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(labels_elastic(&cases[i].label, 1), cases[i].elastic);
    assert_false(labels_elastic(both, 2));
    assert_false(labels_elastic(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_label_sets_its_member),
        cmocka_unit_test(a_deadline_is_a_duration_or_a_date),
        cmocka_unit_test(nonsense_is_left_out_and_named),
        cmocka_unit_test(a_note_is_short_and_printable),
        cmocka_unit_test(min_above_max_changes_neither),
        cmocka_unit_test(a_start_with_no_number_of_threads_is_left_out),
        cmocka_unit_test(the_first_fault_is_noted_and_the_others_are_counted),
        cmocka_unit_test(elastic_is_who_has_a_label_of_ours),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
