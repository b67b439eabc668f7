/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with a pool of its own that follows libtide, and works or waits as it is told: SIGUSR1
 * makes its threads spin, SIGUSR2 sleep. Started by component tests under `tide run` and in
 * containers.
 *
 *   pool THREADS
 *
 * Prints "ready PID".
 */
#include <tide/tide.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static atomic_uint target, size;
static atomic_bool works;

static void on_signal(int number)
{
    atomic_store(&works, number == SIGUSR1);
}

/* On the agent's thread. The surplus sees it at the end of its round. */
static void on_change(const struct tide_state *state, void *arg)
{
    unsigned n = state->target < size ? state->target : size;

    (void)arg;
    atomic_store(&target, n);
    tide_active(n);
}

static void *run(void *arg)
{
    const struct timespec nap = {.tv_nsec = 20000000}; /* rarely: a pool that waits uses nothing */

    for (;;)
        if (atomic_load(&works) && (uintptr_t)arg < atomic_load(&target))
            for (unsigned i = 0; i < 100000; i++)
                __asm__ volatile("");
        else
            nanosleep(&nap, NULL);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    size = target = argc > 1 ? (unsigned)atoi(argv[1]) : 4;
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, on_signal);
    for (uintptr_t i = 0; i < size; i++)
        if (pthread_create(&thread, NULL, run, (void *)i) != 0)
            return 1;
    if (tide_declare(size) < 0)
        return 2;
    tide_on_change(on_change, NULL);
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    for (;;)
        pause();
}
