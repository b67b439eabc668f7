/* SPDX-License-Identifier: Apache-2.0 */
#include "base/latency.h"

#include "base/clock.h"
#include "base/muldiv.h"

#include <string.h>

#define STEPS_LOG 3 /* 2^3 buckets a doubling */
#define STEPS     (1u << STEPS_LOG)
#define STEP_NS   12500u /* width of the first buckets: 100 µs / STEPS */
#define LAST      (LATENCY_BUCKETS - 1)
#define P50       500 /* permille */
#define P99       990

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

/* ---- seconds --------------------------------------------------------------------------------- */

static uint32_t sum(const uint32_t bucket[LATENCY_BUCKETS])
{
    uint32_t count = 0;

    for (unsigned b = 0; b < LATENCY_BUCKETS; b++)
        count += bucket[b];
    return count;
}

/* How long the oldest request may have been in flight, where none ended for a second. */
static uint64_t stalled_ns(const struct latency_seconds *s, uint32_t in_flight, uint64_t now_ns)
{
    return in_flight ? now_ns - s->moved_ns : 0;
}

/* Whether the second that ends now kept the promise, where there is one. */
static void judge_second(struct latency_seconds *s, uint64_t promise_ns, uint32_t in_flight,
                         uint64_t now_ns)
{
    uint64_t p99_ns =
        sum(s->now) ? latency_quantile(s->now, P99) : stalled_ns(s, in_flight, now_ns);

    if (promise_ns == 0 || p99_ns == 0)
        return;
    s->judged++;
    s->kept += p99_ns <= promise_ns;
}

void latency_seconds_begin(struct latency_seconds *s, uint64_t now_ns)
{
    if (s->since_ns == 0)
        s->since_ns = s->moved_ns = now_ns;
}

void latency_seconds_roll(struct latency_seconds *s, uint64_t promise_ns, uint32_t in_flight,
                          uint64_t now_ns)
{
    uint64_t gone_ns = now_ns - s->since_ns;

    if (s->since_ns == 0 || gone_ns < NS_PER_S)
        return;
    judge_second(s, promise_ns, in_flight, now_ns);
    s->before_ns = gone_ns < 2 * NS_PER_S ? gone_ns : 0;
    if (s->before_ns)
        memcpy(s->before, s->now, sizeof(s->before));
    else
        memset(s->before, 0, sizeof(s->before));
    memset(s->now, 0, sizeof(s->now));
    s->since_ns = now_ns;
}

bool latency_seconds_view(const struct latency_seconds *s, uint32_t in_flight, uint64_t now_ns,
                          struct latency_window *ret)
{
    uint64_t gone_ns = now_ns - s->since_ns; /* a second that is over need not be `before` yet */
    bool fresh = gone_ns < 2 * NS_PER_S, both = gone_ns < NS_PER_S;
    uint32_t bucket[LATENCY_BUCKETS] = {0};

    if (s->since_ns == 0)
        return false;
    for (unsigned b = 0; b < LATENCY_BUCKETS; b++)
        bucket[b] = (fresh ? s->now[b] : 0) + (both ? s->before[b] : 0);
    *ret = (struct latency_window){.p99_ns = latency_quantile(bucket, P99),
                                   .p50_ns = latency_quantile(bucket, P50),
                                   .window_ns = fresh ? gone_ns + (both ? s->before_ns : 0) : 0,
                                   .ended = sum(bucket),
                                   .in_flight = in_flight};
    if (both && s->before_ns)
        ret->per_second = (uint32_t)((uint64_t)sum(s->before) * NS_PER_S / s->before_ns);
    else if (fresh && !both)
        ret->per_second = (uint32_t)((uint64_t)sum(s->now) * NS_PER_S / gone_ns);
    if (ret->ended == 0 && stalled_ns(s, in_flight, now_ns) >= NS_PER_S) {
        ret->p99_ns = stalled_ns(s, in_flight, now_ns);
        ret->ended = ret->in_flight;
    }
    return true;
}
