/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The effects of a transaction: plan.c and the real confine/actuate.c above a small world
 * (test_daemon_actuate.h). The order of changes is right for a shrink, a grow, a quota, a weight
 * and a pause. A refused change leaves the job's record equal to what is in force, is said once, is
 * not tried again, and never keeps a thread from its cores.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/confine/actuate.h"
#include "daemon/confine/job_group.h"
#include "daemon/plan/settle.h"
#include "test_daemon_actuate.h"

#include <errno.h>

/* ---- steps ---- */

static void advance(void)
{
    world.now_ns += NS_PER_MS;
    plan_advance(&world.daemon);
}

static void acknowledge(struct job *j)
{
    for (struct process *p = j->processes; p; p = p->next) {
        p->acked_generation = p->sent_generation;
        p->held = p->sent.intra;
        p->shrink_since_ns = 0;
    }
    advance();
}

static void want(struct job *j, unsigned mask, uint32_t threads)
{
    world.daemon.generation++;
    j->wanted.cores = set_of(mask);
    for (struct process *p = j->processes; p; p = p->next)
        p->want = (struct threads){threads, threads};
}

static void refuse(enum call call, pid_t pid, int error)
{
    world.refused = call;
    world.refused_pid = pid;
    world.error = error;
    world.refusals = world.lines = 0;
}

/* The record of a job of processes equals what is in force, and nothing is narrower than it. */
static void check_record(const struct job *j)
{
    unsigned i = (unsigned)(j - world.job), placed = mask_of(&j->placed.cores);
    unsigned wide = placed ? placed : ALL;

    for (const struct process *p = j->processes; p; p = p->next) {
        unsigned k = process_index(p->pid), may = world.affinity[i][k];

        if (world.moved[i][k] && world.cpus[i])
            may &= world.cpus[i];
        if (may & ~wide && placed && p->fenced)
            fail_msg("%s: process %d runs on %x, recorded are %x", world.scene, (int)p->pid, may,
                     placed);
        if (wide & ~may)
            fail_msg("%s: process %d is kept to %x, recorded are %x", world.scene, (int)p->pid, may,
                     placed);
        if (world.affinity[i][k] != ALL && !world.noted[i][k])
            fail_msg("%s: the guardian would not restore %d", world.scene, (int)p->pid);
    }
    if (j->placed.quota_mcpu != world.quota[i])
        fail_msg("%s: quota %u, recorded %u", world.scene, world.quota[i], j->placed.quota_mcpu);
    if (j->placed.freezer.paused && !world.frozen[i])
        fail_msg("%s: the job is not frozen", world.scene);
    if (world.frozen[i] && !j->placed.freezer.want)
        fail_msg("%s: the job is frozen, and nobody knows", world.scene);
}

static void check(bool good, const char *what)
{
    if (!good)
        fail_msg("%s: %s (%s)", world.scene, what, world.tape);
}

/* Again and again with the same wishes: no further change, no further line. */
static void check_quiet(void)
{
    unsigned lines = world.lines;

    world.tape[0] = '\0';
    for (unsigned i = 0; i < 3; i++) {
        advance();
        plan_finish(&world.daemon);
    }
    expect_tape("");
    assert_int_equal(world.lines, lines);
}

static int fresh(void **unused)
{
    struct daemon *d = &world.daemon;

    memset(&world, 0, sizeof(world));
    world.now_ns = 1000 * NS_PER_S;
    assert_true(sd_event_new(&d->event) >= 0);
    d->cpus = d->usable = d->topology.online = set_of(ALL);
    d->topology.cpus = CPUS;
    d->weights = d->cpusets = true;
    d->cgroup = (struct cgroup *)&world; /* never looked into */
    d->generation = 1;
    snprintf(d->group, sizeof(d->group), "tide-0-7");
    d->jobs = &world.table;
    world.table.first = &world.job[0];
    world.table.n = JOBS;
    assert_int_equal(plan_new(d, &d->plan), 0);
    assert_int_equal(job_groups_new(d, &d->job_groups), 0);
    for (unsigned i = 0; i < JOBS; i++) {
        struct job *j = &world.job[i];

        j->next = i + 1 < JOBS ? j + 1 : NULL;
        j->daemon = d;
        j->uid = 1000;
        j->number = i + 1;
        snprintf(j->id, sizeof(j->id), "j%u", i + 1);
        snprintf(j->name, sizeof(j->name), "n%u", i + 1);
        j->confine = &process_confine;
        j->placed.quota_mcpu = j->wanted.quota_mcpu = world.quota[i] = CGROUP_NO_QUOTA;
        j->placed.weight = j->wanted.weight = CGROUP_WEIGHT_STD;
        j->admission = (struct admission){.phase = JOB_RUNNING, .wanted = true};
        j->processes = world.process[i];
        j->n_processes = PROCS;
        for (unsigned k = 0; k < PROCS; k++) {
            struct process *p = &j->processes[k];

            *p = (struct process){.next = k + 1 < PROCS ? p + 1 : NULL,
                                  .job = j,
                                  .pid = (pid_t)(10 * (i + 1) + k),
                                  .start = 1,
                                  .connection = &peer,
                                  .n_backends = 1,
                                  .original = set_of(ALL)};
            p->backend[0] = (struct backend){.known = true, .malleable = true, .max.intra = CPUS};
            world.affinity[i][k] = ALL;
        }
        want(j, 0, CPUS);
    }
    plan_advance(d);
    for (unsigned i = 0; i < JOBS; i++)
        acknowledge(&world.job[i]);
    world.tape[0] = '\0';
    return 0;
}

static int done(void **unused)
{
    job_groups_free(world.daemon.job_groups);
    plan_free(world.daemon.plan);
    sd_event_unref(world.daemon.event);
    return 0;
}

/* ---- the order ---- */

static void by_affinity(void)
{
    world.daemon.cpusets = false;
}

static void shrink(struct job *j, unsigned mask, uint32_t threads)
{
    want(j, mask, threads);
    advance();
    acknowledge(j);
}

static void a_shrink_narrows_after_the_acknowledgement_a_grow_widens_before(void **unused)
{
    struct job *j = &world.job[0];

    by_affinity();
    want(j, 3, 1);
    advance();
    expect_tape("target 1;target 1;");
    acknowledge(j);
    expect_tape("affinity 10 3;affinity 11 3;");
    check_record(j);
    check_quiet();
    want(j, 7, 2);
    advance();
    expect_tape("affinity 10 7;affinity 11 7;target 2;target 2;");
    check_record(j);
    check_quiet();
    want(j, 0, 4);
    advance();
    expect_tape("affinity 10 f;affinity 11 f;target 4;target 4;");
    assert_false(world.noted[0][0] || world.noted[0][1]);
    check_record(j);
    check_quiet();
}

static void a_cpuset_is_made_once_and_holds_all_processes(void **unused)
{
    struct job *j = &world.job[0];

    shrink(j, 3, 1);
    expect_tape("target 1;target 1;create 1 2;move 10 2;move 11 2;cpus 1 3;");
    check_record(j);
    check_quiet();
    want(j, 7, 2);
    advance();
    expect_tape("cpus 1 7;target 2;target 2;");
    want(j, 0, 4);
    advance();
    expect_tape("cpus 1 f;affinity 10 f;affinity 11 f;target 4;target 4;");
    check_record(j);
    check_quiet();
    actuate_release(j);
    expect_tape("cpus 1 f;remove 1;affinity 10 f;affinity 11 f;");
    assert_false(world.noted[0][0] || world.noted[0][1]);
    check_record(j);
}

static void a_core_changes_its_owner_only_when_it_is_left(void **unused)
{
    struct job *a = &world.job[0], *b = &world.job[1];

    by_affinity();
    b->asked.attributes.placement = PLACEMENT_EXCLUSIVE;
    shrink(a, 7, 3);
    shrink(b, 8, 1);
    world.tape[0] = '\0';
    want(a, 3, 2);
    want(b, 12, 2);
    advance();
    expect_tape("target 2;target 2;");
    acknowledge(a);
    expect_tape("affinity 10 3;affinity 11 3;affinity 20 c;affinity 21 c;target 2;target 2;");
    check_record(a);
    check_record(b);
    check_quiet();
}

static void a_container_gives_its_cores_when_its_engine_has_answered(void **unused)
{
    struct job *a = &world.job[0], *b = &world.job[1];

    by_affinity();
    a->confine = &remote_confine;
    b->asked.attributes.placement = PLACEMENT_EXCLUSIVE;
    shrink(a, 7, 3);
    engine_answers(a);
    shrink(b, 8, 1);
    world.tape[0] = '\0';
    want(a, 3, 2);
    want(b, 12, 2);
    advance();
    acknowledge(a);
    expect_tape("target 2;target 2;engine cores 3;");
    check_quiet();
    engine_answers(a);
    expect_tape("affinity 20 c;affinity 21 c;target 2;target 2;");
    a->wanted.quota_mcpu = 1500;
    advance();
    expect_tape("engine quota 1500;");
    check_quiet();
    a->admission.wanted = false;
    world.busy = false;
    advance();
    expect_tape("engine pause;");
    assert_int_equal(a->admission.phase, JOB_RUNNING);
    engine_answers(a);
    assert_int_equal(a->admission.phase, JOB_PAUSED);
    check_quiet();
}

static void a_quota_and_a_weight_are_set_once(void **unused)
{
    struct job *j = &world.job[0];

    j->wanted.quota_mcpu = 1500;
    advance();
    expect_tape("create 1 1;move 10 1;move 11 1;quota 1 1500;");
    j->wanted.weight = 50;
    j->wanted.yields = true;
    plan_finish(&world.daemon);
    expect_tape("weight 1 50;idle 1 1;");
    check_quiet();
    j->wanted.weight = 70;
    j->wanted.yields = false;
    plan_finish(&world.daemon);
    expect_tape("idle 1 0;weight 1 70;");
    j->wanted.quota_mcpu = CGROUP_NO_QUOTA;
    advance();
    expect_tape("quota 1 4294967295;");
    check_record(j);
    check_quiet();
}

/* As freezer_join() leaves it. */
static void make_pausable(struct job *j)
{
    j->admission.submitted = true;
    j->placed.groups |= CGROUP_FREEZER;
    j->placed.freezer.able = true;
}

static void a_pause_comes_before_the_others_get_the_cores(void **unused)
{
    struct job *a = &world.job[0], *b = &world.job[1];

    by_affinity();
    make_pausable(a);
    b->asked.attributes.placement = PLACEMENT_EXCLUSIVE;
    shrink(a, 7, 3);
    shrink(b, 8, 1);
    world.tape[0] = '\0';
    a->admission.wanted = false;
    want(b, 15, 4);
    advance();
    expect_tape("freeze 1;affinity 20 f;affinity 21 f;target 4;target 4;");
    assert_int_equal(a->admission.phase, JOB_PAUSED);
    check_record(a);
    check_quiet();
    a->admission.wanted = true;
    want(b, 8, 1);
    advance();
    expect_tape("target 1;target 1;");
    acknowledge(b);
    expect_tape("affinity 20 8;affinity 21 8;thaw 1;");
    assert_int_equal(a->admission.phase, JOB_RUNNING);
    check_record(a);
    check_quiet();
}

/* ---- refusals ---- */

static const int errors[] = {-ESRCH, -EPERM, -EBUSY, -EIO};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef void scenario(struct job *j, enum call call, int error);

/* Each in a world of its own, with affinities and with a cpuset. */
static void with_each_error(scenario *fn, const enum call *calls, size_t n)
{
    for (size_t i = 0; i < n * COUNT(errors) * 2; i++) {
        enum call call = calls[i / 2 / COUNT(errors)];
        int error = errors[i / 2 % COUNT(errors)];

        done(NULL);
        fresh(NULL);
        world.daemon.cpusets = i % 2;
        snprintf(world.scene, sizeof(world.scene), "%s, error %d, %s", call_names[call], error,
                 world.daemon.cpusets ? "cpuset" : "affinity");
        fn(&world.job[0], call, error);
    }
}

/* A process that ends meanwhile is no failure, and neither is a setuid program, which is let be. */
static bool is_let_be(enum call call, int error)
{
    return call == OWNER || (error == -ESRCH && (call == NOTE || call == AFFINITY));
}

/* Where no cpuset can be made, affinities do. */
static bool fence_fails(enum call call, int error)
{
    if (is_let_be(call, error))
        return false;
    return world.daemon.cpusets ? call == CPUS_OF_GROUP : call == NOTE || call == AFFINITY;
}

static void a_fence_is_refused(struct job *j, pid_t pid, enum call call, int error)
{
    bool fails = fence_fails(call, error);

    /* a refused note keeps the processes out of the cpuset, and of any other fence */
    fails |= call == NOTE && !is_let_be(call, error);
    want(j, 3, 1);
    advance();
    refuse(call, pid, error);
    acknowledge(j);
    if (!(call == AFFINITY && error == -ESRCH)) /* it has ended, and runs nowhere */
        check_record(j);
    check(world.lines == fails, "not said once");
    check(j->placed.unfenceable == fails, "not known");
    check(mask_of(&j->placed.cores) == (fails ? 0 : 3), "other cores");
    check((strncmp(j->placed.note, "cores not limited", 17) == 0) == fails, "no note");
    plan_finish(&world.daemon); /* a job that left its group has its weight in a new one */
    check_quiet();
    want(j, mask_of(&j->wanted.cores), 2);
    advance();
    expect_tape("target 2;target 2;"); /* it goes on */
}

static void of_both(struct job *j, enum call call, int error)
{
    a_fence_is_refused(j, 0, call, error);
}

static void of_the_first(struct job *j, enum call call, int error)
{
    a_fence_is_refused(j, 10, call, error);
}

static void of_the_second(struct job *j, enum call call, int error)
{
    a_fence_is_refused(j, 11, call, error);
}

static void refused_cores_are_lifted_altogether_and_said_once(void **unused)
{
    static const enum call calls[] = {OWNER, NOTE, AFFINITY, CREATE, MOVE, CPUS_OF_GROUP};

    with_each_error(of_both, calls, COUNT(calls));
    with_each_error(of_the_first, calls, COUNT(calls));
    with_each_error(of_the_second, calls, COUNT(calls));
}

/* The job has its fence already, and is to get more cores. */
static void wider_cores(struct job *j, enum call call, int error)
{
    shrink(j, 3, 1);
    refuse(call, 0, error);
    want(j, 7, 2);
    advance();
    if (error != -ESRCH) /* a process that has ended keeps what it had */
        check_record(j);
    if (call == AFFINITY || call == CPUS_OF_GROUP)
        check(world.lines == fence_fails(call, error), "not said once");
    check(strstr(world.tape, "target 2;target 2;"), "it does not go on");
    plan_finish(&world.daemon);
    check_quiet();
}

static void refused_wider_cores_leave_no_narrow_ones(void **unused)
{
    static const enum call calls[] = {OWNER, NOTE, AFFINITY, CPUS_OF_GROUP};

    with_each_error(wider_cores, calls, COUNT(calls));
}

/* It runs where it likes, and nobody takes that for another program's doing. */
static void joins(struct job *j, enum call call, int error)
{
    struct process *p = &j->processes[1];

    by_affinity();
    shrink(j, 3, 1);
    world.tape[0] = '\0';
    world.affinity[0][1] = ALL;
    p->fenced = world.noted[0][1] = false;
    refuse(call, 0, error);
    process_confine.enter(p);
    if (error == -ESRCH)
        return;
    expect_tape(call == AFFINITY ? "home 11 4;affinity refused;affinity 11 f;"
                                 : "home 11 4;note refused;");
    check(!p->fenced && !world.noted[0][1], "it is taken for a fenced one");
    check(!process_confine.look_at_drift(j), "it is taken for another program's doing");
}

static void a_process_that_joins_without_the_cores_is_free(void **unused)
{
    static const enum call calls[] = {NOTE, AFFINITY};

    with_each_error(joins, calls, COUNT(calls));
}

static void quota(struct job *j, enum call call, int error)
{
    bool fails = call != MOVE || error != -ESRCH; /* a process that has ended needs no move */

    refuse(call, 0, error);
    j->wanted.quota_mcpu = 1500;
    want(j, 0, 2);
    advance();
    acknowledge(j);
    check(world.lines == fails, "not said once");
    check(j->placed.quota_failed == fails, "not known");
    check_record(j);
    check_quiet();
}

static void a_refused_quota_is_said_once_and_not_tried_again(void **unused)
{
    static const enum call calls[] = {CREATE, MOVE, QUOTA};

    with_each_error(quota, calls, COUNT(calls));
}

static void weight(struct job *j, enum call call, int error)
{
    bool fails = call != IDLE && (call != MOVE || error != -ESRCH);

    refuse(call, 0, error);
    j->wanted.weight = 50;
    j->wanted.yields = true;
    plan_finish(&world.daemon);
    check((j->placed.note[0] != '\0') == fails, "no note");
    check(world.weight[0] == (fails ? 0 : 50), "another weight");
    check(world.lines == 0, "said although it is noted");
    check_quiet();
}

static void a_refused_weight_is_noted_and_not_tried_again(void **unused)
{
    static const enum call calls[] = {CREATE, MOVE, WEIGHT, IDLE};

    with_each_error(weight, calls, COUNT(calls));
}

static void pause_it(struct job *j, enum call call, int error)
{
    const char *why;

    make_pausable(j);
    refuse(call, 0, error);
    j->admission.wanted = false;
    advance();
    check(world.lines == 1 && strstr(world.line, "cannot be paused"), "not said once");
    check(j->admission.wanted && j->admission.phase == JOB_RUNNING, "it does not run on");
    check(!process_confine.can_pause(j, &why) && why[0], "it would be paused again");
    check_record(j);
    check_quiet();
}

static void a_refused_pause_lets_the_job_run_and_is_said_once(void **unused)
{
    static const enum call calls[] = {MEMBERS, FREEZE};

    with_each_error(pause_it, calls, COUNT(calls));
}

/* A job that stays frozen is the worst of all: thawing is tried again, also where all is quiet. */
static void thaw(struct job *j, enum call call, int error)
{
    make_pausable(j);
    j->admission.wanted = false;
    advance();
    check(j->admission.phase == JOB_PAUSED, "not paused");
    refuse(call, 0, error);
    j->admission.wanted = true;
    for (unsigned i = 1; i < 5; i++) {
        uint64_t look;

        advance();
        check(world.refusals == i, "not tried again");
        check(world.lines == 1 && strstr(world.line, "cannot be resumed"), "not said once");
        check(j->admission.phase == JOB_PAUSED, "paused, and nobody knows");
        check_record(j);
        look = process_confine.next_look(j, world.now_ns);
        check(look > world.now_ns && look <= world.now_ns + NS_PER_S, "nobody would try again");
    }
    refuse(NO_CALL, 0, 0);
    advance();
    check(j->admission.phase == JOB_RUNNING, "it does not run");
    check(process_confine.next_look(j, world.now_ns) == UINT64_MAX, "the timer goes on");
    check_record(j);
    check_quiet();
}

static void a_refused_thaw_is_said_once_and_tried_until_it_is_done(void **unused)
{
    static const enum call calls[] = {THAW};

    with_each_error(thaw, calls, COUNT(calls));
}

static void unsent(struct job *j, enum call call, int error)
{
    by_affinity();
    refuse(call, 0, error);
    want(j, 3, 1);
    advance();
    check_quiet();
    world.now_ns += SETTLE_GRACE_NS;
    advance();
    expect_tape("affinity 10 3;affinity 11 3;");
    check(world.lines == 1, "not said once");
    check_record(j);
    check_quiet();
}

static void a_target_that_was_not_sent_holds_nothing_back(void **unused)
{
    static const enum call calls[] = {SEND};

    with_each_error(unsent, calls, COUNT(calls));
}

#define T(name) cmocka_unit_test_setup_teardown(name, fresh, done)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_shrink_narrows_after_the_acknowledgement_a_grow_widens_before),
        T(a_cpuset_is_made_once_and_holds_all_processes),
        T(a_core_changes_its_owner_only_when_it_is_left),
        T(a_container_gives_its_cores_when_its_engine_has_answered),
        T(a_quota_and_a_weight_are_set_once),
        T(a_pause_comes_before_the_others_get_the_cores),
        T(refused_cores_are_lifted_altogether_and_said_once),
        T(refused_wider_cores_leave_no_narrow_ones),
        T(a_process_that_joins_without_the_cores_is_free),
        T(a_refused_quota_is_said_once_and_not_tried_again),
        T(a_refused_weight_is_noted_and_not_tried_again),
        T(a_refused_pause_lets_the_job_run_and_is_said_once),
        T(a_refused_thaw_is_said_once_and_tried_until_it_is_done),
        T(a_target_that_was_not_sent_holds_nothing_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
