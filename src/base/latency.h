/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A histogram of durations: eight buckets of equal width for each doubling, from 100 µs to about
 * 100 s. Shorter durations count in the first bucket, longer ones in the last. A quantile is taken
 * from the bucket that holds it, and no bucket between is wider than an eighth of its durations.
 * Integers only, pure; the agent and tided use it, on any thread.
 */
#pragma once

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
