/* SPDX-License-Identifier: Apache-2.0 */
/* The single rules of a parent's book of leases; the world around it is test_power_lease.c's. */
#include "power/division/demand.h"
#include "power/division/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "power/cap/caps.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)
#define TERM   (31 * SECOND) /* a lease has ended everywhere by then */

static struct lease two[2];
static struct lease_book book;

static struct lease_message next_message(uint64_t now, uint32_t wanted)
{
    struct lease_message m = {0};
    uint32_t i = 99;

    assert_true(lease_next(&book, now, &i, &m));
    assert_int_equal(i, wanted);
    return m;
}

static void no_more_messages(uint64_t now)
{
    assert_false(lease_next(&book, now, &(uint32_t){0}, &(struct lease_message){0}));
}

static void acknowledge(uint64_t now, uint32_t i, const struct lease_message *m)
{
    lease_ack(&book, i, m->boot, m->number, m->uw, now);
}

static void both_acknowledge(uint64_t now)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct lease_message m = next_message(now, i);

        acknowledge(now, i, &m);
    }
}

/* Two children with floors of 10, both heard at 1 s and acknowledged, 100 to divide. */
static void begin_book(uint32_t kind)
{
    struct lease_message m;

    memset(two, 0, sizeof(two));
    two[0].floor_uw = two[1].floor_uw = 10;
    two[0].kind = two[1].kind = kind;
    book = (struct lease_book){.lease = two, .count = 2, .cap_uw = 100};
    for (uint32_t i = 0; i < 2; i++) {
        lease_ask(&book, i, 7 + i, 5000, SECOND);
        m = next_message(SECOND, i);
        assert_int_equal(m.uw, 10);
        acknowledge(SECOND, i, &m);
    }
    lease_want(&book, (uint64_t[]){60, 40}, SECOND);
    both_acknowledge(SECOND);
    assert_int_equal(lease_sum(&book, SECOND), 100);
}

static void a_lease_echoes_the_ask(void **arg)
{
    struct lease_message m;

    begin_book(CAP_BREAKER);
    lease_ask(&book, 1, 8, 6000, 5 * SECOND);
    m = next_message(5 * SECOND, 1);
    assert_int_equal(m.boot, 8);
    assert_int_equal(m.stamp_ns, 6000);
    assert_int_equal(m.uw, 40);
    assert_int_equal(m.floor_uw, 10);
    assert_int_equal(m.ttl_ms, LEASE_TTL_MS);
}

static void an_offer_is_repeated_until_acknowledged(void **arg)
{
    struct lease_message first, again;

    begin_book(CAP_BREAKER);
    lease_ask(&book, 0, 7, 6000, 5 * SECOND);
    first = next_message(5 * SECOND, 0);
    no_more_messages(5900 * MS);
    no_more_messages(5999 * MS);
    again = next_message(6 * SECOND, 0);
    assert_memory_equal(&first, &again, sizeof(first));
    acknowledge(6100 * MS, 0, &first);
    no_more_messages(9 * SECOND);
}

static void watts_move_after_the_acknowledgement_only(void **arg)
{
    struct lease_message m;

    begin_book(CAP_BREAKER);
    lease_want(&book, (uint64_t[]){20, 80}, 2 * SECOND);
    m = next_message(2 * SECOND, 0);
    assert_int_equal(m.uw, 20);
    no_more_messages(2 * SECOND);
    assert_int_equal(lease_counts(&book, 0, 2 * SECOND), 60);
    m.number--; /* an older lease's */
    acknowledge(2100 * MS, 0, &m);
    lease_want(&book, (uint64_t[]){20, 80}, 2100 * MS);
    assert_int_equal(lease_counts(&book, 1, 2100 * MS), 40);
    m.number++;
    acknowledge(2200 * MS, 0, &m);
    lease_want(&book, (uint64_t[]){20, 80}, 2200 * MS);
    m = next_message(2200 * MS, 1);
    assert_int_equal(m.uw, 80);
    assert_int_equal(lease_sum(&book, 2200 * MS), 100);
}

static void watts_move_when_the_old_lease_has_ended(void **arg)
{
    uint64_t end = SECOND + 30600 * MS + 125 * MS;

    begin_book(CAP_BREAKER);
    lease_ask(&book, 1, 8, 6000, 25 * SECOND);
    lease_want(&book, (uint64_t[]){20, 80}, 25 * SECOND);
    assert_int_equal(lease_sum(&book, end - 1), 100);
    assert_int_equal(lease_counts(&book, 0, end), 10); /* it never asked again */
    assert_int_equal(lease_sum(&book, end), 50);
}

static void an_ended_lease_begins_again_at_the_floor(void **arg)
{
    begin_book(CAP_BREAKER);
    lease_ask(&book, 0, 7, 90000, 60 * SECOND);
    assert_int_equal(next_message(60 * SECOND, 0).uw, 10);
    assert_int_equal(lease_sum(&book, 60 * SECOND), 20);
}

static void an_old_ask_lengthens_nothing(void **arg)
{
    begin_book(CAP_BREAKER);
    lease_ask(&book, 0, 7, 5000, 20 * SECOND);
    lease_ask(&book, 0, 7, 4000, 20 * SECOND);
    no_more_messages(20 * SECOND);
    assert_int_equal(lease_counts(&book, 0, 32 * SECOND), 10);
}

static void what_a_free_child_draws_counts(void **arg)
{
    begin_book(CAP_BUDGET);
    lease_seen(&book, 0, 75, 30 * SECOND);
    assert_int_equal(lease_counts(&book, 0, 30 * SECOND), 60);
    assert_int_equal(lease_counts(&book, 0, 40 * SECOND), 75); /* the lease has ended */
    lease_ask(&book, 0, 7, 90000, 50 * SECOND);
    assert_int_equal(lease_counts(&book, 0, 50 * SECOND), 75); /* it does not obey yet */
}

static void a_defiant_child_counts_with_what_it_draws(void **arg)
{
    begin_book(CAP_BREAKER);
    for (uint64_t s = 2; s <= 11; s++)
        lease_seen(&book, 0, 90, s * SECOND);
    assert_int_equal(lease_counts(&book, 0, 11 * SECOND), 60);
    lease_seen(&book, 0, 90, 12 * SECOND);
    assert_int_equal(lease_counts(&book, 0, 12 * SECOND), 90);
    assert_true(two[0].defiant);
    for (uint64_t s = 13; s <= 72; s++)
        lease_seen(&book, 0, 10, s * SECOND);
    assert_true(two[0].defiant);
    lease_seen(&book, 0, 10, 73 * SECOND);
    assert_false(two[0].defiant);
}

static void what_a_defiant_child_drew_counts_for_a_minute(void **arg)
{
    begin_book(CAP_BREAKER);
    for (uint64_t s = 2; s <= 12; s++)
        lease_seen(&book, 0, 90, s * SECOND);
    for (uint64_t s = 13; s <= 71; s++)
        lease_seen(&book, 0, 10, s * SECOND);
    assert_int_equal(lease_counts(&book, 0, 71 * SECOND), 90);
    lease_seen(&book, 0, 70, 72 * SECOND);
    assert_int_equal(lease_counts(&book, 0, 72 * SECOND), 70);
    lease_seen(&book, 0, 80, 73 * SECOND);
    lease_seen(&book, 0, 65, 74 * SECOND);
    assert_int_equal(lease_counts(&book, 0, 74 * SECOND), 80);
}

static void after_a_restart_stored_offers_count_another_term(void **arg)
{
    begin_book(CAP_BREAKER);
    lease_want(&book, (uint64_t[]){20, 40}, 20 * SECOND); /* not acknowledged */
    lease_recover(&book, true, 0);                        /* another boot's clock */
    assert_int_equal(lease_sum(&book, 30 * SECOND), 100);
    assert_int_equal(lease_sum(&book, 31 * SECOND), 20);
    lease_ask(&book, 0, 7, 6000, 10 * SECOND);
    assert_int_equal(lease_counts(&book, 0, 10 * SECOND), 60);
}

/* Its watts have gone to another child since: a restart does not lend them twice. */
static void a_restart_does_not_revive_an_ended_lease(void **arg)
{
    struct lease_message m;

    begin_book(CAP_BREAKER);
    lease_ask(&book, 1, 8, 30000, 30 * SECOND); /* child 0 is gone */
    m = next_message(30 * SECOND, 1);
    acknowledge(30 * SECOND, 1, &m);
    lease_want(&book, (uint64_t[]){60, 90}, 35 * SECOND);
    m = next_message(35 * SECOND, 1);
    assert_int_equal(m.uw, 90);
    lease_recover(&book, true, 40 * SECOND);
    assert_int_equal(lease_sum(&book, 40 * SECOND), 100);
    lease_ask(&book, 0, 7, 60000, 41 * SECOND);
    assert_int_equal(next_message(41 * SECOND, 0).uw, 10);
}

static void without_its_file_a_parent_is_silent_for_a_term(void **arg)
{
    begin_book(CAP_BREAKER);
    memset(two, 0, sizeof(two));
    lease_recover(&book, false, 100 * SECOND);
    lease_ask(&book, 0, 7, 6000, 101 * SECOND);
    no_more_messages(101 * SECOND);
    lease_ask(&book, 0, 7, 6500, 130724 * MS);
    no_more_messages(130724 * MS);
    lease_ask(&book, 0, 7, 7000, 131 * SECOND);
    next_message(131 * SECOND, 0);
}

static void silence_begins_again_with_another_restart(void **arg)
{
    begin_book(CAP_BREAKER);
    lease_recover(&book, false, 100 * SECOND);
    lease_recover(&book, true, 1 * SECOND); /* another boot's clock */
    lease_ask(&book, 0, 7, 6000, 31 * SECOND);
    no_more_messages(31 * SECOND);
    lease_ask(&book, 0, 7, 7000, 32 * SECOND);
    next_message(32 * SECOND, 0);
}

/* An ask that came in the silence is answered by no old offer. */
static void an_offer_that_has_ended_is_not_sent(void **arg)
{
    begin_book(CAP_BREAKER);
    lease_want(&book, (uint64_t[]){20, 40}, 20 * SECOND); /* never sent */
    lease_recover(&book, true, 20 * SECOND);
    book.silent_until_ns = 30 * SECOND;
    lease_ask(&book, 0, 7, 6000, 29 * SECOND);
    no_more_messages(31 * SECOND);
}

static void another_boots_acknowledgement_is_ignored(void **arg)
{
    struct lease_message m;

    begin_book(CAP_BREAKER);
    lease_want(&book, (uint64_t[]){20, 40}, 2 * SECOND);
    m = next_message(2 * SECOND, 0);
    m.boot = 99;
    acknowledge(2 * SECOND, 0, &m);
    assert_int_equal(lease_counts(&book, 0, 2 * SECOND), 60);
}

/* The first two of three children share 50 of 100. */
static void a_group_bounds_what_is_in_it(void **arg)
{
    struct lease_group group[2] = {{LEASE_NO_GROUP, DEMAND_MAX, 0}, {0, 50, 0}};
    struct lease three[3] = {{.group = 1, .floor_uw = 10}, {.group = 1}, {.group = 0}};
    uint64_t want[3] = {40, 40, 100}, now = SECOND;
    struct lease_message m;
    uint32_t i;

    book =
        (struct lease_book){.lease = three, .count = 3, .group = group, .groups = 2, .cap_uw = 100};
    for (i = 0; i < 3; i++)
        lease_ask(&book, i, 7 + i, 5000, now);
    for (int turn = 0; turn < 4; turn++) {
        while (lease_next(&book, now, &i, &m))
            acknowledge(now, i, &m);
        lease_want(&book, want, now);
    }
    assert_int_equal(three[0].offer_uw, 40);
    assert_int_equal(three[1].offer_uw, 10);
    assert_int_equal(three[2].offer_uw, 50);
    assert_int_equal(lease_group_sum(&book, 1, now), 50);
    assert_int_equal(lease_group_sum(&book, 0, now), 100);
    want[0] = 15; /* what the first gives back goes to the second when it is acknowledged */
    lease_want(&book, want, now);
    assert_int_equal(lease_group_sum(&book, 1, now), 50);
    assert_true(lease_next(&book, now, &i, &m));
    acknowledge(now, i, &m);
    lease_want(&book, want, now);
    assert_int_equal(three[1].offer_uw, 35);
}

/* Until it has acknowledged a breaker's lease, a child that was free may be free again. */
static void a_child_becomes_a_breakers_with_its_acknowledgement(void **arg)
{
    struct lease_message m;

    begin_book(CAP_BUDGET);
    two[0].kind = CAP_BREAKER;
    lease_want(&book, (uint64_t[]){60, 40}, 2 * SECOND);
    m = next_message(2 * SECOND, 0);
    assert_int_equal(m.kind, CAP_BREAKER);
    assert_int_equal(m.uw, 60);
    no_more_messages(2 * SECOND);
    lease_seen(&book, 0, 80, 40 * SECOND); /* its lease has ended, and it draws what it likes */
    assert_int_equal(lease_counts(&book, 0, 40 * SECOND), 80);
    acknowledge(2 * SECOND, 0, &m);
    assert_int_equal(lease_counts(&book, 0, 40 * SECOND), 10);
}

/* Not the floor, for which a machine would stop its jobs. */
static void the_first_lease_is_what_is_wanted(void **arg)
{
    memset(two, 0, sizeof(two));
    two[0].floor_uw = two[1].floor_uw = 10;
    book = (struct lease_book){.lease = two, .count = 2, .cap_uw = 100};
    lease_ask(&book, 0, 7, 5000, SECOND);
    lease_want(&book, (uint64_t[]){60, 40}, SECOND);
    assert_int_equal(next_message(SECOND, 0).uw, 60);
}

/* Its own load lies above its lease, say, so that it never acknowledges. */
static void a_child_that_does_not_acknowledge_grows_when_there_is_room(void **arg)
{
    begin_book(CAP_BREAKER);
    lease_want(&book, (uint64_t[]){20, 40}, 2 * SECOND);
    assert_int_equal(next_message(2 * SECOND, 0).uw, 20);
    lease_want(&book, (uint64_t[]){60, 40}, 2999 * MS);
    no_more_messages(2999 * MS);
    lease_want(&book, (uint64_t[]){60, 80}, 3 * SECOND);
    assert_int_equal(next_message(3 * SECOND, 0).uw, 60);
    assert_int_equal(lease_counts(&book, 1, 3 * SECOND), 40); /* the other's did not move */
}

/* 1000 W each: a change of 3 W is one, unless a cap was lowered. */
/* A renewal makes the acknowledgement of a shrink late: the old watts count, and none are free. */
static void nobody_grows_while_more_counts_than_the_cap(void **arg)
{
    struct lease_message shrink, m;

    begin_book(CAP_BREAKER);
    book.cap_uw = 50;
    lease_want(&book, (uint64_t[]){30, 20}, 2 * SECOND);
    shrink = next_message(2 * SECOND, 0);
    next_message(2 * SECOND, 1);
    lease_ask(&book, 0, 7, 6000, 2100 * MS);
    acknowledge(2100 * MS, 0, &shrink);
    lease_want(&book, (uint64_t[]){35, 15}, 2100 * MS);
    assert_int_equal(lease_counts(&book, 0, 2100 * MS), 60);
    m = next_message(2100 * MS, 0);
    assert_int_equal(m.uw, 30);
    acknowledge(2100 * MS, 0, &m);
    m = next_message(2100 * MS, 1);
    assert_int_equal(m.uw, 15);
    acknowledge(2100 * MS, 1, &m);
    lease_want(&book, (uint64_t[]){35, 15}, 2100 * MS);
    assert_int_equal(next_message(2100 * MS, 0).uw, 35);
    assert_int_equal(lease_sum(&book, 2100 * MS), 50);
}

static void a_wish_that_is_hardly_another_changes_nothing(void **arg)
{
    struct lease_group group[] = {{LEASE_NO_GROUP, DEMAND_MAX, 0}};

    begin_book(CAP_BREAKER);
    book.cap_uw = 2000;
    lease_want(&book, (uint64_t[]){1000, 1000}, 2 * SECOND);
    both_acknowledge(2 * SECOND);
    lease_want(&book, (uint64_t[]){998, 1002}, 3 * SECOND);
    no_more_messages(3 * SECOND);
    lease_want(&book, (uint64_t[]){997, 1003}, 3 * SECOND);
    assert_int_equal(next_message(3 * SECOND, 0).uw, 997);
    book.cap_uw = 1999;
    lease_want(&book, (uint64_t[]){997, 999}, 4 * SECOND);
    assert_int_equal(next_message(4 * SECOND, 0).uw, 997); /* again */
    assert_int_equal(next_message(4 * SECOND, 1).uw, 999);
    book.cap_uw = 3000;
    book.group = group;
    book.groups = 1;
    group[0].cap_uw = 1990;
    lease_want(&book, (uint64_t[]){997, 998}, 5 * SECOND);
    assert_int_equal(next_message(5 * SECOND, 0).uw, 997);
    assert_int_equal(next_message(5 * SECOND, 1).uw, 998);
}

/* Each of many gives less than a 256th of its watts, which together are nearly all of one's. */
static void many_small_shrinks_make_room_for_one_that_grows(void **arg)
{
    static struct lease many[400];
    static uint64_t want[400];
    struct lease_group group[] = {{LEASE_NO_GROUP, 0, 0}};
    struct lease_message m;
    uint32_t i;

    for (unsigned grouped = 0; grouped < 2; grouped++) {
        memset(many, 0, sizeof(many));
        book = (struct lease_book){.lease = many, .count = 400, .group = group, .groups = grouped};
        group[0].cap_uw = 1000 + 399 * 10000;
        book.cap_uw = grouped ? DEMAND_MAX : group[0].cap_uw;
        for (i = 0; i < 400; i++) {
            lease_ask(&book, i, 7, 5000, SECOND);
            want[i] = i == 200 ? 1000 : 10000;
        }
        for (uint64_t now = SECOND; now < 10 * SECOND; now += SECOND) {
            lease_want(&book, want, now);
            while (lease_next(&book, now, &i, &m))
                acknowledge(now, i, &m);
            for (i = 0; now == 3 * SECOND && i < 400; i++)
                want[i] = 9977;
        }
        assert_int_equal(many[200].offer_uw, 9977);
        assert_true(lease_sum(&book, 10 * SECOND) <= group[0].cap_uw);
        assert_int_equal(many[399].offer_uw, 10000); /* no more than were needed */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_grows_while_more_counts_than_the_cap),
        cmocka_unit_test(a_wish_that_is_hardly_another_changes_nothing),
        cmocka_unit_test(many_small_shrinks_make_room_for_one_that_grows),
        cmocka_unit_test(a_lease_echoes_the_ask),
        cmocka_unit_test(an_offer_is_repeated_until_acknowledged),
        cmocka_unit_test(watts_move_after_the_acknowledgement_only),
        cmocka_unit_test(watts_move_when_the_old_lease_has_ended),
        cmocka_unit_test(an_ended_lease_begins_again_at_the_floor),
        cmocka_unit_test(the_first_lease_is_what_is_wanted),
        cmocka_unit_test(a_child_that_does_not_acknowledge_grows_when_there_is_room),
        cmocka_unit_test(an_old_ask_lengthens_nothing),
        cmocka_unit_test(what_a_free_child_draws_counts),
        cmocka_unit_test(a_defiant_child_counts_with_what_it_draws),
        cmocka_unit_test(what_a_defiant_child_drew_counts_for_a_minute),
        cmocka_unit_test(after_a_restart_stored_offers_count_another_term),
        cmocka_unit_test(a_restart_does_not_revive_an_ended_lease),
        cmocka_unit_test(without_its_file_a_parent_is_silent_for_a_term),
        cmocka_unit_test(silence_begins_again_with_another_restart),
        cmocka_unit_test(an_offer_that_has_ended_is_not_sent),
        cmocka_unit_test(another_boots_acknowledgement_is_ignored),
        cmocka_unit_test(a_group_bounds_what_is_in_it),
        cmocka_unit_test(a_child_becomes_a_breakers_with_its_acknowledgement),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
