/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit that the process already has: its affinity (which a cpuset narrows) and the CPU quota
 * of its cgroup and of every group above. Read by the agent's control thread about four times a
 * second and when a pool is built. No allocation; plain system calls.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#define LIMIT_FILE_MAX 4096 /* bytes; /proc/self/cgroup has a dozen lines */

/*
 * Reads the limit of this process in thousandths of a core, at least 1.
 * @root: "/" normally; tests give a recorded tree (the affinity is always the real one).
 * Never fails: a limit that it cannot read does not count.
 */
uint32_t limit_read_mcpu(const char *root);

/* Reads only the quota in thousandths of a core; 0: no quota. Source: the kernel's cgroup docs. */
uint32_t limit_quota_mcpu(const char *root);

/* How many threads the process's control groups leave it to make (pids.max); UINT32_MAX: any. */
uint32_t limit_pids_left(const char *root);

/* Reads at most @size - 1 bytes of the file @path below @root; terminates. Returns the length or
 * -1.
 */
ssize_t limit_read_text(const char *root, const char *path, char *buf, size_t size);

/* Returns the number of the machine's online CPUs, at least 1. */
uint32_t limit_machine_cpus(const char *root);

/* Threads for a limit: whole cores, rounded down, at least 1. */
static inline uint32_t limit_threads(uint32_t mcpu)
{
    return mcpu < 2000 ? 1 : mcpu / 1000;
}

/* Returns how many CPUs the affinity of this process allows; 0 when it cannot be read. */
uint32_t limit_affinity_cpus(void);
