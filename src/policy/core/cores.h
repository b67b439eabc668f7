/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses each job's cores, once the policy has said how many: disjoint sets for exclusive jobs,
 * the rest for all others together. A "CPU" here is one that the kernel numbers: a hardware thread.
 *
 * Pure; called by the daemon and tests, on any thread.
 */
#pragma once

#include "base/cpuset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CORES_SPEED_MAX 1000
#define CORES_SPEEDS    4 /* groups of CPUs of one speed, at most */

struct cores_machine {
    struct cpuset cpus;              /* all CPUs of the machine */
    struct cpuset usable;            /* those of them that jobs may use */
    uint16_t core[CPUSET_MAX_CPUS];  /* for each CPU: a number that its siblings share and … */
    uint16_t node[CPUSET_MAX_CPUS];  /* … its NUMA node; both below CPUSET_MAX_CPUS */
    uint16_t speed[CPUSET_MAX_CPUS]; /* beside others: larger is faster, at most CORES_SPEED_MAX */
    uint8_t group[CPUSET_MAX_CPUS];  /* of CPUs of its speed, below CORES_SPEEDS */
};

struct cores_job {
    struct cpuset allowed;           /* CPUs of its own affinity; empty: any */
    struct cpuset current;           /* CPUs of its own now; empty: none */
    struct cpuset assigned;          /* the answer; empty: the job needs no fence */
    struct cpuset choice;            /* within cores_assign(): CPUs both usable and allowed … */
    unsigned choices;                /* … and their number */
    unsigned count;                  /* wanted, when exclusive */
    uint32_t of_speed[CORES_SPEEDS]; /* of each group, `count` together; all 0: any */
    bool exclusive;
    bool overlaps; /* the answer: no core was left; it shares others' */
};

/*
 * Assigns CPUs to every job. Deterministic; given its own answer as the present, it repeats it.
 *
 * An exclusive job keeps as many of its CPUs as it still gets, siblings and the NUMA node where it
 * has most first. It grows by siblings of its cores, then within its NUMA nodes, then on the one
 * that fits the rest most tightly, or on the emptiest. There it takes cores no part of which is
 * taken (where nothing will be left, an odd thread goes to a split core), the fastest first, then
 * by number. It gives up slow ones first, and moves to a whole free core that is faster than one of
 * its own on the same NUMA node. A job that is to have so many of each speed (`of_speed`) keeps and
 * takes these before anything else, where they are free. Jobs
 * that may use the fewest CPUs go first, then siblings. A job that still lacks a CPU gets one whose
 * owner can replace it by a free one. At last, a job in several NUMA nodes is gathered in the one
 * where it has most, if that has room for all of it. No other job moves for its own sake.
 *
 * The assigned sets of exclusive jobs are disjoint from all others. A job to which they leave no
 * CPU shares theirs (`overlaps`). Without exclusive jobs, and when all CPUs are usable, no job is
 * fenced.
 */
void cores_assign(const struct cores_machine *machine, struct cores_job *jobs, size_t n);
