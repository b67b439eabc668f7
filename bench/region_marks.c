/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parallel regions of OpenMP one after the other, of some milliseconds each. bench/safe_points.py
 * compiles it, sends targets, and reads when a region with the new number of threads begins: after
 * each region the program writes one record to FILE, its begin and end (CLOCK_MONOTONIC, ns) and
 * how many threads took part, three numbers of 64 bits.
 *
 * It counts threads by themselves and asks no runtime, since a program that asks keeps its number.
 *
 *   region_marks --marks FILE --times FILE      the times as bench/harness.py reads them
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define WORK 400000 /* additions of each thread: about a millisecond */

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void work(long n)
{
    for (volatile long i = 0; i < n; i = i + 1)
        ;
}

static int64_t region(void)
{
    int64_t threads = 0;

#pragma omp parallel
    {
        __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED);
        work(WORK);
    }
    return threads;
}

int main(int argc, char **argv)
{
    FILE *marks = NULL, *times = NULL;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--marks") == 0)
            marks = fopen(argv[i + 1], "wb");
        else if (strcmp(argv[i], "--times") == 0)
            times = fopen(argv[i + 1], "a");
    }
    if (!marks || !times) {
        fprintf(stderr, "usage: region_marks --marks FILE --times FILE\n");
        return 2;
    }
    for (;;) {
        int64_t record[3];

        record[0] = now_ns();
        record[2] = region();
        record[1] = now_ns();
        fwrite(record, sizeof(record), 1, marks);
        fflush(marks);
        fprintf(times, "%.6f\n", (double)record[1] / 1e9);
        fflush(times);
    }
}
