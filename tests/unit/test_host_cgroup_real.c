/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's groups in the kernel's own hierarchies: made, filled, limited, emptied, removed. An
 * executable of its own, because it ends with 77 (skipped) where it may not write there.
 */
#include "host/cgroup/cgroup.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BOTH (CGROUP_CPU | CGROUP_CPUSET)

static int root;
static struct cgroup *cg;
static char daemon_group[CGROUP_NAME_MAX];
static char job_group[CGROUP_NAME_MAX];

static pid_t start_sleeper(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return pid;
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* A process that has just ended may count for a moment. */
static int remove_group(const char *name, struct error *err)
{
    int r = cgroup_remove(cg, name, err);

    for (unsigned i = 0; i < 500 && r == -EBUSY; i++) {
        usleep(10000);
        r = cgroup_remove(cg, name, err);
    }
    return r;
}

static int make(void **state)
{
    struct error err;

    if (cgroup_create(cg, job_group, BOTH, &err) < 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    return 0;
}

static int drop(void **state)
{
    struct cgroup_settings settings;
    struct error err;

    if (remove_group(daemon_group, &err) < 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    return cgroup_read_settings(cg, daemon_group, &settings) == -ENOENT ? 0 : -1;
}

static void settings_are_in_force_when_read_back(void **state)
{
    struct cgroup_settings settings;
    struct cgroup_limits limits;
    struct cpuset one;
    struct error err;
    pid_t pid = start_sleeper();

    assert_int_equal(cgroup_read_limits(cg, 0, &limits), 0);
    cpuset_zero(&one);
    cpuset_add(&one, (unsigned)cpuset_next(&limits.cpus, 0));
    for (uint32_t weight = CGROUP_WEIGHT_MIN; weight <= CGROUP_WEIGHT_MAX; weight += 111)
        assert_int_equal(cgroup_set_weight(cg, job_group, weight, &err), 0);
    assert_int_equal(cgroup_set_weight(cg, job_group, 300, &err), 0);
    assert_int_equal(cgroup_set_quota(cg, job_group, 700, &err), 0);
    assert_int_equal(cgroup_set_cpus(cg, job_group, &one, &err), 0);
    assert_int_equal(cgroup_read_settings(cg, job_group, &settings), 0);
    assert_int_equal(settings.weight, 300);
    assert_int_equal(settings.quota_mcpu, 700);
    assert_true(cpuset_equal(&settings.cpus, &one));

    assert_int_equal(cgroup_move(cg, job_group, BOTH, pid, &err), 0);
    assert_int_equal(cgroup_read_limits(cg, pid, &limits), 0);
    assert_int_equal(limits.quota_mcpu, 700);
    assert_non_null(strstr(limits.quota_path, job_group));
    assert_true(cpuset_equal(&limits.cpus, &one));
    assert_int_equal(proc_get_affinity(pid, &limits.cpus), 0);
    assert_true(cpuset_equal(&limits.cpus, &one));

    assert_int_equal(cgroup_set_quota(cg, job_group, CGROUP_NO_QUOTA, &err), 0);
    assert_int_equal(cgroup_read_limits(cg, pid, &limits), 0);
    assert_int_equal(limits.quota_mcpu, CGROUP_NO_QUOTA);
    stop(pid);
}

static void move_home_gives_the_old_group_and_cpus_back(void **state)
{
    struct cpuset before, after, one;
    char path[CGROUP_PATH_MAX];
    struct error err;
    pid_t pid = start_sleeper();

    assert_int_equal(proc_get_affinity(pid, &before), 0);
    cpuset_zero(&one);
    cpuset_add(&one, (unsigned)cpuset_next(&before, 0));
    assert_int_equal(cgroup_set_cpus(cg, job_group, &one, &err), 0);
    assert_int_equal(cgroup_move(cg, job_group, BOTH, pid, &err), 0);
    assert_int_equal(cgroup_move_home(cg, BOTH, pid, &err), 0);
    assert_int_equal(proc_read_cgroup(root, pid, cgroup_version_cpu(cg) == CGROUP_V1 ? "cpu" : "",
                                      path, sizeof(path)),
                     0);
    assert_string_equal(path, "/");
    assert_int_equal(proc_get_affinity(pid, &after), 0);
    assert_true(cpuset_equal(&before, &after));
    stop(pid);
}

static void removing_a_daemons_group_frees_every_process_in_it(void **state)
{
    pid_t pids[8];
    struct cpuset before, after, one;
    struct error err;
    char name[CGROUP_NAME_MAX];

    assert_int_equal(proc_get_affinity(0, &before), 0);
    cpuset_zero(&one);
    cpuset_add(&one, (unsigned)cpuset_next(&before, 0));
    for (size_t i = 0; i < 8; i++) {
        pids[i] = start_sleeper();
        snprintf(name, sizeof(name), "%.80s/j%zu", daemon_group, i % 3);
        assert_int_equal(cgroup_create(cg, name, BOTH, &err), 0);
        assert_int_equal(cgroup_set_cpus(cg, name, &one, &err), 0);
        assert_int_equal(cgroup_move(cg, name, BOTH, pids[i], &err), 0);
    }
    assert_int_equal(remove_group(daemon_group, &err), 0);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(kill(pids[i], 0), 0);
        assert_int_equal(proc_get_affinity(pids[i], &after), 0);
        assert_true(cpuset_equal(&before, &after));
        stop(pids[i]);
    }
    assert_int_equal(remove_group(daemon_group, &err), 0); /* again: nothing to do */
}

static enum cgroup_frost frost(void)
{
    enum cgroup_frost now = CGROUP_FROST_MAX;

    assert_int_equal(cgroup_read_frost(cg, job_group, &now), 0);
    return now;
}

static uint64_t busy_ns(pid_t pid)
{
    struct proc_stat stat;

    assert_int_equal(proc_read_stat(root, pid, &stat), 0);
    return stat.cpu_ns + stat.ended_ns;
}

/* A program that forks all the time is frozen, too. Removing the group thaws it. */
static void a_frozen_group_stands_still_until_it_is_removed(void **state)
{
    struct error err;
    uint64_t stood;
    pid_t pid;

    if (!cgroup_freezable(cg, &err))
        return; /* what the others need is there, but no freezer */
    assert_int_equal(cgroup_create(cg, job_group, CGROUP_FREEZER, &err), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (pid_t child;;)
            if ((child = fork()) == 0)
                _exit(0);
            else
                waitpid(child, NULL, 0);
    }
    assert_int_equal(cgroup_move(cg, job_group, CGROUP_FREEZER, pid, &err), 0);
    assert_int_equal(frost(), CGROUP_THAWED);
    assert_int_equal(cgroup_freeze(cg, job_group, true, &err), 0);
    while (frost() != CGROUP_FROZEN)
        usleep(1000);
    stood = busy_ns(pid);
    usleep(100000);
    assert_true(busy_ns(pid) == stood);
    assert_int_equal(cgroup_freeze(cg, job_group, false, &err), 0);
    assert_int_equal(frost(), CGROUP_THAWED);
    assert_int_equal(cgroup_freeze(cg, job_group, true, &err), 0);
    assert_int_equal(remove_group(daemon_group, &err), 0);
    while (busy_ns(pid) == stood)
        usleep(1000);
    stop(pid);
    assert_int_equal(cgroup_freeze(cg, job_group, true, &err), -ENOENT);
}

static void a_process_in_a_foreign_group_is_not_moved(void **state)
{
    /* A group that is not the daemon's; the test makes it. */
    char dir[128], procs[160], path[CGROUP_PATH_MAX], want[64], text[16];
    struct error err;
    pid_t pid = start_sleeper();
    bool v1 = cgroup_version_cpu(cg) == CGROUP_V1;

    snprintf(want, sizeof(want), "/tidetest-%d", (int)getpid());
    snprintf(dir, sizeof(dir), "/sys/fs/cgroup%s%s", v1 ? "/cpu" : "", want);
    if (mkdir(dir, 0755) < 0) { /* the hierarchy is mounted elsewhere: the test cannot run */
        stop(pid);
        return;
    }
    snprintf(procs, sizeof(procs), "%s/cgroup.procs", dir);
    snprintf(text, sizeof(text), "%d", (int)pid);
    assert_int_equal(file_write(root, procs, text), 0);
    assert_int_equal(cgroup_move(cg, job_group, CGROUP_CPU, pid, &err), -EPERM);
    assert_non_null(strstr(err.text, want));
    assert_int_equal(cgroup_move_home(cg, BOTH, pid, &err), 0);
    assert_int_equal(proc_read_cgroup(root, pid, v1 ? "cpu" : "", path, sizeof(path)), 0);
    assert_string_equal(path, want);
    stop(pid);
    for (int i = 0; i < 30000 && rmdir(dir) < 0; i++)
        usleep(1000);
    assert_int_equal(access(dir, F_OK), -1);
}

static void daemons_that_come_and_go_do_not_disturb_each_other(void **state)
{
    pid_t pids[4];
    struct error err;

    assert_int_equal(remove_group(daemon_group, &err), 0);
    for (unsigned i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            char name[CGROUP_NAME_MAX];

            snprintf(name, sizeof(name), "%.80s%u", daemon_group, i);
            for (int n = 0; n < 200; n++) {
                if (cgroup_create(cg, name, BOTH, &err) < 0 || remove_group(name, &err) < 0) {
                    print_error("%s\n", err.text);
                    _exit(1);
                }
            }
            _exit(0);
        }
    }
    for (unsigned i = 0; i < 4; i++) {
        int status;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
}

static void throttling_is_counted(void **state)
{
    struct cgroup_throttle before, after;
    struct error err;
    pid_t pid;

    assert_int_equal(cgroup_set_quota(cg, job_group, 50, &err), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            ;
    }
    assert_int_equal(cgroup_move(cg, job_group, CGROUP_CPU, pid, &err), 0);
    assert_int_equal(cgroup_read_throttle(cg, pid, &before), 0);
    for (int i = 0; i < 3000; i++) { /* 30 s at most, a fraction of a second mostly */
        assert_int_equal(cgroup_read_throttle(cg, pid, &after), 0);
        if (after.throttled > before.throttled && after.throttled_ns > before.throttled_ns)
            break;
        usleep(10000);
    }
    stop(pid);
    assert_true(after.throttled > before.throttled);
    assert_true(after.throttled_ns > before.throttled_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(settings_are_in_force_when_read_back, make, drop),
        cmocka_unit_test_setup_teardown(move_home_gives_the_old_group_and_cpus_back, make, drop),
        cmocka_unit_test_setup_teardown(removing_a_daemons_group_frees_every_process_in_it, make,
                                        drop),
        cmocka_unit_test_setup_teardown(a_frozen_group_stands_still_until_it_is_removed, make,
                                        drop),
        cmocka_unit_test_setup_teardown(a_process_in_a_foreign_group_is_not_moved, make, drop),
        cmocka_unit_test_setup_teardown(daemons_that_come_and_go_do_not_disturb_each_other, make,
                                        drop),
        cmocka_unit_test_setup_teardown(throttling_is_counted, make, drop),
    };
    struct error err = {0};
    int r;

    root = file_open_root();
    if (root < 0 || cgroup_new(root, &cg) < 0) {
        puts("skipped: no /proc");
        return 77;
    }
    cgroup_daemon_name(getuid(), 990000000ull + (uint64_t)getpid(), daemon_group);
    snprintf(job_group, sizeof(job_group), "%.80s/j1", daemon_group);
    if (!cgroup_writable(cg, NULL, NULL, &err) || cgroup_create(cg, job_group, BOTH, &err) < 0) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    r = cmocka_run_group_tests(tests, NULL, NULL);
    remove_group(daemon_group, NULL);
    cgroup_free(cg);
    close(root);
    return r;
}
