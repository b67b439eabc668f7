/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean …": the known word nearest to a mistyped one. Any thread, pure. */
#pragma once

#include <stddef.h>

/*
 * Returns the least number of insertions, deletions, substitutions and swaps of neighbours that
 * turn @a into @b (optimal string alignment). Only the first 31 bytes of a word count.
 */
unsigned suggest_distance(const char *a, const char *b);

/* Returns the nearest of @words at a distance of at most 2 and below its own length, or NULL. */
const char *suggest_nearest(const char *word, const char *const *words, size_t n);
