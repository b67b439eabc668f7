/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of reasons and faults, and the sort below the policies. */
#include "policy/division/order.h"
#include "test_policy_build.h"

static const char *reason(enum policy_reason_code code, int64_t a, int64_t b, int64_t c, int64_t d)
{
    static char text[POLICY_TEXT_MAX];
    struct policy_reason r = {.code = code, .arg = {a, b, c, d}};
    size_t length = policy_reason_text(&r, NULL, text, sizeof(text));

    assert_int_equal(length, strlen(text));
    return text;
}

static void reasons_read_well(void **state)
{
    assert_string_equal(reason(POLICY_REASON_MINIMUM, 4000, 2000, 0, 0),
                        "minimum 4 raises the share of 2");
    assert_string_equal(reason(POLICY_REASON_MAXIMUM, 1000, 2666, 0, 0),
                        "maximum 1 cuts the share of 2.66");
    assert_string_equal(reason(POLICY_REASON_MAXIMUM, 1000, 0, 0, 0), "at its maximum of 1 core");
    assert_string_equal(reason(POLICY_REASON_NO_ROOM, POLICY_MCPU, 8000, 2500, 0),
                        "waits for cores: needs 8 cores, 2.5 cores free");
    assert_string_equal(reason(POLICY_REASON_NO_ROOM, POLICY_WORKER, 2, 1, 0),
                        "waits for workers: needs 2 workers, 1 worker free");
    assert_string_equal(reason(POLICY_REASON_TOO_LARGE, POLICY_MEMORY, GIB(3) / 2, 500, 0),
                        "needs 1.5 GiB, more than the 500 B there are");
    assert_string_equal(reason(POLICY_REASON_PREEMPTED, 17, 5, -2, 0),
                        "paused for job 17: priority 5 against -2");
    assert_string_equal(reason(POLICY_REASON_DEADLINE, 3000, 12340000000, 0, 0),
                        "3 cores to meet the deadline in 12.34 s");
    assert_string_equal(reason(POLICY_REASON_POWER_CAP, 90000000, 10000, 0, 0),
                        "power cap of 90 W allows 10 cores");
    assert_string_equal(reason(POLICY_REASON_LOCALITY, POLICY_NUMA, 1, 0, 0),
                        "kept together in NUMA node 1");
    assert_string_equal(reason(POLICY_REASON_WORKERS, 3, 185, 0, 0), "worker 3 gains 18.5 %");
    assert_string_equal(reason(POLICY_REASON_PINNED, 3000, POLICY_PIN_PROGRAM, 0, 0),
                        "pinned to 3 by the program");
}

static void another_job_is_called_what_the_caller_calls_it(void **state)
{
    static const char *const texts[POLICY_REASON_MAX] = {
        [POLICY_REASON_PREEMPTED] = "paused for cnn: priority 17 against 17",
        [POLICY_REASON_BEHIND] = "waits behind cnn",
        [POLICY_REASON_QUANTUM] = "ran for 0 s, now it is the turn of cnn",
    };

    for (uint32_t code = 0; code < POLICY_REASON_MAX; code++) {
        struct policy_reason r = {.code = code, .arg = {17, 17, 17, 17}};
        char text[POLICY_TEXT_MAX];
        uint64_t id;

        assert_int_equal(policy_reason_job(&r, &id), texts[code] != NULL);
        if (!texts[code])
            continue;
        assert_int_equal(id, 17);
        policy_reason_text(&r, "cnn", text, sizeof(text));
        assert_string_equal(text, texts[code]);
    }
}

/* The text names cores that others hold; with one job it speaks of no share. */
static void numbers_mean_something_to_the_reader(void **state)
{
    assert_string_equal(reason(POLICY_REASON_EQUAL_SHARE, 8000, 3, 8000, 0),
                        "equal share of 8 cores among 3 jobs");
    assert_string_equal(reason(POLICY_REASON_EQUAL_SHARE, 5000, 2, 8000, 0),
                        "equal share among 2 jobs of the 5 cores that others leave of 8");
    assert_string_equal(reason(POLICY_REASON_EQUAL_SHARE, 1000, 1, 2000, 0),
                        "the 1 core that others leave of 2");
    assert_string_equal(reason(POLICY_REASON_EQUAL_SHARE, 1000, 1, 1000, 0), "alone on 1 core");
    assert_string_equal(reason(POLICY_REASON_ONE_THREAD, 3, 2000, 2000, 0),
                        "one thread, as 3 jobs share 2 cores");
    assert_string_equal(reason(POLICY_REASON_ONE_THREAD, 1, 500, 500, 0),
                        "one thread, as 1 job shares 0.5 cores");
    assert_string_equal(reason(POLICY_REASON_ONE_THREAD, 3, 1000, 4000, 0),
                        "one thread, as 3 jobs share the 1 core that others leave of 4");
    assert_string_equal(reason(POLICY_REASON_ONE_THREAD, 1, 0, 2000, 0),
                        "one thread, as others leave none of 2 cores");
    assert_string_equal(reason(POLICY_REASON_MINIMA, 2000, 5000, 4000, 4000),
                        "minimum 2 kept, though the minima add up to 5 of 4 cores");
    assert_string_equal(reason(POLICY_REASON_MINIMA, 2000, 2000, 0, 4000),
                        "minimum 2 kept, though others leave 0 of 4 cores");
    assert_string_equal(
        reason(POLICY_REASON_MINIMA, 2000, 5000, 1000, 4000),
        "minimum 2 kept, though the minima add up to 5 and others leave 1 of 4 cores");
}

/* Whatever the arguments: a line of its own for every code, that fits. */
static void every_reason_and_fault_has_a_text(void **state)
{
    char seen[POLICY_REASON_MAX][POLICY_TEXT_MAX];

    for (int code = 0; code < POLICY_REASON_MAX; code++) {
        struct policy_reason r = {.code = code, .arg = {INT64_MIN, INT64_MAX, -1, INT64_MAX}};

        policy_reason_text(&r, NULL, seen[code], POLICY_TEXT_MAX);
        assert_true(strlen(seen[code]) > 3);
        assert_null(strpbrk(seen[code], "{}"));
        for (int other = 0; other < code; other++)
            assert_string_not_equal(seen[code], seen[other]);
        r.arg[0] = r.arg[1] = r.arg[2] = r.arg[3] = CORES(POLICY_CORES_MAX);
        r.used_mcpu = CORES(POLICY_CORES_MAX);
        assert_true(policy_reason_text(&r, NULL, seen[code], POLICY_TEXT_MAX) <
                    POLICY_TEXT_MAX - 1);
    }
    for (int code = 0; code < POLICY_FAULT_MAX; code++) {
        struct policy_fault f = {.code = code, .index = UINT32_MAX, .value = 1, .bound = GIB(64)};
        char text[POLICY_TEXT_MAX];

        assert_true(policy_fault_text(&f, text, sizeof(text)) < POLICY_TEXT_MAX - 1);
        assert_true(strncmp(text, "job 4294967295 of the snapshot: ", 32) == 0);
    }
}

static void texts_are_cut_at_the_buffer(void **state)
{
    struct policy_reason r = {.code = POLICY_REASON_HELD};
    char text[8] = "#######";

    assert_int_equal(policy_reason_text(&r, NULL, text, 5), 4);
    assert_string_equal(text, "held");
    assert_int_equal(text[5], '#');
    assert_int_equal(policy_reason_text(&r, NULL, text, 1), 0);
    assert_string_equal(text, "");
    assert_int_equal(policy_reason_text(&r, NULL, NULL, 0), 0);
}

static void faults_say_where_and_how_much(void **state)
{
    struct policy_fault fault = {.code = POLICY_FAULT_CAPACITY,
                                 .index = 2,
                                 .in_domain = true,
                                 .resource = POLICY_MCPU,
                                 .value = CORES(9),
                                 .bound = CORES(8)};
    char text[POLICY_TEXT_MAX];

    policy_fault_text(&fault, text, sizeof(text));
    assert_string_equal(text, "domain 2 of the snapshot: above the capacity, and nothing forces "
                              "it: 9 cores against 8 cores");
}

static void unknown_numbers_have_a_name_too(void **state)
{
    struct policy_reason r = {.code = 9999};
    char text[POLICY_TEXT_MAX];

    policy_reason_text(&r, NULL, text, sizeof(text));
    assert_string_equal(text, "?");
    assert_string_equal(policy_verb_name(POLICY_VERB_RESIZE), "resize");
    assert_string_equal(policy_verb_name(POLICY_VERB_MAX), "?");
}

static bool smaller_value(uint32_t a, uint32_t b, const void *arg)
{
    const uint32_t *value = arg;

    return value[a] != value[b] ? value[a] < value[b] : a < b;
}

static void sort_orders_every_array(void **state)
{
    uint32_t value[200], index[200], seed = 1;

    for (uint32_t count = 0; count <= 200; count++) {
        bool seen[200] = {false};

        for (uint32_t i = 0; i < count; i++) {
            seed = seed * 1664525 + 1013904223;
            value[i] = (seed >> 16) % (count % 3 ? 1000 : 4); /* with many equals, too */
            index[i] = count - 1 - i;
        }
        order_sort(index, count, smaller_value, value);
        for (uint32_t i = 0; i < count; i++) {
            assert_false(seen[index[i]]);
            seen[index[i]] = true;
            assert_true(i == 0 || smaller_value(index[i - 1], index[i], value));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasons_read_well),
        cmocka_unit_test(another_job_is_called_what_the_caller_calls_it),
        cmocka_unit_test(numbers_mean_something_to_the_reader),
        cmocka_unit_test(every_reason_and_fault_has_a_text),
        cmocka_unit_test(texts_are_cut_at_the_buffer),
        cmocka_unit_test(faults_say_where_and_how_much),
        cmocka_unit_test(unknown_numbers_have_a_name_too),
        cmocka_unit_test(sort_orders_every_array),
    };

    return cmocka_run_group_tests_name("policy text", tests, NULL, NULL);
}
