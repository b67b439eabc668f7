/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/division/order.h"

void order_sift_down(uint32_t *index, size_t root, size_t count, order_before_fn before,
                     const void *arg)
{
    uint32_t moving = index[root];

    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && before(index[child], index[child + 1], arg))
            child++;
        if (!before(moving, index[child], arg))
            break;
        index[root] = index[child];
    }
    index[root] = moving;
}

static bool in_order(const uint32_t *index, size_t count, order_before_fn before, const void *arg)
{
    for (size_t i = 1; i < count; i++)
        if (before(index[i], index[i - 1], arg))
            return false;
    return true;
}

/* Heap sort: it needs no second array and has no bad case; a total order needs no stability. */
void order_sort(uint32_t *index, size_t count, order_before_fn before, const void *arg)
{
    if (in_order(index, count, before, arg))
        return;
    for (size_t i = count / 2; i-- > 0;)
        order_sift_down(index, i, count, before, arg);
    for (size_t end = count; end-- > 1;) {
        uint32_t last = index[end];

        index[end] = index[0];
        index[0] = last;
        order_sift_down(index, 0, end, before, arg);
    }
}
