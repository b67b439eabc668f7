/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/confine/freezer.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/confine/job_group.h"
#include "daemon/daemon.h"
#include "daemon/job/census.h"
#include "daemon/job/job.h"
#include "daemon/job/owner.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "no-control-groups"

#define LOOK_MIN_NS   (2 * NS_PER_MS)
#define THAW_AGAIN_NS (100 * NS_PER_MS)
#define GATHER_PASSES 5
#define STAYS_OUTSIDE                                                                              \
    "one of its processes has the rights of another user (sudo?), or stays in another program's "  \
    "control group"

/* ---- its group ---- */

/* The pid may have been recycled. */
static bool lives(const struct daemon *d, const struct census_entry *e)
{
    struct proc_stat stat;

    return proc_read_stat(d->root, e->pid, &stat) == 0 && stat.start == e->start;
}

static bool move(const struct daemon *d, const char *name, const struct census_entry *e)
{
    return lives(d, e) && owner_check_pid(e->job, e->pid) == 0 &&
           cgroup_move(d->cgroup, name, CGROUP_FREEZER, e->pid, NULL) == 0;
}

/*
 * A daemon that recovers the job knows only its first process, and the guardian has moved all of
 * them out of the earlier group. A process forked during a pass is found in the next one. Returns
 * whether all of them are in the group.
 */
static bool gather(struct job *j)
{
    char name[CGROUP_NAME_MAX];
    struct census c;
    size_t before = 0, found = 1;
    bool all = true;

    job_group_name(j, name);
    for (unsigned pass = 0; pass < GATHER_PASSES && found != before; pass++) {
        before = found;
        found = 0;
        all = true;
        if (census_take(j->daemon, &c) < 0)
            return false;
        for (size_t i = 0; i < c.n; i++) {
            if (c.entry[i].job != j)
                continue;
            if (move(j->daemon, name, &c.entry[i]))
                found++;
            else
                all &= !lives(j->daemon, &c.entry[i]);
        }
        census_done(&c);
    }
    return all;
}

static int enter(struct job *j, struct error *err)
{
    if (!j->daemon->cgroup)
        return error_set(err, -ENOTSUP, "no control group can be made here");
    if (!cgroup_freezable(j->daemon->cgroup, err))
        return err->code;
    return job_group_enter(j, CGROUP_FREEZER, err);
}

static void cannot(struct freezer *f, const char *why)
{
    f->able = false;
    snprintf(f->why, sizeof(f->why), "%s", why);
}

/* Makes the group of the processes that are known, and of all that they have @forked so far. */
static void form(struct job *j, bool forked)
{
    struct freezer *f = &j->placed.freezer;
    struct error err = {0};

    *f = (struct freezer){.able = true};
    if (enter(j, &err) < 0)
        cannot(f, err.text);
    else if (forked && !gather(j))
        cannot(f, STAYS_OUTSIDE);
}

void freezer_join(const struct process *p)
{
    struct job *j = p->job;

    if (j->placed.groups & CGROUP_FREEZER) {
        if (!(p->moved & CGROUP_FREEZER))
            cannot(&j->placed.freezer,
                   "one of its processes is in another program's control group");
        return;
    }
    if (j->processes != p)
        return; /* its first process could not be moved */
    form(j, j->admission.begun_ns > 0);
    admission_runs(j); /* processes that an earlier daemon froze are not in this group */
}

/*
 * A job of `tide run` that is paused for the first time, or one that could not be paused before:
 * its processes may be others now.
 */
static int take(struct job *j)
{
    struct freezer *f = &j->placed.freezer;

    if (!f->able && j->processes)
        form(j, true);
    else if (!f->able)
        cannot(f, "none of its processes is known");
    return f->able ? 0 : -EBUSY;
}

/* ---- pausing ---- */

static int read_frost(const struct job *j, enum cgroup_frost *ret)
{
    char name[CGROUP_NAME_MAX];

    job_group_name(j, name);
    return cgroup_read_frost(j->daemon->cgroup, name, ret);
}

bool freezer_can(const struct job *j, const char **ret_why)
{
    *ret_why = j->observed.frozen ? "it is paused by hand" : j->placed.freezer.why;
    return j->placed.freezer.able && !j->observed.frozen;
}

/* Whether it is frozen, or nearly: a process in uninterruptible sleep uses no core either. */
static void look(struct job *j)
{
    struct freezer *f = &j->placed.freezer;
    enum cgroup_frost frost = CGROUP_FROZEN;

    if (f->want && !f->paused && read_frost(j, &frost) == 0)
        f->paused = frost == CGROUP_FROZEN ||
                    (frost == CGROUP_FREEZING && clock_now_ns() - f->since_ns >= JOB_GRACE_NS);
}

/* A setuid program in the job's group would freeze, too, and block whatever waits for it. */
static int check_member(void *arg, pid_t pid)
{
    int r = owner_check_pid(arg, pid);

    return r == -ESRCH ? 0 : r;
}

static int check_members(struct job *j, const char *name)
{
    int r = fault(FAULT_FREEZER_LIST);

    if (r == 0)
        r = cgroup_each_freezable(j->daemon->cgroup, name, check_member, j);
    if (r < 0) /* else the policy would order the same pause again at once */
        cannot(&j->placed.freezer,
               r == -EPERM ? "a process of it has the rights of another user (a setuid program?)"
                           : strerror(-r));
    return r;
}

/* One that began between the look and the freeze would stand still for as long as the pause. */
static int check_again(struct job *j)
{
    char name[CGROUP_NAME_MAX];
    int r;

    job_group_name(j, name);
    r = check_members(j, name);
    if (r < 0)
        freezer_want(j, false);
    return r;
}

int freezer_want(struct job *j, bool paused)
{
    struct freezer *f = &j->placed.freezer;
    char name[CGROUP_NAME_MAX];
    struct error err = {0};
    bool before;
    int r;

    f->stuck &= !paused;
    if (paused != f->want || (!paused && j->observed.frozen)) {
        job_group_name(j, name);
        r = paused ? take(j) : 0;
        if (r == 0 && paused)
            r = check_members(j, name);
        if (r < 0)
            return r;
        r = cgroup_freeze(j->daemon->cgroup, name, paused, &err);
        if (r < 0 && paused)
            cannot(f, err.text);
        f->stuck = r < 0 && !paused && f->want;
        if (r < 0)
            return r;
        f->since_ns = clock_now_ns();
        f->want = paused;
        f->paused = false;
    }
    before = f->paused;
    look(j);
    return f->paused && !before ? check_again(j) : 0;
}

bool freezer_paused(const struct job *j)
{
    return j->placed.freezer.paused;
}

/*
 * Looks again after as long as it has taken so far: nearly always a millisecond is enough. A thaw
 * that failed is tried again, also when nothing else happens.
 */
uint64_t freezer_next_look(const struct job *j, uint64_t now)
{
    const struct freezer *f = &j->placed.freezer;
    uint64_t taken = now > f->since_ns ? now - f->since_ns : 0;

    if (f->want && f->stuck)
        return now + THAW_AGAIN_NS;
    if (!f->want || f->paused)
        return UINT64_MAX;
    return now + (taken > LOOK_MIN_NS ? taken : LOOK_MIN_NS);
}

/* On v1 even SIGKILL does not end a frozen process; its sender expects that it does. */
static bool is_killed(const struct job *j)
{
    struct proc_status status;

    for (const struct process *p = j->processes; p; p = p->next)
        if (proc_read_status(j->daemon->root, p->pid, &status) == 0 &&
            (status.sig_pending & (UINT64_C(1) << (SIGKILL - 1))))
            return true;
    return false;
}

bool freezer_look(struct job *j)
{
    struct freezer *f = &j->placed.freezer;
    enum cgroup_frost frost;
    bool by_hand;

    if (!f->able || read_frost(j, &frost) < 0)
        return false;
    if (f->paused && frost == CGROUP_THAWED) {
        f->want = f->paused = false; /* the next plan pauses it again, if that is still due */
        admission_runs(j);
        return true;
    }
    if (f->paused && is_killed(j))
        admission_end(j);
    by_hand = !f->want && frost != CGROUP_THAWED && j->admission.phase == JOB_RUNNING;
    if (by_hand == j->observed.frozen)
        return false;
    j->observed.frozen = by_hand;
    return true;
}
