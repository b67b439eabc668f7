/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A histogram of durations: eight buckets of equal width for each doubling, from 100 µs to about
 * 100 s. Shorter durations count in the first bucket, longer ones in the last. A quantile is taken
 * from the bucket that holds it, and no bucket between is wider than an eighth of its durations.
 * Beside it what ended in the last second or two, and the part of seconds that kept a promise.
 * Integers only, pure; the agent, tided and the simulator use it, on any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LATENCY_BUCKETS 160

/* Returns the bucket of a duration. No loop, no division by a variable: programs' threads call it.
 */
unsigned latency_bucket(uint64_t ns);

/* Returns the longest duration in @bucket, UINT64_MAX for the last one and above. */
uint64_t latency_most_ns(unsigned bucket);

/*
 * Returns the @permille-th quantile (nearest rank) of the durations that @bucket counts, 0 if there
 * are none. The durations of a bucket are taken as spread evenly over it, so the result lies in the
 * bucket of the exact quantile and is less than an eighth off. Where that is the first bucket, the
 * result is at most 112.5 µs; where it is the last, it is the shortest duration there.
 */
uint64_t latency_quantile(const uint32_t bucket[LATENCY_BUCKETS], uint32_t permille);

/*
 * Requests that ended in the present second and in the one before, and how many seconds with
 * requests kept a promise: their p99 was within it. All zero at first.
 */
struct latency_seconds {
    uint64_t since_ns;  /* begin of the present second; 0: no request yet */
    uint64_t before_ns; /* length of the one before; 0: there is none */
    uint64_t moved_ns;  /* a request began or ended last */
    uint32_t now[LATENCY_BUCKETS], before[LATENCY_BUCKETS];
    uint64_t judged, kept; /* seconds with requests and a promise; and those that kept it */
};

/* The view of plan and people. */
struct latency_window {
    uint64_t p99_ns; /* of what ended in the window; where nothing did but is in flight: how long */
    uint64_t p50_ns; /* of what ended in the window */
    uint64_t window_ns;  /* its length, 1 to 2 s */
    uint32_t ended;      /* in it */
    uint32_t per_second; /* ended in the last whole second */
    uint32_t in_flight;
};

/* Begins with the first request, and ends seconds that are over. @in_flight: at present. */
void latency_seconds_begin(struct latency_seconds *s, uint64_t now_ns);
void latency_seconds_roll(struct latency_seconds *s, uint64_t promise_ns, uint32_t in_flight,
                          uint64_t now_ns);

/* Returns false if no request began yet. Changes nothing. */
bool latency_seconds_view(const struct latency_seconds *s, uint32_t in_flight, uint64_t now_ns,
                          struct latency_window *ret);
