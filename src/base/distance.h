/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a mistyped word is from a known one. Any thread, pure. It is a header only, because
 * policies use it and they import no function.
 */
#pragma once

#include <stddef.h>

#define DISTANCE_MAX 31 /* only so many bytes of a word are compared */

/*
 * Returns the least number of insertions, deletions, substitutions and swaps of neighbours that
 * turn the @n bytes of @a into the @m bytes of @b (optimal string alignment).
 */
static inline unsigned distance(const char *a, size_t n, const char *b, size_t m)
{
    unsigned d[DISTANCE_MAX + 1][DISTANCE_MAX + 1];

    n = n < DISTANCE_MAX ? n : DISTANCE_MAX;
    m = m < DISTANCE_MAX ? m : DISTANCE_MAX;
    for (size_t i = 0; i <= n; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            unsigned least = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

            least = d[i - 1][j] + 1 < least ? d[i - 1][j] + 1 : least;
            least = d[i][j - 1] + 1 < least ? d[i][j - 1] + 1 : least;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < least)
                least = d[i - 2][j - 2] + 1;
            d[i][j] = least;
        }
    }
    return d[n][m];
}
