/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides a job's target over its processes by what they use. A process that keeps all its threads
 * busy can take as many as its pools have; one that uses a part of them has those and half as many
 * more; an idle one (a Python parent, a data loader, an evaluation that waits) keeps one thread.
 * What is left then lies with those that are not idle, so that the parts add up to the target.
 *
 * To take more, a process must have used four fifths of its threads' time for a heartbeat, and most
 * of that in the one before; it gives some back when it used less than half for a second. Where
 * cores are scarce a busy thread has no whole one: there it is compared with the busiest thread of
 * the job, and only the idle give something back. Parts change when the target or the processes do,
 * else only when a busy process gains by it; and no division makes another one follow, since who
 * has half as much more than it uses is not found busy.
 *
 * Pure but for its own structures: no I/O, no allocation, no clock. Called by apportion.c and
 * tests.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SPLIT_LOOK_NS 200000000ull /* the shortest time from which a use is measured */
#define SPLIT_LOOKS   4            /* that are kept: a second of heartbeats */
#define SPLIT_IDLE    50           /* thousandths of a core: less is no use */
#define SPLIT_BUSY    800          /* thousandths of its threads' time: may take more … */
#define SPLIT_IDLING  500          /* … less than that: gives some back, … */
#define SPLIT_ROOM    1500         /* … and keeps so many thousandths of what it uses */
#define SPLIT_SCARCE  900          /* thousandths of its cores in use: no thread has a whole one */

/* What a process used with its present part, in thousandths of a core; zero-initialised. */
struct split_use {
    uint64_t at_ns, cpu_ns; /* of the last look; 0: none */
    uint32_t part;          /* in force since the first */
    uint32_t n;             /* looks in @milli, newest first */
    uint32_t milli[SPLIT_LOOKS];
};

/* The process has used @cpu_ns until now, with @part threads in force. True if a look was added. */
bool split_look(struct split_use *use, uint32_t part, uint64_t now_ns, uint64_t cpu_ns);

struct split_part {
    uint32_t max;                /* threads of its pools; 0: not known */
    uint32_t had;                /* part until now; 0: it is new */
    const struct split_use *use; /* borrowed */
    uint32_t wants, part;        /* computed */
    bool idle, busy;             /* computed */
};

/*
 * Computes each part of @target, at least 1; they add up to it unless it is less than @n. @scarce:
 * the job's cores are in use, by whomever.
 */
void split_divide(struct split_part *parts, uint32_t n, uint32_t target, bool scarce);
