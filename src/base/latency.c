/* SPDX-License-Identifier: Apache-2.0 */
#include "base/latency.h"

#include "base/muldiv.h"

#define STEPS_LOG 3 /* 2^3 buckets a doubling */
#define STEPS     (1u << STEPS_LOG)
#define STEP_NS   12500u /* width of the first buckets: 100 µs / STEPS */
#define LAST      (LATENCY_BUCKETS - 1)

unsigned latency_bucket(uint64_t ns)
{
    uint64_t steps = ns > 0 ? (ns - 1) / STEP_NS : 0;
    unsigned octave, bucket;

    if (steps < STEPS)
        return 0;
    octave = 63 - (unsigned)__builtin_clzll(steps) - STEPS_LOG;
    bucket = octave * STEPS + (unsigned)(steps >> octave) - STEPS;
    return bucket < LAST ? bucket : LAST;
}

uint64_t latency_most_ns(unsigned bucket)
{
    if (bucket >= LAST)
        return UINT64_MAX;
    return (uint64_t)(STEPS + bucket % STEPS + 1) * STEP_NS << bucket / STEPS;
}

uint64_t latency_quantile(const uint32_t bucket[LATENCY_BUCKETS], uint32_t permille)
{
    uint64_t count = 0, rank;
    unsigned b = 0;

    for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
        count += bucket[i];
    if (count == 0)
        return 0;
    rank = permille < 1000 ? (count * permille + 999) / 1000 : count;
    rank = rank > 0 ? rank : 1;
    for (; rank > bucket[b]; b++)
        rank -= bucket[b];
    count = b > 0 ? latency_most_ns(b - 1) : 0; /* durations in the bucket are longer */
    if (b == LAST)
        return count + 1;
    return count + mul_div(latency_most_ns(b) - count, rank, bucket[b]);
}
