/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token bucket: a burst at once, then a rate per second. Zero it to begin with a full one. What
 * it is charged with afterwards may leave it in debt. Pure; any thread.
 */
#pragma once

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

struct bucket {
    uint64_t filled_ns;
    int64_t tokens; /* NS_PER_S-ths */
};

/* Takes one token, if there is one. */
static inline bool bucket_take(struct bucket *b, unsigned rate, unsigned burst, uint64_t now_ns)
{
    int64_t full = (int64_t)(burst * NS_PER_S);
    uint64_t passed = now_ns - b->filled_ns;

    if (b->filled_ns == 0 || passed >= (uint64_t)(full - b->tokens) / rate)
        b->tokens = full;
    else
        b->tokens += (int64_t)(passed * rate);
    b->filled_ns = now_ns;
    if (b->tokens < (int64_t)NS_PER_S)
        return false;
    b->tokens -= (int64_t)NS_PER_S;
    return true;
}
