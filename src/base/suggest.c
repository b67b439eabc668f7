/* SPDX-License-Identifier: Apache-2.0 */
#include "base/suggest.h"

#include "base/distance.h"

#include <string.h>

unsigned suggest_distance(const char *a, const char *b)
{
    return distance(a, strnlen(a, DISTANCE_MAX), b, strnlen(b, DISTANCE_MAX));
}

const char *suggest_nearest(const char *word, const char *const *words, size_t n)
{
    const char *nearest = NULL;
    unsigned best = 3;

    for (size_t i = 0; i < n; i++) {
        unsigned distance = suggest_distance(word, words[i]);

        if (distance < best && distance < strlen(words[i])) {
            best = distance;
            nearest = words[i];
        }
    }
    return nearest;
}
