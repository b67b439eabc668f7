/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a follower's threads changed: written by bench/follower into a file that bench/api_cost maps
 * too. CLOCK_MONOTONIC, which is one clock for all processes.
 */
#pragma once

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

struct stamps {
    _Atomic uint64_t target;   /* threads, by the last change */
    _Atomic uint64_t told_ns;  /* when the callback of that change ran */
    _Atomic uint64_t awake_ns; /* when a thread that the last growth had woken ran */
};

/* Maps the stamps in file @path, made if missing, for good. NULL on failure. */
static inline struct stamps *stamps_map(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *map = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, sizeof(struct stamps)) == 0)
        map = mmap(NULL, sizeof(struct stamps), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return map == MAP_FAILED ? NULL : map;
}
