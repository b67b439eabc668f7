/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets the scheduling slice of the calling thread. New threads and execve() inherit it (Linux 6.12
 * and newer, SCHED_OTHER; elsewhere it has no effect). The thread's part of a core stays the same.
 * A short slice gives an early deadline: the thread preempts busy ones soon after a wake-up. A long
 * slice keeps a computing thread's caches warm, because threads of several jobs take turns less
 * often. Any thread; header only.
 */
#pragma once

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_SHORT_NS 100000   /* the least that Linux grants */
#define SLICE_LONG_NS  20000000 /* measured: docs/benchmarks.md */

struct slice_attr { /* struct sched_attr of Linux, first version */
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns;
    uint64_t deadline_ns;
    uint64_t period_ns;
};

/* Returns the former slice, or 0 when it is unknown or was not changed. */
static inline uint64_t slice_set(uint64_t ns)
{
    struct slice_attr attr = {.size = sizeof(attr)};
    uint64_t before;

    if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) != 0 || attr.policy != 0)
        return 0;
    before = attr.runtime_ns;
    attr.runtime_ns = ns;
    return syscall(SYS_sched_setattr, 0, &attr, 0) == 0 ? before : 0;
}
