/* SPDX-License-Identifier: Apache-2.0 */
/* The lender's book on the disk, children that come and go, and what is sent when. */
#include "edge/lending.h"

#include "edge/payload.h"
#include "power/cap/caps.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64], path[96], said[512];
static struct lending *lending;
static struct lease_message got[2]; /* of a, b */
static int answer, sent;
static time_t later_s; /* so far ahead all clocks are */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = __real_clock_gettime(clock, ret);

    ret->tv_sec += later_s;
    return r;
}

static int on_send(void *arg, const char *child, const char *text)
{
    struct error err;

    if (answer == 0) {
        assert_int_equal(payload_lease_read(text, strlen(text), &got[child[0] - 'a'], &err), 0);
        sent++;
    }
    return answer;
}

static void on_say(void *arg, const char *child, const char *text)
{
    snprintf(said, sizeof(said), "%s: %s", child ? child : "", text);
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void begin(void)
{
    const struct lending_options options = {path, on_send, on_say, NULL};

    lending_free(lending);
    assert_int_equal(lending_new(&options, &lending), 0);
}

static void set_kind(uint64_t cap, const char *names, uint32_t kind)
{
    const struct divide_group all = {DIVIDE_NO_GROUP, cap, 0};
    struct lending_child child[2] = {0};
    uint32_t n = 0;

    for (; *names; names++, n++) {
        child[n].name[0] = *names;
        child[n].floor_uw = 10;
        child[n].kind = kind;
    }
    assert_int_equal(lending_set(lending, &all, 1, child, n), 0);
}

static void set(uint64_t cap, const char *names)
{
    set_kind(cap, names, CAP_BREAKER);
}

static int set_up(void **state)
{
    strcpy(dir, "/tmp/tide-lending-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/leases", dir);
    answer = sent = 0;
    later_s = 0;
    memset(got, 0, sizeof(got));
    lending = NULL;
    said[0] = '\0';
    return 0;
}

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(name);
}

static int tear_down(void **state)
{
    lending = lending_free(lending);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void write_book(const char *text)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void ask(const char *name)
{
    struct payload_ask a = {7, now_ns()};
    char *text = payload_ask_text(&a);

    assert_true(lending_got(lending, name, TOPIC_ASK, text, strlen(text)));
    free(text);
    lending_tick(lending);
}

static void acknowledge(const char *name)
{
    const struct lease_message *m = &got[name[0] - 'a'];
    struct payload_ack a = {m->boot, m->number, m->uw, true};
    char *text = payload_ack_text(&a);

    assert_true(lending_got(lending, name, TOPIC_ACK, text, strlen(text)));
    free(text);
    lending_tick(lending);
}

static void tell_demand(const char *name, const struct payload_demand *d)
{
    char *text = payload_demand_text(d);

    assert_true(lending_got(lending, name, TOPIC_DEMAND, text, strlen(text)));
    free(text);
    lending_tick(lending);
}

/* The child can use 1,000 uW more than it draws without work, and makes @value of them. */
static void tell(const char *name, uint64_t value)
{
    tell_demand(
        name, &(struct payload_demand){.demand = {.count = 2, .point = {{10, 0}, {1010, value}}}});
}

/* The child has no jobs: all it knows of its watts is what it draws. */
static void tell_draw(const char *name, uint64_t uw)
{
    tell_demand(name, &(struct payload_demand){.demand = {.count = 1, .point = {{uw, 0}}}});
}

/* The first book of all: nobody has a lease. */
static void begin_empty(void)
{
    write_book("threadtide leases 1 0 0\n");
    begin();
}

static void who_leaves_counts_until_its_lease_has_ended(void **state)
{
    begin_empty();
    set(100, "a");
    ask("a");
    acknowledge("a");
    assert_int_equal(got[0].uw, 100);
    acknowledge("a");
    set(100, "b"); /* a goes, with 100 in its hands */
    ask("b");
    acknowledge("b");
    acknowledge("b");
    assert_int_equal(got[1].uw, 10); /* its floor: more is not free */
    assert_int_equal(lending_sum(lending), 110);
    assert_false(lending_got(lending, "a", TOPIC_ASK, "{}", 2));
}

static void a_restart_counts_what_the_book_says_also_of_those_who_left(void **state)
{
    char text[256];
    FILE *f;

    begin_empty();
    set(100, "ab");
    ask("a");
    acknowledge("a");
    f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    begin();
    set(100, "b");
    assert_true(lending_sum(lending) >= 90);
    ask("b");
    acknowledge("b");
    assert_true(got[1].uw <= 10 + 100 - 90);
}

static void without_a_book_nobody_gets_anything_for_a_term(void **state)
{
    begin();
    assert_non_null(strstr(said, "which leases are in force is not known"));
    set(100, "a");
    ask("a");
    assert_int_equal(sent, 0);
}

static void a_book_that_nobody_wrote_so_is_not_believed(void **state)
{
    static const char *const bad[] = {
        "",
        "threadtide leases 1 5\n",
        "threadtide leases 1 5 0\na 1 2\n",
        "threadtide leases 1 5 0\nA_b 1 2 3 0\n",
        "threadtide leases 1 5 0\nb 1 2 3 0\na 1 2 3 0\n",
        "threadtide leases 1 5 0\na 1 2 3 0\na 1 2 3 0\n",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        said[0] = '\0';
        write_book(bad[i]);
        begin();
        if (!strstr(said, "which leases are in force is not known"))
            fail_msg("book %zu is believed", i);
    }
    said[0] = '\0';
    write_book("threadtide leases 1 5 0\na 1 20 30\nb 2 5 0 1\n"); /* also of before */
    begin();
    assert_string_equal(said, "");
    assert_int_equal(lending_sum(lending), 35);
}

/* An offer stands in the book before it is sent; without a disk nothing is sent. */
static void no_offer_goes_out_that_is_not_on_the_disk(void **state)
{
    begin_empty();
    set(100, "a");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    ask("a");
    assert_int_equal(sent, 0);
    assert_non_null(strstr(said, "no lease is given or renewed until then"));
    assert_int_equal(mkdir(dir, 0700), 0);
    lending_tick(lending);
    assert_int_equal(sent, 1);
}

static void what_cannot_be_sent_now_is_sent_later(void **state)
{
    begin_empty();
    set(100, "ab");
    answer = -EAGAIN;
    ask("a");
    ask("b");
    assert_int_equal(sent, 0);
    answer = 0;
    lending_send(lending);
    assert_int_equal(sent, 2);
    lending_send(lending);
    assert_int_equal(sent, 2);
}

static void two_programs_of_one_name_get_no_lease(void **state)
{
    struct payload_ask a = {.boot = 1};

    begin_empty();
    set(100, "a");
    for (int i = 0; i < 6; i++) {
        char *text;

        a.boot = 1 + (uint64_t)(i % 2);
        a.stamp_ns = now_ns();
        text = payload_ask_text(&a);
        lending_got(lending, "a", TOPIC_ASK, text, strlen(text));
        free(text);
        sent = 0;
        lending_tick(lending);
    }
    assert_int_equal(sent, 0);
    assert_non_null(strstr(said, "two programs say that they are a; neither"));
}

static uint64_t unheard(const char *name)
{
    uint64_t uw = 0;

    assert_true(lending_unheard(lending, name, &uw));
    return uw;
}

/* Under a budget a child that is cut off keeps to its last lease, and the lender remembers that. */
/* Two children that are alike share a cap of 1,000. */
static void begin_alike(void)
{
    begin_empty();
    set(1000, "ab");
    for (const char *name = "ab"; *name; name++) {
        char one[] = {*name, '\0'};

        ask(one);
        tell(one, 100000);
    }
    for (int i = 0; i < 4; i++) {
        acknowledge("a");
        acknowledge("b");
    }
    assert_int_equal(got[0].uw, 500);
    assert_int_equal(got[1].uw, 500);
}

static void curves_that_hardly_change_move_no_watts_for_a_while(void **state)
{
    int before;

    begin_alike();
    before = sent;
    for (uint64_t i = 0; i < 20; i++)
        tell(i % 2 ? "b" : "a", 100000 + i * 100);
    assert_int_equal(sent, before);
    tell("a", 102000);
    tell("b", 100000);
    later_s = 11;
    ask("b"); /* the same watts again, from now on */
    assert_true(got[1].uw < 500);
    acknowledge("b");
    ask("a");
    assert_true(got[0].uw > 500);
    assert_int_equal(got[0].uw + got[1].uw, 1000);
}

static void a_curve_that_is_clearly_another_one_counts_at_once(void **state)
{
    begin_alike();
    tell("a", 140000);
    assert_int_equal(got[1].uw, 10); /* its floor: the other makes more of every watt */
    acknowledge("b");
    assert_int_equal(got[0].uw, 990);
}

/* Two children without jobs share a cap of 1,000; @draw_uw: of b. */
static void begin_idle(uint64_t draw_uw)
{
    begin_empty();
    set(1000, "ab");
    ask("a");
    ask("b");
    tell_draw("a", 10);
    tell_draw("b", draw_uw);
    for (int i = 0; i < 4; i++) {
        acknowledge("a");
        acknowledge("b");
        assert_true(lending_sum(lending) <= 1000);
    }
}

static void children_without_jobs_have_their_draw_and_equal_parts_of_what_is_left(void **state)
{
    begin_idle(30);
    assert_int_equal(got[0].uw, 10 + 480);
    assert_int_equal(got[1].uw, 30 + 480);
}

static void a_child_without_jobs_gives_its_part_of_the_rest_to_one_with_a_curve(void **state)
{
    begin_idle(10);
    assert_int_equal(got[1].uw, 500);
    tell("a", 100000);
    assert_int_equal(got[0].uw, 500); /* nothing more before the other has given it up */
    assert_int_equal(got[1].uw, 10);
    assert_int_equal(lending_sum(lending), 1000);
    acknowledge("b");
    assert_int_equal(got[0].uw, 990);
    assert_int_equal(lending_sum(lending), 1000);
    acknowledge("a");
    tell_draw("a", 10); /* its jobs have ended */
    for (int i = 0; i < 3; i++) {
        assert_true(lending_sum(lending) <= 1000);
        acknowledge("a");
        acknowledge("b");
    }
    assert_int_equal(got[0].uw, 500);
    assert_int_equal(got[1].uw, 500);
}

static void a_part_of_the_rest_of_one_that_is_cut_off_counts_until_its_lease_has_ended(void **state)
{
    begin_idle(10);
    later_s = 20;
    tell("a", 100000);
    ask("a");
    acknowledge("a");
    assert_int_equal(got[0].uw, 500);
    assert_int_equal(lending_sum(lending), 1000);
    later_s = 40;
    ask("a");
    acknowledge("a");
    assert_int_equal(got[0].uw, 990);
    assert_int_equal(lending_sum(lending), 1000);
}

static void the_last_lease_of_a_child_is_known_after_its_end(void **state)
{
    uint64_t uw;

    begin_empty();
    set_kind(100, "ab", CAP_BUDGET);
    assert_false(lending_unheard(lending, "a", &uw)); /* it never had one */
    ask("a");
    acknowledge("a");
    assert_int_equal(unheard("a"), 90);
    later_s = 60;
    for (int i = 0; i < 2; i++)
        lending_tick(lending);
    assert_int_equal(unheard("a"), 90);
    assert_int_equal(lending_counts(lending, "a"), 10);
    ask("b"); /* the book is written anew, without a's lease */
    acknowledge("b");
    set_kind(50, "ab", CAP_BUDGET);
    assert_int_equal(unheard("a"), 90);
    begin();
    set_kind(50, "ab", CAP_BUDGET);
    lending_tick(lending);
    assert_int_equal(unheard("a"), 90);
    later_s = 120;
    lending_tick(lending);
    assert_int_equal(unheard("a"), 90);
}

/* A smaller lease that was never acknowledged may not have come. */
static void a_lease_that_may_be_the_last_one_counts(void **state)
{
    begin_empty();
    set_kind(100, "a", CAP_BUDGET);
    ask("a");
    acknowledge("a");
    set_kind(40, "a", CAP_BUDGET);
    lending_tick(lending);
    assert_int_equal(got[0].uw, 40);
    later_s = 60;
    lending_tick(lending);
    assert_int_equal(unheard("a"), 100);
}

static void a_breaker_s_child_falls_to_its_floor(void **state)
{
    begin_empty();
    set(100, "a");
    ask("a");
    acknowledge("a");
    assert_int_equal(unheard("a"), 100);
    later_s = 60;
    lending_tick(lending);
    assert_int_equal(unheard("a"), 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_leaves_counts_until_its_lease_has_ended),
        TEST(a_restart_counts_what_the_book_says_also_of_those_who_left),
        TEST(without_a_book_nobody_gets_anything_for_a_term),
        TEST(a_book_that_nobody_wrote_so_is_not_believed),
        TEST(no_offer_goes_out_that_is_not_on_the_disk),
        TEST(what_cannot_be_sent_now_is_sent_later),
        TEST(two_programs_of_one_name_get_no_lease),
        TEST(curves_that_hardly_change_move_no_watts_for_a_while),
        TEST(a_curve_that_is_clearly_another_one_counts_at_once),
        TEST(children_without_jobs_have_their_draw_and_equal_parts_of_what_is_left),
        TEST(a_child_without_jobs_gives_its_part_of_the_rest_to_one_with_a_curve),
        TEST(a_part_of_the_rest_of_one_that_is_cut_off_counts_until_its_lease_has_ended),
        TEST(the_last_lease_of_a_child_is_known_after_its_end),
        TEST(a_lease_that_may_be_the_last_one_counts),
        TEST(a_breaker_s_child_falls_to_its_floor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
