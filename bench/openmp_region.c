/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Empty parallel regions: prints the nanoseconds of one, the median of ROUNDS rounds of REGIONS.
 * The time is the calling thread's own, so that other work on the machine matters little. A second
 * thread sleeps: with one thread alone, libc's malloc (which libgomp calls for each region) is
 * faster, and the agent's thread would be charged for that. bench/openmp.py compiles it with gcc
 * and clang, and runs it with and without the agent.
 *
 *   openmp_region ROUNDS REGIONS
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void regions(long n)
{
    while (n-- > 0) {
#pragma omp parallel
        __asm__ volatile("");
    }
}

static void *sleeper(void *arg)
{
    for (;;)
        pause();
    return arg;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 50, n = argc > 2 ? atol(argv[2]) : 20000;
    double *took = calloc((size_t)rounds, sizeof(*took));

    pthread_t thread;

    if (!took || pthread_create(&thread, NULL, sleeper, NULL) != 0)
        return 1;
    for (int i = 0; i < 50; i++) { /* threads, and the agent's first look */
        regions(1000);
        usleep(10000);
    }
    for (long i = 0; i < rounds; i++) {
        double start = now_ns();

        regions(n);
        took[i] = (now_ns() - start) / (double)n;
    }
    qsort(took, (size_t)rounds, sizeof(*took), compare);
    printf("%.2f\n", took[rounds / 2]);
    free(took);
    return 0;
}
