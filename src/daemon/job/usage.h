/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What jobs are measured to use, all their processes together, and the memory that they count with
 * when others are admitted. Cores matter for jobs whose agents say nothing; memory for all: what a
 * job asked for, or what it uses where that is more, as nobody limits it. A paused job's stays.
 * Daemon's event loop only; called by the tick, decision.c and the views.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define USAGE_GRAIN_BYTES (UINT64_C(16) << 20) /* a smaller change of memory decides nothing */

struct job;
struct daemon;

/* Part of each job. */
struct usage {
    uint64_t looked_ns;    /* 0: not yet */
    uint64_t cpu_ns;       /* of the processes that there are, and their ended children */
    double busy;           /* cores, smoothed */
    uint32_t cores;        /* of these as many as count: whole ones, and not every fluctuation */
    uint64_t memory_bytes; /* that no file backs: programs and libraries are many jobs' */
    uint64_t told_bytes;   /* of it when decisions were last woken */
};

/* Looks at all processes. True if something changed that decisions rest on. */
bool usage_look(struct daemon *d, uint64_t now);

/* What the job asked for (a container also by its limit), and what it counts with. 0: nothing. */
uint64_t usage_memory_asked(const struct job *j);
uint64_t usage_memory(const struct job *j);

/*
 * The memory that jobs may have together: what is configured, else the machine's, or what the
 * daemon's own group leaves of it, less a reserve for all else. 0: memory is not counted.
 */
uint64_t usage_machine_memory(const struct daemon *d);
