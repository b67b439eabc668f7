/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cores a job gets, once the policy has said how many: disjoint sets for exclusive jobs, the
 * rest for all others together. "CPU" is one that the kernel numbers: a hardware thread.
 *
 * Pure; called by the daemon and tests, on any thread.
 */
#pragma once

#include "base/cpuset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cores_machine {
    struct cpuset cpus;             /* all that there are */
    struct cpuset usable;           /* of these, the ones to be given out */
    uint16_t core[CPUSET_MAX_CPUS]; /* of each CPU: a number that its siblings share and … */
    uint16_t node[CPUSET_MAX_CPUS]; /* … its NUMA node; both below CPUSET_MAX_CPUS */
};

struct cores_job {
    struct cpuset allowed;  /* by its own affinity; empty: anywhere */
    struct cpuset current;  /* in place and its own now; empty: none */
    struct cpuset assigned; /* the answer; empty: needs no fence */
    struct cpuset choice;   /* within cores_assign(): usable and allowed … */
    unsigned choices;       /* … so many */
    unsigned count;         /* wanted, when exclusive */
    bool exclusive;
    bool overlaps; /* the answer: no core was left for it alone */
};

/*
 * Assigns to every job; deterministic, and for its own answer as the present it gives the same one.
 *
 * An exclusive job keeps what it has as far as it still gets so many, siblings and the node where
 * it has most first. It grows by siblings of its cores, then within its nodes, then on the node
 * that fits the rest most tightly, or on the emptiest; there by cores of which nobody has a part
 * (where nothing will be left, an odd thread goes to one that is parted), lowest number first.
 * Those who may use the fewest CPUs go first, among equals siblings; who still lacks some gets one
 * that its owner can replace by a free one. At last, a job that lies in more nodes than one is
 * gathered in one of them that has room for all of it, the one where it has most: nothing else
 * moves for its own sake.
 *
 * The assigned sets of exclusive jobs are disjoint from all others, unless there are more jobs than
 * CPUs (`overlaps`). Without exclusive jobs, and when all CPUs are usable, nobody is fenced.
 */
void cores_assign(const struct cores_machine *machine, struct cores_job *jobs, size_t n);
