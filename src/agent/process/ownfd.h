/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A descriptor of the agent in a user's program. The program may close it (os.closerange) and get
 * the same number for its own file. So each use first checks that the number still names our file.
 * Control thread, and ownfd_ok() also signal handlers and workers. Header only.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OWNFD_LOWEST 512 /* some programs expect small numbers for their own files */

struct ownfd {
    _Atomic int fd; /* -1: none */
    dev_t dev;
    ino_t ino;
};

/* Uses the system call, because fstat() got a new symbol version in glibc 2.33. */
static inline bool ownfd_identify(int fd, struct ownfd *ret)
{
    struct stat st;

    if (fd < 0 || syscall(SYS_fstat, fd, &st) != 0)
        return false;
    ret->dev = st.st_dev;
    ret->ino = st.st_ino;
    return true;
}

static inline bool ownfd_ok(const struct ownfd *own)
{
    struct ownfd now = {.fd = -1};
    int saved = errno;
    bool ok =
        own->fd >= 0 && ownfd_identify(own->fd, &now) && now.dev == own->dev && now.ino == own->ino;

    errno = saved;
    return ok;
}

/* Takes over @fd and moves it to a high number if the process's limit allows. */
static inline void ownfd_adopt(struct ownfd *own, int fd)
{
    /* Not fcntl(): its 64-bit variant is newer than glibc 2.17. */
    int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, OWNFD_LOWEST);

    if (high >= 0) {
        close(fd);
        fd = high;
    }
    ownfd_identify(fd, own);
    own->fd = fd;
}

/* Forgets the descriptor, and closes it if it still names our file. */
static inline void ownfd_drop(struct ownfd *own)
{
    int fd = own->fd;

    if (ownfd_ok(own)) {
        own->fd = -1;
        close(fd);
    }
    own->fd = -1;
}
