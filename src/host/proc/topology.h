/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's CPUs as sysfs describes them: which are online, their NUMA nodes, which are threads
 * of the same physical core, and which are slower than others. @root as in host/proc/file.h.
 * Any thread, plain values; called by the daemon and the CLI.
 */
#pragma once

#include "base/cpuset.h"

#define TOPOLOGY_NODES_MAX 64   /* NUMA nodes; further ones count into the last */
#define TOPOLOGY_FASTEST   1000 /* speed of a fast CPU */

struct topology {
    struct cpuset online;
    unsigned cpus;                          /* logical CPUs online */
    unsigned cores;                         /* physical, with at least one thread online */
    unsigned nodes;                         /* NUMA nodes, at least 1 */
    struct cpuset node[TOPOLOGY_NODES_MAX]; /* online CPUs of each, none empty */
    uint16_t core[CPUSET_MAX_CPUS]; /* for each CPU the lowest online CPU of the same core */
    /* For each CPU permille of the fastest one's speed. CPUs that lose less than a sixth, and all
     * where sysfs does not tell, count as TOPOLOGY_FASTEST. */
    uint16_t speed[CPUSET_MAX_CPUS];
    unsigned slow; /* CPUs below that */
};

/* Returns 0, -ERANGE (a CPU above CPUSET_MAX_CPUS) or -errno. Without NUMA or sibling files: one
 * node, every CPU a core. */
int topology_read(int root, struct topology *ret);

/* Returns the index of the NUMA node that holds @cpu, or -1. */
int topology_node_of(const struct topology *topology, unsigned cpu);

/* Reads the CPUs that this process may use (affinity within its cpuset). Returns 0 or -errno. */
int topology_usable(struct cpuset *ret);
