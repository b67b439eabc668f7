/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches processes for a moment: how many of their threads ran and waited, on which CPUs, under
 * which quota. Reads only; needs no daemon. Single-threaded; used by `tide doctor`.
 */
#pragma once

#include "base/error.h"
#include "cli/doctor/diagnose.h"
#include "host/cgroup/cgroup.h"
#include "host/proc/proc.h"

/* Sums over a process's threads between two looks at them. */
struct thread_use {
    uint64_t cpu_ns;
    uint64_t wait_ns;
};

/*
 * Pure: the CPU time of the threads of @after since @before. A thread born meanwhile counts whole;
 * one that ended is not seen. Both are sorted by tid.
 */
struct thread_use observe_use(const struct proc_threads *before, const struct proc_threads *after);

/*
 * Observes @pid for @duration_ms; fills in everything except the daemon's view (ret->tide …).
 * Returns 0, -ESRCH (no such process, or it ended), -EACCES (another user's), or -errno.
 */
int observe_process(int root, const struct cgroup *cg, pid_t pid, unsigned duration_ms,
                    struct observation *ret, struct error *err);

/* One row of the survey. */
struct observed_row {
    pid_t pid;
    char comm[PROC_COMM_MAX];
    uint32_t threads;
    uint32_t demand_milli;
    uint32_t waiting_milli;
    uint32_t allowed_mcpu;
};

/*
 * Watches every process of @uid (0: of all users) for @duration_ms. The rows come sorted by demand
 * above the allowed cores, largest first, at most @max. Returns 0 or -errno.
 */
int observe_survey(int root, const struct cgroup *cg, uid_t uid, unsigned duration_ms,
                   struct observed_row *rows, size_t max, size_t *ret_n);
