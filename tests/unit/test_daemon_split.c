/* SPDX-License-Identifier: Apache-2.0 */
/* Apportionment of a target over processes whose use is given. */
#include "daemon/job/split.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_MAX   8
#define BEAT_NS 250000000ull

/* Processes that keep `need` threads busy if they have them, on cores of `core` thousandths. */
struct world {
    struct split_part part[N_MAX];
    struct split_use use[N_MAX];
    double need[N_MAX];
    uint64_t cpu_ns[N_MAX], now_ns;
    uint32_t n, target, core, noise; /* thousandths */
    unsigned changes;
};

static void begin(struct world *w, uint32_t n, uint32_t target, uint32_t max)
{
    *w = (struct world){.n = n, .target = target, .core = 1000, .now_ns = BEAT_NS};
    for (uint32_t i = 0; i < n; i++)
        w->part[i].max = max;
}

/* Every quarter of a second: what was used, and the division that follows from it. */
static void beat(struct world *w)
{
    bool moved = false;

    w->now_ns += BEAT_NS;
    for (uint32_t i = 0; i < w->n; i++) {
        double threads = w->need[i] < w->part[i].part ? w->need[i] : w->part[i].part;
        double noise = w->noise ? 1 - (double)(rand() % (int)w->noise) / 1000 : 1;

        w->cpu_ns[i] += (uint64_t)(threads * noise * w->core / 1000 * BEAT_NS);
        split_look(&w->use[i], w->part[i].part, w->now_ns, w->cpu_ns[i]);
        w->part[i].had = w->part[i].part;
        w->part[i].use = &w->use[i];
    }
    split_divide(w->part, w->n, w->target, w->core < SPLIT_SCARCE);
    for (uint32_t i = 0; i < w->n; i++)
        moved |= w->part[i].part != w->part[i].had;
    w->changes += moved;
}

static void beats(struct world *w, unsigned n)
{
    while (n-- > 0)
        beat(w);
}

static void needs(struct world *w, double a, double b)
{
    w->need[0] = a;
    w->need[1] = b;
}

static void new_processes_begin_with_equal_parts(void **state)
{
    struct world w;

    begin(&w, 3, 8, 16);
    beat(&w);
    assert_int_equal(w.part[0].part, 3);
    assert_int_equal(w.part[1].part, 3);
    assert_int_equal(w.part[2].part, 2);
}

static void an_idle_process_keeps_one_thread(void **state)
{
    struct world w;

    begin(&w, 2, 8, 16);
    needs(&w, 16, 0);
    beats(&w, 8);
    assert_int_equal(w.part[0].part, 7);
    assert_int_equal(w.part[1].part, 1);
    assert_true(w.changes <= 2);
}

static void one_that_wakes_up_has_its_part_after_two_heartbeats(void **state)
{
    struct world w;

    begin(&w, 2, 8, 16);
    needs(&w, 16, 0);
    beats(&w, 10);
    assert_int_equal(w.part[1].part, 1);
    needs(&w, 16, 16);
    beats(&w, 2);
    assert_int_equal(w.part[0].part, 4);
    assert_int_equal(w.part[1].part, 4);
    needs(&w, 0, 16); /* the roles swap */
    beats(&w, 6);
    assert_int_equal(w.part[0].part, 1);
    assert_int_equal(w.part[1].part, 7);
}

static void one_that_uses_some_threads_keeps_those_and_half_as_many(void **state)
{
    struct world w;

    begin(&w, 2, 16, 32);
    needs(&w, 32, 1.5);
    beats(&w, 40);
    assert_int_equal(w.part[0].part, 13);
    assert_int_equal(w.part[1].part, 3);
    assert_int_equal(w.changes, 2);
}

static void pools_that_are_full_leave_the_rest_to_others(void **state)
{
    struct world w;

    begin(&w, 2, 8, 16);
    w.part[0].max = 3;
    needs(&w, 16, 16);
    beats(&w, 10);
    assert_int_equal(w.part[0].part, 3);
    assert_int_equal(w.part[1].part, 5);
}

static void fewer_threads_than_processes_are_one_for_each(void **state)
{
    struct world w;

    begin(&w, 5, 3, 4);
    beats(&w, 10);
    for (uint32_t i = 0; i < w.n; i++)
        assert_int_equal(w.part[i].part, 1);
    assert_int_equal(w.changes, 1); /* the first */
}

/* On a crowded machine a busy thread has a part of a core, and an idle one none all the same. */
static void busy_is_what_the_busiest_thread_gets(void **state)
{
    struct world w;

    begin(&w, 2, 4, 8);
    w.core = 250;
    needs(&w, 8, 0);
    beats(&w, 10);
    assert_int_equal(w.part[0].part, 3);
    assert_int_equal(w.part[1].part, 1);
}

static void a_short_burst_moves_nothing(void **state)
{
    struct world w;

    begin(&w, 2, 8, 16);
    needs(&w, 16, 0);
    beats(&w, 10);
    w.changes = 0;
    for (unsigned i = 0; i < 20; i++) {
        needs(&w, 16, 16);
        beat(&w);
        needs(&w, 16, 0);
        beats(&w, 4);
    }
    assert_int_equal(w.changes, 0);
}

static void nothing_moves_while_nobody_would_gain(void **state)
{
    struct world w;

    begin(&w, 2, 8, 16);
    needs(&w, 3, 0);
    beats(&w, 40);
    assert_int_equal(w.part[0].part, 4);
    assert_int_equal(w.changes, 1);
}

static void a_look_at_another_part_says_nothing_of_this_one(void **state)
{
    struct split_use use = {0};

    assert_false(split_look(&use, 4, BEAT_NS, 0));
    assert_true(split_look(&use, 4, 2 * BEAT_NS, BEAT_NS));
    assert_int_equal(use.milli[0], 1000);
    assert_false(split_look(&use, 4, 2 * BEAT_NS + 1000, BEAT_NS)); /* too soon */
    assert_int_equal(use.n, 1);
    assert_false(split_look(&use, 2, 3 * BEAT_NS, BEAT_NS));
    assert_int_equal(use.n, 0);
}

static void check_division(const struct world *w)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < w->n; i++) {
        assert_true(w->part[i].part >= 1);
        sum += w->part[i].part;
    }
    assert_int_equal(sum, w->target > w->n ? w->target : w->n);
}

/* A waiting process holds no thread that another would use, except a small reserve. */
static void check_use(const struct world *w)
{
    bool hungry = false;

    for (uint32_t i = 0; i < w->n; i++)
        hungry |= w->need[i] > w->part[i].part && w->part[i].part < w->part[i].max;
    for (uint32_t i = 0; i < w->n && hungry; i++)
        if (w->core >= SPLIT_SCARCE || w->need[i] == 0)
            assert_true(w->part[i].part <= 2 * w->need[i] + 1);
}

static void any_processes_come_to_rest_and_none_holds_what_others_could_use(void **state)
{
    unsigned changes = 0;

    srand(11);
    for (unsigned round = 0; round < 3000; round++) {
        struct world w;

        begin(&w, 1 + (uint32_t)rand() % N_MAX, 1 + (uint32_t)rand() % 32, 32);
        w.core = rand() % 2 ? 1000 : 200 + (uint32_t)rand() % 800;
        w.noise = 50;
        for (unsigned phase = 0; phase < 3; phase++) {
            for (uint32_t i = 0; i < w.n; i++)
                w.need[i] = rand() % 3 == 0 ? 0 : rand() % 3 ? 64 : (double)(rand() % 1600) / 100;
            for (unsigned k = 0; k < 40; k++) {
                beat(&w);
                check_division(&w);
            }
            w.changes = 0;
            beats(&w, 40);
            assert_true(w.changes <= 2); /* noise at a threshold */
            changes += w.changes;
            check_use(&w);
        }
    }
    assert_true(changes < 3000 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_processes_begin_with_equal_parts),
        cmocka_unit_test(an_idle_process_keeps_one_thread),
        cmocka_unit_test(one_that_wakes_up_has_its_part_after_two_heartbeats),
        cmocka_unit_test(one_that_uses_some_threads_keeps_those_and_half_as_many),
        cmocka_unit_test(pools_that_are_full_leave_the_rest_to_others),
        cmocka_unit_test(fewer_threads_than_processes_are_one_for_each),
        cmocka_unit_test(busy_is_what_the_busiest_thread_gets),
        cmocka_unit_test(a_short_burst_moves_nothing),
        cmocka_unit_test(nothing_moves_while_nobody_would_gain),
        cmocka_unit_test(a_look_at_another_part_says_nothing_of_this_one),
        cmocka_unit_test(any_processes_come_to_rest_and_none_holds_what_others_could_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
