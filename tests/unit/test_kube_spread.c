/* SPDX-License-Identifier: Apache-2.0 */
/* src/kube/inject: when the agent is written into namespaces, on a client and a clock of ours. */
#include "base/clock.h"
#include "kube/inject/spread.h"
#include "kube/inject/token.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct {
    uint64_t now_s;
    int64_t calls; /* that were sent */
    int sends;     /* what client_send() returns instead; 0: a ticket */
    client_done *done;
    void *arg;
    int told;
    const char *problem;
} world;

/* For the whole program. */
int clock_gettime(clockid_t clock, struct timespec *ret)
{
    (void)clock;
    *ret = (struct timespec){.tv_sec = (time_t)world.now_s};
    return 0;
}

int64_t client_send(struct client *c, const struct client_request *request)
{
    (void)c;
    if (world.sends < 0)
        return world.sends;
    world.done = request->done;
    world.arg = request->arg;
    return ++world.calls;
}

void client_cancel(struct client *c, int64_t ticket)
{
    (void)c;
    (void)ticket;
}

static void answer(int code)
{
    const struct client_answer a = {.code = code, .text = "why"};

    world.done(world.arg, &a);
}

static void log_nothing(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

static void on_done(void *arg, const char *problem)
{
    (void)arg;
    world.told++;
    world.problem = problem;
}

static struct spread *begin(void)
{
    struct spread *s = spread_new(NULL, "agent", json_object(), log_nothing);

    memset(&world, 0, sizeof(world));
    world.now_s = 1000;
    assert_non_null(s);
    return s;
}

static int ask(struct spread *s)
{
    struct spread_wait *wait;
    struct error err = {0};

    return spread_to(s, "team-a", on_done, NULL, &wait, &err);
}

static void all_pods_of_a_new_namespace_wait_for_one_call(void **state)
{
    struct spread *s = begin();

    (void)state;
    for (int i = 0; i < 500; i++)
        assert_int_equal(ask(s), 1);
    assert_int_equal(world.calls, 1);
    answer(0);
    assert_int_equal(world.told, 500);
    assert_null(world.problem);
    assert_int_equal(ask(s), 0);
    assert_int_equal(world.calls, 1);
    spread_free(s);
}

static void what_is_there_is_refreshed_while_nobody_waits(void **state)
{
    static const int failures[] = {-ETIMEDOUT, -EREMOTEIO, -EBUSY, -EAGAIN};
    struct spread *s = begin();

    (void)state;
    assert_int_equal(ask(s), 1);
    answer(0);
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        world.now_s += SPREAD_FRESH_S + 1;
        assert_int_equal(ask(s), 0);
        assert_int_equal(ask(s), 0);
        assert_int_equal(world.calls, 2 + i);
        answer(failures[i]);
        assert_int_equal(ask(s), 0); /* it is there all the same, and asked again a while later */
        assert_int_equal(world.calls, 2 + i);
    }
    world.sends = -EBUSY;
    world.now_s += SPREAD_FRESH_S + 1;
    assert_int_equal(ask(s), 0);
    assert_int_equal(world.told, 1);
    assert_int_equal(spread_spaces(s), 1);
    spread_free(s);
}

static void a_namespace_that_is_gone_or_refuses_has_it_no_more(void **state)
{
    static const int failures[] = {-ENOENT, -EACCES, -ESHUTDOWN};

    (void)state;
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        struct spread *s = begin();

        assert_int_equal(ask(s), 1);
        answer(0);
        world.now_s += SPREAD_FRESH_S + 1;
        assert_int_equal(ask(s), 0);
        answer(failures[i]);
        assert_int_equal(ask(s), -EAGAIN);
        world.now_s += SPREAD_REFUSE_S + 1;
        assert_int_equal(ask(s), 1);
        answer(failures[i]);
        assert_string_equal(world.problem, "why");
        assert_int_equal(spread_spaces(s), 0);
        spread_free(s);
    }
}

static void a_token_is_long_and_fits_into_a_path(void **state)
{
    (void)state;
    assert_true(token_is_good("0123456789abcdef0123456789abcdez"));
    assert_false(token_is_good("0123456789abcdef0123456789abcde"));
    assert_false(token_is_good("0123456789abcdef0123456789ABCDEF"));
    assert_false(token_is_good("0123456789abcdef/123456789abcdef"));
    assert_false(token_is_good("0123456789abcdef0123456789abcdef\n"));
    assert_false(token_is_good(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pods_of_a_new_namespace_wait_for_one_call),
        cmocka_unit_test(what_is_there_is_refreshed_while_nobody_waits),
        cmocka_unit_test(a_namespace_that_is_gone_or_refuses_has_it_no_more),
        cmocka_unit_test(a_token_is_long_and_fits_into_a_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
