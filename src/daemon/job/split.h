/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides a job's target over its processes by their use. A process with all threads busy can take
 * as many as its pools have; one that uses some of them gets those and half as many more; an idle
 * one (a Python parent, a data loader, an evaluation that waits) keeps one thread. Surplus goes to
 * processes that are not idle, so that the parts add up to the target.
 *
 * To get more, a process must have used four fifths of its threads' time for a heartbeat, and most
 * of that in the one before. It gives some back when it used less than half for a second. Where
 * cores are scarce no busy thread has a whole core: then the job's busiest thread is the measure,
 * and only idle processes give back. Parts change when target or processes do, else only if a busy
 * process gains. No division causes the next: a process with half as much more than it uses is not
 * busy.
 *
 * Pure but for its own structures: no I/O, no allocation, no clock. Called by apportion.c and
 * tests.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SPLIT_LOOK_NS 200000000ull /* shortest time over which use is measured */
#define SPLIT_LOOKS   4            /* looks kept: a second of heartbeats */
#define SPLIT_IDLE    50           /* thousandths of a core: less counts as none */
#define SPLIT_BUSY    800          /* thousandths of its threads' time: more is busy, … */
#define SPLIT_IDLING  500          /* … less gives threads back, … */
#define SPLIT_ROOM    1500         /* … down to so many thousandths of its use */
#define SPLIT_SCARCE  900          /* thousandths of its cores in use: no thread has a whole one */

/* Use of a process with its present part, in thousandths of a core; zero-initialised. */
struct split_use {
    uint64_t at_ns, cpu_ns; /* last look; 0: none */
    uint32_t part;          /* in force since the first look */
    uint32_t n;             /* number of looks in @milli, newest first */
    uint32_t milli[SPLIT_LOOKS];
};

/* Notes that the process has used @cpu_ns so far, with @part threads. True: added a look. */
bool split_look(struct split_use *use, uint32_t part, uint64_t now_ns, uint64_t cpu_ns);

struct split_part {
    uint32_t max;                /* threads of its pools; 0: not known */
    uint32_t had;                /* its part so far; 0: a new process */
    const struct split_use *use; /* borrowed */
    uint32_t wants, part;        /* computed */
    bool idle, busy;             /* computed */
};

/*
 * Computes each part of @target, at least 1; they add up to it unless it is less than @n. @scarce:
 * the job's cores are in use, by any program.
 */
void split_divide(struct split_part *parts, uint32_t n, uint32_t target, bool scarce);
