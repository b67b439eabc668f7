/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real use of this machine's CPUs: busy time of each CPU, and how much of it each job used
 * there.
 *
 * A CPU's busy time is cpuacct's (cgroup v1, nanoseconds), else what /proc/stat does not call idle.
 * A job is named processes and all their descendants; its time is that of their threads
 * (/proc/PID/task/TID/schedstat, exact), given to the CPU on which a thread ran last. Both are read
 * ten times a second, so that a thread that moves in between is counted on the wrong CPU for a
 * tenth of a second. Threads that end between two looks are counted as system. One thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define USE_CPUS_MAX 256
#define USE_JOBS_MAX 9

struct use;

/* 0; -errno, -E2BIG: more than USE_CPUS_MAX CPUs. */
int use_new(struct use **ret);
struct use *use_free(struct use *u); /* returns NULL */
uint32_t use_cpus(const struct use *u);

/* @pid and what it starts belong to job @name from now on; @ret_job: 0…USE_JOBS_MAX - 1, the same
 * one for each pid of a name. 0; -E2BIG: too many names; -ESRCH: no such process. */
int use_add(struct use *u, const char *name, pid_t pid, uint32_t *ret_job);
uint32_t use_jobs(const struct use *u);
const char *use_job_name(const struct use *u, uint32_t job);

/* Since the last call (the first one only begins). @ret_busy[cpu] ns; @ret_job[job × cpus + cpu]
 * ns, of which the sum over jobs never exceeds ret_busy. Room for USE_JOBS_MAX jobs. 0 or -errno.
 */
int use_look(struct use *u, uint64_t *ret_busy, uint64_t *ret_job);

/* Makes the jobs' times fit into the CPUs' busy times: what is too much on one CPU goes where there
 * is room. The two are not read at the same instant, so what has room nowhere stays in @over[job],
 * and comes again in the next call. Pure. */
void use_fit(uint64_t *job, uint32_t jobs, uint32_t cpus, const uint64_t *busy, uint64_t *over);
