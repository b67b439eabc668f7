/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes without pidfds, as before Linux 5.3: each test is a child that a seccomp filter gives
 * such a kernel. Without an argument the tests of recycled pids are left out; these need root, and
 * pid namespaces ("recycled"), and exit with 77 where they cannot run.
 */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/proc/proc.h"
#include "old_kernel.h"

#define GUARD_MS 30000
#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static pid_t sleeper(void)
{
    pid_t parent = getpid(), pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            pause();
        _exit(0);
    }
    CHECK(pid > 0);
    return pid;
}

static void end(pid_t pid)
{
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

static void ends_are_seen_and_signals_arrive(void)
{
    pid_t pid = sleeper();
    int fd = proc_pidfd_open(pid), status;
    siginfo_t info;

    CHECK(fd >= 0 && !proc_pidfd_wakes(fd));
    CHECK(!proc_pidfd_ended(fd) && !proc_pidfd_wait(fd, 60));
    CHECK(proc_check_owner(open("/", O_RDONLY), fd, pid, getuid()) == 0);
    CHECK(proc_pidfd_signal(fd, 0) == 0);
    CHECK(proc_pidfd_signal(fd, SIGTERM) == 0);
    CHECK(proc_pidfd_wait(fd, GUARD_MS) && proc_pidfd_ended(fd)); /* nobody has waited for it yet */
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
    CHECK(proc_pidfd_signal(fd, 0) == 0); /* as with a pidfd */
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    CHECK(proc_pidfd_signal(fd, 0) == -ESRCH && proc_pidfd_ended(fd));
    CHECK(proc_check_owner(open("/", O_RDONLY), fd, pid, getuid()) == -ESRCH);
    CHECK(proc_pidfd_open(pid) == -ESRCH);
}

static void a_value_arrives_with_its_signal(void)
{
    sigset_t one;
    siginfo_t info;
    int fd = proc_pidfd_open(getpid());

    sigemptyset(&one);
    sigaddset(&one, SIGRTMIN);
    CHECK(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
    CHECK(proc_pidfd_queue(fd, SIGRTMIN, 7) == 0);
    CHECK(sigwaitinfo(&one, &info) == SIGRTMIN && info.si_value.sival_int == 7);
}

static void other_users_processes_are_refused(void)
{
    int fd = proc_pidfd_open(1);

    if (getuid() == 0)
        CHECK(setresuid(65534, 65534, 65534) == 0);
    CHECK(fd >= 0 && proc_pidfd_signal(fd, 0) == -EPERM);
}

/* True if the next process has this pid. */
static bool next_pid(pid_t pid)
{
    FILE *f = fopen("/proc/sys/kernel/ns_last_pid", "we");

    return f && fprintf(f, "%d", (int)pid - 1) > 0 && fclose(f) == 0;
}

static void a_recycled_pid_is_another_process(void)
{
    pid_t pid, other;
    int fd;

    if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0)
        _exit(77);
    pid = fork(); /* process 1 of the namespace */
    if (pid > 0) {
        int status;

        CHECK(waitpid(pid, &status, 0) == pid);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    if (mount("proc", "/proc", "proc", 0, NULL) < 0 || !next_pid(100))
        _exit(77);
    pid = sleeper();
    fd = proc_pidfd_open(pid);
    CHECK(fd >= 0 && !proc_pidfd_wakes(fd));
    end(pid);
    CHECK(next_pid(pid));
    other = sleeper();
    if (other != pid)
        _exit(77);
    CHECK(proc_pidfd_ended(fd));
    CHECK(proc_pidfd_signal(fd, SIGKILL) == -ESRCH);
    CHECK(proc_pidfd_queue(fd, SIGKILL, 1) == -ESRCH);
    CHECK(waitpid(other, NULL, WNOHANG) == 0); /* it lives */
    end(other);
}

/* Returns the status of @test in a child on such a kernel. */
static int on_old_kernel(void (*test)(void), bool with_signal, int error)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        CHECK(become_old_kernel(with_signal, error) == 0);
        test();
        _exit(0);
    }
    assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const struct kernel {
    bool with_signal;
    int error;
} kernels[] = {
    {false, ENOSYS}, {true, ENOSYS}, {false, EPERM}}; /* the last: a container's filter */

static int on_each(void (*test)(void))
{
    int worst = 0;

    for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++) {
        int status = on_old_kernel(test, kernels[i].with_signal, kernels[i].error);

        worst = status && worst != 1 ? status : worst;
    }
    return worst;
}

static void without_pidfds_ends_are_seen_and_signals_arrive(void **state)
{
    assert_int_equal(on_each(ends_are_seen_and_signals_arrive), 0);
}

static void without_pidfds_a_value_arrives_with_its_signal(void **state)
{
    assert_int_equal(on_each(a_value_arrives_with_its_signal), 0);
}

static void without_pidfds_other_users_processes_are_refused(void **state)
{
    assert_int_equal(on_each(other_users_processes_are_refused), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_pidfds_ends_are_seen_and_signals_arrive),
        cmocka_unit_test(without_pidfds_a_value_arrives_with_its_signal),
        cmocka_unit_test(without_pidfds_other_users_processes_are_refused),
    };

    if (argc > 1 && strcmp(argv[1], "recycled") == 0)
        return geteuid() ? 77 : on_each(a_recycled_pid_is_another_process);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
