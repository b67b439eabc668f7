/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token bucket: it allows a burst, then a rate per second. A zeroed bucket is full. A charge
 * after the event may leave it in debt. Pure; any thread.
 */
#pragma once

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

struct bucket {
    uint64_t filled_ns;
    int64_t tokens; /* in parts of 1/NS_PER_S */
};

/* Whether there is a token. Fills the bucket up to now. */
static inline bool bucket_has(struct bucket *b, unsigned rate, unsigned burst, uint64_t now_ns)
{
    int64_t full = (int64_t)(burst * NS_PER_S);
    uint64_t passed = now_ns - b->filled_ns;

    if (b->filled_ns == 0 || passed >= (uint64_t)(full - b->tokens) / rate)
        b->tokens = full;
    else
        b->tokens += (int64_t)(passed * rate);
    b->filled_ns = now_ns;
    return b->tokens >= (int64_t)NS_PER_S;
}

/* Takes one token. Returns false if there is none. */
static inline bool bucket_take(struct bucket *b, unsigned rate, unsigned burst, uint64_t now_ns)
{
    if (!bucket_has(b, rate, burst, now_ns))
        return false;
    b->tokens -= (int64_t)NS_PER_S;
    return true;
}
