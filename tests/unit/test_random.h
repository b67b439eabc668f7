/* SPDX-License-Identifier: Apache-2.0 */
/* Chance for tests: splitmix64, the same numbers from one @random_state on every machine. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

static uint64_t random_state;

static inline uint64_t random_next(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint32_t random_below(uint32_t n)
{
    return (uint32_t)(random_next() % n);
}

static inline bool one_in(uint32_t n)
{
    return random_below(n) == 0;
}
