/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that follows its target at once and does nothing else: what is measured with it is
 * Threadtide's part. It claims THREADS threads of which one is real: each growth wakes it, and it
 * says when it ran.
 *
 *   tide run -- follower THREADS [STAMPS]      ends with SIGTERM
 */
#include "stamps.h"

#include <tide/tide.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PROGRESS_NS 100000000

static struct stamps own;
static struct stamps *stamps = &own;
static sem_t growth;

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* On the agent's thread. Whoever waits for awake_ns finds told_ns and target written. */
static void on_change(const struct tide_state *state, void *arg)
{
    uint64_t before = atomic_load(&stamps->target);

    (void)arg;
    atomic_store(&stamps->told_ns, now_ns());
    atomic_store(&stamps->target, state->target);
    if (state->target > before)
        sem_post(&growth);
    tide_active(state->target < state->max ? state->target : state->max);
}

static void *work(void *arg)
{
    (void)arg;
    for (;;)
        if (sem_wait(&growth) == 0)
            atomic_store(&stamps->awake_ns, now_ns());
    return NULL;
}

int main(int argc, char **argv)
{
    const struct timespec pause = {.tv_nsec = PROGRESS_NS};
    unsigned threads = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    pthread_t worker;

    if (argc > 2)
        stamps = stamps_map(argv[2]);
    if (threads == 0 || !stamps) {
        fprintf(stderr, "usage: follower THREADS [STAMPS]\n");
        return 2;
    }
    if (sem_init(&growth, 0, 0) != 0 || pthread_create(&worker, NULL, work, NULL) != 0 ||
        tide_on_change(on_change, NULL) < 0 || tide_declare(threads) < 0) {
        fprintf(stderr, "follower: not controllable: start it with `tide run`\n");
        return 1;
    }
    for (uint64_t steps = 1;; steps++) {
        nanosleep(&pause, NULL);
        tide_progress(steps, 0, "steps");
    }
}
