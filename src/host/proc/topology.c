/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/topology.h"

#include "host/proc/file.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int read_cpus(int root, const char *path, struct cpuset *ret)
{
    char buf[CPUSET_TEXT_MAX];
    int r = file_read(root, path, buf, sizeof(buf));

    return r < 0 ? r : cpuset_parse(buf, ret);
}

static int read_node(int root, int node, const struct cpuset *online, struct cpuset *ret)
{
    char path[96];
    struct cpuset cpus;
    int r;

    snprintf(path, sizeof(path), "sys/devices/system/node/node%d/cpulist", node);
    r = read_cpus(root, path, &cpus);
    if (r == 0)
        cpuset_and(ret, &cpus, online);
    return r;
}

static void read_nodes(int root, struct topology *topology)
{
    struct cpuset ids; /* NUMA nodes are written like lists of CPUs */

    if (read_cpus(root, "sys/devices/system/node/online", &ids) < 0)
        cpuset_zero(&ids);
    for (int id = cpuset_next(&ids, 0); id >= 0; id = cpuset_next(&ids, (unsigned)id + 1)) {
        struct cpuset cpus;

        if (read_node(root, id, &topology->online, &cpus) < 0 || cpuset_count(&cpus) == 0)
            continue; /* a NUMA node without CPUs */
        if (topology->nodes < TOPOLOGY_NODES_MAX) {
            topology->node[topology->nodes++] = cpus;
        } else {
            struct cpuset *last = &topology->node[TOPOLOGY_NODES_MAX - 1];

            for (size_t w = 0; w < CPUSET_WORDS; w++)
                last->word[w] |= cpus.word[w];
        }
    }
    if (topology->nodes == 0)
        topology->node[topology->nodes++] = topology->online;
}

static void read_core(int root, struct topology *topology, unsigned cpu)
{
    /* Kernels before 5.3 have the second name. */
    static const char *const files[] = {"core_cpus_list", "thread_siblings_list"};
    struct cpuset siblings;

    topology->core[cpu] = (uint16_t)cpu;
    for (size_t i = 0; i < 2; i++) {
        char path[96];
        int lowest;

        snprintf(path, sizeof(path), "sys/devices/system/cpu/cpu%u/topology/%s", cpu, files[i]);
        if (read_cpus(root, path, &siblings) < 0)
            continue;
        cpuset_and(&siblings, &siblings, &topology->online);
        lowest = cpuset_next(&siblings, 0);
        if (lowest >= 0 && cpuset_has(&siblings, cpu))
            topology->core[cpu] = (uint16_t)lowest;
        break;
    }
    topology->cores += topology->core[cpu] == cpu;
}

static int next_online(const struct topology *topology, int after)
{
    return cpuset_next(&topology->online, (unsigned)(after + 1));
}

/* False if an online CPU lacks the file. */
static bool read_speeds_from(int root, const struct topology *topology, const char *file,
                             uint64_t *ret)
{
    for (int cpu = next_online(topology, -1); cpu >= 0; cpu = next_online(topology, cpu)) {
        char path[96];

        snprintf(path, sizeof(path), "sys/devices/system/cpu/cpu%d/%s", cpu, file);
        if (file_read_u64(root, path, &ret[cpu]) < 0 || ret[cpu] == 0 || ret[cpu] > UINT32_MAX)
            return false;
    }
    return true;
}

/*
 * The kernel's own measure, the firmware's, the highest frequency in kHz: the first that every CPU
 * has. Fast cores of one kind differ a little (favored cores); that is not worth a move.
 */
static void read_speeds(int root, struct topology *topology)
{
    /* CPPC comes last: for like cores of AMD it may be an order of preference (166 to 236). */
    static const char *const files[] = {"cpu_capacity", "cpufreq/cpuinfo_max_freq",
                                        "acpi_cppc/highest_perf"};
    uint64_t found[CPUSET_MAX_CPUS], fastest = 0;
    size_t i = 0;

    while (i < 3 && !read_speeds_from(root, topology, files[i], found))
        i++;
    for (int cpu = next_online(topology, -1); cpu >= 0 && i < 3; cpu = next_online(topology, cpu))
        fastest = found[cpu] > fastest ? found[cpu] : fastest;
    for (int cpu = next_online(topology, -1); cpu >= 0; cpu = next_online(topology, cpu)) {
        bool slow = fastest && found[cpu] * 6 <= fastest * 5;

        topology->speed[cpu] =
            slow ? (uint16_t)(found[cpu] * TOPOLOGY_FASTEST / fastest) : TOPOLOGY_FASTEST;
        topology->slow += slow;
    }
}

int topology_read(int root, struct topology *ret)
{
    struct topology topology;
    int r;

    memset(&topology, 0, sizeof(topology));
    r = read_cpus(root, "sys/devices/system/cpu/online", &topology.online);
    if (r < 0)
        return r;
    topology.cpus = cpuset_count(&topology.online);
    if (topology.cpus == 0)
        return -EINVAL;
    read_nodes(root, &topology);
    for (int cpu = next_online(&topology, -1); cpu >= 0; cpu = next_online(&topology, cpu))
        read_core(root, &topology, (unsigned)cpu);
    read_speeds(root, &topology);
    *ret = topology;
    return 0;
}

int topology_node_of(const struct topology *topology, unsigned cpu)
{
    for (unsigned i = 0; i < topology->nodes; i++) {
        if (cpuset_has(&topology->node[i], cpu))
            return (int)i;
    }
    return -1;
}

int topology_usable(struct cpuset *ret)
{
    return proc_get_affinity(0, ret);
}
