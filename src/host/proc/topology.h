/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's processors as sysfs describes them: which are online, their NUMA nodes, which of
 * them are threads of the same core. @root as in host/proc/file.h.
 * Any thread, plain values; called by the daemon and the CLI.
 */
#pragma once

#include "base/cpuset.h"

#define TOPOLOGY_NODES_MAX 64 /* further nodes are counted into the last one */

struct topology {
    struct cpuset online;
    unsigned cpus;                          /* online ones */
    unsigned cores;                         /* physical, with at least one thread online */
    unsigned nodes;                         /* at least 1 */
    struct cpuset node[TOPOLOGY_NODES_MAX]; /* online CPUs of each, none empty */
    uint16_t core[CPUSET_MAX_CPUS]; /* lowest online CPU of the same core; own number alone */
};

/* Returns 0, -ERANGE (a CPU above CPUSET_MAX_CPUS) or -errno. Without NUMA or sibling files: one
 * node, every CPU a core. */
int topology_read(int root, struct topology *ret);

/* Online CPUs that share @cpu's core, itself included; empty when it is offline. */
void topology_siblings(const struct topology *topology, unsigned cpu, struct cpuset *ret);

/* Index of the node that holds @cpu, or -1. */
int topology_node_of(const struct topology *topology, unsigned cpu);

/* CPUs that this process may use (affinity, with the cpuset in it). Returns 0 or -errno. */
int topology_usable(struct cpuset *ret);
