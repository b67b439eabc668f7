/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a process's time on the CPUs its threads spend inside an OpenMP library. libgomp,
 * libomp and libiomp5 compute nothing themselves: a thread that runs there hands out work, or waits
 * for other threads without sleeping. The kernel samples where threads are (perf_event_open(2), a
 * clock, user mode alone), and the process notices nothing. Single-threaded; used by observe.c.
 */
#pragma once

#include "host/proc/proc.h"

#include <stdint.h>

#define SPIN_THREADS_MAX 64  /* of one process; those that run come first */
#define SPIN_HZ          499 /* samples of each thread in a second on a CPU */

struct spin; /* a running measurement */

struct spin_result {
    uint32_t samples; /* of threads on a CPU in user mode */
    uint32_t waiting; /* of these, inside an OpenMP library */
};

/*
 * Begins to watch @threads of @pid. Returns 0 or -errno: -EACCES or -EPERM where the kernel allows
 * no sampling (kernel.perf_event_paranoid above 2, or a container's filter), -ESRCH.
 */
int spin_begin(const struct proc_threads *threads, struct spin **ret);

/* Ends it; *ret is zeroes when the process has gone. Takes NULL. */
void spin_end(struct spin *spin, int root, pid_t pid, struct spin_result *ret);
