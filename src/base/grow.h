/* SPDX-License-Identifier: Apache-2.0 */
/* Room of an array that its owner keeps between two uses. Header only; any thread. */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Gives the array that the pointer at @array owns (NULL: none yet) room for @count elements of
 * @size bytes. Returns 0 or -ENOMEM, which leaves the array as it is.
 */
static inline int grow(void *array, size_t count, size_t size)
{
    void *old, *larger;

    memcpy(&old, array, sizeof(old)); /* a pointer of any type */
    larger = reallocarray(old, count ? count : 1, size);
    if (!larger)
        return -ENOMEM;
    memcpy(array, &larger, sizeof(larger));
    return 0;
}
