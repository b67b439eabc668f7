/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorting for policies: in place, the same result with every libc, no allocation (glibc's qsort may
 * allocate and orders equal elements differently between versions). Pure; used by policies and by
 * the cluster controller.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True if element @a goes before @b. The order must be total, so its last key is unique. */
typedef bool (*order_before_fn)(uint32_t a, uint32_t b, const void *arg);

/*
 * Restores a heap whose element at @root may be too early for its place. In the heap every element
 * goes after its children, so index[0] is the last of the order.
 */
void order_sift_down(uint32_t *index, size_t root, size_t count, order_before_fn before,
                     const void *arg);

/* Sorts @count indices; O(n log n) always, O(n) when they are in order already. */
void order_sort(uint32_t *index, size_t count, order_before_fn before, const void *arg);
