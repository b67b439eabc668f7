/* SPDX-License-Identifier: Apache-2.0 */
/* The smaller and larger of two amounts (int64_t, or as the name ends). Pure; any thread. */
#pragma once

#include <stdint.h>

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t smaller_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t larger_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Without libm, which `tide` would have to load on each start. */
static inline double smaller_double(double a, double b)
{
    return a < b ? a : b;
}

static inline double larger_double(double a, double b)
{
    return a > b ? a : b;
}
