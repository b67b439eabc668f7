/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measured use of jobs, on a recorded /proc whose clock is ours; and decisions by it: cores of
 * jobs that report nothing themselves, memory and devices of all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/size.h"
#include "daemon/confine/actuate.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/link/agent_socket.h"
#include "daemon/plan/decision.h"

#include "tree.h"

#include <stdio.h>
#include <string.h>

#define CORES 8
#define MIB   (UINT64_C(1) << 20)

static struct connection peer; /* that it is there is all that matters */

static struct tree tree;
static struct daemon the_daemon;
static struct job_table job_table;
static struct job job[3];
static struct process process[3];
static uint64_t now;
static unsigned ticks[1000]; /* of processor time, by pid */

/* Pages are those of this machine. */
static void write_process(int pid, int parent, int session, unsigned used, uint64_t own_bytes)
{
    unsigned long page = (unsigned long)sysconf(_SC_PAGESIZE);
    char path[64], text[512];

    snprintf(path, sizeof(path), "proc/%d/stat", pid);
    snprintf(
        text, sizeof(text),
        "%d (p) R %d %d %d 0 -1 0 0 0 0 0 %u 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 "
        "0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        pid, parent, pid, session, used);
    tree_write(&tree, path, text);
    snprintf(path, sizeof(path), "proc/%d/statm", pid);
    snprintf(text, sizeof(text), "999999 %lu 1000 10 0 500 0\n",
             1000 + (unsigned long)own_bytes / page);
    tree_write(&tree, path, text);
}

/* Jobs with processes 100, 200, …; all run, none reports, under policy `equal`. */
static int begin(void **state)
{
    struct error err;

    now = 1000 * NS_PER_S;
    memset(&the_daemon, 0, sizeof(the_daemon));
    job_table = (struct job_table){0};
    the_daemon.jobs = &job_table;
    memset(job, 0, sizeof(job));
    memset(process, 0, sizeof(process));
    memset(ticks, 0, sizeof(ticks));
    tree_init(&tree, NULL, 0);
    tree_write(&tree, "proc/", "");
    the_daemon.root = tree.fd;
    the_daemon.cpus_made_up = true;
    for (unsigned c = 0; c < CORES; c++)
        cpuset_add(&the_daemon.cpus, c);
    for (unsigned i = 0; i < 3; i++) {
        process[i] = (struct process){.job = &job[i], .pid = 100 * ((int)i + 1)};
        job[i] = (struct job){.daemon = &the_daemon,
                              .confine = &process_confine,
                              .next = i < 2 ? &job[i + 1] : NULL,
                              .processes = &process[i],
                              .n_processes = 1,
                              .number = i + 1,
                              .asked.attributes = {.weight = 100},
                              .created_ns = now,
                              .met_ns = now,
                              .placed.quota_mcpu = CGROUP_NO_QUOTA};
        admission_init(&job[i], false, now);
        write_process(process[i].pid, 1, 1, 0, 0);
    }
    the_daemon.jobs->first = job;
    the_daemon.jobs->n = 3;
    return decision_new(&the_daemon.decision, &err);
}

static int end(void **state)
{
    decision_free(the_daemon.decision);
    tree_done(&tree);
    return 0;
}

static void decide(void)
{
    struct error err = {0};

    if (decision_make(&the_daemon, now, true, &err) < 0)
        fail_msg("%s", err.text);
}

/* Decides, and carries the decision out: plan.c's part. */
static void place(void)
{
    decide();
    for (unsigned i = 0; i < 3; i++)
        job[i].placed.cores = job[i].wanted.cores;
}

/* @seconds in which process @pid, and what it has forked, use @mcpu each; with a look each. */
static bool pass(unsigned seconds, int pid, int parent, unsigned mcpu, uint64_t own_bytes)
{
    unsigned per_s = (unsigned)sysconf(_SC_CLK_TCK);
    bool changed = false;

    for (unsigned i = 0; i < seconds; i++) {
        now += NS_PER_S;
        ticks[pid] += per_s * mcpu / 1000;
        write_process(pid, parent, 1, ticks[pid], own_bytes);
        changed |= usage_look(&the_daemon, now);
    }
    return changed;
}

static void what_its_children_use_is_the_jobs(void **state)
{
    write_process(101, 100, 1, 0, 40 * MIB);
    write_process(102, 101, 1, 0, 20 * MIB);
    write_process(103, 1, 1, 0, 500 * MIB); /* somebody else's */
    pass(1, 100, 1, 0, 4 * MIB);
    assert_true(job[0].observed.usage.memory_bytes == 64 * MIB);
    assert_true(pass(20, 102, 101, 3000, 20 * MIB));
    assert_int_equal(job[0].observed.usage.cores, 3);
    assert_int_equal(job[1].observed.usage.cores, 0);
}

static void an_orphan_of_a_submitted_job_is_known_by_its_session(void **state)
{
    write_process(150, 1, 100, 0, 32 * MIB);
    write_process(151, 150, 151, 0, 32 * MIB);
    pass(1, 100, 1, 0, 0);
    assert_true(job[0].observed.usage.memory_bytes == 0);
    job[0].admission.submitted = true;
    pass(1, 100, 1, 0, 0);
    assert_true(job[0].observed.usage.memory_bytes == 32 * MIB);
}

static void a_fluctuation_changes_no_decision(void **state)
{
    pass(30, 100, 1, 2000, 0);
    assert_int_equal(job[0].observed.usage.cores, 2);
    for (unsigned i = 0; i < 30; i++)
        if (pass(1, 100, 1, i % 2 ? 2600 : 1400, 0))
            fail_msg("%f cores are %u", job[0].observed.usage.busy, job[0].observed.usage.cores);
    assert_true(pass(20, 100, 1, 200, 0));
    assert_int_equal(job[0].observed.usage.cores, 0);
}

static void a_silent_jobs_cores_are_not_given_to_others(void **state)
{
    struct backend known = {.known = true, .malleable = true, .max.intra = CORES};

    process[1].connection = process[2].connection = &peer;
    process[1].n_backends = process[2].n_backends = 1;
    process[1].backend[0] = process[2].backend[0] = known;
    decide();
    assert_int_equal(job[0].wanted.share, 1);
    assert_int_equal(job[1].wanted.share + job[2].wanted.share, 7);
    pass(20, 100, 1, 4000, 0);
    decide();
    assert_int_equal(job[0].wanted.share, 4);
    assert_int_equal(job[1].wanted.share, 2);
    assert_int_equal(job[2].wanted.share, 2);
    assert_string_equal(job[0].wanted.reason,
                        "no agent reports: its share is the 4 cores that it uses");
    assert_int_equal(job[0].wanted.threads.intra, 0);
    now += 2 * JOB_YOUNG_NS; /* a shell would count for nothing by now */
    decide();
    assert_int_equal(job[0].wanted.share, 4);
    pass(30, 100, 1, 0, 0);
    decide();
    assert_int_equal(job[0].wanted.share, 0);
    assert_int_equal(job[1].wanted.share + job[2].wanted.share, 8);
}

/* Its use would only show the fence; and without use it would lose its cores. */
static void a_moldable_job_on_cores_of_its_own_counts_in_full(void **state)
{
    struct backend sized = {.known = true, .max.intra = CORES, .note = "moldable: libx may ask"};

    process[0].connection = &peer;
    process[0].n_backends = 1;
    process[0].backend[0] = sized;
    job[0].asked.attributes.placement = PLACEMENT_EXCLUSIVE;
    now += 2 * JOB_YOUNG_NS;
    decide();
    assert_int_equal(job[0].wanted.share, CORES);
    job[0].asked.attributes.placement = PLACEMENT_SHARED;
    decide();
    assert_int_equal(job[0].wanted.share, 0);
}

/*
 * Job 0 says nothing: after its time of grace the others have all cores to themselves, and it is on
 * theirs. When it says something, it gets cores that nobody has to leave for another's sake.
 */
static void what_it_shared_for_want_of_better_is_not_its_own_to_keep(void **state)
{
    struct cpuset before;

    for (unsigned i = 0; i < 3; i++)
        job[i].asked.attributes.placement = PLACEMENT_EXCLUSIVE;
    for (unsigned i = 1; i < 3; i++) {
        process[i].connection = &peer;
        process[i].n_backends = 1;
        process[i].backend[0] =
            (struct backend){.known = true, .malleable = true, .max.intra = CORES};
    }
    job[1].asked.attributes.max = 1;
    place();
    now += JOB_YOUNG_NS;
    place();
    assert_int_equal(job[0].wanted.share, 0);
    assert_int_equal(cpuset_count(&job[0].wanted.cores), CORES);
    assert_int_equal(cpuset_count(&job[2].wanted.cores), CORES - 1);
    assert_false(job_oversubscribed(&job[0])); /* it has no thread that is known */
    before = job[1].wanted.cores;
    process[0].connection = &peer;
    process[0].n_backends = 1;
    process[0].backend[0] = process[1].backend[0];
    place();
    assert_int_equal(cpuset_count(&job[0].wanted.cores), 4);
    assert_true(cpuset_equal(&job[1].wanted.cores, &before));
}

static void what_a_silent_job_was_started_with_is_its_own_for_a_while(void **state)
{
    admission_init(&job[0], true, now);
    decide(); /* it has eight less two: the others may want one each */
    admission_start(&job[0]);
    uint32_t began = job[0].admission.cores;

    assert_int_equal(job[0].admission.phase, JOB_RUNNING);
    assert_true(began > 2);
    job[0].met_ns = now;
    pass(20, 100, 1, 1000, 0);
    decide();
    assert_int_equal(job[0].wanted.share, began);
    pass(20, 100, 1, 1000, 0);
    decide();
    assert_int_equal(job[0].wanted.share, 1);
    job[0].asked.attributes.request = 2;
    decide();
    assert_int_equal(job[0].wanted.share, 2);
}

static void memory_is_what_was_asked_for_or_more_if_more_is_used(void **state)
{
    job[0].asked.attributes.memory_bytes = 100 * MIB;
    assert_true(usage_memory(&job[0]) == 100 * MIB);
    pass(1, 100, 1, 0, 50 * MIB);
    assert_true(usage_memory(&job[0]) == 100 * MIB);
    assert_false(pass(1, 100, 1, 0, 60 * MIB)); /* not worth a decision */
    assert_true(pass(1, 100, 1, 0, 140 * MIB));
    assert_true(usage_memory(&job[0]) == 140 * MIB);
    job[0].admission.phase = JOB_PAUSED;
    pass(1, 100, 1, 0, 0);
    assert_true(usage_memory(&job[0]) == 140 * MIB);
}

/* Job 2 is queued; the others hold memory, whether they take part or not. */
static void a_job_begins_when_its_memory_is_free(void **state)
{
    the_daemon.memory_bytes = 1024 * MIB;
    job[0].asked.attributes.memory_bytes = 400 * MIB;
    job[1].observed.frozen = true; /* by hand: it has no cores, but what it has allocated */
    job[1].asked.attributes.memory_bytes = 300 * MIB;
    admission_init(&job[2], true, now);
    job[2].asked.attributes.memory_bytes = 325 * MIB;
    decide();
    assert_false(job[2].admission.wanted);
    assert_non_null(strstr(job[2].wanted.reason, "memory"));
    job[2].asked.attributes.memory_bytes = 324 * MIB;
    decide();
    assert_true(job[2].admission.wanted);
}

static void more_than_the_machine_has_never_begins_and_says_so(void **state)
{
    the_daemon.memory_bytes = 1024 * MIB;
    admission_init(&job[2], true, now);
    job[2].asked.attributes.memory_bytes = 1025 * MIB;
    decide();
    assert_false(job[2].admission.wanted);
    assert_non_null(strstr(job[2].wanted.reason, "1 GiB"));
    the_daemon.memory_bytes = 0;
    decide();
    assert_true(job[2].admission.wanted);
}

static void the_machines_memory_has_a_reserve(void **state)
{
    the_daemon.config.memory_bytes = CONFIG_MEMORY_MACHINE;
    tree_write(&tree, "proc/meminfo", "MemTotal:        1048576 kB\nMemFree: 1 kB\n");
    assert_true(usage_machine_memory(&the_daemon) == 960 * MIB);
    tree_write(&tree, "proc/meminfo", "MemTotal:      134217728 kB\n");
    assert_true(usage_machine_memory(&the_daemon) == (UINT64_C(124) << 30));
    tree_write(&tree, "proc/meminfo", "nothing that is known\n");
    assert_true(usage_machine_memory(&the_daemon) == 0);
    the_daemon.config.memory_bytes = 5 * MIB;
    assert_true(usage_machine_memory(&the_daemon) == 5 * MIB);
}

/* ---- devices ---- */

static void hold(int pid, const char *fd, const char *node)
{
    char path[64];

    snprintf(path, sizeof(path), "proc/%d/fd/", pid);
    tree_write(&tree, path, "");
    strncat(path, fd, sizeof(path) - strlen(path) - 1);
    unlinkat(tree.fd, path, 0);
    assert_int_equal(symlinkat(node, tree.fd, path), 0);
}

/* A machine with two GPUs, on which all jobs can change their threads. */
static void give_devices(uint32_t cores_for_each)
{
    the_daemon.config.device_cores = cores_for_each;
    the_daemon.config.devices = the_daemon.devices.machine = devices_with(0, DEVICE_NVIDIA, 2);
    for (unsigned i = 0; i < 3; i++) {
        process[i].connection = &peer;
        process[i].n_backends = 1;
        process[i].backend[0] =
            (struct backend){.known = true, .malleable = true, .max.intra = CORES};
    }
}

static bool look(void)
{
    pass(1, 300, 1, 0, 0); /* whose processes there are */
    return devices_look(&the_daemon, now);
}

static void threads_that_feed_devices_keep_their_cores(void **state)
{
    give_devices(2);
    job[0].asked.attributes.weight = 1;
    decide();
    assert_int_equal(job[0].wanted.share, 1);
    write_process(101, 100, 1, 0, 0); /* a child of the job's */
    hold(100, "5", "/dev/nvidia1");
    hold(101, "5", "/dev/nvidia0");
    assert_true(look());
    assert_false(look());
    decide();
    assert_int_equal(devices_cores(&job[0]), 4);
    assert_int_equal(job[0].wanted.share, 4);
    assert_int_equal(job[1].wanted.share + job[2].wanted.share, 4);
    assert_non_null(strstr(job[0].wanted.reason, "; feeds nvidia0, nvidia1"));
    job[0].asked.attributes.min = 6; /* the user's own wins if it is larger */
    decide();
    assert_int_equal(job[0].wanted.share, 6);
    assert_null(strstr(job[0].wanted.reason, "feeds"));
    job[0].asked.attributes.min = 0;
    job[0].asked.attributes.max = 3;
    assert_int_equal(devices_cores(&job[0]), 3);
    job[0].asked.attributes.max = 0;
    hold(100, "5", "/dev/null"); /* closed, and the number used again */
    hold(101, "5", "/dev/nvidiactl");
    assert_true(look());
    decide();
    assert_int_equal(job[0].wanted.share, 1);
}

static void an_idle_job_that_holds_a_device_counts_for_its_cores(void **state)
{
    give_devices(1);
    process[0].n_backends = 0; /* nothing reports */
    now += 2 * JOB_YOUNG_NS;
    decide();
    assert_int_equal(job[0].wanted.share, 0);
    hold(100, "3", "/dev/nvidia0");
    assert_true(look());
    decide();
    assert_int_equal(job[0].wanted.share, 1);
    assert_int_equal(job[1].wanted.share + job[2].wanted.share, CORES - 1);
}

static void devices_take_nothing_from_another_users_share(void **state)
{
    give_devices(4);
    job[0].uid = 1000;
    job[1].uid = 2000;
    job[2].uid = 2000;
    hold(100, "3", "/dev/nvidia0");
    hold(100, "4", "/dev/nvidia1");
    assert_true(look());
    assert_int_equal(devices_cores(&job[0]), CORES);
    decide();
    assert_int_equal(job[0].wanted.share, CORES / 2);
    assert_int_equal(job[1].wanted.share + job[2].wanted.share, CORES / 2);
}

static void nothing_is_read_where_there_are_no_devices(void **state)
{
    give_devices(1);
    hold(100, "3", "/dev/nvidia0");
    assert_true(look());
    the_daemon.config.devices = 0;
    now += 61 * NS_PER_S;
    assert_true(look());
    assert_int_equal(job[0].observed.devices.n, 0);
    assert_false(look());
}

/* With fifty processes each, no look reaches all three jobs, and three looks do. */
static void looks_go_around(void **state)
{
    give_devices(1);
    for (int i = 0; i < 3; i++)
        for (int child = 1; child < 50; child++)
            write_process(100 * (i + 1) + child, 100 * (i + 1), 1, 0, 0);
    for (int i = 0; i < 3; i++)
        hold(100 * (i + 1), "3", i == 2 ? "/dev/nvidia1" : "/dev/nvidia0");
    look();
    assert_int_equal(
        job[0].observed.devices.n + job[1].observed.devices.n + job[2].observed.devices.n, 1);
    look();
    look();
    assert_int_equal(job[0].observed.devices.n, 1);
    assert_int_equal(job[1].observed.devices.n, 1);
    assert_int_equal(job[2].observed.devices.of[0].number, 1);
}

/* Job 2 is queued; the others hold devices, whether they take part or not. */
static void a_job_begins_when_its_device_is_free(void **state)
{
    give_devices(1);
    hold(100, "3", "/dev/nvidia0");
    hold(200, "3", "/dev/nvidia1");
    job[1].observed.frozen = true; /* by hand: it has no cores, but its device is open */
    admission_init(&job[2], true, now);
    devices_parse("nvidia=1", &job[2].asked.attributes.devices);
    look();
    decide();
    assert_false(job[2].admission.wanted);
    assert_non_null(strstr(job[2].wanted.reason, "waits for nvidia devices"));
    hold(200, "3", "/dev/nvidia0"); /* two jobs on one GPU leave the other free */
    look();
    decide();
    assert_true(job[2].admission.wanted);
}

static void what_a_job_asked_for_is_its_own_before_it_opens_it(void **state)
{
    give_devices(1);
    devices_parse("nvidia=2", &job[0].asked.attributes.devices);
    admission_init(&job[2], true, now);
    devices_parse("nvidia=1", &job[2].asked.attributes.devices);
    decide();
    assert_false(job[2].admission.wanted);
    assert_int_equal(devices_cores(&job[0]), 0); /* no thread feeds it yet */
    devices_parse("uverbs=1", &job[2].asked.attributes.devices);
    decide();
    assert_false(job[2].admission.wanted); /* there is none */
    job[2].asked.attributes.devices = 0;
    decide();
    assert_true(job[2].admission.wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_its_children_use_is_the_jobs, begin, end),
        cmocka_unit_test_setup_teardown(an_orphan_of_a_submitted_job_is_known_by_its_session, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_fluctuation_changes_no_decision, begin, end),
        cmocka_unit_test_setup_teardown(a_silent_jobs_cores_are_not_given_to_others, begin, end),
        cmocka_unit_test_setup_teardown(a_moldable_job_on_cores_of_its_own_counts_in_full, begin,
                                        end),
        cmocka_unit_test_setup_teardown(what_it_shared_for_want_of_better_is_not_its_own_to_keep,
                                        begin, end),
        cmocka_unit_test_setup_teardown(what_a_silent_job_was_started_with_is_its_own_for_a_while,
                                        begin, end),
        cmocka_unit_test_setup_teardown(memory_is_what_was_asked_for_or_more_if_more_is_used, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_job_begins_when_its_memory_is_free, begin, end),
        cmocka_unit_test_setup_teardown(more_than_the_machine_has_never_begins_and_says_so, begin,
                                        end),
        cmocka_unit_test_setup_teardown(the_machines_memory_has_a_reserve, begin, end),
        cmocka_unit_test_setup_teardown(threads_that_feed_devices_keep_their_cores, begin, end),
        cmocka_unit_test_setup_teardown(an_idle_job_that_holds_a_device_counts_for_its_cores, begin,
                                        end),
        cmocka_unit_test_setup_teardown(devices_take_nothing_from_another_users_share, begin, end),
        cmocka_unit_test_setup_teardown(nothing_is_read_where_there_are_no_devices, begin, end),
        cmocka_unit_test_setup_teardown(looks_go_around, begin, end),
        cmocka_unit_test_setup_teardown(a_job_begins_when_its_device_is_free, begin, end),
        cmocka_unit_test_setup_teardown(what_a_job_asked_for_is_its_own_before_it_opens_it, begin,
                                        end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
