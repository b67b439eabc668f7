/* SPDX-License-Identifier: Apache-2.0 */
/* src/kube: the work queue, the lease's decisions and repeated events, on a clock of the test's. */
#include "base/clock.h"
#include "kube/api/client.h"
#include "kube/api/lease.h"
#include "kube/shell/action_queue.h"
#include "kube/shell/event_series.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S NS_PER_S

/* ---- work queue ---- */

static void a_key_is_worked_on_once_at_a_time(void **state)
{
    struct work_queue *q = work_new(S, 8 * S);

    (void)state;
    assert_true(work_begin(q, "a", 0));
    assert_false(work_begin(q, "a", 0));
    assert_true(work_begin(q, "b", 0));
    assert_int_equal(work_busy(q), 2);
    assert_true(work_end(q, "a", true, 0));
    assert_false(work_end(q, "b", true, 0));
    assert_true(work_begin(q, "a", 0));
    work_free(q);
}

static void failures_wait_twice_as_long_up_to_the_cap(void **state)
{
    const uint64_t pauses[] = {1, 2, 4, 8, 8, 8};
    struct work_queue *q = work_new(S, 8 * S);
    uint64_t now = 100 * S;

    (void)state;
    for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
        assert_true(work_begin(q, "a", now));
        work_end(q, "a", false, now);
        assert_int_equal(work_failures(q, "a"), i + 1);
        assert_int_equal(work_next_ns(q), now + pauses[i] * S);
        assert_false(work_begin(q, "a", now + pauses[i] * S - 1));
        now += pauses[i] * S;
    }
    assert_true(work_begin(q, "a", now));
    work_end(q, "a", true, now);
    assert_int_equal(work_failures(q, "a"), 0);
    assert_int_equal(work_next_ns(q), UINT64_MAX);
    work_free(q);
}

static void a_failure_without_anything_left_to_do_is_forgotten_when_it_is_due(void **state)
{
    struct work_queue *q = work_new(S, 8 * S);

    (void)state;
    assert_true(work_begin(q, "a", 0));
    work_end(q, "a", false, 0);
    work_settle(q, S / 2);
    assert_int_equal(work_next_ns(q), S);
    work_settle(q, S);
    assert_int_equal(work_next_ns(q), UINT64_MAX);
    assert_int_equal(work_failures(q, "a"), 0);
    work_free(q);
}

/* ---- lease ---- */

static struct lease_rule new_rule(const char *me)
{
    struct lease_rule rule = {.times = {15 * S, 10 * S, 2 * S}, .exists = true};

    snprintf(rule.me, sizeof(rule.me), "%s", me);
    return rule;
}

static json_t *record(const char *holder, const char *renewed, int length_s, int version)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", version);
    return json_pack("{s:{s:s},s:{s:s,s:s,s:i,s:i}}", "metadata", "resourceVersion", text, "spec",
                     "holderIdentity", holder, "renewTime", renewed, "leaseDurationSeconds",
                     length_s, "leaseTransitions", 3);
}

static void saw(struct lease_rule *rule, const char *holder, const char *renewed, uint64_t now)
{
    static int version;
    json_t *r = record(holder, renewed, 15, ++version);

    lease_saw(rule, r, now);
    json_decref(r);
}

static void a_holder_is_dead_when_its_record_stands_still(void **state)
{
    struct lease_rule rule = new_rule("me");

    (void)state;
    saw(&rule, "other", "t1", 100 * S);
    assert_int_equal(lease_next(&rule, 114 * S), LEASE_LOOK);
    saw(&rule, "other", "t2", 114 * S);
    saw(&rule, "other", "t2", 120 * S);
    assert_int_equal(lease_next(&rule, 128 * S), LEASE_LOOK);
    assert_int_equal(lease_next(&rule, 129 * S), LEASE_TAKE);
}

static void what_others_clocks_say_does_not_count(void **state)
{
    struct lease_rule rule = new_rule("me");

    (void)state;
    saw(&rule, "other", "1970-01-01T00:00:00.000000Z", 100 * S);
    assert_int_equal(lease_next(&rule, 101 * S), LEASE_LOOK);
    saw(&rule, "other", "2999-01-01T00:00:00.000000Z", 102 * S);
    assert_int_equal(lease_next(&rule, 117 * S), LEASE_TAKE);
}

static void a_free_lease_is_taken_and_a_missing_one_made(void **state)
{
    struct lease_rule rule = new_rule("me");
    json_t *body;

    (void)state;
    lease_saw(&rule, NULL, S);
    assert_int_equal(lease_next(&rule, S), LEASE_CREATE);
    saw(&rule, "", "t", 2 * S);
    assert_int_equal(lease_next(&rule, 2 * S), LEASE_TAKE);
    body = lease_write(&rule, LEASE_TAKE, "name", 0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(body, "metadata"), "resourceVersion")),
        rule.version);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(body, "spec"), "leaseTransitions")), 4);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(body, "spec"), "renewTime")),
        "1970-01-01T00:00:00.000000Z");
    json_decref(body);
}

static void it_is_held_from_the_sending_of_the_last_good_write_and_no_longer(void **state)
{
    struct lease_rule rule = new_rule("me");
    json_t *mine = record("me", "t1", 15, 7);

    (void)state;
    assert_false(lease_held(&rule, 0));
    lease_wrote(&rule, mine, 100 * S, 104 * S);
    assert_true(lease_held(&rule, 110 * S - 1));
    assert_false(lease_held(&rule, 110 * S));
    assert_int_equal(lease_next(&rule, 110 * S), LEASE_RENEW);
    json_decref(mine);
}

static void it_is_lost_when_somebody_else_is_seen_with_it_or_it_is_gone(void **state)
{
    struct lease_rule rule = new_rule("me");
    json_t *mine = record("me", "t1", 15, 7);

    (void)state;
    lease_wrote(&rule, mine, 100 * S, 100 * S);
    saw(&rule, "other", "t2", 101 * S);
    assert_false(lease_held(&rule, 101 * S));
    lease_wrote(&rule, mine, 200 * S, 200 * S);
    lease_saw(&rule, NULL, 201 * S);
    assert_false(lease_held(&rule, 201 * S));
    json_decref(mine);
}

/* A lease record with a huge or nonsensical duration must not lock out other replicas. */
static void a_holder_cannot_ask_for_ever(void **state)
{
    const int lengths[] = {0, -5, 1 << 30};

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct lease_rule rule = new_rule("me");
        json_t *r = record("other", "t", lengths[i], 1);

        lease_saw(&rule, r, 100 * S);
        assert_int_equal(lease_next(&rule, 115 * S), LEASE_TAKE);
        json_decref(r);
    }
}

/*
 * Three replicas against one record, with answers that are late, lost, or refused because another
 * was quicker, and replicas that sleep: at no moment do two hold it.
 */
static void never_do_two_hold_it(void **state)
{
    enum { N = 3, STEPS = 60000 };
    struct lease_rule rules[N];
    uint64_t asleep_until[N] = {0};
    json_t *truth = record("", "t0", 15, 1);
    unsigned seed = 11, version = 1, held_by_any = 0, changes = 0;
    uint64_t now = 1000 * S;
    int before = -1;

    (void)state;
    for (int i = 0; i < N; i++) {
        rules[i] = new_rule((const char *[]){"a", "b", "c"}[i]);
        lease_saw(&rules[i], truth, now);
    }
    for (unsigned step = 0; step < STEPS; step++) {
        int i = rand_r(&seed) % N, holders = 0, holder = -1;
        bool lost_answer = rand_r(&seed) % 8 == 0;
        uint64_t sent = now;

        now += (uint64_t)rand_r(&seed) % (2 * S);
        if (rand_r(&seed) % 40 == 0)
            asleep_until[i] = now + (uint64_t)(rand_r(&seed) % 30) * S;
        for (int n = 0; n < N; n++)
            if (now >= asleep_until[n] && lease_held(&rules[n], now)) {
                holders++;
                holder = n;
            }
        assert_true(holders <= 1);
        held_by_any += holders;
        changes += holder >= 0 && before >= 0 && holder != before;
        before = holder >= 0 ? holder : before;
        if (now < asleep_until[i])
            continue;
        enum lease_move move = lease_next(&rules[i], sent);
        char text[16];

        snprintf(text, sizeof(text), "%u", version);
        if (move == LEASE_LOOK || strcmp(rules[i].version, text) != 0) {
            if (!lost_answer)
                lease_saw(&rules[i], truth, now);
            continue;
        }
        json_t *body = lease_write(&rules[i], move, "l", step);

        snprintf(text, sizeof(text), "%u", ++version);
        json_object_set_new(json_object_get(body, "metadata"), "resourceVersion",
                            json_string(text));
        json_decref(truth);
        truth = body;
        if (!lost_answer)
            lease_wrote(&rules[i], truth, sent, now);
    }
    assert_true(held_by_any > STEPS / 3 && changes > 20);
    json_decref(truth);
}

/* ---- events ---- */

static enum event_series_move say(struct event_series_set *n, const char *text, const char *name,
                                  uint64_t now, struct event_series *ret)
{
    *ret = (struct event_series){.uid = "u", .reason = "R", .text = text};
    snprintf(ret->name, sizeof(ret->name), "%s", name);
    return event_series_next(n, ret, now);
}

static void what_is_said_again_is_counted(void **state)
{
    struct event_series_set *n = event_series_new();
    struct event_series note;

    (void)state;
    assert_int_equal(say(n, "x", "x1", 1000 * S, &note), EVENT_SERIES_NEW);
    assert_int_equal(say(n, "y", "y1", 1001 * S, &note), EVENT_SERIES_NEW);
    assert_int_equal(say(n, "x", "x2", 1002 * S, &note), EVENT_SERIES_HEARD);
    assert_int_equal(say(n, "x", "x3", 1070 * S, &note), EVENT_SERIES_AGAIN);
    assert_string_equal(note.name, "x1");
    assert_int_equal(note.count, 3);
    assert_int_equal(say(n, "x", "x4", 1071 * S, &note), EVENT_SERIES_HEARD);
    assert_int_equal(say(n, "x", "x5", 1071 * S + EVENT_SERIES_FORGET_S * S, &note),
                     EVENT_SERIES_NEW);
    event_series_free(n);
}

static void more_texts_than_are_remembered_are_written_each(void **state)
{
    struct event_series_set *n = event_series_new();
    struct event_series note;
    char text[16];

    (void)state;
    for (unsigned i = 0; i < 2 * EVENT_SERIES_MAX; i++) {
        snprintf(text, sizeof(text), "%u", i);
        assert_int_equal(say(n, text, text, (1000 + i) * S, &note), EVENT_SERIES_NEW);
    }
    assert_int_equal(say(n, text, "again", 2000 * S, &note), EVENT_SERIES_AGAIN);
    event_series_free(n);
}

/* ---- client ---- */

static void retry_after_is_read_in_seconds_and_capped(void **state)
{
    (void)state;
    assert_int_equal(client_retry_after("HTTP/1.1 429 x\r\nRetry-After: 3\r\n\r\n"), 3000);
    assert_int_equal(client_retry_after("HTTP/1.1 429 x\r\nretry-after:7\r\n"), 7000);
    assert_int_equal(client_retry_after("HTTP/1.1 429 x\r\nRetry-After: 99999999999\r\n"),
                     CLIENT_RETRY_MAX_MS);
    assert_int_equal(client_retry_after("HTTP/1.1 429 x\r\nRetry-After: Fri, 1 Jan\r\n"), 0);
    assert_int_equal(client_retry_after("HTTP/1.1 429 Retry-After: 3\r\n\r\n"), 0);
    assert_int_equal(client_retry_after(""), 0);
}

static void names_are_escaped_for_paths(void **state)
{
    char text[16];

    (void)state;
    assert_int_equal(client_escape("a/b?c", text, sizeof(text)), 0);
    assert_string_equal(text, "a%2Fb%3Fc");
    assert_true(client_escape("////////", text, sizeof(text)) < 0);
    assert_true(client_escape("aaaaaaaaaaaaaaaaaaaa", text, sizeof(text)) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_worked_on_once_at_a_time),
        cmocka_unit_test(failures_wait_twice_as_long_up_to_the_cap),
        cmocka_unit_test(a_failure_without_anything_left_to_do_is_forgotten_when_it_is_due),
        cmocka_unit_test(a_holder_is_dead_when_its_record_stands_still),
        cmocka_unit_test(what_others_clocks_say_does_not_count),
        cmocka_unit_test(a_free_lease_is_taken_and_a_missing_one_made),
        cmocka_unit_test(it_is_held_from_the_sending_of_the_last_good_write_and_no_longer),
        cmocka_unit_test(it_is_lost_when_somebody_else_is_seen_with_it_or_it_is_gone),
        cmocka_unit_test(a_holder_cannot_ask_for_ever),
        cmocka_unit_test(never_do_two_hold_it),
        cmocka_unit_test(what_is_said_again_is_counted),
        cmocka_unit_test(more_texts_than_are_remembered_are_written_each),
        cmocka_unit_test(retry_after_is_read_in_seconds_and_capped),
        cmocka_unit_test(names_are_escaped_for_paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
