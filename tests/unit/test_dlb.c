/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DLB's calls on a libtide of this test's: which calls they become, and what its results become.
 * tests/component/test_dlb.py has the real daemon.
 */
#include "dlb/dlb.h"
#include "dlb/dlb_drom.h"

#include <tide/tide.h>

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- libtide ---- */

static struct {
    int open, call, agent; /* what it returns */
    uint32_t from, to;     /* of cores */
    uint32_t target;
    uint32_t reclaimed;
    char calls[256];
    const struct tide_job *jobs;
    size_t n;
} tide;

static char handle;

static void note(const char *fmt, ...)
{
    size_t n = strlen(tide.calls);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(tide.calls + n, sizeof(tide.calls) - n, fmt, ap);
    va_end(ap);
}

int tide_ctl_open(const struct tide_ctl_options *options, tide_ctl **ret_ctl)
{
    if (tide.open == 0)
        *ret_ctl = (tide_ctl *)&handle;
    return tide.open;
}

tide_ctl *tide_ctl_close(tide_ctl *ctl)
{
    return NULL;
}

static int answer(uint32_t from, struct tide_result *ret_result)
{
    if (ret_result && tide.call >= 0) {
        ret_result->from = from;
        ret_result->to = tide.to;
    }
    return tide.call;
}

int tide_ctl_lend(tide_ctl *ctl, const char *job, uint32_t cores, uint32_t deadline_ms,
                  struct tide_result *ret_result)
{
    assert_null(job);
    assert_in_range(deadline_ms, 1, 10); /* 0 would be the longest */
    note("lend %u;", cores);
    return answer(tide.from, ret_result);
}

int tide_ctl_borrow(tide_ctl *ctl, const char *job, uint32_t cores, uint32_t deadline_ms,
                    struct tide_result *ret_result)
{
    assert_null(job);
    assert_in_range(deadline_ms, 1, 10); /* 0 would be the longest */
    note("borrow %u;", cores);
    return answer(tide.from, ret_result);
}

int tide_ctl_reclaim(tide_ctl *ctl, const char *job, uint32_t deadline_ms,
                     struct tide_result *ret_result)
{
    assert_null(job);
    assert_in_range(deadline_ms, 1, 10);
    note("reclaim;");
    if (tide.call == TIDE_PARTIAL) { /* these tests' partial result is that of borrow */
        if (ret_result)
            ret_result->from = tide.reclaimed;
        return 0;
    }
    return answer(tide.reclaimed, ret_result);
}

int tide_ctl_return(tide_ctl *ctl, const char *job, uint32_t deadline_ms,
                    struct tide_result *ret_result)
{
    assert_null(job);
    assert_in_range(deadline_ms, 1, 10);
    note("return;");
    return answer(tide.from, ret_result);
}

int tide_ctl_set(tide_ctl *ctl, const char *job, uint32_t intra, uint32_t inter,
                 uint32_t deadline_ms, struct tide_result *ret_result)
{
    note("set %s %u %s;", job, intra, deadline_ms ? "soon" : "sync");
    return tide.call;
}

int tide_ctl_list(tide_ctl *ctl, tide_job_fn fn, void *arg)
{
    for (size_t i = 0; i < tide.n; i++)
        fn(&tide.jobs[i], arg);
    return tide.call;
}

int tide_get(struct tide_state *ret_state)
{
    ret_state->target = tide.target;
    return tide.agent;
}

int tide_declare(uint32_t max)
{
    note("declare %u;", max);
    return tide.agent;
}

int tide_active(uint32_t active)
{
    note("active %u;", active);
    return tide.agent;
}

static void expect_calls(const char *calls)
{
    assert_string_equal(tide.calls, calls);
    tide.calls[0] = '\0';
}

static int set_up(void **state)
{
    cpu_set_t cpus;

    memset(&tide, 0, sizeof(tide));
    CPU_ZERO(&cpus);
    for (int cpu = 2; cpu < 6; cpu++)
        CPU_SET(cpu, &cpus);
    return DLB_Init(0, &cpus, NULL);
}

static int tear_down(void **state)
{
    DLB_DROM_Detach();
    DLB_Finalize();
    return 0;
}

/* ---- life ---- */

static void calls_before_init_are_refused(void **state)
{
    cpu_set_t mask;
    int n;

    CPU_ZERO(&mask);
    assert_int_equal(DLB_Finalize(), DLB_SUCCESS);
    assert_int_equal(DLB_Finalize(), DLB_NOUPDT); /* as DLB's own test api_00 has it */
    assert_int_equal(DLB_Lend(), DLB_ERR_NOINIT);
    assert_int_equal(DLB_BorrowCpus(1), DLB_ERR_NOINIT);
    assert_int_equal(DLB_LendCpus(0), DLB_ERR_NOINIT);
    assert_int_equal(DLB_PollDROM(&n, &mask), DLB_ERR_NOINIT);
    assert_int_equal(DLB_DROM_GetNumCpus(&n), DLB_ERR_NOINIT);
    assert_int_equal(DLB_DROM_SetProcessMask(1, &mask, 0), DLB_ERR_NOCOMP);
    CPU_SET(0, &mask);
    assert_int_equal(DLB_DROM_SetProcessMask(1, &mask, 0), DLB_ERR_NOINIT);
    assert_int_equal(DLB_Init(0, NULL, "--lewi"), DLB_SUCCESS);
    assert_int_equal(DLB_Init(0, NULL, "--lewi"), DLB_ERR_INIT);
    expect_calls("");
}

static void without_a_daemon_or_an_agent_the_program_goes_on(void **state)
{
    int n = 7;

    tide.open = -ECONNREFUSED;
    tide.agent = -ENOENT;
    assert_int_equal(DLB_Lend(), DLB_ERR_NOSHMEM);
    assert_int_equal(DLB_Reclaim(), DLB_ERR_NOSHMEM);
    assert_int_equal(DLB_AcquireCpus(2), DLB_ERR_NOSHMEM);
    assert_int_equal(DLB_PollDROM(&n, NULL), DLB_ERR_DISBLD);
    assert_int_equal(DLB_PollDROM_Update(), DLB_ERR_DISBLD);
    assert_int_equal(n, 7);
    assert_int_equal(DLB_DROM_Attach(), DLB_ERR_NOSHMEM);
    tide.open = 0; /* it has come */
    assert_int_equal(DLB_LendCpus(1), DLB_NOUPDT);
}

static void disabled_it_gives_all_back_and_does_nothing(void **state)
{
    tide.to = 1;
    assert_int_equal(DLB_LendCpus(1), DLB_SUCCESS);
    tide.calls[0] = '\0';
    assert_int_equal(DLB_Disable(), DLB_SUCCESS);
    expect_calls("return;reclaim;");
    assert_int_equal(DLB_Lend(), DLB_ERR_DISBLD);
    assert_int_equal(DLB_PollDROM(NULL, NULL), DLB_ERR_DISBLD);
    expect_calls("");
    assert_int_equal(DLB_Enable(), DLB_SUCCESS);
    assert_int_equal(DLB_Enable(), DLB_NOUPDT);
    assert_int_equal(DLB_LendCpus(1), DLB_SUCCESS);
}

/* ---- LeWI ---- */

static void cpus_and_masks_are_lent_as_numbers(void **state)
{
    cpu_set_t mask;

    tide.to = 2;
    assert_int_equal(DLB_Lend(), DLB_SUCCESS);
    assert_int_equal(DLB_LendCpus(3), DLB_SUCCESS);
    assert_int_equal(DLB_LendCpu(2), DLB_SUCCESS);
    CPU_ZERO(&mask);
    CPU_SET(0, &mask); /* not its own */
    CPU_SET(4, &mask);
    CPU_SET(5, &mask);
    assert_int_equal(DLB_LendCpuMask(&mask), DLB_SUCCESS);
    expect_calls("lend 4096;lend 3;lend 1;lend 2;");
    assert_int_equal(DLB_LendCpu(0), DLB_ERR_PERM);
    assert_int_equal(DLB_LendCpu(-1), DLB_ERR_PERM);
    assert_int_equal(DLB_LendCpu(1 << 20), DLB_ERR_PERM);
    assert_int_equal(DLB_LendCpus(0), DLB_NOUPDT);
    assert_int_equal(DLB_LendCpus(-3), DLB_NOUPDT);
    CPU_ZERO(&mask);
    assert_int_equal(DLB_LendCpuMask(&mask), DLB_ERR_PERM);
    expect_calls("");
}

static void less_than_wished_is_still_lent(void **state)
{
    tide.call = TIDE_PARTIAL;
    tide.to = 1;
    assert_int_equal(DLB_LendCpus(4), DLB_SUCCESS);
    tide.from = 1; /* as before */
    assert_int_equal(DLB_LendCpus(4), DLB_NOUPDT);
}

static void reclaim_takes_all_and_says_whether_there_was_any(void **state)
{
    assert_int_equal(DLB_Reclaim(), DLB_NOUPDT);
    tide.reclaimed = 2;
    assert_int_equal(DLB_Reclaim(), DLB_SUCCESS);
    assert_int_equal(DLB_ReclaimCpus(1), DLB_SUCCESS);
    assert_int_equal(DLB_ReclaimCpu(3), DLB_SUCCESS);
    expect_calls("reclaim;reclaim;reclaim;reclaim;");
    assert_int_equal(DLB_ReclaimCpu(0), DLB_ERR_PERM);
    expect_calls("");
}

static void borrow_leaves_no_wish_and_acquire_does(void **state)
{
    tide.call = TIDE_PARTIAL;
    assert_int_equal(DLB_BorrowCpus(2), DLB_NOUPDT);
    expect_calls("borrow 2;return;");
    assert_int_equal(DLB_AcquireCpus(2), DLB_NOTED);
    expect_calls("reclaim;borrow 2;");
    tide.to = 1;
    assert_int_equal(DLB_BorrowCpus(2), DLB_SUCCESS);
    expect_calls("borrow 2;");
    tide.to = 2; /* all, but its threads are not awake yet */
    assert_int_equal(DLB_AcquireCpus(2), DLB_SUCCESS);
    tide.call = 0;
    assert_int_equal(DLB_Borrow(), DLB_SUCCESS);
    expect_calls("reclaim;borrow 2;borrow 4096;");
}

static void acquire_takes_what_is_lent_first(void **state)
{
    tide.reclaimed = 2;
    assert_int_equal(DLB_AcquireCpus(2), DLB_SUCCESS);
    expect_calls("reclaim;");
    tide.to = 1;
    assert_int_equal(DLB_AcquireCpus(3), DLB_SUCCESS);
    expect_calls("reclaim;borrow 1;");
    assert_int_equal(DLB_AcquireCpu(3), DLB_SUCCESS);
    expect_calls("reclaim;");
}

static void return_gives_all_back(void **state)
{
    assert_int_equal(DLB_Return(), DLB_NOUPDT);
    tide.from = 1;
    assert_int_equal(DLB_Return(), DLB_SUCCESS);
    assert_int_equal(DLB_ReturnCpu(17), DLB_SUCCESS);
    expect_calls("return;return;return;");
}

static void results_have_their_counterparts(void **state)
{
    static const int pairs[][2] = {
        {-ECONNREFUSED, DLB_ERR_NOSHMEM}, {-ESRCH, DLB_ERR_NOPROC}, {-EACCES, DLB_ERR_PERM},
        {-EBUSY, DLB_ERR_NOCOMP},         {-ENOMEM, DLB_ERR_NOMEM}, {-ECONNRESET, DLB_ERR_UNKNOWN},
        {-EBADMSG, DLB_ERR_UNKNOWN},
    };

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        tide.call = pairs[i][0];
        assert_int_equal(DLB_LendCpus(1), pairs[i][1]);
        assert_int_equal(DLB_Reclaim(), pairs[i][1]);
        assert_int_equal(DLB_BorrowCpus(1), pairs[i][1]);
        assert_int_equal(DLB_AcquireCpus(1), pairs[i][1]);
        assert_int_equal(DLB_Return(), pairs[i][1]);
    }
}

static void who_got_no_answer_asks_again_after_two_seconds(void **state)
{
    tide.call = -ETIMEDOUT;
    assert_int_equal(DLB_LendCpus(1), DLB_ERR_TIMEOUT);
    expect_calls("lend 1;");
    tide.call = 0;
    tide.to = 1;
    assert_int_equal(DLB_LendCpus(1), DLB_ERR_TIMEOUT);
    assert_int_equal(DLB_Reclaim(), DLB_ERR_TIMEOUT);
    expect_calls("");
    sleep(3);
    assert_int_equal(DLB_LendCpus(1), DLB_SUCCESS);
    expect_calls("lend 1;");
}

static void every_result_has_words(void **state)
{
    for (int r = DLB_ERR_NOPOL; r <= DLB_NOUPDT; r++)
        assert_true(strlen(DLB_Strerror(r)) > 3);
    assert_string_equal(DLB_Strerror(3), "no result of DLB");
    assert_string_equal(DLB_Strerror(-16), "no result of DLB");
    assert_string_equal(DLB_Strerror(INT32_MIN), "no result of DLB");
}

static void what_is_not_mapped_says_so(void **state)
{
    char value[8] = "";

    assert_int_equal(DLB_SetMaxParallelism(2), DLB_ERR_NOPOL);
    assert_int_equal(DLB_UnsetMaxParallelism(), DLB_ERR_NOPOL);
    assert_int_equal(DLB_Barrier(), DLB_ERR_NOCOMP);
    assert_int_equal(DLB_SetVariable("--lewi", "no"), DLB_ERR_NOENT);
    assert_int_equal(DLB_GetVariable("--lewi", value), DLB_ERR_NOENT);
    assert_int_equal(DLB_CheckCpuAvailability(3), DLB_SUCCESS);
    assert_int_equal(DLB_CheckCpuAvailability(0), DLB_ERR_PERM);
    expect_calls("");
}

/* ---- polling ---- */

static void a_program_that_polls_has_a_pool_and_follows_it(void **state)
{
    cpu_set_t mask;
    int n = 0;

    tide.target = 4;
    assert_int_equal(DLB_PollDROM(&n, &mask), DLB_NOUPDT);
    expect_calls("declare 4;active 4;");
    tide.target = 2;
    assert_int_equal(DLB_PollDROM(&n, &mask), DLB_SUCCESS);
    assert_int_equal(n, 2);
    assert_true(CPU_COUNT(&mask) == 2 && CPU_ISSET(2, &mask) && CPU_ISSET(3, &mask));
    assert_int_equal(DLB_PollDROM(&n, NULL), DLB_NOUPDT);
    tide.target = 9; /* more than it has */
    assert_int_equal(DLB_PollDROM(&n, NULL), DLB_SUCCESS);
    assert_int_equal(n, 4);
    assert_int_equal(DLB_PollDROM(NULL, NULL), DLB_NOUPDT);
    expect_calls("active 2;active 4;");
    DLB_Finalize();
    expect_calls("declare 0;");
}

static int told_threads, told_cpus;

static void on_threads(int threads, void *arg)
{
    told_threads = threads;
    assert_ptr_equal(arg, &told_threads);
    assert_int_equal(DLB_PollDROM_Update(), DLB_NOUPDT); /* it may call DLB */
}

static void on_mask(const cpu_set_t *mask, void *arg)
{
    told_cpus = CPU_COUNT(mask);
}

static void callbacks_are_called_by_the_poll(void **state)
{
    dlb_callback_t call;
    void *arg;

    assert_int_equal(
        DLB_CallbackSet(dlb_callback_set_num_threads, (dlb_callback_t)on_threads, &told_threads),
        DLB_SUCCESS);
    assert_int_equal(DLB_CallbackSet(dlb_callback_set_process_mask, (dlb_callback_t)on_mask, NULL),
                     DLB_SUCCESS);
    tide.target = 3;
    assert_int_equal(DLB_PollDROM_Update(), DLB_SUCCESS);
    assert_int_equal(told_threads, 3);
    assert_int_equal(told_cpus, 3);
    assert_int_equal(DLB_CallbackGet(dlb_callback_set_num_threads, &call, &arg), DLB_SUCCESS);
    assert_true(call == (dlb_callback_t)on_threads && arg == &told_threads);
    assert_int_equal(DLB_CallbackSet(0, call, NULL), DLB_ERR_NOCBK);
    assert_int_equal(DLB_CallbackSet(99, call, NULL), DLB_ERR_NOCBK);
}

/* ---- DROM ---- */

static void drom_lists_and_reads_jobs(void **state)
{
    static const struct tide_job jobs[] = {
        {.pid = 11, .target = 2, .cores = "1-3,8"},
        {.pid = 12, .target = 0, .cores = "0-1"},
        {.pid = 13, .target = 1, .cores = "0,2,4…"},
    };
    int pids[8], n = 0;
    cpu_set_t mask;

    tide.jobs = jobs;
    tide.n = 3;
    assert_int_equal(DLB_DROM_Attach(), DLB_SUCCESS);
    assert_int_equal(DLB_DROM_GetPidList(pids, &n, 8), DLB_SUCCESS);
    assert_true(n == 3 && pids[0] == 11 && pids[2] == 13);
    assert_int_equal(DLB_DROM_GetPidList(pids, &n, 2), DLB_SUCCESS);
    assert_int_equal(n, 2);
    assert_int_equal(DLB_DROM_GetProcessMask(11, &mask, 0), DLB_SUCCESS);
    assert_true(CPU_COUNT(&mask) == 2 && CPU_ISSET(1, &mask) && CPU_ISSET(2, &mask));
    assert_int_equal(DLB_DROM_GetProcessMask(12, &mask, 0), DLB_SUCCESS);
    assert_int_equal(CPU_COUNT(&mask), 2);
    assert_int_equal(DLB_DROM_GetProcessMask(13, &mask, 0), DLB_ERR_UNKNOWN);
    assert_int_equal(DLB_DROM_GetProcessMask(14, &mask, 0), DLB_ERR_NOPROC);
    assert_int_equal(DLB_DROM_GetNumCpus(&n), DLB_SUCCESS);
    assert_int_equal(n, sysconf(_SC_NPROCESSORS_ONLN));
}

/* As in DLB's own test api_drom_02. */
static void drom_knows_the_own_process_without_attaching(void **state)
{
    const struct tide_job job = {.pid = (uint32_t)getpid(), .target = 1, .cores = "2-3"};
    cpu_set_t mask;

    tide.jobs = &job;
    tide.n = 1;
    assert_int_equal(DLB_DROM_GetProcessMask(0, &mask, 0), DLB_SUCCESS);
    assert_true(CPU_COUNT(&mask) == 1 && CPU_ISSET(2, &mask));
    assert_int_equal(DLB_DROM_SetProcessMask(0, &mask, 0), DLB_SUCCESS);
    assert_int_equal(DLB_DROM_GetProcessMask((int)getppid(), &mask, 0), DLB_ERR_NOINIT);
    assert_int_equal(DLB_DROM_Detach(), DLB_ERR_NOINIT);
    assert_int_equal(DLB_Finalize(), DLB_SUCCESS);
    assert_int_equal(DLB_DROM_GetProcessMask(0, &mask, 0), DLB_ERR_NOINIT);
}

/* A child that ends what it never began would give back its parent's loans. */
static void a_child_of_fork_ends_nothing_of_its_parent(void **state)
{
    pid_t child;
    int status;

    tide.from = 4;
    tide.to = 3;
    assert_int_equal(DLB_LendCpus(1), DLB_SUCCESS);
    tide.calls[0] = '\0';
    child = fork();
    if (child == 0)
        _exit(DLB_Finalize() == DLB_NOUPDT && DLB_Lend() == DLB_ERR_NOINIT && !tide.calls[0] ? 0
                                                                                             : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(DLB_Finalize(), DLB_SUCCESS);
    expect_calls("return;reclaim;");
}

static void a_child_of_fork_has_a_pool_of_its_own(void **state)
{
    cpu_set_t mask;
    pid_t child;
    int n, status;

    assert_true(DLB_PollDROM(&n, &mask) >= 0);
    assert_non_null(strstr(tide.calls, "declare"));
    tide.calls[0] = '\0';
    child = fork();
    if (child == 0) {
        DLB_Init(0, NULL, NULL);
        DLB_PollDROM(&n, &mask);
        _exit(strstr(tide.calls, "declare") ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void drom_sets_as_many_threads_as_the_mask_has_cpus(void **state)
{
    cpu_set_t mask;

    CPU_ZERO(&mask);
    CPU_SET(1, &mask);
    CPU_SET(9, &mask);
    assert_int_equal(DLB_DROM_Attach(), DLB_SUCCESS);
    assert_int_equal(DLB_DROM_SetProcessMask(11, &mask, DLB_DROM_FLAGS_NONE), DLB_SUCCESS);
    assert_int_equal(DLB_DROM_SetProcessMask(11, &mask, DLB_SYNC_QUERY | DLB_STEAL_CPUS),
                     DLB_SUCCESS);
    assert_int_equal(DLB_DROM_SetProcessMaskStr(11, "0-3", 0), DLB_SUCCESS);
    expect_calls("set 11 2 soon;set 11 2 sync;set 11 4 soon;");
    assert_int_equal(DLB_DROM_SetProcessMaskStr(11, "0-", 0), DLB_ERR_NOENT);
    assert_int_equal(DLB_DROM_SetProcessMaskStr(11, "", 0), DLB_ERR_NOCOMP);
    expect_calls("");
    tide.call = TIDE_PARTIAL;
    assert_int_equal(DLB_DROM_SetProcessMask(11, &mask, DLB_DROM_FLAGS_NONE), DLB_SUCCESS);
    assert_int_equal(DLB_DROM_SetProcessMask(11, &mask, DLB_SYNC_QUERY), DLB_ERR_TIMEOUT);
    tide.call = -ESRCH;
    assert_int_equal(DLB_DROM_SetProcessMask(11, &mask, DLB_DROM_FLAGS_NONE), DLB_ERR_NOPROC);
    assert_int_equal(DLB_DROM_PreInit(11, &mask, 0, NULL), DLB_ERR_NOCOMP);
    assert_int_equal(DLB_DROM_PostFinalize(11, 0), DLB_NOUPDT);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(calls_before_init_are_refused),
        EACH(without_a_daemon_or_an_agent_the_program_goes_on),
        EACH(disabled_it_gives_all_back_and_does_nothing),
        EACH(cpus_and_masks_are_lent_as_numbers),
        EACH(less_than_wished_is_still_lent),
        EACH(reclaim_takes_all_and_says_whether_there_was_any),
        EACH(borrow_leaves_no_wish_and_acquire_does),
        EACH(acquire_takes_what_is_lent_first),
        EACH(return_gives_all_back),
        EACH(results_have_their_counterparts),
        EACH(who_got_no_answer_asks_again_after_two_seconds),
        EACH(every_result_has_words),
        EACH(what_is_not_mapped_says_so),
        EACH(a_program_that_polls_has_a_pool_and_follows_it),
        EACH(callbacks_are_called_by_the_poll),
        EACH(drom_lists_and_reads_jobs),
        EACH(drom_knows_the_own_process_without_attaching),
        EACH(a_child_of_fork_ends_nothing_of_its_parent),
        EACH(a_child_of_fork_has_a_pool_of_its_own),
        EACH(drom_sets_as_many_threads_as_the_mask_has_cpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
