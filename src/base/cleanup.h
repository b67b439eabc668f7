/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scope-bound ownership: _cleanup_(f) runs f(&variable) when the variable leaves its scope.
 * TAKE_PTR/TAKE_FD move a value out, so that the clean-up finds nothing to do.
 * Any thread; header only.
 */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

#define TAKE_PTR(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) _taken = (p);                                                                \
        (p) = NULL;                                                                                \
        _taken;                                                                                    \
    })

#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int _taken = (fd);                                                                         \
        (fd) = -1;                                                                                 \
        _taken;                                                                                    \
    })

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* close(2) that keeps errno and accepts -1; returns -1 so that `fd = close_fd(fd)` forgets it. */
static inline int close_fd(int fd)
{
    if (fd >= 0) {
        int saved = errno;
        close(fd);
        errno = saved;
    }
    return -1;
}

static inline void cleanup_fd(int *fd)
{
    *fd = close_fd(*fd);
}

static inline void cleanup_free(void *p)
{
    int saved = errno;
    free(*(void **)p);
    errno = saved;
}

static inline void cleanup_file(FILE **f)
{
    if (*f)
        fclose(*f);
}

#define _cleanup_fd_   _cleanup_(cleanup_fd)
#define _cleanup_free_ _cleanup_(cleanup_free)
#define _cleanup_file_ _cleanup_(cleanup_file)
