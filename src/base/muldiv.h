/* SPDX-License-Identifier: Apache-2.0 */
/*
 * a × b / c of 64-bit numbers, exact although the product needs 128 bits. A division of 128 bits
 * would call libgcc, which pure code must not. Header only; any thread.
 */
#pragma once

#include <stdint.h>

__extension__ typedef unsigned __int128 muldiv_wide;

/* Rounded down; UINT64_MAX if it does not fit or @c is 0. */
static inline uint64_t mul_div(uint64_t a, uint64_t b, uint64_t c)
{
    muldiv_wide product = (muldiv_wide)a * b;
    uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;

    if (high >= c)
        return UINT64_MAX;
    if (high == 0)
        return low / c;
    for (unsigned i = 0; i < 64; i++) { /* long division, a bit at a time */
        uint64_t carry = high >> 63;

        high = high << 1 | low >> 63;
        low <<= 1;
        if (carry || high >= c) {
            high -= c;
            low |= 1;
        }
    }
    return low;
}

/* Rounded up; UINT64_MAX if it does not fit or @c is 0. */
static inline uint64_t mul_div_up(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t q = mul_div(a, b, c);

    return q + (q != UINT64_MAX && (muldiv_wide)q * c != (muldiv_wide)a * b);
}

/* a + b, at most UINT64_MAX. */
static inline uint64_t add_sat(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

/* a − b, at least 0. */
static inline uint64_t sub_sat(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}
