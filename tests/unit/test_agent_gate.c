/* SPDX-License-Identifier: Apache-2.0 */
/* The gate alone, on threads that do what a pool's workers do. */
#include "agent/gate/gate.h"

#include "base/clock.h"
#include "sanitized.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define WORKERS 4
#define GUARD_S 30

static struct gate gate;
static sem_t settled;
static _Atomic unsigned nudges;

static void on_settled(void)
{
    sem_post(&settled);
}

static void on_nudge(struct gate *which)
{
    assert_ptr_equal(which, &gate);
    atomic_fetch_add(&nudges, 1);
}

static int setup(void **state)
{
    (void)state;
    sem_init(&settled, 0, 0);
    atomic_store(&nudges, 0);
    return gate_init(&gate, WORKERS, on_nudge, on_settled);
}

static int teardown(void **state)
{
    (void)state;
    return sem_destroy(&settled);
}

static void wait_settled(void)
{
    struct timespec limit;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += GUARD_S;
    while (sem_timedwait(&settled, &limit) != 0) {
        if (errno == EINTR)
            continue;
        fprintf(stderr, "the gate does not settle: limit %u\n", gate.limit);
        for (unsigned i = 0; i < WORKERS; i++)
            fprintf(stderr, "worker %u state %u\n", i, gate.worker[i].state);
        abort();
    }
}

static void set_and_wait(uint32_t limit)
{
    if (gate_set(&gate, limit))
        return;
    do
        wait_settled();
    while (!gate_settled(&gate) && !gate_watch(&gate));
}

/* ---- worker threads ---- */

struct thread {
    pthread_t thread;
    uint32_t id;
    bool idles;          /* uses the pool's own sleep as well */
    _Atomic bool *stop;  /* shared by all */
    _Atomic bool holds;  /* stays in a closure while set */
    _Atomic bool inside; /* it does, since */
};

static void *work(void *arg)
{
    struct thread *thread = arg;
    struct gate_worker *worker = gate_enter(&gate, thread->id);

    while (!atomic_load(thread->stop)) {
        gate_pass(worker);
        while (atomic_load(&thread->holds) && !atomic_load(thread->stop)) {
            atomic_store(&thread->inside, true);
            usleep(100);
        }
        if (!thread->idles)
            continue;
        gate_idle_enter(worker);
        sched_yield(); /* asleep in the pool, woken up */
        if (!gate_idle_leave(worker))
            gate_park(worker);
    }
    gate_leave(worker);
    return NULL;
}

static void start(struct thread *threads, _Atomic bool *stop, bool idles)
{
    atomic_store(stop, false);
    for (uint32_t id = 0; id < WORKERS; id++) {
        threads[id] = (struct thread){.id = id, .idles = idles, .stop = stop};
        assert_int_equal(pthread_create(&threads[id].thread, NULL, work, &threads[id]), 0);
    }
    while (gate_active(&gate) < WORKERS)
        usleep(100);
}

static void finish(struct thread *threads, _Atomic bool *stop)
{
    atomic_store(stop, true);
    gate_set(&gate, WORKERS);
    for (uint32_t id = 0; id < WORKERS; id++)
        pthread_join(threads[id].thread, NULL);
}

/* ---- tests ---- */

static void sizes_are_checked(void **state)
{
    struct gate other = {.limit = 0};

    (void)state;
    assert_int_equal(gate_init(&other, 0, on_nudge, on_settled), -EINVAL);
    assert_int_equal(gate_init(&other, 4097, on_nudge, on_settled), -EINVAL);
    assert_null(gate_enter(&gate, WORKERS));
    assert_null(gate_enter(&gate, UINT32_MAX));
}

static void limit_stays_between_one_and_all(void **state)
{
    (void)state;
    assert_true(gate_set(&gate, 0)); /* no worker has entered: settled at once */
    assert_int_equal(gate.limit, 1);
    assert_true(gate_set(&gate, 1000));
    assert_int_equal(gate.limit, WORKERS);
}

static void only_a_busy_surplus_worker_is_waited_for(void **state)
{
    struct gate_worker *first = gate_enter(&gate, 0);
    struct gate_worker *last = gate_enter(&gate, WORKERS - 1);

    (void)state;
    assert_int_equal(gate_active(&gate), 2);
    assert_false(gate_set(&gate, 2));
    gate_leave(last);
    assert_int_equal(sem_trywait(&settled), 0);
    assert_int_equal(sem_trywait(&settled), -1); /* once */
    gate_set(&gate, WORKERS);
    last = gate_enter(&gate, WORKERS - 1);
    gate_idle_enter(last);
    assert_true(gate_set(&gate, 2)); /* idle: it cannot run anything any more */
    assert_int_equal(gate_active(&gate), 1);
    assert_false(gate_idle_leave(last));
    assert_false(gate_settled(&gate));
    assert_true(gate_idle_leave(first));
    gate_leave(last);
    gate_leave(first);
}

static void idle_worker_within_the_limit_goes_on(void **state)
{
    struct gate_worker *worker = gate_enter(&gate, 1);

    (void)state;
    gate_idle_enter(worker);
    gate_set(&gate, 2);
    assert_int_equal(gate_active(&gate), 1);
    assert_true(gate_idle_leave(worker));
    gate_leave(worker);
}

/* Its queue may hold a closure before its thread has started. */
static void worker_that_starts_late_parks_on_entry(void **state)
{
    struct thread thread = {.id = 2};
    _Atomic bool stop = false;

    (void)state;
    assert_true(gate_set(&gate, 2));
    thread.stop = &stop;
    assert_int_equal(pthread_create(&thread.thread, NULL, work, &thread), 0);
    while (atomic_load(&gate.worker[2].state) != GATE_PARKED)
        usleep(100);
    assert_int_equal(gate.worker[2].passes, 0);
    gate_set(&gate, 3);
    while (atomic_load(&gate.worker[2].passes) == 0)
        usleep(100);
    atomic_store(&stop, true);
    pthread_join(thread.thread, NULL);
}

static void surplus_workers_park_and_wake_up(void **state)
{
    struct thread threads[WORKERS];
    _Atomic bool stop;
    uint64_t passes[WORKERS];

    (void)state;
    start(threads, &stop, false);
    set_and_wait(1);
    assert_int_equal(gate_active(&gate), 1);
    assert_true(atomic_load(&nudges) > 0); /* each hands its wake-up on */
    for (uint32_t id = 0; id < WORKERS; id++)
        passes[id] = gate.worker[id].passes;
    while (gate.worker[0].passes < passes[0] + 1000)
        usleep(100);
    for (uint32_t id = 1; id < WORKERS; id++) {
        assert_int_equal(gate.worker[id].passes, passes[id]);
        assert_int_equal(gate.worker[id].state, GATE_PARKED);
    }
    set_and_wait(3);
    assert_int_equal(gate_active(&gate), 3);
    finish(threads, &stop);
    assert_int_equal(gate_active(&gate), 0);
}

static void closure_is_waited_for_and_measured(void **state)
{
    struct thread threads[WORKERS];
    _Atomic bool stop;
    struct gate_timing timing;
    uint64_t sent_ns;
    uint64_t released_ns;

    (void)state;
    start(threads, &stop, false);
    atomic_store(&threads[3].holds, true);
    while (!atomic_load(&threads[3].inside))
        usleep(100);
    sent_ns = clock_now_ns();
    assert_false(gate_set(&gate, 2));
    usleep(20000);
    assert_int_equal(sem_trywait(&settled), -1);
    assert_false(gate_settled(&gate));
    released_ns = clock_now_ns();
    atomic_store(&threads[3].holds, false);
    wait_settled();
    gate_measure(&gate, sent_ns, sent_ns, &timing);
    assert_true(timing.closure_end_ns >= released_ns);
    assert_true(timing.placed_ns >= timing.closure_end_ns);
    assert_true(timing.longest_ns >= 20 * NS_PER_MS);
    assert_true(timing.lag_ns < timing.placed_ns - sent_ns);
    finish(threads, &stop);
}

static void blocked_in_a_closure_is_told_from_busy_and_idle(void **state)
{
    struct thread threads[WORKERS];
    _Atomic bool stop;

    (void)state;
    start(threads, &stop, false);
    atomic_store(&threads[0].holds, true); /* sleeps in its closure, mostly */
    while (!gate_blocked(&gate.worker[0]))
        usleep(100);
    set_and_wait(1);
    assert_false(gate_blocked(&gate.worker[1])); /* asleep, but parked */
    finish(threads, &stop);
    assert_false(gate_blocked(&gate.worker[0]));
}

static void errno_survives_parking(void **state)
{
    struct gate_worker *worker = gate_enter(&gate, 0);

    (void)state;
    errno = ENOTTY;
    gate_park(worker); /* not surplus: returns at once */
    gate_idle_enter(worker);
    gate_idle_leave(worker);
    assert_int_equal(errno, ENOTTY);
    gate_leave(worker);
}

/* As fast as it can: a missed wake-up or a missed report hangs here. */
static void hammer(bool idles)
{
    struct thread threads[WORKERS];
    _Atomic bool stop;
    uint64_t seed = 1;

    start(threads, &stop, idles);
    for (unsigned round = 0; round < TIMES(30000); round++) {
        uint32_t limit;

        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        limit = 1 + (uint32_t)(seed >> 33) % WORKERS;
        if (round % 16 != 0) {
            gate_set(&gate, limit); /* superseded before it settles */
            continue;
        }
        set_and_wait(limit);
    }
    finish(threads, &stop);
}

static void every_change_settles_without_the_pools_sleep(void **state)
{
    (void)state;
    hammer(false);
}

static void every_change_settles_with_the_pools_sleep(void **state)
{
    (void)state;
    hammer(true);
}

#define gate_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        gate_test(sizes_are_checked),
        gate_test(limit_stays_between_one_and_all),
        gate_test(only_a_busy_surplus_worker_is_waited_for),
        gate_test(idle_worker_within_the_limit_goes_on),
        gate_test(worker_that_starts_late_parks_on_entry),
        gate_test(surplus_workers_park_and_wake_up),
        gate_test(closure_is_waited_for_and_measured),
        gate_test(blocked_in_a_closure_is_told_from_busy_and_idle),
        gate_test(errno_survives_parking),
        gate_test(every_change_settles_without_the_pools_sleep),
        gate_test(every_change_settles_with_the_pools_sleep),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
