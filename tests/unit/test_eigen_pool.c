/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent on Eigen's real thread pool, which can run under ThreadSanitizer, unlike TensorFlow:
 * millions of closures while the daemon's side resizes at random. TIDE_SOAK=N multiplies the work.
 */
#include "eigen_pool/peer.h"
#include "eigen_pool/pool.h"

#include "agent/runtimes/tensorflow/tensorflow.h"
#include "base/clock.h"
#include "sanitized.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define BUILT   8
#define INTRA   "numa_-1_Eigen"
#define INTER   "Compute"
#define GUARD_S 30

static struct peer peer;

static unsigned soak(unsigned n)
{
    const char *factor = getenv("TIDE_SOAK");

    return TIMES(n) * (factor && atoi(factor) > 0 ? (unsigned)atoi(factor) : 1);
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33);
}

static void sleep_us(unsigned us)
{
    struct timespec ts = {.tv_nsec = us * 1000l};

    nanosleep(&ts, NULL);
}

/* A wait that ends the test program with a message rather than hang. */
static void wait_for(sem_t *sem, const char *what)
{
    struct timespec limit;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += GUARD_S;
    while (sem_timedwait(sem, &limit) != 0) {
        if (errno == EINTR)
            continue;
        fprintf(stderr, "not within %d s: %s\n", GUARD_S, what);
        abort();
    }
}

/* ---- closures that count themselves ---- */

struct load;

struct item {
    struct load *load;
    _Atomic unsigned ran;
};

struct load {
    struct eigen_pool *pool;
    struct item *items;
    unsigned total;
    _Atomic unsigned scheduled;
    _Atomic unsigned done;
    _Atomic unsigned running; /* closures on workers at this moment */
    _Atomic uint64_t limit;   /* in force, in the low 8 bits, 0: a change is on its way; above them
                                 the number of the change */
    _Atomic unsigned most;    /* highest excess over the limit */
    const _Atomic unsigned *resizes; /* the second half waits for two; NULL: for none */
    sem_t all_done;
};

static void load_init(struct load *load, struct eigen_pool *pool, unsigned total)
{
    memset(load, 0, sizeof(*load));
    load->pool = pool;
    load->total = total;
    load->items = calloc(total, sizeof(struct item));
    assert_non_null(load->items);
    for (unsigned i = 0; i < total; i++)
        load->items[i].load = load;
    sem_init(&load->all_done, 0, 0);
}

static void load_done(struct load *load)
{
    sem_destroy(&load->all_done);
    free(load->items);
}

static void burn(unsigned rounds)
{
    for (volatile unsigned i = 0; i < rounds; i++)
        ;
}

/*
 * Counts this closure in; more at once than the limit in force is what must not be. In force before
 * and after the counting: between the two this thread may lose its core for a whole resize.
 */
static void check_limit(struct load *load)
{
    uint64_t before = atomic_load(&load->limit);
    unsigned now = atomic_fetch_add(&load->running, 1) + 1;
    unsigned limit = before & 0xff;

    if (atomic_load(&load->limit) == before && limit > 0 && now > limit &&
        now - limit > atomic_load(&load->most))
        atomic_store(&load->most, now - limit);
}

static void schedule_next(struct load *load);

static void run_item(void *arg)
{
    struct item *item = arg;
    struct load *load = item->load;
    unsigned index = (unsigned)(item - load->items);
    bool worker = eigen_pool_worker(load->pool) >= 0;

    if (worker)
        check_limit(load);
    atomic_fetch_add(&item->ran, 1);
    burn((index * 2654435761u) >> 23);
    if (index % 4 == 0)
        schedule_next(load); /* from inside: goes to the worker's own queue */
    if (worker)
        atomic_fetch_sub(&load->running, 1);
    if (atomic_fetch_add(&load->done, 1) + 1 == load->total)
        sem_post(&load->all_done);
}

static void schedule_next(struct load *load)
{
    unsigned index = atomic_fetch_add(&load->scheduled, 1);

    if (index < load->total)
        eigen_pool_schedule(load->pool, run_item, &load->items[index]);
}

/* False in the middle of the load until the daemon's side, however slow, has resized. */
static bool is_resized(const struct load *load, unsigned scheduled)
{
    return scheduled < load->total / 2 || !load->resizes || atomic_load(load->resizes) > 1;
}

/* Schedules from outside until all are; at most @ahead wait at a time. */
static void produce(struct load *load, unsigned ahead)
{
    unsigned scheduled;

    while ((scheduled = atomic_load(&load->scheduled)) < load->total) {
        if (scheduled - atomic_load(&load->done) < ahead && is_resized(load, scheduled))
            schedule_next(load);
        else
            sleep_us(20);
    }
}

struct producer {
    pthread_t thread;
    struct load *load;
    unsigned ahead;
};

static void *produce_main(void *arg)
{
    struct producer *producer = arg;

    produce(producer->load, producer->ahead);
    return NULL;
}

/* ---- resizes ---- */

struct resizer {
    pthread_t thread;
    struct load *load; /* may be NULL */
    uint64_t seed;
    _Atomic unsigned count; /* begun */
    _Atomic bool stop;
};

static void *resize_main(void *arg)
{
    struct resizer *resizer = arg;
    struct load *load = resizer->load;

    while (!atomic_load(&resizer->stop)) {
        uint32_t intra = 1 + next_random(&resizer->seed) % BUILT;
        uint32_t inter = 1 + next_random(&resizer->seed) % BUILT;

        if (load)
            atomic_store(&load->limit, 0);
        atomic_fetch_add(&resizer->count, 1);
        if (peer_set(&peer, intra, inter, NULL) == PROTO_ACK_DONE && load)
            atomic_store(&load->limit, (uint64_t)atomic_load(&resizer->count) << 8 | intra);
        switch (next_random(&resizer->seed) % 3) {
        case 0:
            sleep_us(1000);
            break;
        case 1:
            sleep_us(100);
            break;
        }
    }
    if (load)
        atomic_store(&load->limit, 0);
    return NULL;
}

static void resizer_start(struct resizer *resizer, struct load *load, uint64_t seed)
{
    memset(resizer, 0, sizeof(*resizer));
    resizer->load = load;
    resizer->seed = seed;
    assert_int_equal(pthread_create(&resizer->thread, NULL, resize_main, resizer), 0);
}

static unsigned resizer_stop(struct resizer *resizer)
{
    atomic_store(&resizer->stop, true);
    pthread_join(resizer->thread, NULL);
    return resizer->count;
}

/* ---- tests ---- */

static void run_load(unsigned total, unsigned ahead, int spin, unsigned *ret_excess)
{
    struct eigen_pool *pool = eigen_pool_new(INTRA, BUILT, spin);
    struct producer producers[2];
    struct resizer resizer;
    struct load load;
    unsigned twice = 0;
    unsigned never = 0;
    unsigned resizes;

    peer_wait_agent(&peer);
    load_init(&load, pool, total);
    load.resizes = &resizer.count;
    resizer_start(&resizer, &load, total + (unsigned)spin);
    for (int i = 0; i < 2; i++) {
        producers[i] = (struct producer){.load = &load, .ahead = ahead};
        pthread_create(&producers[i].thread, NULL, produce_main, &producers[i]);
    }
    produce(&load, ahead);
    wait_for(&load.all_done, "every closure has run");
    for (int i = 0; i < 2; i++)
        pthread_join(producers[i].thread, NULL);
    resizes = resizer_stop(&resizer);
    eigen_pool_free(pool);
    for (unsigned i = 0; i < total; i++) {
        never += load.items[i].ran == 0;
        twice += load.items[i].ran > 1;
    }
    assert_int_equal(never, 0);
    assert_int_equal(twice, 0);
    assert_true(resizes > 1);
    print_message("%u closures, %u resizes\n", total, resizes);
    *ret_excess = load.most;
    load_done(&load);
}

static void every_closure_runs_exactly_once(void **state)
{
    unsigned excess;

    (void)state;
    run_load(soak(1000000), 100000, 0, &excess);
    run_load(soak(1000000), 100000, 1, &excess);
}

/*
 * Queues stay short: a full one makes whoever schedules run the closure himself, as in stock. Until
 * the agent has seen how a Task is laid out, a surplus worker may run one closure that it took in
 * the moment of the command; that is learned by chance, and here waited for.
 */
static void acknowledged_limit_is_never_exceeded(void **state)
{
    unsigned excess;

    (void)state;
    for (int i = 0; i < 100 && !task_layout_known(); i++)
        run_load(soak(100000), 64, 0, &excess);
    assert_true(task_layout_known());
    run_load(soak(500000), 64, 0, &excess);
    assert_int_equal(excess, 0);
    run_load(soak(500000), 64, 1, &excess);
    assert_int_equal(excess, 0);
}

/* @count closures that meet: each waits until all of them run at once. */
struct meeting {
    _Atomic unsigned here;
    _Atomic unsigned count;
    sem_t go;
    sem_t left;
};

static void attend(void *arg)
{
    struct meeting *meeting = arg;

    if (atomic_fetch_add(&meeting->here, 1) + 1 == meeting->count) {
        for (unsigned i = 0; i < meeting->count; i++)
            sem_post(&meeting->go);
    }
    while (sem_wait(&meeting->go) != 0)
        ;
    sem_post(&meeting->left);
}

static void meet(struct eigen_pool *pool, unsigned count)
{
    struct meeting meeting = {.count = count};

    sem_init(&meeting.go, 0, 0);
    sem_init(&meeting.left, 0, 0);
    for (unsigned i = 0; i < count; i++)
        eigen_pool_schedule(pool, attend, &meeting);
    for (unsigned i = 0; i < count; i++)
        wait_for(&meeting.left, "as many closures at once as the target says");
    sem_destroy(&meeting.go);
    sem_destroy(&meeting.left);
}

/*
 * A wake-up that a surplus worker swallows shows here: nothing else would wake the one that is
 * meant. The watchdog does not help, since not every active worker is in a closure.
 */
static void no_wake_up_is_lost(void **state)
{
    uint64_t seed = 11;

    (void)state;
    for (int spin = 0; spin < 2; spin++) {
        struct eigen_pool *pool = eigen_pool_new(INTRA, BUILT, spin);

        peer_wait_agent(&peer);
        for (unsigned round = 0; round < soak(1500); round++) {
            uint32_t k = 1 + next_random(&seed) % BUILT;

            assert_int_equal(peer_set(&peer, k, 0, NULL), PROTO_ACK_DONE);
            for (int i = 0; i < 5; i++)
                meet(pool, 1);
            meet(pool, k);
            if (next_random(&seed) % 4 == 0)
                sleep_us(500); /* all asleep in the pool */
            meet(pool, 1 + next_random(&seed) % k);
        }
        eigen_pool_free(pool);
    }
}

/* A closure that asks for the number of threads before and after a resize. */
struct question {
    struct eigen_pool *pool;
    int before, after;
    sem_t asked;
    sem_t go;
    sem_t done;
};

static void ask(void *arg)
{
    struct question *q = arg;

    q->before = eigen_pool_pieces(q->pool);
    sem_post(&q->asked);
    wait_for(&q->go, "the resize");
    q->after = eigen_pool_pieces(q->pool);
    sem_post(&q->done);
}

static void expect_answers(struct eigen_pool *pool, struct eigen_pool *asks, uint32_t next,
                           int before, int after)
{
    struct question q = {.pool = pool};

    sem_init(&q.asked, 0, 0);
    sem_init(&q.go, 0, 0);
    sem_init(&q.done, 0, 0);
    eigen_pool_schedule(asks, ask, &q);
    wait_for(&q.asked, "the first answer");
    assert_int_equal(peer_set(&peer, next, BUILT, NULL), PROTO_ACK_DONE);
    sem_post(&q.go);
    wait_for(&q.done, "the second answer");
    assert_int_equal(q.before, before);
    assert_int_equal(q.after, after);
    sem_destroy(&q.asked);
    sem_destroy(&q.go);
    sem_destroy(&q.done);
}

/* Eigen's contractions size arrays by one answer and index them by an earlier one. */
static void within_a_closure_the_number_only_rises(void **state)
{
    struct eigen_pool *pool = eigen_pool_new(INTRA, BUILT, 0);
    struct eigen_pool *asks = eigen_pool_new(INTER, BUILT, 0);

    (void)state;
    peer_wait_agent(&peer);
    assert_int_equal(peer_set(&peer, BUILT, BUILT, NULL), PROTO_ACK_DONE);
    expect_answers(pool, asks, 2, BUILT, BUILT);
    expect_answers(pool, asks, 6, 2, 6);
    expect_answers(pool, asks, 1, 6, 6);
    eigen_pool_free(asks);
    eigen_pool_free(pool);
}

static void destroyed_while_parked_and_resized(void **state)
{
    struct resizer resizer;
    uint64_t seed = 3;

    (void)state;
    resizer_start(&resizer, NULL, 5);
    for (unsigned round = 0; round < soak(300); round++) {
        int threads = 1 + (int)(next_random(&seed) % BUILT);
        const char *name = next_random(&seed) % 2 ? INTRA : INTER;
        struct eigen_pool *pool = eigen_pool_new(name, threads, (int)(round & 1));
        struct load load;

        load_init(&load, pool, 1 + next_random(&seed) % 50);
        produce(&load, 100);
        if (next_random(&seed) % 2)
            wait_for(&load.all_done, "every closure has run");
        eigen_pool_free(pool); /* which runs the rest */
        assert_int_equal(load.done, load.total);
        load_done(&load);
    }
    assert_true(resizer_stop(&resizer) > 0);
}

struct inner {
    uint64_t seed;
    sem_t done;
};

/* A closure that builds a pool of its own, uses it and destroys it. */
static void use_inner_pool(void *arg)
{
    struct inner *inner = arg;
    struct eigen_pool *pool = eigen_pool_new(INTRA, 4, 0);

    for (int i = 0; i < 20; i++)
        meet(pool, 1);
    eigen_pool_free(pool);
    sem_post(&inner->done);
}

static void pools_inside_pools(void **state)
{
    struct eigen_pool *inter = eigen_pool_new(INTER, BUILT, 0);
    struct eigen_pool *other = eigen_pool_new("mlir_something", 3, 0);
    struct inner inner;
    struct resizer resizer;

    (void)state;
    sem_init(&inner.done, 0, 0);
    resizer_start(&resizer, NULL, 9);
    for (unsigned round = 0; round < soak(60); round++) {
        for (int i = 0; i < 4; i++)
            eigen_pool_schedule(inter, use_inner_pool, &inner);
        meet(other, 3); /* a pool that is not governed keeps all its threads */
        for (int i = 0; i < 4; i++)
            wait_for(&inner.done, "the inner pool has done its work");
    }
    resizer_stop(&resizer);
    sem_destroy(&inner.done);
    eigen_pool_free(other);
    eigen_pool_free(inter);
}

static void operations_are_told_the_active_count(void **state)
{
    struct eigen_pool *pool = eigen_pool_new(INTRA, BUILT, 0);

    (void)state;
    peer_wait_agent(&peer);
    for (uint32_t k = 1; k <= BUILT; k++) {
        assert_int_equal(peer_set(&peer, k, 0, NULL), PROTO_ACK_DONE);
        assert_int_equal(eigen_pool_shards(pool), k);
        assert_int_equal(eigen_pool_threads(pool), BUILT); /* sizes of arrays: never less */
    }
    eigen_pool_free(pool);
}

struct handing {
    struct eigen_pool *pool;
    unsigned count;
    sem_t done;
};

/* A worker that hands closures to its own pool. */
static void hand_on(void *arg)
{
    struct handing *handing = arg;

    if (handing->count-- > 0)
        eigen_pool_schedule(handing->pool, hand_on, handing);
    else
        sem_post(&handing->done);
}

/* The measure of work is the same with any number of threads, and includes destroyed pools. */
static void what_inter_op_pools_are_given_is_counted(void **state)
{
    enum { CLOSURES = 1000, NUDGES = 4 * BUILT };
    struct eigen_pool *inter = eigen_pool_new(INTER, BUILT, 0);
    struct eigen_pool *intra = eigen_pool_new(INTRA, BUILT, 0);
    struct handing handing = {.pool = inter, .count = CLOSURES};
    uint64_t before;

    (void)state;
    sem_init(&handing.done, 0, 0);
    peer_wait_agent(&peer);
    for (uint32_t k = 1; k <= BUILT; k *= 2) {
        assert_int_equal(peer_set(&peer, k, 0, NULL), PROTO_ACK_DONE);
        before = tensorflow_backend.tasks();
        for (unsigned i = 0; i < CLOSURES; i++)
            meet(inter, 1);
        for (unsigned i = 0; i < CLOSURES; i++)
            meet(intra, 1);
        assert_in_range(tensorflow_backend.tasks() - before, CLOSURES, CLOSURES + NUDGES);
    }
    before = tensorflow_backend.tasks();
    eigen_pool_schedule(inter, hand_on, &handing);
    wait_for(&handing.done, "closures that workers hand on");
    assert_in_range(tensorflow_backend.tasks() - before, 1, 1 + NUDGES);
    sem_destroy(&handing.done);
    before = tensorflow_backend.tasks();
    eigen_pool_free(inter);
    eigen_pool_free(intra);
    assert_true(tensorflow_backend.tasks() >= before);
}

/* Whether the pool, the only one here, has been given @threads. */
static bool commanded(uint32_t threads)
{
    bool found = false;

    pthread_mutex_lock(&pools_lock);
    for (unsigned i = 0; i < atomic_load(&pools_used); i++)
        found |= atomic_load(&pools[i].eigen) && pools[i].wanted == threads;
    pthread_mutex_unlock(&pools_lock);
    return found;
}

struct opener {
    pthread_t thread;
    struct meeting *meeting;
    uint64_t opened_ns;
};

/* Opens some time after the order is in force, to tell its way here apart from the closures. */
static void *open_later(void *arg)
{
    struct opener *opener = arg;

    while (!commanded(2))
        sleep_us(100);
    sleep_us(50000);
    opener->opened_ns = clock_now_ns();
    for (unsigned i = 0; i < opener->meeting->count; i++)
        sem_post(&opener->meeting->go);
    return NULL;
}

/* A worker that is in a closure when the command comes is waited for, and its time is reported. */
static void acknowledgement_waits_for_the_closure(void **state)
{
    struct eigen_pool *pool = eigen_pool_new(INTRA, BUILT, 0);
    struct meeting meeting = {.count = UINT32_MAX}; /* only open_later() lets them go */
    struct opener opener = {.meeting = &meeting};
    uint64_t before_ns, way_ns, after_ns;
    struct proto_ack ack;

    (void)state;
    peer_wait_agent(&peer);
    assert_int_equal(peer_set(&peer, BUILT, 0, NULL), PROTO_ACK_DONE);
    sem_init(&meeting.go, 0, 0);
    sem_init(&meeting.left, 0, 0);
    for (int i = 0; i < BUILT; i++)
        eigen_pool_schedule(pool, attend, &meeting);
    while (atomic_load(&meeting.here) < BUILT)
        sleep_us(100);
    meeting.count = BUILT;
    pthread_create(&opener.thread, NULL, open_later, &opener);
    before_ns = clock_now_ns();
    assert_int_equal(peer_set(&peer, 2, 0, &ack), PROTO_ACK_DONE);
    pthread_join(opener.thread, NULL);
    assert_true(ack.received_ns < opener.opened_ns);
    assert_true(ack.closure_end_ns >= opener.opened_ns);
    assert_true(ack.placed_ns >= ack.closure_end_ns);
    assert_true(ack.longest_ns >= opener.opened_ns - ack.received_ns);
    way_ns = ack.received_ns - before_ns;
    after_ns = ack.placed_ns - opener.opened_ns;
    assert_true(ack.lag_ns <= (way_ns > after_ns ? way_ns : after_ns)); /* without the closure */
    assert_in_range(ack.active, 1, BUILT / 2); /* should it last, the watchdog lets some go */
    for (int i = 0; i < BUILT; i++)
        wait_for(&meeting.left, "the closures end");
    eigen_pool_free(pool);
    sem_destroy(&meeting.go);
    sem_destroy(&meeting.left);
}

struct nested {
    struct eigen_pool *pool;
    sem_t inner;
    sem_t outer;
};

static void nested_inner(void *arg)
{
    struct nested *nested = arg;

    sem_post(&nested->inner);
}

static void nested_outer(void *arg)
{
    struct nested *nested = arg;

    eigen_pool_schedule(nested->pool, nested_inner, nested);
    while (sem_wait(&nested->inner) != 0)
        ;
    sem_post(&nested->outer);
}

/* With one thread stock TensorFlow would hang here; the watchdog wakes a parked one for a while. */
static void blocked_closure_lets_one_more_worker_go(void **state)
{
    struct eigen_pool *pool = eigen_pool_new(INTRA, BUILT, 0);
    struct nested nested = {.pool = pool};

    (void)state;
    peer_wait_agent(&peer);
    sem_init(&nested.inner, 0, 0);
    sem_init(&nested.outer, 0, 0);
    assert_int_equal(peer_set(&peer, 1, 0, NULL), PROTO_ACK_DONE);
    for (int i = 0; i < 2; i++) {
        eigen_pool_schedule(pool, nested_outer, &nested);
        wait_for(&nested.outer, "the nested closure has run");
    }
    assert_int_equal(peer_set(&peer, 2, 0, NULL), PROTO_ACK_DONE);
    eigen_pool_free(pool);
    sem_destroy(&nested.inner);
    sem_destroy(&nested.outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_told_the_active_count),
        cmocka_unit_test(what_inter_op_pools_are_given_is_counted),
        cmocka_unit_test(acknowledgement_waits_for_the_closure),
        cmocka_unit_test(blocked_closure_lets_one_more_worker_go),
        cmocka_unit_test(no_wake_up_is_lost),
        cmocka_unit_test(within_a_closure_the_number_only_rises),
        cmocka_unit_test(every_closure_runs_exactly_once),
        cmocka_unit_test(acknowledged_limit_is_never_exceeded),
        cmocka_unit_test(destroyed_while_parked_and_resized),
        cmocka_unit_test(pools_inside_pools),
    };
    int r;

    peer_open(&peer);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    peer_close(&peer);
    return r;
}
