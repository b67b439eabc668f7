/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a hub's store takes to say what areas, users and days used. Fills an empty store with a
 * record a day for each area and for each of as many users, then asks, each question five times.
 *
 *   store_totals WHERE [AREAS [DAYS]]      default 1000 areas, 3650 days: some minutes to fill
 *
 * Prints a line of JSON: the median of each question in ms, and its rows.
 */
#include "base/clock.h"
#include "hub/store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY_MS INT64_C(86400000)
#define BEGIN  (INT64_C(18262) * DAY_MS) /* 2020-01-01 */
#define TIMES  5

static void must(int r, const struct error *err)
{
    if (r < 0) {
        fprintf(stderr, "store_totals: %s\n", err->text);
        exit(1);
    }
}

static void fill(struct store *s, unsigned areas, unsigned days)
{
    struct error err;
    struct store_put done;

    for (unsigned day = 0; day < days; day++) {
        must(store_begin(s, &err), &err);
        for (unsigned i = 0; i < areas; i++) {
            struct outbox_record r[2] = {{.point = "area", .boot = 1}, {.boot = 1}};
            char unit[32];

            snprintf(unit, sizeof(unit), "unit-%u", i);
            snprintf(r[1].point, sizeof(r[1].point), STORE_USER "u%u", i);
            for (int k = 0; k < 2; k++) {
                uint64_t uj = (uint64_t)(day + 1) * (1000000000 + i);

                r[k].seq = day * 2 + (unsigned)k + 1;
                r[k].from_ms = (uint64_t)(BEGIN + day * DAY_MS);
                r[k].to_ms = (uint64_t)(BEGIN + (day + 1) * DAY_MS);
                r[k].total = (struct energy_range){uj, uj, uj, POWER_MEASURED};
            }
            must(store_put(s, unit, r, 2, &done, &err), &err);
        }
        must(store_commit(s, &err), &err);
    }
}

static bool count(void *arg, const struct store_total *t)
{
    ++*(uint64_t *)arg;
    return true;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void ask(struct store *s, const char *name, enum store_by by, unsigned days, unsigned of)
{
    struct store_question q = {
        .by = by, .from_ms = BEGIN + (of - days) * DAY_MS, .to_ms = BEGIN + of * DAY_MS};
    uint64_t ns[TIMES], rows = 0;
    struct store_span span;
    struct error err;

    for (int i = 0; i < TIMES; i++) {
        uint64_t begin = clock_now_ns();

        rows = 0;
        must(store_totals(s, &q, &span, count, &rows, &err), &err);
        ns[i] = clock_now_ns() - begin;
    }
    qsort(ns, TIMES, sizeof(*ns), compare);
    printf(", \"%s, %u days\": {\"ms\": %.1f, \"rows\": %" PRIu64 "}", name, days,
           (double)ns[TIMES / 2] / 1e6, rows);
}

int main(int argc, char **argv)
{
    unsigned areas = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1000;
    unsigned days = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 3650;
    const unsigned spans[] = {30, 365, 3650};
    uint64_t begin = clock_now_ns();
    struct store *s = NULL;
    struct error err;

    if (argc < 2) {
        fprintf(stderr, "usage: store_totals WHERE [AREAS [DAYS]]\n");
        return 2;
    }
    must(store_open(argv[1], &s, &err), &err);
    fill(s, areas, days);
    printf("{\"areas\": %u, \"days\": %u, \"filled_s\": %.1f", areas, days,
           (double)(clock_now_ns() - begin) / NS_PER_S);
    for (size_t i = 0; i < sizeof(spans) / sizeof(*spans) && spans[i] <= days; i++) {
        ask(s, "by area", STORE_BY_UNIT, spans[i], days);
        ask(s, "by user", STORE_BY_USER, spans[i], days);
        ask(s, "by day", STORE_BY_DAY, spans[i], days);
    }
    puts("}");
    store_close(s);
    return 0;
}
