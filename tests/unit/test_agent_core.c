/* SPDX-License-Identifier: Apache-2.0 */
/* Which target is in force: the daemon's, a signal's, the program's, or the limit. No thread. */
#include "agent/agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint64_t epoch; /* grows with every test: what an earlier one ordered is old */

static int setup(void **state)
{
    uint32_t n;

    (void)state;
    core_daemon_gone();
    core_set_local(PROTO_SOURCE_API, 0, 0);
    core_take_local(&n, &n, &n);
    core_set_allowed(2000, 1);
    core_take_change();
    epoch++;
    return 0;
}

static void expect(uint32_t source, uint32_t intra, uint32_t inter)
{
    struct agent_target target;

    core_target(&target);
    assert_int_equal(core_source(), source);
    assert_int_equal(target.intra, intra);
    assert_int_equal(target.inter, inter);
}

static enum core_daemon_order order(uint64_t generation, uint32_t intra, uint32_t inter)
{
    return core_set_daemon(epoch, generation, intra, inter, 77);
}

static void nobody_commands_at_first(void **state)
{
    (void)state;
    expect(PROTO_SOURCE_LIMIT, 0, 0);
    assert_false(core_take_change());
    assert_int_equal(core_allowed_mcpu(), 2000);
}

static void the_child_of_a_fork_has_no_order_of_its_parents_daemon(void **state)
{
    (void)state;
    assert_int_equal(order(1, 1, 0), CORE_ORDER_NEW);
    core_take_change();
    core_after_fork();
    expect(PROTO_SOURCE_LIMIT, 0, 0);
    assert_true(core_take_change());
}

static void the_child_of_a_fork_keeps_what_the_program_has_set(void **state)
{
    (void)state;
    core_set_local(PROTO_SOURCE_API, 3, 0);
    core_after_fork();
    expect(PROTO_SOURCE_API, 3, 3);
}

static void daemon_commands_both_kinds_of_threads(void **state)
{
    (void)state;
    assert_int_equal(order(1, 4, 0), CORE_ORDER_NEW);
    expect(PROTO_SOURCE_DAEMON, 4, 4); /* without a number of its own inter-op follows intra-op */
    assert_true(core_take_change());
    assert_false(core_take_change());
    assert_int_equal(order(2, 4, 2), CORE_ORDER_NEW);
    expect(PROTO_SOURCE_DAEMON, 4, 2);
    assert_true(core_take_change());
}

static void generations_and_epochs_only_go_up(void **state)
{
    (void)state;
    assert_int_equal(order(5, 4, 0), CORE_ORDER_NEW);
    assert_int_equal(order(4, 1, 0), CORE_ORDER_STALE);
    assert_int_equal(core_set_daemon(epoch - 1, 1000, 1, 0, 77), CORE_ORDER_STALE);
    expect(PROTO_SOURCE_DAEMON, 4, 4);
    epoch++;
    assert_int_equal(order(1, 2, 0), CORE_ORDER_NEW); /* a restarted daemon counts from one */
    expect(PROTO_SOURCE_DAEMON, 2, 2);
}

static void same_order_said_again_is_obeyed(void **state)
{
    (void)state;
    order(5, 4, 0);
    core_daemon_gone();
    expect(PROTO_SOURCE_LIMIT, 0, 0);
    assert_int_equal(order(5, 4, 0), CORE_ORDER_NEW);
    expect(PROTO_SOURCE_DAEMON, 4, 4);
}

static void same_order_twice_is_no_change(void **state)
{
    uint64_t generation;

    (void)state;
    order(1, 4, 0);
    core_take_change();
    generation = core_generation();
    order(2, 4, 4);
    assert_false(core_take_change());
    assert_int_equal(core_generation(), generation);
}

static void zero_threads_from_the_daemon_mean_automatic(void **state)
{
    (void)state;
    order(1, 4, 0);
    order(2, 0, 0);
    expect(PROTO_SOURCE_LIMIT, 0, 0);
}

static void lease_suspends_an_order_and_hang_up_forgets_it(void **state)
{
    (void)state;
    order(1, 4, 2);
    core_daemon_lost();
    expect(PROTO_SOURCE_LIMIT, 0, 0);
    core_daemon_found();
    expect(PROTO_SOURCE_DAEMON, 4, 2);
    core_daemon_gone();
    core_daemon_found(); /* the first lease of the next daemon */
    expect(PROTO_SOURCE_LIMIT, 0, 0);
}

static void local_order_wins_until_the_daemon_has_heard_of_it(void **state)
{
    uint32_t source;
    uint32_t intra;
    uint32_t inter;

    (void)state;
    order(1, 4, 0);
    core_set_local(PROTO_SOURCE_SIGNAL, 6, 3);
    expect(PROTO_SOURCE_SIGNAL, 6, 3);
    order(2, 2, 0); /* was on its way when the signal came */
    expect(PROTO_SOURCE_SIGNAL, 6, 3);
    assert_true(core_take_local(&source, &intra, &inter));
    assert_int_equal(source, PROTO_SOURCE_SIGNAL);
    assert_int_equal(intra, 6);
    assert_int_equal(inter, 3);
    assert_false(core_take_local(&source, &intra, &inter));
    order(3, 2, 0); /* knows, and decides otherwise */
    expect(PROTO_SOURCE_DAEMON, 2, 2);
}

static void newest_local_order_wins(void **state)
{
    (void)state;
    core_set_local(PROTO_SOURCE_SIGNAL, 6, 0);
    core_set_local(PROTO_SOURCE_API, 3, 0);
    expect(PROTO_SOURCE_API, 3, 3);
    core_set_local(PROTO_SOURCE_SIGNAL, 5, 0);
    expect(PROTO_SOURCE_SIGNAL, 5, 5);
}

static void local_order_survives_the_daemon(void **state)
{
    uint32_t n;

    (void)state;
    order(1, 4, 0);
    core_set_local(PROTO_SOURCE_API, 3, 0);
    core_take_local(&n, &n, &n);
    core_daemon_gone();
    expect(PROTO_SOURCE_API, 3, 3);
}

static void local_order_is_told_until_it_is_heard_and_again_to_a_new_daemon(void **state)
{
    uint32_t source, intra, inter;

    (void)state;
    core_local_again(); /* no local order is in force */
    assert_false(core_take_local(&source, &intra, &inter));
    core_set_local(PROTO_SOURCE_SIGNAL, 6, 3);
    assert_true(core_take_local(&source, &intra, &inter));
    core_local_unheard();
    assert_true(core_take_local(&source, &intra, &inter));
    assert_false(core_take_local(&source, &intra, &inter));
    core_local_again();
    assert_true(core_take_local(&source, &intra, &inter));
    assert_int_equal(source, PROTO_SOURCE_SIGNAL);
    assert_int_equal(intra, 6);
    core_set_local(PROTO_SOURCE_SIGNAL, 0, 0); /* the daemon must get the end of an order, too */
    assert_true(core_take_local(&source, &intra, &inter));
    core_local_unheard();
    assert_true(core_take_local(&source, &intra, &inter));
    assert_int_equal(intra, 0);
    core_local_again();
    assert_false(core_take_local(&source, &intra, &inter));
}

static void cleared_local_order_gives_way_to_the_daemon(void **state)
{
    uint32_t source;
    uint32_t intra;
    uint32_t inter;

    (void)state;
    order(1, 4, 0);
    core_set_local(PROTO_SOURCE_SIGNAL, 6, 0);
    core_set_local(PROTO_SOURCE_SIGNAL, 0, 0);
    expect(PROTO_SOURCE_DAEMON, 4, 4);
    assert_true(core_take_local(&source, &intra, &inter));
    assert_int_equal(intra, 0);
}

static void changed_limit_is_a_change(void **state)
{
    struct agent_target target;

    (void)state;
    core_set_allowed(1000, 500);
    assert_true(core_take_change());
    core_target(&target);
    assert_int_equal(target.allowed_mcpu, 1000);
    assert_int_equal(target.sent_ns, 500); /* the time it was noticed */
    core_set_allowed(1000, 900);
    assert_false(core_take_change());
}

static bool moves(void)
{
    struct agent_target target;

    core_target(&target);
    return target.moves;
}

static void only_an_order_of_a_policy_moves(void **state)
{
    (void)state;
    core_set_moves(true);
    assert_false(moves()); /* the limit holds */
    order(1, 4, 0);
    assert_true(moves());
    core_set_local(PROTO_SOURCE_API, 4, 4);
    assert_false(moves());
    order(2, 4, 0);
    core_set_moves(false); /* now it is pinned by hand */
    assert_false(moves());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nobody_commands_at_first, setup),
        cmocka_unit_test_setup(the_child_of_a_fork_has_no_order_of_its_parents_daemon, setup),
        cmocka_unit_test_setup(the_child_of_a_fork_keeps_what_the_program_has_set, setup),
        cmocka_unit_test_setup(daemon_commands_both_kinds_of_threads, setup),
        cmocka_unit_test_setup(generations_and_epochs_only_go_up, setup),
        cmocka_unit_test_setup(same_order_said_again_is_obeyed, setup),
        cmocka_unit_test_setup(same_order_twice_is_no_change, setup),
        cmocka_unit_test_setup(zero_threads_from_the_daemon_mean_automatic, setup),
        cmocka_unit_test_setup(lease_suspends_an_order_and_hang_up_forgets_it, setup),
        cmocka_unit_test_setup(local_order_wins_until_the_daemon_has_heard_of_it, setup),
        cmocka_unit_test_setup(newest_local_order_wins, setup),
        cmocka_unit_test_setup(local_order_survives_the_daemon, setup),
        cmocka_unit_test_setup(local_order_is_told_until_it_is_heard_and_again_to_a_new_daemon,
                               setup),
        cmocka_unit_test_setup(cleared_local_order_gives_way_to_the_daemon, setup),
        cmocka_unit_test_setup(changed_limit_is_a_change, setup),
        cmocka_unit_test_setup(only_an_order_of_a_policy_moves, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
