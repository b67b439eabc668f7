/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/confine/job_group.h"

#include "base/failpoint.h"
#include "daemon/confine/guardian.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/job/owner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void job_group_name(const struct job *j, char ret_name[CGROUP_NAME_MAX])
{
    snprintf(ret_name, CGROUP_NAME_MAX, "%.*s/%s", CGROUP_NAME_MAX - PROTO_ID_MAX - 1,
             j->daemon->group, j->id);
}

/* Nothing is made before it is needed: a group without effect is a group too many. */
int job_group_enter(struct job *j, unsigned controller, struct error *err)
{
    struct daemon *d = j->daemon;
    char name[CGROUP_NAME_MAX];
    int r;

    if (j->placed.groups & controller)
        return 0;
    job_group_name(j, name);
    r = fault(FAULT_GROUP_MAKE);
    if (r < 0)
        error_set(err, r, "cannot make a control group: %s", strerror(-r));
    else
        r = cgroup_create(d->cgroup, name, controller, err);
    failpoint(FAILPOINT_GROUP_MADE);
    for (struct process *p = j->processes; p && r == 0; p = p->next) {
        if (!owner_agrees(p))
            continue;
        /* A move between cpusets resets the affinity on older kernels. */
        if (controller == CGROUP_CPUSET)
            r = guardian_note(d->guardian, p->pid, p->start, &p->original);
        if (r < 0)
            error_set(err, r, "%s", strerror(-r));
        else
            r = cgroup_move(d->cgroup, name, controller, p->pid, err);
        if (r == 0)
            p->moved |= controller;
        else if (r == -ESRCH)
            r = 0;
    }
    if (r == 0) {
        j->placed.groups |= controller;
        return 0;
    }
    if (!j->placed.groups)
        cgroup_remove(d->cgroup, name, NULL);
    for (struct process *p = j->processes; p; p = p->next)
        p->moved &= j->placed.groups;
    return r;
}

void job_group_add(struct process *p)
{
    struct job *j = p->job;
    char name[CGROUP_NAME_MAX];

    if (!j->placed.groups || !owner_agrees(p))
        return;
    job_group_name(j, name);
    if (cgroup_move(j->daemon->cgroup, name, j->placed.groups, p->pid, NULL) == 0)
        p->moved = j->placed.groups;
}

void job_group_remove(struct job *j)
{
    char name[CGROUP_NAME_MAX];

    if (!j->placed.groups)
        return;
    job_group_name(j, name);
    cgroup_remove(j->daemon->cgroup, name, NULL);
    j->placed.groups = 0;
}
