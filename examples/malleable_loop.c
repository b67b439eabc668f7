/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with worker threads of its own that follows the number Threadtide gives it.
 *
 *   tide run --name pi -- malleable_loop 8 2000      then, elsewhere:  tide set pi --threads 2
 *
 * Without `tide run` it uses all its workers. It computes pi by the midpoint rule, in chunks: a
 * worker looks at the target between two chunks, where it holds nothing.
 */
#include <tide/tide.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define WORKERS_MAX  64
#define CHUNK_POINTS 200000

static struct {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    unsigned target; /* workers 0 … target-1 may take chunks */
    unsigned active; /* workers that are not parked */
    unsigned changes;
    uint64_t next; /* chunk */
    uint64_t done;
    uint64_t total;
    double sum;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

/* On the agent's thread, after each change of target. */
static void on_change(const struct tide_state *state, void *arg)
{
    (void)arg;
    pthread_mutex_lock(&pool.lock);
    pool.target = state->target;
    pool.changes++;
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
}

/* Sleeps while this worker is surplus. pool.lock is held. */
static void park(unsigned id)
{
    tide_active(--pool.active);
    while (id >= pool.target && pool.next < pool.total)
        pthread_cond_wait(&pool.wake, &pool.lock);
    tide_active(++pool.active);
}

static double integrate(uint64_t chunk)
{
    double points = (double)pool.total * CHUNK_POINTS; /* total does not change any more */
    double sum = 0;

    for (uint64_t i = 0; i < CHUNK_POINTS; i++) {
        double x = ((double)(chunk * CHUNK_POINTS + i) + 0.5) / points;
        sum += 4 / (1 + x * x);
    }
    return sum / points;
}

static void *work(void *arg)
{
    unsigned id = (unsigned)(uintptr_t)arg;

    pthread_mutex_lock(&pool.lock);
    while (pool.next < pool.total) {
        uint64_t chunk;
        double part;

        if (id >= pool.target) {
            park(id);
            continue;
        }
        chunk = pool.next++;
        pthread_mutex_unlock(&pool.lock);
        part = integrate(chunk);
        pthread_mutex_lock(&pool.lock);
        pool.sum += part;
        tide_progress(++pool.done, pool.total, "chunks");
    }
    pthread_cond_broadcast(&pool.wake); /* nothing is left: the parked ones may go home */
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

/* Announces the workers and takes the first target. Without an agent all of them work. */
static void follow(unsigned workers)
{
    struct tide_state state = {.size = sizeof(state)};
    int r = tide_declare(workers);

    if (r < 0) {
        fprintf(stderr, "malleable_loop: not controllable: %s\n", tide_strerror(r));
        return;
    }
    tide_on_change(on_change, NULL);
    pthread_mutex_lock(&pool.lock);
    if (pool.changes == 0 && tide_get(&state) == 0)
        pool.target = state.target;
    pthread_mutex_unlock(&pool.lock);
}

int main(int argc, char **argv)
{
    unsigned workers = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 4;
    pthread_t thread[WORKERS_MAX];
    unsigned started = 0;

    pool.total = argc > 2 ? strtoull(argv[2], NULL, 10) : 500;
    if (workers < 1 || workers > WORKERS_MAX || pool.total < 1 || pool.total > 1000000000) {
        fprintf(stderr, "usage: malleable_loop [WORKERS (1 to %d) [CHUNKS]]\n", WORKERS_MAX);
        return 2;
    }
    pool.target = pool.active = workers;
    follow(workers);
    while (started < workers &&
           pthread_create(&thread[started], NULL, work, (void *)(uintptr_t)started) == 0)
        started++;
    if (started == 0) {
        fprintf(stderr, "malleable_loop: no thread can be created\n");
        return 1;
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    tide_on_change(NULL, NULL);
    tide_declare(0);
    printf("pi = %.12f, %" PRIu64 " chunks, %u changes of target\n", pool.sum, pool.done,
           pool.changes);
    return 0;
}
