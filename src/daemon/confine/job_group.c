/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/confine/job_group.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/confine/guardian.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/job/owner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "no-control-groups"

#define AGAIN_US      20000          /* between two attempts to remove a group */
#define TRIES_MAX     500            /* then the group stays until the daemon ends */
#define STEP          16             /* groups tried in one turn of the loop */
#define QUOTA_GONE_NS (2 * NS_PER_S) /* some heartbeats */

/* The group of an ended job. */
struct leaving {
    struct leaving *next;
    unsigned tries;
    char name[CGROUP_NAME_MAX];
};

struct job_groups {
    struct daemon *daemon;
    sd_event_source *again;
    struct leaving *first;
    uint32_t quota_mcpu; /* on all together, for a power cap; 0: none */
    uint64_t quota_ns;   /* when it changed; 0: never */
};

void job_group_name(const struct job *j, char ret_name[CGROUP_NAME_MAX])
{
    snprintf(ret_name, CGROUP_NAME_MAX, "%.*s/%s", CGROUP_NAME_MAX - PROTO_ID_MAX - 1,
             j->daemon->group, j->id);
}

/* ---- removing ---- */

static int try_removal(const struct daemon *d, const char *name)
{
    return fault(FAULT_GROUP_REMOVE) < 0 ? -EBUSY : cgroup_remove(d->cgroup, name, NULL);
}

static void append(struct job_groups *g, struct leaving *l)
{
    struct leaving **at = &g->first;
    int enabled;

    while (*at)
        at = &(*at)->next;
    l->next = NULL;
    *at = l;
    /* Those that wait already wait no longer for its sake. */
    if (sd_event_source_get_enabled(g->again, &enabled) < 0 || enabled != SD_EVENT_OFF)
        return;
    sd_event_source_set_time_relative(g->again, AGAIN_US);
    sd_event_source_set_enabled(g->again, SD_EVENT_ONESHOT);
}

static void remove_group(const struct daemon *d, const char *name)
{
    struct leaving *l;

    if (try_removal(d, name) != -EBUSY)
        return;
    l = calloc(1, sizeof(*l));
    if (!l) /* the daemon's group takes it along */
        return;
    snprintf(l->name, sizeof(l->name), "%s", name);
    append(d->job_groups, l);
}

/* The job needs its group again: not to be removed. */
static void keep_group(struct job_groups *g, const char *name)
{
    for (struct leaving **at = &g->first; *at; at = &(*at)->next) {
        struct leaving *l = *at;

        if (strcmp(l->name, name) != 0)
            continue;
        *at = l->next;
        free(l);
        return;
    }
}

static int on_again(sd_event_source *s, uint64_t usec, void *arg)
{
    struct job_groups *g = arg;
    struct leaving *l = g->first;
    unsigned n = 0;

    for (; l && n < STEP; l = l->next)
        n++;
    for (; n > 0; n--) { /* groups that cannot be removed yet go to the end */
        l = g->first;
        g->first = l->next;
        if (try_removal(g->daemon, l->name) == -EBUSY && ++l->tries < TRIES_MAX) {
            append(g, l);
            continue;
        }
        if (l->tries == TRIES_MAX)
            daemon_err("control group %s not removed: a process in it does not exit", l->name);
        free(l);
    }
    if (g->first) {
        sd_event_source_set_time_relative(s, AGAIN_US);
        sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
    }
    return 0;
}

int job_groups_new(struct daemon *d, struct job_groups **ret)
{
    struct job_groups *g = calloc(1, sizeof(*g));
    int r;

    if (!g)
        return -ENOMEM;
    g->daemon = d;
    r = sd_event_add_time(d->event, &g->again, CLOCK_MONOTONIC, 0, 0, on_again, g);
    if (r >= 0)
        r = sd_event_source_set_enabled(g->again, SD_EVENT_OFF);
    if (r < 0) {
        job_groups_free(g);
        return r;
    }
    *ret = g;
    return 0;
}

struct job_groups *job_groups_free(struct job_groups *g)
{
    if (!g)
        return NULL;
    while (g->first) {
        struct leaving *l = g->first;

        g->first = l->next;
        free(l);
    }
    sd_event_source_disable_unref(g->again);
    free(g);
    return NULL;
}

/* ---- making ---- */

/* A group is made when first needed: each one costs the kernel work. */
int job_group_enter(struct job *j, unsigned controller, struct error *err)
{
    struct daemon *d = j->daemon;
    char name[CGROUP_NAME_MAX];
    int r;

    if (j->placed.groups & controller)
        return 0;
    job_group_name(j, name);
    keep_group(d->job_groups, name);
    r = fault(FAULT_GROUP_MAKE);
    if (r < 0)
        error_set(err, r, "cannot make a control group: %s", strerror(-r));
    else
        r = cgroup_create(d->cgroup, name, controller, err);
    failpoint(FAILPOINT_GROUP_MADE);
    for (struct process *p = j->processes; p && r == 0; p = p->next) {
        if (!owner_agrees(p))
            continue;
        /* On older kernels a move between cpusets resets the affinity. */
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
        remove_group(d, name);
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
    if (j->placed.groups & CGROUP_CPUSET) /* as in job_group_enter(); a full table fences it, too */
        guardian_note(j->daemon->guardian, p->pid, p->start, &p->original);
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
    remove_group(j->daemon, name);
    j->placed.groups = 0;
}

/* ---- a quota on all together ---- */

void job_groups_note_quota(struct job_groups *g, uint32_t mcpu)
{
    g->quota_mcpu = mcpu;
    g->quota_ns = clock_now_ns();
}

uint32_t job_groups_quota(const struct job_groups *g)
{
    return g->quota_mcpu;
}

bool job_groups_seem_limited(const struct job_groups *g)
{
    return g && (g->quota_mcpu || (g->quota_ns && clock_now_ns() - g->quota_ns < QUOTA_GONE_NS));
}
