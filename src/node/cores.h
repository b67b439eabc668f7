/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cores a job gets, once the policy has said how many: disjoint sets for exclusive jobs, the
 * rest for all others together. Pure; called by decision.c and tests.
 */
#pragma once

#include "base/cpuset.h"
#include "host/topology.h"

#include <stdbool.h>
#include <stddef.h>

struct cores_job {
    bool exclusive;
    unsigned count;         /* wanted, when exclusive */
    struct cpuset allowed;  /* by its own affinity; empty: anywhere */
    struct cpuset current;  /* in place and its own now; empty: none */
    struct cpuset assigned; /* the answer; empty: needs no fence */
    bool overlaps;          /* the answer: no core was left for it alone */
};

/*
 * Assigns to every job. An exclusive job keeps what it has as far as possible, and grows first by
 * siblings of its cores, then within its NUMA node, then on the emptiest node, lowest number first.
 * The assigned sets of exclusive jobs are disjoint from all others, unless there are more jobs than
 * cores (`overlaps`). Without exclusive jobs, and when @usable is all of @machine, nobody is
 * fenced.
 */
void cores_assign(const struct cpuset *machine, const struct cpuset *usable,
                  const struct topology *topology, struct cores_job *jobs, size_t n);
