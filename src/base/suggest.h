/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean …": the known word nearest to a mistyped one. Any thread, pure. */
#pragma once

#include <stddef.h>

/*
 * Least number of insertions, deletions, substitutions and swaps of neighbours that turn @a into
 * @b (optimal string alignment). Words of more than 31 bytes are told apart by their first 31.
 */
unsigned suggest_distance(const char *a, const char *b);

/* The nearest of @words at a distance of at most 2, and less than the word's length; else NULL. */
const char *suggest_nearest(const char *word, const char *const *words, size_t n);
