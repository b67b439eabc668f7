/* SPDX-License-Identifier: Apache-2.0 */
#include "host/cgroup/cgroup.h"
#include "tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

/* ---- parsers ---- */

static void a_v1_mount_names_its_controllers(void **state)
{
    struct cgroup_mount mount;

    assert_int_equal(cgroup_parse_mountinfo_line(
                         "33 31 0:30 /docker/4f /sys/fs/cgroup/cpu\\054cpuacct rw,nosuid "
                         "shared:9 master:2 - cgroup cgroup rw,cpu,cpuacct\n",
                         &mount),
                     0);
    assert_int_equal(mount.version, CGROUP_V1);
    assert_true(mount.cpu);
    assert_false(mount.cpuset);
    assert_string_equal(mount.root, "/docker/4f");
    assert_string_equal(mount.point, "/sys/fs/cgroup/cpu,cpuacct");
}

static void controllers_are_whole_words(void **state)
{
    struct cgroup_mount mount;

    assert_int_equal(
        cgroup_parse_mountinfo_line("1 2 0:1 / /a rw - cgroup none rw,cpuacct", &mount), 0);
    assert_false(mount.cpu || mount.cpuset);
    assert_int_equal(cgroup_parse_mountinfo_line("1 2 0:1 / /a rw - cgroup none rw,cpuset", &mount),
                     0);
    assert_false(mount.cpu);
    assert_true(mount.cpuset);
}

static void other_mounts_are_no_cgroups_and_damage_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "1 2 3",
                                      "1 2 0:1 / /a rw",
                                      "1 2 0:1 / /a rw - ",
                                      "1 2 0:1 / relative rw - ext4 x rw",
                                      "1 2 0:1 / /a\\9zz rw - ext4 x rw",
                                      "1 2 0:1 / /a\\04 rw - ext4 x rw",
                                      "1 2 0:1 / /a\\000 rw - ext4 x rw",
                                      "1 2 0:1 / /a rw - cgroup none"};
    struct cgroup_mount mount;

    assert_int_equal(cgroup_parse_mountinfo_line("1 2 0:1 / /a\\040b rw - ext4 /dev/x rw", &mount),
                     0);
    assert_int_equal(mount.version, CGROUP_NONE);
    assert_string_equal(mount.point, "/a b");
    for (size_t i = 0; i < LEN(bad); i++)
        assert_int_equal(cgroup_parse_mountinfo_line(bad[i], &mount), -EINVAL);
}

static void cpu_max_becomes_millicores(void **state)
{
    static const struct {
        const char *text;
        int code;
        uint32_t mcpu;
    } cases[] = {
        {"max 100000\n", 0, CGROUP_NO_QUOTA},
        {"150000 100000\n", 0, 1500},
        {"50000 100000", 0, 500},
        {"1 100000\n", 0, 1},
        {"0 100000\n", 0, 1},
        {"18446744073709551615 1\n", 0, CGROUP_NO_QUOTA},
        {"100000 0\n", -EINVAL, 0},
        {"max\n", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"-1 100000\n", -EINVAL, 0},
        {"1 2 3\n", -EINVAL, 0},
        {"maximum 100000\n", -EINVAL, 0},
    };

    for (size_t i = 0; i < LEN(cases); i++) {
        uint32_t mcpu = 0;

        assert_int_equal(cgroup_parse_cpu_max(cases[i].text, &mcpu), cases[i].code);
        assert_int_equal(mcpu, cases[i].mcpu);
    }
}

static void cpu_stat_of_both_versions_is_in_nanoseconds(void **state)
{
    struct cgroup_throttle throttle;

    assert_int_equal(
        cgroup_parse_cpu_stat("nr_periods 9\nnr_throttled 4\nthrottled_time 77\n", &throttle), 0);
    assert_int_equal(throttle.periods, 9);
    assert_int_equal(throttle.throttled, 4);
    assert_int_equal(throttle.throttled_ns, 77);
    assert_int_equal(
        cgroup_parse_cpu_stat("usage_usec 5\nnr_throttled 1\nthrottled_usec 3\n", &throttle), 0);
    assert_int_equal(throttle.throttled_ns, 3000);
    assert_int_equal(cgroup_parse_cpu_stat("", &throttle), 0);
    assert_int_equal(throttle.periods, 0);
    assert_int_equal(cgroup_parse_cpu_stat("nr_periods\n", &throttle), -EINVAL);
    assert_int_equal(cgroup_parse_cpu_stat("nr_periods x\n", &throttle), -EINVAL);
    assert_int_equal(cgroup_parse_cpu_stat("throttled_usec 18446744073709551615\n", &throttle),
                     -EINVAL);
}

/* ---- recorded machines ---- */

static struct cgroup *open_tree(struct tree *tree, const struct tree_file *files, size_t n)
{
    struct cgroup *cg;

    tree_init(tree, files, n);
    assert_int_equal(cgroup_new(tree->fd, &cg), 0);
    return cg;
}

static void close_tree(struct tree *tree, struct cgroup *cg)
{
    assert_null(cgroup_free(cg));
    tree_done(tree);
}

#define CPU_V1    "sys/fs/cgroup/cpu/"
#define CPUSET_V1 "sys/fs/cgroup/cpuset/"

static const struct tree_file v1[] = {
    {"proc/self/mountinfo",
     "30 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
     "31 30 0:29 / /sys/fs/cgroup/cpu rw shared:4 - cgroup cgroup rw,cpu,cpuacct\n"
     "32 30 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
     "33 30 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"},
    {"sys/fs/cgroup/unified/cgroup.controllers", "\n"},
    {"proc/17/cgroup", "3:cpuset:/docker/4f\n2:cpu,cpuacct:/docker/4f/inner\n0::/\n"},
    {"proc/18/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/\n0::/\n"},
    {"proc/19/cgroup", "3:cpuset:/tide-0-1/j1\n2:cpu,cpuacct:/tide-0-1/j1\n0::/\n"},
    {"proc/20/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/system.slice/x.service\n0::/\n"},
    {CPU_V1 "cpu.cfs_quota_us", "-1\n"},
    {CPU_V1 "cpu.cfs_period_us", "100000\n"},
    {CPU_V1 "cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"},
    {CPU_V1 "cgroup.procs", ""},
    {CPU_V1 "docker/cpu.cfs_quota_us", "150000\n"},
    {CPU_V1 "docker/cpu.cfs_period_us", "100000\n"},
    {CPU_V1 "docker/cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 1000\n"},
    {CPU_V1 "docker/4f/cpu.cfs_quota_us", "400000\n"},
    {CPU_V1 "docker/4f/cpu.cfs_period_us", "100000\n"},
    {CPU_V1 "docker/4f/cpu.stat", "nr_periods 20\nnr_throttled 1\nthrottled_time 50\n"},
    {CPU_V1 "docker/4f/inner/", NULL}, /* removed while we look: no files */
    {CPUSET_V1 "cpuset.effective_cpus", "0-7\n"},
    {CPUSET_V1 "cpuset.cpus", "0-7\n"},
    {CPUSET_V1 "cpuset.mems", "0-1\n"},
    {CPUSET_V1 "cgroup.procs", ""},
    {CPUSET_V1 "docker/4f/cpuset.effective_cpus", "2-3\n"},
};

static void memory_limits_are_the_tightest_of_the_whole_path(void **state)
{
    static const struct tree_file old[] = {
        {"proc/self/mountinfo", "1 2 0:1 / /m rw - cgroup none rw,memory\n"},
        {"proc/17/cgroup", "4:memory:/a/b\n"},
        {"proc/18/cgroup", "4:memory:/\n"},
        {"m/memory.limit_in_bytes", "9223372036854771712\n"},
        {"m/a/memory.limit_in_bytes", "1073741824\n"},
        {"m/a/b/memory.limit_in_bytes", "2147483648\n"},
    };
    static const struct tree_file new[] = {
        {"proc/self/mountinfo", "1 2 0:1 / /m rw - cgroup2 none rw\n"},
        {"m/cgroup.controllers", "cpu memory\n"},
        {"proc/17/cgroup", "0::/a/b\n"},
        {"proc/18/cgroup", "0::/a\n"},
        {"m/a/memory.max", "max\n"},
        {"m/a/b/memory.max", "1073741824\n"},
    };

    for (unsigned i = 0; i < 2; i++) {
        struct tree tree;
        struct cgroup *cg = i ? open_tree(&tree, new, LEN(new)) : open_tree(&tree, old, LEN(old));
        uint64_t bytes;

        assert_int_equal(cgroup_read_memory_limit(cg, 17, &bytes), 0);
        assert_true(bytes == UINT64_C(1) << 30);
        assert_int_equal(cgroup_read_memory_limit(cg, 18, &bytes), 0);
        assert_true(bytes > UINT64_C(1) << 60);
        assert_int_equal(cgroup_read_memory_limit(cg, 99, &bytes), -ESRCH);
        close_tree(&tree, cg);
    }
}

static void kills_for_memory_are_read_where_the_kernel_counts_them(void **state)
{
    static const struct tree_file old[] = {
        {"proc/self/mountinfo", "1 2 0:1 / /m rw - cgroup none rw,memory\n"},
    };
    static const struct tree_file new[] = {
        {"proc/self/mountinfo", "1 2 0:1 / /m rw - cgroup2 none rw\n"},
        {"m/cgroup.controllers", "cpu memory\n"},
    };
    static const struct cgroup_place place = {.cpu = "/a/b"};

    for (unsigned i = 0; i < 2; i++) {
        struct tree tree;
        struct cgroup *cg = i ? open_tree(&tree, new, LEN(new)) : open_tree(&tree, old, LEN(old));
        const char *file = i ? "m/a/b/memory.events" : "m/a/b/memory.oom_control";
        uint64_t kills = 0;

        assert_int_equal(cgroup_read_oom_kills(cg, &place, &kills), -ENOENT);
        tree_write(&tree, file, "under_oom 0\noom 9\noom_kill 4\noom_group_kill 2\n");
        assert_int_equal(cgroup_read_oom_kills(cg, &place, &kills), 0);
        assert_int_equal(kills, 4);
        tree_write(&tree, file, "oom 9\n");
        assert_int_equal(cgroup_read_oom_kills(cg, &place, &kills), -ENOTSUP);
        close_tree(&tree, cg);
    }
}

static void a_groups_memory_is_told_without_what_a_file_holds_too(void **state)
{
    static const struct tree_file old[] = {
        {"proc/self/mountinfo", "1 2 0:1 / /m rw - cgroup none rw,memory\n"},
        {"m/a/memory.limit_in_bytes", "9223372036854771712\n"},
        {"m/a/memory.usage_in_bytes", "1000000\n"},
        {"m/a/memory.stat", "inactive_file 7\nactive_file 7\ntotal_inactive_file 200000\n"
                            "total_active_file 150000\ntotal_dirty 30000\n"
                            "total_writeback 20000\n"},
        {"m/a/memory.max_usage_in_bytes", "3000000\n"},
    };
    static const struct tree_file new[] = {
        {"proc/self/mountinfo", "1 2 0:1 / /m rw - cgroup2 none rw\n"},
        {"m/cgroup.controllers", "cpu memory\n"},
        {"m/a/memory.max", "max\n"},
        {"m/a/memory.current", "1000000\n"},
        {"m/a/memory.stat", "anon 5\nfile 400000\nshmem 100000\ninactive_anon 1\n"
                            "inactive_file 200000\nactive_file 150000\nfile_dirty 30000\n"
                            "file_writeback 20000\n"},
        {"m/a/memory.peak", "3000000\n"},
    };
    static const struct cgroup_place place = {.cpu = "/a"}, nowhere = {.cpu = "/b"};

    for (unsigned i = 0; i < 2; i++) {
        struct cgroup_memory memory = {0};
        struct tree tree;
        struct cgroup *cg = i ? open_tree(&tree, new, LEN(new)) : open_tree(&tree, old, LEN(old));

        assert_int_equal(cgroup_read_memory(cg, &nowhere, &memory), -ENOENT);
        assert_int_equal(cgroup_read_memory(cg, &place, &memory), 0);
        assert_true(memory.limit == UINT64_MAX);
        assert_int_equal(memory.firm, 700000);
        assert_int_equal(memory.peak, 3000000);
        tree_write(&tree, i ? "m/a/memory.max" : "m/a/memory.limit_in_bytes", "2097152\n");
        tree_write(&tree, i ? "m/a/memory.current" : "m/a/memory.usage_in_bytes",
                   "250000\n"); /* read before the files were dropped */
        assert_int_equal(cgroup_read_memory(cg, &place, &memory), 0);
        assert_int_equal(memory.limit, 2097152);
        assert_int_equal(memory.firm, 0);
        tree_write(&tree, "m/a/memory.stat", "anon 5\n");
        assert_int_equal(cgroup_read_memory(cg, &place, &memory), -ENOTSUP);
        close_tree(&tree, cg);
    }
}

static void crun_limits_a_group_below_the_scope(void **state)
{
    static const struct tree_file files[] = {
        {"proc/self/mountinfo", "1 2 0:1 / /m rw - cgroup2 none rw\n"},
        {"proc/17/cgroup", "0::/u.slice/libpod-4f.scope/container/init\n"},
        {"proc/18/cgroup", "0::/u.slice/libpod-4f.scope/containers\n"},
        {"proc/19/cgroup", "0::/libpod-4f/container\n"},
        {"m/cgroup.controllers", "cpu cpuset memory\n"},
        {"m/u.slice/libpod-4f.scope/cpu.weight", "39\n"},
        {"m/u.slice/libpod-4f.scope/cpu.max", "max 100000\n"},
        {"m/u.slice/libpod-4f.scope/cpuset.cpus", "\n"},
        {"m/u.slice/libpod-4f.scope/memory.max", "max\n"},
        {"m/u.slice/libpod-4f.scope/memory.current", "1000000\n"},
        {"m/u.slice/libpod-4f.scope/memory.stat", "active_file 0\ninactive_file 0\n"},
        {"m/u.slice/libpod-4f.scope/container/cpu.weight", "100\n"},
        {"m/u.slice/libpod-4f.scope/container/cpu.max", "150000 100000\n"},
        {"m/u.slice/libpod-4f.scope/container/cpuset.cpus", "2-3\n"},
        {"m/u.slice/libpod-4f.scope/container/memory.max", "2097152\n"},
    };
    struct cgroup_place place;
    struct cgroup_settings settings;
    struct cgroup_memory memory;
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, files, LEN(files));

    assert_int_equal(cgroup_find(cg, 17, "4f", &place), 0);
    assert_string_equal(place.cpu, "/u.slice/libpod-4f.scope");
    assert_true(place.inner);
    assert_int_equal(cgroup_read_place(cg, &place, &settings), 0);
    assert_int_equal(settings.weight, 39);
    assert_int_equal(settings.quota_mcpu, 1500);
    assert_int_equal(cpuset_count(&settings.cpus), 2);
    assert_int_equal(cgroup_read_memory(cg, &place, &memory), 0);
    assert_int_equal(memory.limit, 2097152);
    assert_int_equal(memory.firm, 1000000);
    tree_write(&tree, "m/u.slice/libpod-4f.scope/memory.max", "1048576\n");
    tree_write(&tree, "m/u.slice/libpod-4f.scope/cpuset.cpus", "0-3\n");
    tree_write(&tree, "m/u.slice/libpod-4f.scope/container/cpuset.cpus", "\n");
    assert_int_equal(cgroup_read_place(cg, &place, &settings), 0);
    assert_int_equal(cpuset_count(&settings.cpus), 4);
    assert_int_equal(cgroup_read_memory(cg, &place, &memory), 0);
    assert_int_equal(memory.limit, 1048576);
    assert_int_equal(cgroup_find(cg, 18, "4f", &place), 0);
    assert_false(place.inner);
    assert_int_equal(cgroup_find(cg, 19, "4f", &place), 0);
    assert_false(place.inner);
    close_tree(&tree, cg);
}

static void a_kernel_without_a_peak_tells_the_rest(void **state)
{
    static const struct tree_file files[] = {
        {"proc/self/mountinfo", "1 2 0:1 / /m rw - cgroup2 none rw\n"},
        {"m/cgroup.controllers", "cpu memory\n"},
        {"m/a/memory.max", "2097152\n"},
        {"m/a/memory.current", "1000000\n"},
        {"m/a/memory.stat", "active_file 0\ninactive_file 0\n"},
    };
    static const struct cgroup_place place = {.cpu = "/a"};
    struct cgroup_memory memory = {0};
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, files, LEN(files));

    assert_int_equal(cgroup_read_memory(cg, &place, &memory), 0);
    assert_int_equal(memory.firm, 1000000);
    assert_int_equal(memory.peak, 0);
    close_tree(&tree, cg);
}

static void v1_limits_are_the_tightest_of_the_whole_path(void **state)
{
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, v1, LEN(v1));
    struct cgroup_limits limits;
    struct cgroup_throttle throttle;
    struct cpuset want;

    assert_int_equal(cgroup_version_cpu(cg), CGROUP_V1);
    assert_int_equal(cgroup_version_cpuset(cg), CGROUP_V1);
    assert_int_equal(cgroup_read_limits(cg, 17, &limits), 0);
    assert_int_equal(limits.quota_mcpu, 1500);
    assert_string_equal(limits.quota_path, "/docker");
    assert_true(limits.have_cpus);
    cpuset_parse("2-3", &want);
    assert_true(cpuset_equal(&limits.cpus, &want));
    assert_int_equal(cgroup_read_throttle(cg, 17, &throttle), 0);
    assert_int_equal(throttle.periods, 30);
    assert_int_equal(throttle.throttled, 5);
    assert_int_equal(throttle.throttled_ns, 1050);

    assert_int_equal(cgroup_read_limits(cg, 18, &limits), 0);
    assert_int_equal(limits.quota_mcpu, CGROUP_NO_QUOTA);
    assert_string_equal(limits.quota_path, "");
    assert_int_equal(cpuset_count(&limits.cpus), 8);
    assert_int_equal(cgroup_read_limits(cg, 99, &limits), -ESRCH);
    close_tree(&tree, cg);
}

#define V2 "sys/fs/cgroup/"

static const struct tree_file v2[] = {
    {"proc/self/mountinfo", "31 23 0:29 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"},
    {"proc/17/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n"},
    {"proc/18/cgroup", "0::/\n"},
    {V2 "cgroup.controllers", "cpuset cpu io memory pids\n"},
    {V2 "cgroup.subtree_control", ""},
    {V2 "cgroup.procs", ""},
    {V2 "cpuset.cpus.effective", "0-15\n"},
    {V2 "cpu.stat", "usage_usec 17\n"},
    {V2 "user.slice/cpu.max", "800000 100000\n"},
    {V2 "user.slice/cpuset.cpus.effective", "0-7\n"},
    {V2 "user.slice/user-1000.slice/cpu.max", "25000 10000\n"},
    {V2 "user.slice/user-1000.slice/cpu.stat",
     "usage_usec 17\nnr_periods 7\nnr_throttled 3\nthrottled_usec 12\n"},
    {V2 "user.slice/user-1000.slice/session-3.scope/cpu.stat", "usage_usec 17\n"},
};

static void v2_limits_are_the_tightest_of_the_whole_path(void **state)
{
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, v2, LEN(v2));
    struct cgroup_limits limits;
    struct cgroup_throttle throttle;
    struct cpuset want;

    assert_int_equal(cgroup_version_cpu(cg), CGROUP_V2);
    assert_int_equal(cgroup_version_cpuset(cg), CGROUP_V2);
    assert_int_equal(cgroup_read_limits(cg, 17, &limits), 0);
    assert_int_equal(limits.quota_mcpu, 2500);
    assert_string_equal(limits.quota_path, "/user.slice/user-1000.slice");
    cpuset_parse("0-7", &want); /* of the nearest group that has the controller */
    assert_true(cpuset_equal(&limits.cpus, &want));
    assert_int_equal(cgroup_read_throttle(cg, 17, &throttle), 0);
    assert_int_equal(throttle.throttled, 3);
    assert_int_equal(throttle.throttled_ns, 12000);
    close_tree(&tree, cg);
}

static void hybrid_takes_each_controller_where_it_is(void **state)
{
    static const struct tree_file files[] = {
        {"proc/self/mountinfo",
         "33 30 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
         "32 30 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"},
        {"sys/fs/cgroup/unified/cgroup.controllers", "cpu io\n"},
        {"sys/fs/cgroup/unified/a/cpu.max", "50000 100000\n"},
        {"sys/fs/cgroup/cpuset/b/cpuset.effective_cpus", "1\n"},
        {"proc/self/cgroup", "3:cpuset:/b\n0::/a\n"},
    };
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, files, LEN(files));
    struct cgroup_limits limits;

    assert_int_equal(cgroup_version_cpu(cg), CGROUP_V2);
    assert_int_equal(cgroup_version_cpuset(cg), CGROUP_V1);
    assert_int_equal(cgroup_read_limits(cg, 0, &limits), 0);
    assert_int_equal(limits.quota_mcpu, 500);
    assert_int_equal(cpuset_count(&limits.cpus), 1);
    close_tree(&tree, cg);
}

static void inside_a_container_paths_begin_at_what_is_mounted(void **state)
{
    static const struct tree_file files[] = {
        {"proc/self/mountinfo",
         "1 2 0:1 /docker/4f /sys/fs/cgroup/cpu ro - cgroup cgroup ro,cpu\n"},
        {"proc/self/cgroup", "2:cpu:/docker/4f/job\n"},
        {"proc/18/cgroup", "2:cpu:/docker/4fff\n"},
        {CPU_V1 "cpu.cfs_quota_us", "200000\n"},
        {CPU_V1 "cpu.cfs_period_us", "100000\n"},
        {CPU_V1 "job/cpu.cfs_quota_us", "100000\n"},
        {CPU_V1 "job/cpu.cfs_period_us", "100000\n"},
    };
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, files, LEN(files));
    struct cgroup_limits limits;
    struct error err;
    bool cpu = true;

    assert_int_equal(cgroup_read_limits(cg, 0, &limits), 0);
    assert_int_equal(limits.quota_mcpu, 1000);
    assert_false(limits.have_cpus);
    assert_int_equal(cgroup_read_limits(cg, 18, &limits), 0); /* another group: the top's limits */
    assert_int_equal(limits.quota_mcpu, 2000);
    assert_false(cgroup_writable(cg, &cpu, NULL, &err));
    assert_false(cpu);
    assert_non_null(strstr(err.text, "/docker/4f"));
    assert_int_equal(cgroup_create(cg, "tide-0-1", CGROUP_CPU, &err), -EPERM);
    close_tree(&tree, cg);
}

static void a_machine_without_cgroups_has_no_limits(void **state)
{
    static const struct tree_file files[] = {
        {"proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"},
        {"proc/self/cgroup", ""},
    };
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, files, LEN(files));
    struct cgroup_limits limits;
    struct cgroup_throttle throttle;
    struct error err;

    assert_int_equal(cgroup_version_cpu(cg), CGROUP_NONE);
    assert_int_equal(cgroup_read_limits(cg, 0, &limits), 0);
    assert_int_equal(limits.quota_mcpu, CGROUP_NO_QUOTA);
    assert_false(limits.have_cpus);
    assert_int_equal(cgroup_read_throttle(cg, 0, &throttle), 0);
    assert_false(cgroup_writable(cg, NULL, NULL, &err));
    assert_int_equal(cgroup_create(cg, "tide-0-1", CGROUP_CPU | CGROUP_CPUSET, &err), -ENOTSUP);
    assert_int_equal(cgroup_set_weight(cg, "tide-0-1", 100, &err), -ENOTSUP);
    close_tree(&tree, cg);
}

/* ---- whose group it is ---- */

static void a_process_in_somebody_elses_group_stays_there(void **state)
{
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, v1, LEN(v1));
    char text[16] = "";
    struct error err;
    int fd;

    tree_write(&tree, CPU_V1 "tide-0-1/j1/cgroup.procs", "");
    tree_write(&tree, CPUSET_V1 "tide-0-1/j1/cgroup.procs", "");
    assert_int_equal(cgroup_move(cg, "tide-0-1/j1", CGROUP_CPU, 17, &err), -EPERM);
    assert_non_null(strstr(err.text, "/docker/4f/inner"));
    /* 20 is in the root cpuset but in a service's cpu group: not moved in either. */
    assert_int_equal(cgroup_move(cg, "tide-0-1/j1", CGROUP_CPUSET | CGROUP_CPU, 20, &err), -EPERM);
    assert_int_equal(cgroup_move_home(cg, CGROUP_CPU | CGROUP_CPUSET, 17, &err), 0);
    for (size_t i = 0; i < 2; i++) {
        fd = openat(tree.fd, i ? CPU_V1 "tide-0-1/j1/cgroup.procs" : CPUSET_V1 "cgroup.procs", 0);
        assert_int_equal(read(fd, text, sizeof(text)), 0);
        close(fd);
    }
    close_tree(&tree, cg);
}

static void assert_file(struct tree *tree, const char *path, const char *want)
{
    char text[64] = "";
    int fd = openat(tree->fd, path, O_RDONLY);

    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof(text) - 1) >= 0);
    close(fd);
    assert_string_equal(text, want);
}

static void a_process_in_the_root_or_in_a_group_of_ours_is_moved(void **state)
{
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, v1, LEN(v1));
    struct error err;

    tree_write(&tree, CPU_V1 "tide-0-2/j1/cgroup.procs", "");
    assert_int_equal(cgroup_move(cg, "tide-0-2/j1", CGROUP_CPU, 18, &err), 0);
    assert_file(&tree, CPU_V1 "tide-0-2/j1/cgroup.procs", "18");
    assert_int_equal(cgroup_move(cg, "tide-0-2/j1", CGROUP_CPU, 19, &err), 0);
    assert_file(&tree, CPU_V1 "tide-0-2/j1/cgroup.procs", "19");
    assert_int_equal(cgroup_move_home(cg, CGROUP_CPU | CGROUP_CPUSET, 19, &err), 0);
    assert_file(&tree, CPU_V1 "cgroup.procs", "19");
    assert_file(&tree, CPUSET_V1 "cgroup.procs", "19");
    assert_int_equal(cgroup_move(cg, "tide-0-2/j9", CGROUP_CPU, 18, &err), -ENOENT);
    assert_int_equal(cgroup_move(cg, "tide-0-2/j1", CGROUP_CPU, 99, &err), -ESRCH);
    close_tree(&tree, cg);
}

static void only_names_of_a_daemons_groups_are_taken(void **state)
{
    static const char *const bad[] = {"",
                                      "docker",
                                      "tide",
                                      "tide-0-1/",
                                      "tide-0-1/../docker",
                                      "tide-0-1//a",
                                      "/tide-0-1",
                                      "tide-0-1/a b",
                                      "tide-0-1/a\n",
                                      "tide-0-1/..",
                                      "tide-engine-1",
                                      "tide-0-1x"};
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, v1, LEN(v1));
    struct cpuset cpus;
    struct error err;
    char longest[CGROUP_NAME_MAX + 8];

    cpuset_parse("0", &cpus);
    for (size_t i = 0; i < LEN(bad); i++) {
        assert_int_equal(cgroup_create(cg, bad[i], CGROUP_CPU, &err), -EINVAL);
        assert_int_equal(cgroup_remove(cg, bad[i], &err), -EINVAL);
        assert_int_equal(cgroup_move(cg, bad[i], CGROUP_CPU, 18, &err), -EINVAL);
        assert_int_equal(cgroup_set_weight(cg, bad[i], 100, &err), -EINVAL);
        assert_int_equal(cgroup_set_idle(cg, bad[i], true, &err), -EINVAL);
        assert_int_equal(cgroup_set_cpus(cg, bad[i], &cpus, &err), -EINVAL);
        assert_int_equal(cgroup_set_quota(cg, bad[i], 100, &err), -EINVAL);
    }
    snprintf(longest, sizeof(longest), "tide-0-1/%0*d", CGROUP_NAME_MAX - 5, 1);
    assert_int_equal(cgroup_create(cg, longest, CGROUP_CPU, &err), -EINVAL);
    close_tree(&tree, cg);
}

/* The knobs of a v2 group, as plain files: what is written, in which file, in which unit. */
static void v2_groups_get_weight_cpus_and_quota(void **state)
{
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, v2, LEN(v2));
    struct cgroup_settings settings;
    struct cpuset cpus;
    struct error err;

    tree_write(&tree, V2 "tide-0-1/cgroup.subtree_control", "");
    tree_write(&tree, V2 "tide-0-1/j1/cpu.weight", "");
    tree_write(&tree, V2 "tide-0-1/j1/cpu.max", "");
    tree_write(&tree, V2 "tide-0-1/j1/cpuset.cpus", "");
    assert_int_equal(cgroup_create(cg, "tide-0-1/j1", CGROUP_CPU | CGROUP_CPUSET, &err), 0);
    assert_file(&tree, V2 "cgroup.subtree_control", "+cpuset");
    assert_file(&tree, V2 "tide-0-1/cgroup.subtree_control", "+cpuset");
    cpuset_parse("1,3", &cpus);
    assert_int_equal(cgroup_set_weight(cg, "tide-0-1/j1", 250, &err), 0);
    assert_int_equal(cgroup_set_cpus(cg, "tide-0-1/j1", &cpus, &err), 0);
    assert_int_equal(cgroup_set_quota(cg, "tide-0-1/j1", 1500, &err), 0);
    assert_file(&tree, V2 "tide-0-1/j1/cpu.weight", "250");
    assert_file(&tree, V2 "tide-0-1/j1/cpu.max", "150000 100000");
    assert_file(&tree, V2 "tide-0-1/j1/cpuset.cpus", "1,3");
    assert_int_equal(cgroup_read_settings(cg, "tide-0-1/j1", &settings), 0);
    assert_int_equal(settings.weight, 250);
    assert_int_equal(settings.quota_mcpu, 1500);
    assert_true(cpuset_equal(&settings.cpus, &cpus));
    assert_int_equal(cgroup_set_idle(cg, "tide-0-1/j1", true, &err), -ENOTSUP);
    tree_write(&tree, V2 "tide-0-1/j1/cpu.idle", "0");
    assert_int_equal(cgroup_set_idle(cg, "tide-0-1/j1", true, &err), 0);
    assert_file(&tree, V2 "tide-0-1/j1/cpu.idle", "1");
    assert_int_equal(cgroup_set_idle(cg, "tide-0-1/j1", false, NULL), 0);
    assert_file(&tree, V2 "tide-0-1/j1/cpu.idle", "0");
    assert_int_equal(cgroup_set_weight(cg, "tide-0-1/j1", 0, &err), -ERANGE);
    assert_int_equal(cgroup_set_weight(cg, "tide-0-1/j1", 10001, &err), -ERANGE);
    assert_int_equal(cgroup_set_quota(cg, "tide-0-1/j1", CGROUP_QUOTA_MIN - 1, &err), -ERANGE);
    cpuset_zero(&cpus);
    assert_int_equal(cgroup_set_cpus(cg, "tide-0-1/j1", &cpus, &err), -ERANGE);
    assert_int_equal(cgroup_read_settings(cg, "tide-0-1/j2", &settings), -ENOENT);
    close_tree(&tree, cg);
}

static void runtimes_make_weights_of_shares_in_two_ways(void **state)
{
    static const struct {
        uint32_t shares, linear, log;
    } known[] = {
        {2, 1, 1}, {1024, 39, 100}, {2048, 79, 174}, {4096, 157, 303}, {262144, 10000, 10000}};

    for (size_t i = 0; i < LEN(known); i++) {
        uint32_t shares = known[i].shares;

        assert_int_equal(cgroup_shares_to_units(CGROUP_SHARES_V1, shares), shares);
        assert_int_equal(cgroup_shares_to_units(CGROUP_SHARES_LINEAR, shares), known[i].linear);
        assert_int_equal(cgroup_shares_to_units(CGROUP_SHARES_LOG, shares), known[i].log);
    }
    assert_int_equal(cgroup_shares_to_units(CGROUP_SHARES_LINEAR, 0), 1);
    assert_int_equal(cgroup_shares_to_units(CGROUP_SHARES_LOG, UINT32_MAX), 10000);
}

/* So that what is meant is in force: 2 cores' weight is twice that of one, by either way. */
static void shares_are_found_that_make_a_weight(void **state)
{
    for (enum cgroup_shares how = CGROUP_SHARES_LINEAR; how < CGROUP_SHARES_MAX; how++)
        for (uint32_t units = 1; units <= CGROUP_WEIGHT_MAX; units++) {
            uint32_t shares = cgroup_units_to_shares(how, units);

            assert_int_equal(cgroup_shares_to_units(how, shares), units);
        }
    assert_int_equal(cgroup_units_to_shares(CGROUP_SHARES_V1, 341), 341);
    assert_int_equal(cgroup_units_to_shares(CGROUP_SHARES_V1, 1), 2);
    assert_int_equal(cgroup_units_to_shares(CGROUP_SHARES_V1, UINT32_MAX), 262144);
}

static int keep_path(void *arg, const char *path)
{
    char *list = arg;

    strcat(strcat(list, path), " ");
    return 0;
}

static void any_group_tells_its_weight_and_what_it_used(void **state)
{
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, v1, LEN(v1));
    struct cgroup_load load;
    struct cgroup_place place;
    char list[256] = "";

    tree_write(&tree, CPU_V1 "docker/cpu.shares", "1024\n");
    tree_write(&tree, CPU_V1 "docker/cpuacct.usage", "7000000001\n");
    assert_int_equal(cgroup_find(cg, 17, "4f", &place), 0);
    assert_string_equal(place.cpu, "/docker/4f");
    assert_int_equal(cgroup_find(cg, 17, "5f", &place), -ENOENT);
    assert_int_equal(cgroup_read_load(cg, "/docker", &load), 0);
    assert_int_equal(load.units, 1024);
    assert_true(load.have_cpu);
    assert_int_equal(load.cpu_ns, 7000000001);
    assert_int_equal(cgroup_read_load(cg, "/gone", &load), -ENOENT);
    assert_int_equal(cgroup_list(cg, "/docker", keep_path, list), 0);
    assert_string_equal(list, "/docker/4f ");
    list[0] = '\0';
    assert_int_equal(cgroup_list(cg, "/", keep_path, list), 0);
    assert_string_equal(list, "/docker ");
    assert_int_equal(cgroup_list(cg, "/gone", keep_path, list), -ENOENT);
    assert_int_equal(cgroup_units(cg).std, 1024);
    close_tree(&tree, cg);
}

static void a_group_of_ours_tells_its_time_where_the_kernel_counts_it(void **state)
{
    static const struct tree_file apart[] = {
        {"proc/self/mountinfo",
         "31 30 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
         "32 30 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"},
        {CPU_V1 "tide-0-1/j1/cgroup.procs", "17\n"},
        {"sys/fs/cgroup/cpuacct/tide-0-1/j1/cpuacct.usage",
         "5\n"}, /* somebody else's of that name */
    };
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, v1, LEN(v1));
    uint64_t ns = 0;

    tree_write(&tree, CPU_V1 "tide-0-1/j1/cpuacct.usage", "7000000001\n");
    assert_int_equal(cgroup_read_time(cg, "/tide-0-1/j1", &ns), 0);
    assert_int_equal(ns, 7000000001);
    assert_int_equal(cgroup_read_time(cg, "/tide-0-1/j2", &ns), -ENOENT);
    close_tree(&tree, cg);

    cg = open_tree(&tree, apart, LEN(apart));
    assert_int_equal(cgroup_read_time(cg, "/tide-0-1/j1", &ns), -ENOTSUP);
    close_tree(&tree, cg);
}

static void a_v2_group_counts_in_microseconds(void **state)
{
    struct tree tree;
    struct cgroup *cg = open_tree(&tree, v2, LEN(v2));
    struct cgroup_load load;

    tree_write(&tree, V2 "system.slice/cpu.weight", "79\n");
    tree_write(&tree, V2 "system.slice/cpu.stat", "usage_usec 1500\nuser_usec 1\n");
    assert_int_equal(cgroup_read_load(cg, "/system.slice", &load), 0);
    assert_int_equal(load.units, 79);
    assert_true(load.have_cpu);
    assert_int_equal(load.cpu_ns, 1500000);
    assert_int_equal(cgroup_read_time(cg, "/system.slice", &load.cpu_ns), 0);
    assert_int_equal(load.cpu_ns, 1500000);
    tree_write(&tree, V2 "system.slice/cpu.stat", "nr_periods 0\n");
    assert_int_equal(cgroup_read_load(cg, "/system.slice", &load), 0);
    assert_false(load.have_cpu);
    assert_int_equal(cgroup_units(cg).std, 100);
    tree_write(&tree, V2 "tide-0-1/cpu.weight", "");
    assert_int_equal(cgroup_set_units(cg, "tide-0-1", 33, NULL), 0);
    assert_file(&tree, V2 "tide-0-1/cpu.weight", "33");
    close_tree(&tree, cg);
}

static void a_daemon_has_a_group_of_its_own(void **state)
{
    char name[CGROUP_NAME_MAX];

    cgroup_daemon_name(1000, UINT64_MAX, name);
    assert_string_equal(name, "tide-1000-18446744073709551615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_v1_mount_names_its_controllers),
        cmocka_unit_test(controllers_are_whole_words),
        cmocka_unit_test(other_mounts_are_no_cgroups_and_damage_is_refused),
        cmocka_unit_test(cpu_max_becomes_millicores),
        cmocka_unit_test(cpu_stat_of_both_versions_is_in_nanoseconds),
        cmocka_unit_test(memory_limits_are_the_tightest_of_the_whole_path),
        cmocka_unit_test(v1_limits_are_the_tightest_of_the_whole_path),
        cmocka_unit_test(v2_limits_are_the_tightest_of_the_whole_path),
        cmocka_unit_test(hybrid_takes_each_controller_where_it_is),
        cmocka_unit_test(inside_a_container_paths_begin_at_what_is_mounted),
        cmocka_unit_test(a_machine_without_cgroups_has_no_limits),
        cmocka_unit_test(a_process_in_somebody_elses_group_stays_there),
        cmocka_unit_test(a_process_in_the_root_or_in_a_group_of_ours_is_moved),
        cmocka_unit_test(only_names_of_a_daemons_groups_are_taken),
        cmocka_unit_test(v2_groups_get_weight_cpus_and_quota),
        cmocka_unit_test(a_daemon_has_a_group_of_its_own),
        cmocka_unit_test(runtimes_make_weights_of_shares_in_two_ways),
        cmocka_unit_test(shares_are_found_that_make_a_weight),
        cmocka_unit_test(any_group_tells_its_weight_and_what_it_used),
        cmocka_unit_test(a_groups_memory_is_told_without_what_a_file_holds_too),
        cmocka_unit_test(crun_limits_a_group_below_the_scope),
        cmocka_unit_test(a_kernel_without_a_peak_tells_the_rest),
        cmocka_unit_test(kills_for_memory_are_read_where_the_kernel_counts_them),
        cmocka_unit_test(a_group_of_ours_tells_its_time_where_the_kernel_counts_it),
        cmocka_unit_test(a_v2_group_counts_in_microseconds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
