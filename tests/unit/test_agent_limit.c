/* SPDX-License-Identifier: Apache-2.0 */
/* The process's limit on recorded trees: cgroup v1, v2, both, containers; malformed files. */
#include "agent/process/limit.h"

#include "base/cleanup.h"
#include "tree.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define CPU "sys/fs/cgroup/cpu/"

/* Returns what @read finds in a tree of @files. */
#define read_of(read, ...)                                                                         \
    read_of_files(read, (const struct tree_file[]){__VA_ARGS__},                                   \
                  sizeof((const struct tree_file[]){__VA_ARGS__}) / sizeof(struct tree_file))

/* The quota, thousandths of a core; how many threads the process's groups leave to be made. */
#define quota_of(...) read_of(limit_quota_mcpu, __VA_ARGS__)
#define left_of(...)  read_of(limit_pids_left, __VA_ARGS__)

static uint32_t read_of_files(uint32_t (*read)(const char *root), const struct tree_file *files,
                              size_t n)
{
    struct tree tree;
    char root[40];
    uint32_t found;

    tree_init(&tree, files, n);
    snprintf(root, sizeof(root), "%s/", tree.path);
    found = read(root);
    tree_done(&tree);
    return found;
}

static void what_pids_max_leaves_is_read(void **state)
{
    const struct tree_file v1 = {"proc/self/cgroup", "9:cpu:/x\n8:pids:/a/b\n"};
    const struct tree_file v2 = {"proc/self/cgroup", "0::/a/b\n"};

    (void)state;
    assert_int_equal(left_of(v1, {"sys/fs/cgroup/pids/a/b/pids.max", "max\n"},
                             {"sys/fs/cgroup/pids/a/pids.max", "100\n"},
                             {"sys/fs/cgroup/pids/a/pids.current", "88\n"}),
                     12);
    assert_int_equal(left_of(v2, {"sys/fs/cgroup/a/b/pids.max", "20\n"},
                             {"sys/fs/cgroup/a/b/pids.current", "25\n"}),
                     0);
    assert_int_equal(left_of(v2, {"sys/fs/cgroup/a/b/pids.max", "max\n"}), UINT32_MAX);
    assert_int_equal(
        left_of({"proc/self/cgroup", "8:mypids:/\n"}, {"sys/fs/cgroup/pids/pids.max", "3\n"}),
        UINT32_MAX);
}

static void quota_of_v1_is_read(void **state)
{
    (void)state;
    assert_int_equal(quota_of({"proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/job\n"},
                              {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n"},
                              {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"}),
                     2500);
    assert_int_equal(quota_of({"proc/self/cgroup", "4:cpuacct,cpu:/job\n"},
                              {"sys/fs/cgroup/cpuacct,cpu/job/cpu.cfs_quota_us", "50000\n"},
                              {"sys/fs/cgroup/cpuacct,cpu/job/cpu.cfs_period_us", "100000\n"}),
                     500);
}

static void tightest_quota_on_the_path_counts(void **state)
{
    const struct tree_file above = {CPU "a/cpu.cfs_quota_us", "150000\n"};
    const struct tree_file own = {CPU "a/b/cpu.cfs_quota_us", "400000\n"};
    const struct tree_file period = {CPU "a/cpu.cfs_period_us", "100000\n"};
    const struct tree_file own_period = {CPU "a/b/cpu.cfs_period_us", "100000\n"};

    (void)state;
    assert_int_equal(quota_of({"proc/self/cgroup", "1:cpu:/a/b\n"}, above, own, period, own_period),
                     1500);
    assert_int_equal(quota_of({"proc/self/cgroup", "1:cpu:/a/b\n"},
                              {CPU "a/cpu.cfs_quota_us", "-1\n"}, own, period, own_period),
                     4000);
    /* A neighbour and what lies below do not count. */
    assert_int_equal(quota_of({"proc/self/cgroup", "1:cpu:/a\n"}, {CPU "a/cpu.cfs_quota_us", "-1"},
                              period, own, own_period),
                     0);
}

static void quota_of_v2_is_read(void **state)
{
    (void)state;
    assert_int_equal(quota_of({"proc/self/cgroup", "0::/user.slice/job\n"},
                              {"sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n"},
                              {"sys/fs/cgroup/user.slice/cpu.max", "300000 100000\n"}),
                     3000);
    assert_int_equal(
        quota_of({"proc/self/cgroup", "0::/job\n"}, {"sys/fs/cgroup/job/cpu.max", "5000 20000\n"}),
        250);
    assert_int_equal(
        quota_of({"proc/self/cgroup", "0::/job\n"}, {"sys/fs/cgroup/job/cpu.max", "max 100000\n"}),
        0);
}

static void hybrid_takes_v1s_quota_and_unified_ones(void **state)
{
    const struct tree_file groups = {"proc/self/cgroup", "3:cpu:/j\n1:name=systemd:/j\n0::/u\n"};
    const struct tree_file v1 = {CPU "j/cpu.cfs_quota_us", "200000\n"};
    const struct tree_file period = {CPU "j/cpu.cfs_period_us", "100000\n"};

    (void)state;
    assert_int_equal(quota_of(groups, v1, period, {"sys/fs/cgroup/unified/u/cgroup.procs", "1\n"}),
                     2000);
    assert_int_equal(
        quota_of(groups, v1, period, {"sys/fs/cgroup/unified/u/cpu.max", "100000 100000\n"}), 1000);
}

/* The mount shows the container's own group as its root; /proc may still name the host's path. */
static void quota_of_a_container_is_found_at_the_root_of_its_mount(void **state)
{
    (void)state;
    assert_int_equal(quota_of({"proc/self/cgroup", "4:cpu:/docker/0123abcd\n"},
                              {CPU "cpu.cfs_quota_us", "150000\n"},
                              {CPU "cpu.cfs_period_us", "100000\n"}),
                     1500);
    assert_int_equal(quota_of({"proc/self/cgroup", "4:cpu:/\n"},
                              {CPU "cpu.cfs_quota_us", "150000\n"},
                              {CPU "cpu.cfs_period_us", "100000\n"}),
                     1500);
    assert_int_equal(
        quota_of({"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "350000 100000\n"}),
        3500);
    assert_int_equal(quota_of({"proc/self/cgroup", "0::/../outside\n"},
                              {"sys/fs/cgroup/cpu.max", "350000 100000\n"}),
                     3500);
}

static void malformed_files_limit_nothing(void **state)
{
    static const char *const lines[] = {"",
                                        "\n\n",
                                        "garbage\n",
                                        "::\n",
                                        ":\n",
                                        "4:cpu\n",
                                        "4:cpu:\n",
                                        "4:notcpu:/j\n",
                                        "4:cpuset:/j\n",
                                        "4:cpu:relative\n",
                                        "0:/only-one-colon\n"};
    static const char *const quotas[] = {"", "x", "-1", "0", "-9223372036854775808", "\n100000"};
    static const char *const maxes[] = {"",          "x 100000",  "max",
                                        "100000",    "100000 0",  "0 100000",
                                        "-5 100000", "100000 -5", "99999999999999999999 1"};

    (void)state;
    assert_int_equal(quota_of({"proc/", NULL}), 0);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        assert_int_equal(quota_of({"proc/self/cgroup", lines[i]},
                                  {CPU "j/cpu.cfs_quota_us", "100000"},
                                  {CPU "j/cpu.cfs_period_us", "100000"}),
                         0);
    for (size_t i = 0; i < ARRAY_LEN(quotas); i++)
        assert_int_equal(quota_of({"proc/self/cgroup", "4:cpu:/j\n"},
                                  {CPU "j/cpu.cfs_quota_us", quotas[i]},
                                  {CPU "j/cpu.cfs_period_us", i == 5 ? "x" : "100000"}),
                         0);
    assert_int_equal(quota_of({"proc/self/cgroup", "4:cpu:/j\n"},
                              {CPU "j/cpu.cfs_quota_us", "100000"}), /* the period is missing */
                     0);
    for (size_t i = 0; i < ARRAY_LEN(maxes); i++)
        assert_int_equal(
            quota_of({"proc/self/cgroup", "0::/j\n"}, {"sys/fs/cgroup/j/cpu.max", maxes[i]}), 0);
}

static void endless_paths_limit_nothing(void **state)
{
    char line[3000] = "4:cpu:";

    (void)state;
    memset(line + 6, '/', sizeof(line) - 8);
    strcpy(line + sizeof(line) - 2, "\n");
    assert_int_equal(quota_of({"proc/self/cgroup", line}, {CPU "cpu.shares", "1024"}), 0);
    memcpy(line, "0::/ab", 6);
    memset(line + 6, 'b', sizeof(line) - 8);
    assert_int_equal(
        quota_of({"proc/self/cgroup", line}, {"sys/fs/cgroup/cpu.max", "350000 100000\n"}), 0);
}

static void smallest_and_largest_quotas_are_kept_in_bounds(void **state)
{
    (void)state;
    assert_int_equal(
        quota_of({"proc/self/cgroup", "0::/j\n"}, {"sys/fs/cgroup/j/cpu.max", "1 1000000\n"}), 1);
    assert_int_equal(quota_of({"proc/self/cgroup", "0::/j\n"},
                              {"sys/fs/cgroup/j/cpu.max", "9000000000000000 100000\n"}),
                     0);
}

static void whole_threads_are_rounded_down_but_never_to_none(void **state)
{
    (void)state;
    assert_int_equal(limit_threads(1), 1);
    assert_int_equal(limit_threads(999), 1);
    assert_int_equal(limit_threads(1999), 1);
    assert_int_equal(limit_threads(2000), 2);
    assert_int_equal(limit_threads(3999), 3);
}

static uint32_t mcpu_of(const char *quota)
{
    struct tree tree;
    char root[40];
    uint32_t mcpu;
    const struct tree_file files[] = {{"proc/self/cgroup", "0::/j\n"},
                                      {"sys/fs/cgroup/j/cpu.max", quota}};

    tree_init(&tree, files, ARRAY_LEN(files));
    snprintf(root, sizeof(root), "%s/", tree.path);
    mcpu = limit_read_mcpu(root);
    tree_done(&tree);
    return mcpu;
}

static void affinity_and_quota_the_smaller_counts(void **state)
{
    cpu_set_t before;
    cpu_set_t one;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(mcpu_of("max 100000\n"), 1000 * CPU_COUNT(&before));
    assert_int_equal(mcpu_of("70000 100000\n"), 700);
    assert_int_equal(mcpu_of("90000000 100000\n"), 1000 * CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(mcpu_of("max 100000\n"), 1000);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static void online_processors_are_counted(void **state)
{
    const struct tree_file online = {"sys/devices/system/cpu/online", "0-3,8,10-11\n"};
    struct tree tree;
    char root[40];

    (void)state;
    tree_init(&tree, &online, 1);
    snprintf(root, sizeof(root), "%s/", tree.path);
    assert_int_equal(limit_machine_cpus(root), 7);
    tree_write(&tree, online.path, "nonsense\n");
    assert_int_equal(limit_machine_cpus(root), sysconf(_SC_NPROCESSORS_ONLN));
    tree_done(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_pids_max_leaves_is_read),
        cmocka_unit_test(quota_of_v1_is_read),
        cmocka_unit_test(tightest_quota_on_the_path_counts),
        cmocka_unit_test(quota_of_v2_is_read),
        cmocka_unit_test(hybrid_takes_v1s_quota_and_unified_ones),
        cmocka_unit_test(quota_of_a_container_is_found_at_the_root_of_its_mount),
        cmocka_unit_test(malformed_files_limit_nothing),
        cmocka_unit_test(endless_paths_limit_nothing),
        cmocka_unit_test(smallest_and_largest_quotas_are_kept_in_bounds),
        cmocka_unit_test(whole_threads_are_rounded_down_but_never_to_none),
        cmocka_unit_test(affinity_and_quota_the_smaller_counts),
        cmocka_unit_test(online_processors_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
