/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that ONNX Runtime's parallel loops get, on a pool that does as its pools do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/runtimes/onnx/onnx.h"

#include "test_random.h"

#define SIZE 8

static struct pool {
    const void *table;
    uint32_t workers;
    uint32_t spins;
} pool;

static unsigned got[4]; /* threads of the loops, the outermost first */
static unsigned depth;
static void (*within)(void); /* runs in each loop but the innermost */
static jmp_buf outside;
static bool throws;

static void real_run(void *p, struct onnx_body *body, unsigned n, ptrdiff_t block)
{
    assert_ptr_equal(p, &pool);
    assert_null(body);
    assert_int_equal(block, 5);
    got[depth++] = n;
    if (throws)
        longjmp(outside, 1);
    if (within)
        within();
    depth--;
}

static void real_run_more(void *p, void *section, struct onnx_body *body, unsigned n,
                          ptrdiff_t block)
{
    assert_ptr_equal(section, got);
    real_run(p, body, n, block);
}

static void real_spin(void *p)
{
    ((struct pool *)p)->spins = 1;
}

static void real_doze(void *p)
{
    ((struct pool *)p)->spins = 0;
}

static void set_target(uint32_t intra)
{
    struct agent_target target = {.intra = intra};

    onnx_backend.apply(&target);
}

static int setup(void **unused)
{
    struct onnx_copy *copy = &onnx.copies[0];

    copy->start = 1;
    copy->end = 2;
    copy->table = (uintptr_t)&pool;
    copy->run = real_run;
    copy->run_more = real_run_more;
    copy->spin = real_spin;
    copy->doze = real_doze;
    copy->threads_at = offsetof(struct pool, workers);
    copy->spins_at = offsetof(struct pool, spins);
    atomic_store(&copy->proven, true);
    atomic_store(&onnx.may, ONNX_FREE);
    atomic_store(&onnx.own, 0);
    atomic_store(&onnx.changed, false);
    pool = (struct pool){.table = &pool, .workers = SIZE - 1, .spins = 1};
    within = NULL;
    throws = false;
    depth = 0;
    set_target(0);
    atomic_store(&onnx.quiet, false);
    return 0;
}

static unsigned run(unsigned n)
{
    onnx_run(&pool, NULL, n, 5);
    return got[0];
}

static void without_a_target_a_loop_gets_what_it_asks_for(void **unused)
{
    for (unsigned n = 1; n <= SIZE; n++)
        assert_int_equal(run(n), n);
    set_target(SIZE); /* the whole pool: the same */
    assert_int_equal(run(SIZE), SIZE);
    assert_int_equal(pool.spins, 1);
    assert_int_equal(onnx_hooks_helpers(), 0);
}

static void a_loop_gets_no_more_than_the_target(void **unused)
{
    for (unsigned target = 1; target < SIZE; target++) {
        set_target(target);
        for (unsigned n = 1; n <= SIZE; n++)
            assert_int_equal(run(n), n < target ? n : target);
        onnx_run_more(&pool, got, NULL, SIZE, 5);
        assert_int_equal(got[0], target);
    }
}

static void run_another(void)
{
    if (depth < 3)
        onnx_run(&pool, NULL, SIZE, 5);
}

static void loops_at_the_same_time_share_the_target(void **unused)
{
    set_target(6);
    run(1);
    within = run_another;
    assert_int_equal(run(4), 4);
    assert_int_equal(got[1], 2); /* 4 threads, its own, and one more */
    assert_int_equal(got[2], 1); /* nothing is left */
    assert_int_equal(onnx_hooks_helpers(), 0);
}

static void shrink(void)
{
    within = NULL;
    set_target(2);
    assert_false(onnx_backend.settled());
    assert_int_equal(onnx_hooks_helpers(), SIZE - 1);
}

static void a_target_is_in_place_when_larger_loops_have_ended(void **unused)
{
    run(1);
    atomic_store(&onnx.placed_ns, 0);
    within = shrink;
    assert_int_equal(run(SIZE), SIZE);
    assert_true(atomic_load(&onnx.placed_ns) > 0);
    assert_true(onnx_backend.settled());
    assert_int_equal(pool.spins, 0); /* the others are to sleep now */
    assert_int_equal(run(SIZE), 2);
}

static void helpers_spin_again_after_a_moment_and_only_for_one_thread(void **unused)
{
    run(1);
    set_target(3);
    run(SIZE);
    assert_int_equal(pool.spins, 0);
    atomic_store(&onnx.quiet, false);
    run(SIZE);
    assert_int_equal(pool.spins, 1);
    atomic_store(&onnx.leader, &pool); /* another thread has run a loop */
    run(SIZE);
    assert_int_equal(pool.spins, 0);
    set_target(0);
    run(SIZE);
    assert_int_equal(pool.spins, 1);
}

static void a_loop_that_an_exception_ends_is_forgotten(void **unused)
{
    set_target(4);
    for (unsigned i = 0; i < 3; i++) {
        throws = true;
        if (setjmp(outside) == 0)
            run(SIZE);
        throws = false;
        depth = 0;
        assert_int_equal(run(SIZE), 4);
        assert_int_equal(onnx_hooks_helpers(), 0);
    }
}

static void numbers_that_no_pool_asks_for_are_passed_on(void **unused)
{
    set_target(2);
    assert_int_equal(run(0), 0);
    assert_int_equal(run(SIZE + 1), SIZE + 1);
    assert_int_equal(onnx_hooks_helpers(), 0);
}

static void what_is_fixed_has_no_limit(void **unused)
{
    set_target(2);
    run(SIZE);
    onnx_fix("moldable: for this test");
    assert_int_equal(run(SIZE), SIZE);
    assert_true(onnx_backend.settled());
}

static void a_pool_is_made_with_the_most_if_tide_has_chosen_its_size(void **unused)
{
    agent_config.max = 16;
    strcpy(onnx.most, "16");
    setenv(ONNX_SIZE, "3", 1);
    unsetenv("TIDE_STARTUP");
    assert_string_equal(onnx_getenv(ONNX_SIZE), "3"); /* the user's */
    setenv("TIDE_STARTUP", "3:16:400", 1);
    assert_string_equal(onnx_getenv(ONNX_SIZE), "16");
    assert_int_equal(atomic_load(&onnx.own), 3);
    setenv(ONNX_SIZE, "4", 1); /* the program has changed it */
    assert_string_equal(onnx_getenv(ONNX_SIZE), "4");
    unsetenv(ONNX_SIZE);
    assert_null(onnx_getenv(ONNX_SIZE));
    assert_string_equal(onnx_getenv("TIDE_STARTUP"), "3:16:400");
}

static void helpers_never_exceed_what_is_wanted_or_the_limit(void **unused)
{
    for (unsigned round = 0; round < 20000; round++) {
        uint32_t limit = random_below(12), loops = random_below(4), helpers = random_below(8);
        uint32_t wanted = random_below(9), given = onnx_help(limit, loops, helpers, wanted);

        assert_in_range(given, 0, wanted);
        if (limit == 0)
            assert_int_equal(given, wanted);
        else if (given > 0)
            assert_in_range(loops + 1 + helpers + given, 1, limit);
        else
            assert_true(wanted == 0 || loops + 1 + helpers >= limit);
    }
}

#define onnx_test(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        onnx_test(without_a_target_a_loop_gets_what_it_asks_for),
        onnx_test(a_loop_gets_no_more_than_the_target),
        onnx_test(loops_at_the_same_time_share_the_target),
        onnx_test(a_target_is_in_place_when_larger_loops_have_ended),
        onnx_test(helpers_spin_again_after_a_moment_and_only_for_one_thread),
        onnx_test(a_loop_that_an_exception_ends_is_forgotten),
        onnx_test(numbers_that_no_pool_asks_for_are_passed_on),
        onnx_test(a_pool_is_made_with_the_most_if_tide_has_chosen_its_size),
        onnx_test(helpers_never_exceed_what_is_wanted_or_the_limit),
        onnx_test(what_is_fixed_has_no_limit), /* for good */
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
