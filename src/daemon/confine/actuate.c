/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/confine/actuate.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/confine/freezer.h"
#include "daemon/confine/guardian.h"
#include "daemon/confine/job_group.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"
#include "daemon/job/job.h"
#include "daemon/job/owner.h"
#include "host/cgroup/cgroup.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "no-control-groups"

static void set_note(struct job *j, const char *text)
{
    snprintf(j->placed.note, sizeof(j->placed.note), "%.*s", JOB_REASON_MAX - 1, text);
}

static bool in_cpuset(const struct process *p)
{
    return p->moved & CGROUP_CPUSET;
}

/* ---- observing ---- */

/* Cores that are the whole machine limit nothing, also where its size is made up (--cpus). */
static uint32_t as_allowance(const struct daemon *d, uint64_t mcpu)
{
    return mcpu >= 1000ull * d->topology.cpus ? 0 : (uint32_t)mcpu;
}

static uint32_t own_allowance(const struct process *p)
{
    const struct daemon *d = p->job->daemon;
    struct cgroup_limits limits;
    uint64_t mcpu = 1000ull * cpuset_count(&p->original);

    if (!(p->moved & CGROUP_CPU) && d->cgroup &&
        cgroup_read_limits(d->cgroup, p->pid, &limits) == 0 && limits.quota_mcpu < mcpu)
        mcpu = limits.quota_mcpu;
    return as_allowance(d, mcpu);
}

/* A child of a fenced process inherits the fence, so its original affinity is the family's. */
static void find_original(struct process *p)
{
    const struct job *j = p->job;
    struct cpuset inside;

    if (proc_get_affinity(p->pid, &p->original) < 0)
        p->original = j->daemon->topology.online;
    cpuset_and(&inside, &p->original, &j->placed.cores);
    if (cpuset_count(&j->placed.cores) > 0 && cpuset_equal(&inside, &p->original) &&
        j->processes != p)
        p->original = j->processes->original;
}

static int fence_process(struct process *p, const struct cpuset *cores);

static void enter(struct process *p)
{
    struct job *j = p->job;

    find_original(p);
    j->placed.unfenceable = j->placed.quota_failed = false; /* may work for this process */
    if (j->processes == p)
        j->observed.allowed_mcpu = own_allowance(p);
    job_group_add(p);
    if (j->admission.submitted || j->placed.groups & CGROUP_FREEZER || admission_held_back(j))
        freezer_join(p);
    else if (!j->placed.groups &&
             j->daemon->cgroup) /* a child is not paused with its job any more */
        cgroup_move_home(j->daemon->cgroup, CGROUP_FREEZER, p->pid, NULL);
    if (cpuset_count(&j->placed.cores) > 0)
        fence_process(p, &j->placed.cores);
}

static bool look_at_allowance(struct job *j)
{
    uint32_t before = j->observed.allowed_mcpu, most = 0;
    bool limited = false, any = false;

    /* Limits that we set ourselves are none of the job's own. */
    if (cpuset_count(&j->placed.cores) > 0 || j->placed.quota_mcpu != CGROUP_NO_QUOTA ||
        job_groups_seem_limited(j->daemon->job_groups))
        return false;
    for (const struct process *p = j->processes; p; p = p->next) {
        uint32_t allowed = p->beat ? as_allowance(j->daemon, p->allowed_mcpu) : 0;

        if (!p->beat || p->allowed_mcpu == 0)
            continue;
        any = true;
        limited = allowed > 0;
        if (!limited)
            break;
        most = allowed > most ? allowed : most;
    }
    if (any)
        j->observed.allowed_mcpu = limited ? most : 0;
    return j->observed.allowed_mcpu != before;
}

/* The process has executed a setuid program since it joined its job. */
static bool is_anothers(const struct process *p)
{
    return owner_check(p->job, p->pidfd, p->pid) == -EPERM;
}

/* Another program changed the affinity: that is the new original. */
static bool look_at_affinity(struct job *j)
{
    bool found = false;

    for (struct process *p = j->processes; p; p = p->next) {
        struct cpuset now;

        if (proc_get_affinity(p->pid, &now) < 0 || (!p->fenced && in_cpuset(p)) ||
            cpuset_equal(&now, p->fenced ? &j->placed.cores : &p->original) || is_anothers(p))
            continue;
        if (p->fenced)
            guardian_forget(j->daemon->guardian, p->pid, p->start);
        p->fenced = false;
        p->original = now;
        found = true;
    }
    if (found && j->processes)
        j->observed.allowed_mcpu = own_allowance(j->processes);
    return found;
}

/* For limits that a person asked for: the job's note says why they cannot be set. */
static int enter_group(struct job *j, unsigned controller)
{
    struct error err = {0};
    int r = job_group_enter(j, controller, &err);

    if (r < 0)
        set_note(j, err.text);
    return r;
}

/* ---- cores ---- */

static void unfence_process(struct process *p)
{
    struct daemon *d = p->job->daemon;

    if (!p->fenced && !in_cpuset(p))
        return;
    if (proc_pidfd_signal(p->pidfd, 0) != -ESRCH) /* the pid may have been recycled */
        proc_set_affinity(d->root, p->pid, &p->original, NULL);
    if (!in_cpuset(p))
        guardian_forget(d->guardian, p->pid, p->start);
    p->fenced = false;
}

/*
 * A setuid program gets no cores, and loses those that it got before; a process whose user cannot
 * be read likewise.
 */
static int fence_process(struct process *p, const struct cpuset *cores)
{
    struct daemon *d = p->job->daemon;
    int r;

    failpoint(FAILPOINT_PROCESS_FENCED);
    if (in_cpuset(p))
        return 0;
    r = owner_check(p->job, p->pidfd, p->pid);
    if (r < 0 && r != -ESRCH)
        unfence_process(p);
    if (r < 0)
        return 0;
    r = guardian_note(d->guardian, p->pid, p->start, &p->original);
    p->fenced |= r == 0; /* also where some of its threads get the cores and others do not */
    if (r == 0)
        r = fault(FAULT_AFFINITY);
    if (r == 0)
        r = proc_set_affinity(d->root, p->pid, cores, NULL);
    if (r < 0 && r != -ESRCH)
        unfence_process(p);
    return r == -ESRCH ? 0 : r;
}

/*
 * It has ended, or goes on in another job, whose business this one's fence is not. Out of the
 * cpuset first: that would cut an affinity that reaches beyond it.
 */
static void release_process(struct process *p)
{
    struct daemon *d = p->job->daemon;

    if (in_cpuset(p) && proc_pidfd_signal(p->pidfd, 0) != -ESRCH)
        cgroup_move_home(d->cgroup, CGROUP_CPUSET, p->pid, NULL);
    unfence_process(p);
    guardian_forget(d->guardian, p->pid, p->start);
}

/* Its groups are gone, and with them all limits but affinities: to be written again. */
static void forget_groups(struct job *j)
{
    for (struct process *p = j->processes; p; p = p->next) {
        if (in_cpuset(p)) /* its affinity is its own business again */
            guardian_forget(j->daemon->guardian, p->pid, p->start);
        p->moved = 0;
    }
    j->placed.weight = 0;
    j->placed.yields = false;
    j->placed.quota_mcpu = CGROUP_NO_QUOTA;
    j->placed.freezer = (struct freezer){0};
}

/*
 * A job must not be kept to cores that nobody takes back: it leaves a cpuset that stays narrow.
 * Affinities come last, since a move between cpusets resets them before Linux 6.2.
 */
static void unfence(struct job *j, bool leaves)
{
    char name[CGROUP_NAME_MAX];
    bool stays = false;

    if (j->placed.groups & CGROUP_CPUSET) {
        job_group_name(j, name);
        stays = cgroup_set_cpus(j->daemon->cgroup, name, &j->daemon->topology.online, NULL) < 0;
    }
    if (stays || leaves)
        job_group_remove(j);
    for (struct process *p = j->processes; p; p = p->next)
        unfence_process(p);
    cpuset_zero(&j->placed.cores);
    if (!stays)
        return;
    forget_groups(j);
    if (j->admission.submitted)
        snprintf(j->placed.freezer.why, sizeof(j->placed.freezer.why),
                 "it had to leave its control group, whose cores cannot be written");
    admission_runs(j); /* removing a group thaws it */
}

void actuate_release(struct job *j)
{
    unfence(j, true);
    forget_groups(j);
    j->placed.unfenceable = j->placed.quota_failed = false;
}

static int set_cores(struct job *j, const struct cpuset *cores)
{
    struct daemon *d = j->daemon;
    struct error err = {0};
    char name[CGROUP_NAME_MAX];
    int r = 0;

    if (cpuset_count(cores) == 0) {
        unfence(j, false);
        return 0;
    }
    if (d->cpusets && enter_group(j, CGROUP_CPUSET) == 0) {
        job_group_name(j, name);
        r = cgroup_set_cpus(d->cgroup, name, cores, &err);
    }
    for (struct process *p = j->processes; p && r == 0; p = p->next)
        r = fence_process(p, cores);
    if (r < 0) {
        snprintf(j->placed.note, sizeof(j->placed.note), "cores not limited: %.*s",
                 JOB_REASON_MAX - 20, err.text[0] ? err.text : strerror(-r));
        return r;
    }
    j->placed.cores = *cores;
    return 0;
}

/* ---- weight, quota ---- */

/*
 * The weight, and whether others interrupt it at once: a weight alone gives it its part in the long
 * run, but newer kernels let whoever runs finish its slice of some milliseconds first. A kernel
 * that cannot do that has the weight.
 */
static int weigh(const struct job *j, const char *name, bool yielded, struct error *err)
{
    const struct cgroup *cg = j->daemon->cgroup;
    int r;

    if (yielded) /* the kernel takes no weight meanwhile */
        cgroup_set_idle(cg, name, false, NULL);
    r = cgroup_set_weight(cg, name, j->placed.weight, err);
    if (r == 0 && j->placed.yields)
        cgroup_set_idle(cg, name, true, NULL);
    return r;
}

static void set_weight(struct job *j, uint32_t weight)
{
    struct daemon *d = j->daemon;
    struct error err = {0};
    char name[CGROUP_NAME_MAX];
    bool yielded = j->placed.yields;
    int r;

    j->placed.weight = weight; /* also on failure: the note says why, and no retry helps */
    j->placed.yields = j->wanted.yields;
    if (!d->weights)
        return;
    if (enter_group(j, CGROUP_CPU) < 0) {
        snprintf(err.text, sizeof(err.text), "weight not set: %.*s", JOB_REASON_MAX - 1,
                 j->placed.note);
        set_note(j, err.text);
        return;
    }
    job_group_name(j, name);
    r = fault(FAULT_WEIGHT_WRITE);
    if (r < 0)
        error_set(&err, r, "cannot write the weight: %s", strerror(-r));
    else
        r = weigh(j, name, yielded, &err);
    if (r < 0)
        set_note(j, err.text);
}

static int set_quota(struct job *j, uint32_t quota_mcpu)
{
    struct daemon *d = j->daemon;
    struct error err = {0};
    char name[CGROUP_NAME_MAX];
    int r = -EPERM;

    if (!d->weights)
        set_note(j, d->weights_note);
    else
        r = enter_group(j, CGROUP_CPU);
    if (r == 0) {
        job_group_name(j, name);
        r = cgroup_set_quota(d->cgroup, name, quota_mcpu, &err);
        if (r < 0)
            set_note(j, err.text);
    }
    if (r == 0)
        j->placed.quota_mcpu = quota_mcpu;
    return r;
}

const struct job_observer actuate_observer = {.process_gone = release_process,
                                              .gone = job_group_remove};

/* ---- what processes can do ---- */

static bool holds(const struct job *j, pid_t pid)
{
    return true;
}

static void unpin(struct job *j)
{
}

static bool can_limit(const struct job *j)
{
    return j->daemon->weights;
}

/* The kernel takes changes at once. */
static bool is_under_way(const struct job *j)
{
    return false;
}

static int group(const struct job *j, char ret_path[CGROUP_PATH_MAX])
{
    if (!(j->placed.groups & CGROUP_CPU))
        return -ENOENT;
    ret_path[0] = '/';
    job_group_name(j, ret_path + 1);
    return 0;
}

static void weighs(struct job *j, uint32_t units)
{
}

static bool look_at_drift(struct job *j)
{
    bool affinity = look_at_affinity(j);

    return freezer_look(j) || affinity;
}

static const char *note(const struct job *j, uint64_t now_ns)
{
    return "";
}

static int stop(struct job *j, struct error *err)
{
    return 0;
}

const struct confine process_confine = {
    .kind = "process",
    .holds = holds,
    .enter = enter,
    .set_cores = set_cores,
    .set_quota = set_quota,
    .set_weight = set_weight,
    .set_paused = freezer_want,
    .unpin = unpin,
    .can_limit = can_limit,
    .can_pause = freezer_can,
    .is_paused = freezer_paused,
    .next_look = freezer_next_look,
    .is_busy = is_under_way,
    .is_behind = is_under_way,
    .group = group,
    .weighs = weighs,
    .look_at_allowance = look_at_allowance,
    .look_at_drift = look_at_drift,
    .note = note,
    .stop = stop,
};

void actuate_restore_all(struct daemon *d)
{
    guardian_restore(d->guardian, d->root, d->cgroup);
    for (struct job *j = d->jobs->first; j; j = j->next)
        j->placed.groups = 0;
}
