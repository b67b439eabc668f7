/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of meters: whatever they do, the event loop goes on. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "unit/device/run.h"

#define TURN_US  100000
#define TURNS    300 /* 30 s at most */
#define SHORT_MS 200
#define LONG_MS  30000 /* for a program that ends by itself */

static sd_event *event;
static bool hangs; /* the program does not end, also when it is killed: the kernel has it */
static int waits;  /* calls that would have waited for it */
static bool slow;
static bool ended;
static int ended_with;
static char printed[64];

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    waits += !(options & WNOHANG);
    return hangs ? 0 : __real_waitpid(pid, status, options);
}

int __real_proc_pidfd_open(pid_t pid);
int __wrap_proc_pidfd_open(pid_t pid);

/* @slow: it is called so late that a short program has ended. */
int __wrap_proc_pidfd_open(pid_t pid)
{
    siginfo_t end;

    if (slow) /* the kernel keeps it for waitpid(), unless SIGCHLD is ignored */
        waitid(P_PID, (id_t)pid, &end, WEXITED | WNOWAIT);
    return __real_proc_pidfd_open(pid);
}

static void on_done(void *arg, int status, const char *text)
{
    ended = true;
    ended_with = status;
    snprintf(printed, sizeof(printed), "%s", text);
}

static struct run *start(char *const argv[], unsigned limit_ms)
{
    struct run *r = NULL;

    ended = false;
    waits = 0;
    assert_int_equal(run_start(event, argv, limit_ms, on_done, NULL, &r), 0);
    return r;
}

static void wait_for_end(void)
{
    for (int i = 0; !ended && i < TURNS; i++)
        assert_true(sd_event_run(event, TURN_US) >= 0);
    assert_true(ended);
}

static void nobody_waits_for_a_program_that_the_kernel_keeps(void **state)
{
    char *argv[] = {"sleep", "60", NULL};
    struct run *r;

    hangs = true;
    r = start(argv, SHORT_MS);
    for (int i = 0; !ended && !run_late(r) && i < TURNS; i++)
        assert_true(sd_event_run(event, TURN_US) >= 0);
    for (int i = 0; !ended && i < 3; i++)
        assert_true(sd_event_run(event, TURN_US) >= 0);
    assert_false(ended);
    assert_int_equal(waits, 0);
    hangs = false;
    wait_for_end();
    assert_int_equal(ended_with, -ETIMEDOUT);
    assert_int_equal(waits, 0);
}

static void what_a_program_printed_counts_where_ended_children_are_ignored(void **state)
{
    char *argv[] = {"echo", "83 W", NULL};

    signal(SIGCHLD, SIG_IGN); /* as whoever started us may have it */
    start(argv, LONG_MS);
    wait_for_end();
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(ended_with, 0);
    assert_string_equal(printed, "83 W\n");
}

static void a_program_that_fails_has_failed_also_where_ended_children_are_ignored(void **state)
{
    char *argv[] = {"false", NULL};

    signal(SIGCHLD, SIG_IGN);
    start(argv, LONG_MS);
    wait_for_end();
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(ended_with, 1);
}

static void a_program_that_ended_before_it_could_be_watched_has_printed_all_the_same(void **state)
{
    slow = true;
    what_a_program_printed_counts_where_ended_children_are_ignored(state);
    slow = false;
}

static int begin(void **state)
{
    return sd_event_new(&event) < 0;
}

static int end(void **state)
{
    sd_event_unref(event);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_for_a_program_that_the_kernel_keeps),
        cmocka_unit_test(what_a_program_printed_counts_where_ended_children_are_ignored),
        cmocka_unit_test(a_program_that_fails_has_failed_also_where_ended_children_are_ignored),
        cmocka_unit_test(a_program_that_ended_before_it_could_be_watched_has_printed_all_the_same),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
