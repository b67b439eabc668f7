/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured use of jobs, all their processes together, and the memory that they count with when
 * others are admitted. Cores matter for jobs without a reporting agent; memory for all: what a job
 * asked for or what it uses, whichever is more, as nobody limits it. A paused job's memory stays.
 * Daemon's event loop only; called by the tick, decision.c and the views.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define USAGE_GRAIN_BYTES (UINT64_C(16) << 20) /* a smaller change of memory causes no decision */

#define USAGE_PIDS_MAX 32 /* of a job, whose threads are looked at more often */

struct job;
struct daemon;

/* Part of each job. */
struct usage {
    uint64_t looked_ns;    /* last look; 0: none */
    uint64_t cpu_ns;       /* of its processes and their ended children; falls where some is lost */
    uint64_t seen_ns;      /* the sum over its processes at the last look */
    uint64_t group_ns;     /* its own control group's CPU time then; 0: none */
    double busy;           /* cores, smoothed */
    uint32_t cores;        /* busy, as a steady whole number */
    uint64_t memory_bytes; /* not backed by a file: programs and libraries are shared by jobs */
    pid_t pids[USAGE_PIDS_MAX]; /* its processes at the last look, … */
    unsigned n_pids;            /* … of which there are so many */
    uint64_t told_bytes;        /* memory_bytes at the last decision */
};

/* Looks at all processes. Returns true if a value that decisions rest on changed. */
bool usage_look(struct daemon *d, uint64_t now);

/* Memory that it asked for, at most a container's limit, and counts with; 0: none. */
uint64_t usage_memory_asked(const struct job *j);
uint64_t usage_memory(const struct job *j);

/*
 * Memory for all jobs together: as configured, else the machine's or what the daemon's own group
 * leaves of it, less a reserve for other processes. 0: memory is not counted.
 */
uint64_t usage_machine_memory(const struct daemon *d);
