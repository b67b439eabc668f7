/* SPDX-License-Identifier: Apache-2.0 */
/* The clock by which old records go: it follows no jump, and catches up by and by. */
#include "test_hub_store.h"

#include "base/clock.h"
#include "hub/store/retention.h"

#define YEARS (20 * 366 * DAY_MS)

static struct retention r;

static void begin(struct store *s, int64_t now_ms)
{
    if (retention_begin(&r, dir, s, now_ms, 0, &err) < 0)
        fail_msg("%s", err.text);
}

/* The time by which records are old, so long after begin(). */
static int64_t after(struct store *s, uint64_t boot_s, int64_t now_ms)
{
    if (retention_run(&r, s, now_ms, boot_s * NS_PER_S, &err) < 0)
        fail_msg("%s", err.text);
    return retention_ms(&r, now_ms);
}

static void a_clock_that_jumps_lets_go_what_time_that_was_seen_justifies(void **state)
{
    struct store *s = opened();

    begin(s, NOON);
    assert_int_equal(after(s, 60, NOON + 60000), NOON + 60000);
    assert_int_equal(after(s, 120, NOON + YEARS), NOON + 180000);
    assert_int_equal(after(s, 3720, NOON + YEARS + 3600000), NOON + 7380000);
    assert_int_equal(after(s, 3780, NOON + 3780000), NOON + 3780000); /* it is set right */
    assert_int_equal(after(s, 3840, NOON - YEARS), NOON - YEARS);
    assert_int_equal(after(s, 3900, NOON + 3900000), NOON + 3900000);
    store_close(s);
}

static void time_in_which_the_hub_was_off_is_caught_up_with(void **state)
{
    struct store *s = opened();

    begin(s, NOON);
    assert_int_equal(after(s, 3600, NOON + 3600000), NOON + 3600000);
    begin(s, NOON + 30 * DAY_MS);
    assert_int_equal(after(s, 0, NOON + 30 * DAY_MS), NOON + 3600000);
    assert_int_equal(after(s, 86400, NOON + 31 * DAY_MS), NOON + 3600000 + 2 * DAY_MS);
    assert_int_equal(after(s, 31 * 86400, NOON + 61 * DAY_MS), NOON + 61 * DAY_MS);
    store_close(s);
}

static void who_removes_the_file_says_that_the_clock_is_right(void **state)
{
    int64_t first = NOON - 1000 * DAY_MS; /* the machine began without the time */
    struct outbox_record one = record("area", 7, 1, 0, 1000);
    struct store *s = opened();

    begin(s, first);
    assert_int_equal(after(s, 60, first + 60000), first + 60000);
    put(s, "lab3", &one, 1);
    assert_int_equal(after(s, 120, NOON + 5000), first + 180000);
    assert_int_equal(unlink(r.path), 0);
    assert_int_equal(after(s, 121, NOON + 5000), NOON + 2000); /* by the newest record */
    assert_int_equal(access(r.path, F_OK), 0);
    begin(s, NOON + 5000);
    assert_int_equal(retention_ms(&r, NOON + YEARS), NOON + 2000);
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_clock_that_jumps_lets_go_what_time_that_was_seen_justifies),
        TEST(time_in_which_the_hub_was_off_is_caught_up_with),
        TEST(who_removes_the_file_says_that_the_clock_is_right),
    };

    server = getenv("TIDE_TEST_POSTGRES");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
