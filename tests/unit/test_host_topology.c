/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/file.h"
#include "host/proc/topology.h"
#include "tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define CPU  "sys/devices/system/cpu/"
#define NODE "sys/devices/system/node/"

/* Two nodes, two threads a core; CPU 5 is offline; node 2 is memory only. */
static const struct tree_file two_nodes[] = {
    {CPU "online", "0-4,6-7\n"},
    {CPU "cpu0/topology/core_cpus_list", "0,4\n"},
    {CPU "cpu1/topology/core_cpus_list", "1,5\n"},
    {CPU "cpu2/topology/thread_siblings_list", "2,6\n"},
    {CPU "cpu3/topology/core_cpus_list", "3,7\n"},
    {CPU "cpu4/topology/core_cpus_list", "0,4\n"},
    {CPU "cpu6/topology/thread_siblings_list", "2,6\n"},
    {CPU "cpu7/topology/core_cpus_list", "3,7\n"},
    {NODE "online", "0-2\n"},
    {NODE "node0/cpulist", "0-1,4-5\n"},
    {NODE "node1/cpulist", "2-3,6-7\n"},
    {NODE "node2/cpulist", "\n"},
};

static void nodes_and_siblings_come_from_sysfs(void **state)
{
    struct topology topology;
    struct tree tree;

    tree_init(&tree, two_nodes, sizeof(two_nodes) / sizeof(two_nodes[0]));
    assert_int_equal(topology_read(tree.fd, &topology), 0);
    assert_int_equal(topology.cpus, 7);
    assert_int_equal(topology.cores, 4);
    assert_int_equal(topology.nodes, 2);
    assert_int_equal(topology_node_of(&topology, 4), 0);
    assert_int_equal(topology_node_of(&topology, 7), 1);
    assert_int_equal(topology_node_of(&topology, 5), -1);
    assert_int_equal(topology.core[6], 2);
    assert_int_equal(topology.core[2], 2);
    assert_int_equal(topology.core[1], 1); /* its sibling 5 is offline */
    tree_done(&tree);
}

static void without_further_files_there_is_one_node_of_single_cores(void **state)
{
    static const struct tree_file files[] = {{CPU "online", "0-3\n"}};
    struct topology topology;
    struct tree tree;

    tree_init(&tree, files, 1);
    assert_int_equal(topology_read(tree.fd, &topology), 0);
    assert_int_equal(topology.cores, 4);
    assert_int_equal(topology.nodes, 1);
    assert_true(cpuset_equal(&topology.node[0], &topology.online));
    tree_done(&tree);
}

static void a_missing_or_damaged_list_is_an_error(void **state)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {{"0-\n", -EINVAL}, {"0-2000\n", -ERANGE}, {"\n", -EINVAL}};
    struct topology topology;
    struct tree tree;

    tree_init(&tree, NULL, 0);
    assert_int_equal(topology_read(tree.fd, &topology), -ENOENT);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tree_write(&tree, CPU "online", cases[i].text);
        assert_int_equal(topology_read(tree.fd, &topology), cases[i].code);
    }
    tree_done(&tree);
}

/* Four CPUs with what @file says of each; NULL: it lacks the file. */
static void read_four(struct topology *ret, const char *file, const char *const says[4],
                      const char *also, const char *const says_also[4])
{
    struct tree tree;
    char path[96];

    tree_init(&tree, (const struct tree_file[]){{CPU "online", "0-3\n"}}, 1);
    for (unsigned cpu = 0; cpu < 4; cpu++) {
        snprintf(path, sizeof(path), CPU "cpu%u/%s", cpu, file);
        if (says[cpu])
            tree_write(&tree, path, says[cpu]);
        snprintf(path, sizeof(path), CPU "cpu%u/%s", cpu, also);
        if (says_also[cpu])
            tree_write(&tree, path, says_also[cpu]);
    }
    assert_int_equal(topology_read(tree.fd, ret), 0);
    tree_done(&tree);
}

/* Values as machines have them: an RK3588, a Core i9-12900K by its firmware and its frequencies, a
 * Core i9-10900K with favored cores; the order of preference of an AMD processor's like cores. */
static void slow_cpus_are_told_by_the_first_file_that_all_have(void **state)
{
    static const char *const none[4] = {0},
                             *const rk3588[4] = {"414\n", "414\n", "1024\n", "1024\n"},
                             *const i9[4] = {"65\n", "65\n", "40\n", "40\n"},
                             *const khz[4] = {"5200000\n", "5100000\n", "3900000\n", "3900000\n"},
                             *const favored[4] = {"5300000\n", "5200000\n", "5100000\n",
                                                  "5100000\n"},
                             *const preferred[4] = {"236\n", "231\n", "186\n", "166\n"},
                             *const broken[4] = {"65\n", "0\n", "40\n", "40\n"},
                             *const some[4] = {"1024\n", NULL, "400\n", "400\n"};
    struct topology t;

    read_four(&t, "cpu_capacity", rk3588, "cpufreq/cpuinfo_max_freq", khz);
    assert_int_equal(t.speed[0], 404);
    assert_int_equal(t.speed[3], TOPOLOGY_FASTEST);
    assert_int_equal(t.slow, 2);
    read_four(&t, "acpi_cppc/highest_perf", i9, "cpufreq/cpuinfo_max_freq", none);
    assert_int_equal(t.speed[1], TOPOLOGY_FASTEST);
    assert_int_equal(t.speed[2], 615);
    read_four(&t, "acpi_cppc/highest_perf", preferred, "cpufreq/cpuinfo_max_freq", favored);
    assert_int_equal(t.slow, 0);
    read_four(&t, "cpufreq/cpuinfo_max_freq", khz, "cpu_capacity", some);
    assert_int_equal(t.speed[1], TOPOLOGY_FASTEST);
    assert_int_equal(t.speed[2], 750);
    read_four(&t, "cpufreq/cpuinfo_max_freq", khz, "acpi_cppc/highest_perf", broken);
    assert_int_equal(t.speed[2], 750);
    read_four(&t, "cpufreq/cpuinfo_max_freq", favored, "cpu_capacity", none);
    assert_int_equal(t.slow, 0);
    read_four(&t, "cpu_capacity", none, "cpu_capacity", none);
    assert_int_equal(t.speed[3], TOPOLOGY_FASTEST);
    assert_int_equal(t.slow, 0);
}

static void this_machine_has_the_cpus_that_libc_counts(void **state)
{
    struct topology topology;
    struct cpuset usable, both;
    int root = file_open_root();

    assert_true(root >= 0);
    assert_int_equal(topology_read(root, &topology), 0);
    assert_int_equal(topology.cpus, sysconf(_SC_NPROCESSORS_ONLN));
    assert_in_range(topology.cores, 1, topology.cpus);
    assert_int_equal(topology_usable(&usable), 0);
    cpuset_and(&both, &usable, &topology.online);
    assert_true(cpuset_count(&both) >= 1);
    close(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_and_siblings_come_from_sysfs),
        cmocka_unit_test(without_further_files_there_is_one_node_of_single_cores),
        cmocka_unit_test(a_missing_or_damaged_list_is_an_error),
        cmocka_unit_test(slow_cpus_are_told_by_the_first_file_that_all_have),
        cmocka_unit_test(this_machine_has_the_cpus_that_libc_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
