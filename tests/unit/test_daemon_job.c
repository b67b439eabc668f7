/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the job table that need no daemon: names, splitting, what is settled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/confine/actuate.h"
#include "daemon/daemon.h"
#include "daemon/job/apportion.h"
#include "daemon/job/confine.h"
#include "daemon/job/job.h"
#include "daemon/job/owner.h"
#include "daemon/link/agent_socket.h"
#include "daemon/plan/decision.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 5

static struct connection peer; /* that it is there is all that matters */

/* A job of @count malleable processes, each with a pool of @max threads. */
static void make_job(struct daemon *d, struct job *j, struct process *p, unsigned count,
                     uint32_t max)
{
    memset(d, 0, sizeof(*d));
    memset(j, 0, sizeof(*j));
    memset(p, 0, count * sizeof(*p));
    cpuset_add(&d->cpus, 0);
    j->daemon = d;
    j->confine = &process_confine;
    j->processes = p;
    j->n_processes = count;
    j->placed.quota_mcpu = CGROUP_NO_QUOTA;
    j->admission.phase = JOB_RUNNING;
    for (unsigned i = 0; i < count; i++) {
        p[i].next = i + 1 < count ? &p[i + 1] : NULL;
        p[i].job = j;
        p[i].connection = &peer;
        p[i].n_backends = 1;
        p[i].backend[0] = (struct backend){.known = true, .malleable = true, .max.intra = max};
    }
}

static struct daemon the_daemon;
static struct job job;
static struct process process[PROCESSES];

static void names_that_could_be_mistaken_are_refused(void **unused)
{
    static const char *const good[] = {"cnn", "a", "train.py", "job-7", "x@host:1", "7up",
                                       "J1",  "j", "j0",       "jx",    "j1a"};
    static const char *const bad[] = {"",    "17", "j1", "j999", "a b", "a/b",
                                      "a\n", "ä",  "%",  "'",    "-",   "--auto"};
    char longest[PROTO_NAME_MAX + 1];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(job_name_valid(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(job_name_valid(bad[i]));
    memset(longest, 'x', sizeof(longest));
    longest[PROTO_NAME_MAX - 1] = '\0';
    assert_true(job_name_valid(longest));
    longest[PROTO_NAME_MAX - 1] = 'x';
    longest[PROTO_NAME_MAX] = '\0';
    assert_false(job_name_valid(longest));
}

static void a_split_adds_up_and_gives_everybody_one(void **unused)
{
    for (unsigned count = 1; count <= PROCESSES; count++)
        for (uint32_t k = 1; k <= 20; k++) {
            uint32_t sum = 0, least = UINT32_MAX, most = 0;

            make_job(&the_daemon, &job, process, count, 8);
            job.wanted.threads = (struct threads){k, 0};
            apportion_divide(&job);
            for (unsigned i = 0; i < count; i++) {
                sum += process[i].want.intra;
                least = process[i].want.intra < least ? process[i].want.intra : least;
                most = process[i].want.intra > most ? process[i].want.intra : most;
                assert_int_equal(process[i].want.inter, 0);
            }
            assert_int_equal(sum, k < count ? count : k);
            assert_true(least >= 1 && most - least <= 1);
        }
}

static void a_process_that_set_itself_keeps_its_number(void **unused)
{
    make_job(&the_daemon, &job, process, 3, 8);
    job.wanted.threads = job.asked.pinned = (struct threads){9, 0};
    process[1].local = (struct threads){5, 2};
    apportion_divide(&job);
    assert_int_equal(process[1].want.intra, 5);
    assert_int_equal(process[1].want.inter, 2);
    assert_int_equal(process[0].want.intra + process[2].want.intra, 4);
}

static void only_malleable_connected_processes_get_threads(void **unused)
{
    make_job(&the_daemon, &job, process, 3, 8);
    process[0].backend[0].malleable = false;
    process[1].connection = NULL;
    job.wanted.threads = (struct threads){4, 0};
    apportion_divide(&job);
    assert_int_equal(process[0].want.intra, 0);
    assert_int_equal(process[1].want.intra, 0);
    assert_int_equal(process[2].want.intra, 4);
    assert_string_equal(job_state(&job, 0), "running");
    process[2].connection = NULL;
    assert_string_equal(job_state(&job, 0), "rigid");
    process[0].connection = NULL;
    assert_string_equal(job_state(&job, 0), "starting");
}

static void a_job_without_agent_is_not_starting_for_ever(void **unused)
{
    uint64_t born = 1000 * NS_PER_S, late = born + JOB_START_NS;
    char note[JOB_NOTE_MAX];

    make_job(&the_daemon, &job, process, 1, 8);
    job.met_ns = born;
    strcpy(job.placed.note, "cores not limited");
    job_note(&job, late, note);
    assert_string_equal(note, "cores not limited");
    process[0].connection = NULL;
    assert_string_equal(job_state(&job, late - 1), "starting");
    job_note(&job, late - 1, note);
    assert_string_equal(note, "cores not limited");
    assert_string_equal(job_state(&job, late), "rigid");
    job_note(&job, late, note);
    assert_non_null(strstr(note, "cores not limited; no agent reports"));
    memset(job.placed.note, 'x', sizeof(job.placed.note) - 1);
    job_note(&job, late, note);
    assert_non_null(strstr(note, "xx; no agent reports"));
    assert_non_null(strstr(note, "until one does")); /* there is room for both */
    process[0].connection = &peer;
    assert_string_equal(job_state(&job, late), "running");
    process[0].n_backends = 0; /* said hello, but of no runtime */
    assert_string_equal(job_state(&job, late), "rigid");
}

static void
a_job_that_was_sized_at_its_start_is_moldable_unless_a_runtime_is_malleable(void **unused)
{
    char note[JOB_NOTE_MAX];

    make_job(&the_daemon, &job, process, 1, 8);
    job.asked.sized = 2;
    assert_string_equal(job_state(&job, 0), "running");
    process[0].backend[0].malleable = false;
    assert_string_equal(job_state(&job, 0), "moldable");
    job_note(&job, 0, note);
    assert_non_null(strstr(note, "moldable: its runtimes were started with 2 threads, which stay"));
    process[0].connection = NULL;
    assert_string_equal(job_state(&job, 0), "starting");
    assert_string_equal(job_state(&job, JOB_START_NS), "moldable");
    job.asked.sized = 1;
    job_note(&job, JOB_START_NS, note);
    assert_non_null(strstr(note, "sized at start have 1 thread; no agent reports one yet"));
    assert_null(strstr(note, "which stay"));
    job.admission.phase = JOB_PAUSED;
    assert_string_equal(job_state(&job, JOB_START_NS), "paused");
}

static void a_job_is_settled_when_the_newest_target_is_acknowledged(void **unused)
{
    make_job(&the_daemon, &job, process, 1, 8);
    process[0].want = process[0].sent = (struct threads){2, 0};
    process[0].sent_generation = 7;
    process[0].acked_generation = 6;
    assert_false(job_settled(&job));
    process[0].acked_generation = 7;
    assert_true(job_settled(&job));
    process[0].unsent = true;
    assert_false(job_settled(&job));
    process[0].unsent = false;
    process[0].want.inter = 1;
    assert_false(job_settled(&job));
}

static void an_idle_shell_counts_for_half_a_minute_only(void **unused)
{
    uint64_t born = 1000 * NS_PER_S;

    make_job(&the_daemon, &job, process, 1, 8);
    process[0].connection = NULL;
    job.met_ns = born;
    assert_true(decision_counts(&job, born + JOB_YOUNG_NS - 1));
    assert_false(decision_counts(&job, born + JOB_YOUNG_NS));
    job.asked.attributes.min = 2; /* asked for */
    assert_true(decision_counts(&job, born + JOB_YOUNG_NS));
    job.asked.attributes.min = 0;
    process[0].connection = &peer;
    assert_true(decision_counts(&job, born + JOB_YOUNG_NS));
}

static void oversubscribed_means_more_threads_than_the_job_may_run(void **unused)
{
    make_job(&the_daemon, &job, process, 1, 8);
    for (unsigned c = 0; c < 4; c++)
        cpuset_add(&the_daemon.cpus, c);
    job.wanted.threads.intra = 4;
    assert_false(job_oversubscribed(&job));
    job.wanted.threads.intra = 5;
    assert_true(job_oversubscribed(&job));
    job.wanted.threads.intra = 3;
    cpuset_add(&job.placed.cores, 0);
    cpuset_add(&job.placed.cores, 1);
    assert_true(job_oversubscribed(&job));
    job.wanted.threads.intra = 2;
    assert_false(job_oversubscribed(&job));
    job.observed.allowed_mcpu = 500; /* half a core: one thread is the least there is */
    job.wanted.threads.intra = 1;
    assert_false(job_oversubscribed(&job));
    job.placed.late = true;
    assert_true(job_oversubscribed(&job));
}

static void the_ring_keeps_the_newest_changes(void **unused)
{
    make_job(&the_daemon, &job, process, 1, 8);
    assert_null(job_last_change(&job));
    for (uint32_t i = 1; i <= JOB_CHANGES_MAX + 3; i++)
        job_record(&job, i - 1, i, "why");
    assert_int_equal(job_last_change(&job)->to, JOB_CHANGES_MAX + 3);
    assert_int_equal(job.n_changes, JOB_CHANGES_MAX + 3);
}

/* Its number may be another's by now, also where any process may be in the job. */
static void a_process_that_is_gone_is_nobodys(void **unused)
{
    static const struct confine anybodys = {.any_uid = true};
    int pidfd;
    pid_t pid = fork();

    if (pid == 0) {
        pause();
        _exit(0);
    }
    pidfd = proc_pidfd_open(pid);
    assert_true(pidfd >= 0);
    make_job(&the_daemon, &job, process, 1, 8);
    job.uid = 0;
    assert_int_equal(owner_check(&job, pidfd, pid), 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(owner_check(&job, pidfd, pid), -ESRCH);
    job.uid = 1;
    job.confine = &anybodys;
    assert_int_equal(owner_check(&job, pidfd, pid), -ESRCH);
    close(pidfd);
}

static int answers[2];

static void take_answer(void *arg, int result)
{
    *(int *)arg = result;
}

/* Whoever waits knows the job by its address. */
static void nobody_waits_for_a_job_that_is_freed(void **unused)
{
    for (int ending = 0; ending <= 1; ending++) {
        make_job(&the_daemon, &job, process, 0, 8);
        the_daemon.ending = ending;
        admission_init(&job, true, 1);
        answers[0] = answers[1] = 1;
        assert_int_equal(admission_wait(&job, take_answer, &answers[0]), 0);
        assert_int_equal(admission_wait(&job, take_answer, &answers[1]), 0);
        admission_gone(&job);
        assert_null(job.admission.waits);
        for (int i = 0; i < 2; i++)
            assert_int_equal(answers[i], ending ? -ESHUTDOWN : -ECANCELED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_could_be_mistaken_are_refused),
        cmocka_unit_test(a_split_adds_up_and_gives_everybody_one),
        cmocka_unit_test(a_process_that_set_itself_keeps_its_number),
        cmocka_unit_test(only_malleable_connected_processes_get_threads),
        cmocka_unit_test(a_job_without_agent_is_not_starting_for_ever),
        cmocka_unit_test(
            a_job_that_was_sized_at_its_start_is_moldable_unless_a_runtime_is_malleable),
        cmocka_unit_test(a_job_is_settled_when_the_newest_target_is_acknowledged),
        cmocka_unit_test(an_idle_shell_counts_for_half_a_minute_only),
        cmocka_unit_test(oversubscribed_means_more_threads_than_the_job_may_run),
        cmocka_unit_test(a_process_that_is_gone_is_nobodys),
        cmocka_unit_test(nobody_waits_for_a_job_that_is_freed),
        cmocka_unit_test(the_ring_keeps_the_newest_changes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
