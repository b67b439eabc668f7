/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between this library's structs and those of a caller that was built against another
 * header: both start with their size. Any thread; used by program.c and ctl.c.
 */
#pragma once

#include <stddef.h>
#include <string.h>

/* The offset behind @member: a caller whose struct is at least as large knows the member. */
#define SIZED_END(type, member) (offsetof(type, member) + sizeof(((type *)NULL)->member))

/*
 * Copies @own of @own_size bytes into @ret and keeps its first field, the size. Fields that only
 * the caller knows become 0.
 */
static inline void sized_copy(void *ret, const void *own, size_t own_size)
{
    size_t size = *(const size_t *)ret;
    size_t common = size < own_size ? size : own_size;

    memcpy((char *)ret + sizeof(size), (const char *)own + sizeof(size), common - sizeof(size));
    if (size > own_size)
        memset((char *)ret + own_size, 0, size - own_size);
}
