/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long it takes to divide an area's cap over 10,000 machines with curves of eight points, and
 * to merge their curves into the parent's own. Prints median and 99th percentile of 1,000 runs,
 * each with other curves and another cap; with --json the same as rows for bench/energy.py.
 */
#include "power/division/divide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define CHILDREN 10000
#define REPEATS  1000
#define GOAL_US  10000.0

static uint64_t state = 1;

static uint64_t random_below(uint64_t bound)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % bound;
}

/* A machine: 20 to 60 W idle, seven steps of 5 to 25 W, each worth less than the last. */
static void draw(struct demand *d)
{
    uint64_t slope = 1000000;

    *d = (struct demand){.point[0].uw = 20000000 + random_below(40000000), .count = DEMAND_POINTS};
    for (uint32_t i = 1; i < DEMAND_POINTS; i++) {
        uint64_t uw = 5000000 + random_below(20000000);

        slope -= slope / (2 + random_below(20));
        d->point[i].uw = d->point[i - 1].uw + uw;
        d->point[i].value = d->point[i - 1].value + uw * slope / 1000000;
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void print(const char *what, uint64_t *ns, int json)
{
    double median, p99;

    qsort(ns, REPEATS, sizeof(*ns), compare);
    median = (double)ns[REPEATS / 2] / 1000;
    p99 = (double)ns[REPEATS * 99 / 100] / 1000;
    printf(json ? "{\"what\": \"%s\", \"children\": %d, \"repeats\": %d, \"median_us\": %.1f, "
                  "\"p99_us\": %.1f, \"goal_us\": %.0f}\n"
                : "%-6s %d children, %d runs: median %.1f us, p99 %.1f us (goal %.0f us)\n",
           what, CHILDREN, REPEATS, median, p99, GOAL_US);
}

int main(int argc, char **argv)
{
    static struct demand demand[CHILDREN], merged;
    static struct divide_child child[CHILDREN];
    static uint64_t given[CHILDREN], divided_ns[REPEATS], merged_ns[REPEATS];
    void *scratch = malloc(divide_bytes(CHILDREN));
    int json = argc > 1 && strcmp(argv[1], "--json") == 0;

    if (!scratch)
        return 1;
    for (int run = 0; run < REPEATS; run++) {
        uint64_t cap = 0, begun, left;

        for (int i = 0; i < CHILDREN; i++) {
            draw(&demand[i]);
            child[i] =
                (struct divide_child){.demand = &demand[i], .floor_uw = demand[i].point[0].uw};
            cap += child[i].floor_uw;
        }
        cap += random_below(UINT64_C(100000000) * CHILDREN);
        begun = clock_now_ns();
        if (divide_cap(cap, child, CHILDREN, scratch, given, &left) < 0)
            return 1;
        divided_ns[run] = clock_now_ns() - begun;
        begun = clock_now_ns();
        divide_merge(child, CHILDREN, scratch, &merged);
        merged_ns[run] = clock_now_ns() - begun;
    }
    print("divide", divided_ns, json);
    print("merge", merged_ns, json);
    free(scratch);
    return 0;
}
