/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/energy/backstop.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/muldiv.h"
#include "daemon/confine/guardian.h"
#include "daemon/confine/job_group.h"
#include "daemon/daemon.h"
#include "daemon/energy/meter.h"
#include "daemon/job/confine.h"
#include "daemon/job/job.h"
#include "host/power/sensors.h"
#include "host/proc/file.h"
#include "policy/core/policy.h"
#include "power/cap/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "no-backstop"

#define LIMITS_MAX 16
#define QUANTUM    50 /* mcpu: a container's engine takes some 20 ms for each change */

struct backstop {
    struct daemon *daemon;
    struct powercap_limit own[LIMITS_MAX]; /* the packages' limits before ours */
    size_t n_own;
    uint64_t own_uw;     /* their sum */
    uint64_t limit_uw;   /* ours that stands, in part at least; 0: none */
    uint32_t quota_mcpu; /* of all jobs together, containers among them; 0: none */
    bool limit_failed, quota_failed;
};

/* ---- power limit ---- */

static int write_number(int root, const char *path, uint64_t number)
{
    char text[24];
    _cleanup_fd_ int fd = file_open(root, path, O_WRONLY | O_TRUNC);
    int len = snprintf(text, sizeof(text), "%" PRIu64 "\n", number);

    if (fd < 0)
        return fd;
    return write(fd, text, (size_t)len) == len ? 0 : -errno;
}

static int open_root(const struct daemon *d)
{
    int fd = open(d->config.power_root, O_PATH | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

/* The guardian has the originals of all before the first is changed. */
static int note_own(struct backstop *b)
{
    struct daemon *d = b->daemon;
    char path[GUARDIAN_KNOB_PATH_MAX], number[24];

    for (size_t i = 0; i < b->n_own; i++) {
        int r = file_path(path, sizeof(path), "%s/%s", d->config.power_root, b->own[i].path);

        snprintf(number, sizeof(number), "%" PRIu64 "\n", b->own[i].uw);
        if (r == 0)
            r = guardian_note_knob(d->guardian, path, number);
        if (r < 0)
            return r;
    }
    failpoint(FAILPOINT_BACKSTOP_NOTED);
    return 0;
}

/* To the packages in proportion to their own limits, which are never raised. */
static int set_limit(struct backstop *b, uint64_t uw)
{
    _cleanup_fd_ int root = open_root(b->daemon);
    int r = root < 0 ? root : note_own(b);

    for (size_t i = 0; i < b->n_own && r == 0; i++) {
        uint64_t own = b->own[i].uw, part = mul_div(uw, own, b->own_uw);

        r = write_number(root, b->own[i].path, part < own ? part : own);
    }
    return r;
}

/* A limit that cannot be put back now is tried again at the next step. */
static void lift_limit(struct backstop *b)
{
    _cleanup_fd_ int root = open_root(b->daemon);
    char path[GUARDIAN_KNOB_PATH_MAX];
    bool all = true;

    for (size_t i = 0; i < b->n_own; i++)
        if (write_number(root, b->own[i].path, b->own[i].uw) < 0)
            all = false;
        else if (file_path(path, sizeof(path), "%s/%s", b->daemon->config.power_root,
                           b->own[i].path) == 0)
            guardian_forget_knob(b->daemon->guardian, path);
    if (all)
        b->limit_uw = 0;
}

static void apply_limit(struct backstop *b, uint64_t uw)
{
    int r;

    if (uw == b->limit_uw || (uw && b->limit_failed))
        return;
    if (uw == 0) {
        lift_limit(b);
        return;
    }
    r = set_limit(b, uw);
    b->limit_uw = uw;
    if (r == 0)
        return;
    daemon_err(
        "the processors' own power limit cannot be set: %s; the power cap rests on jobs alone",
        strerror(-r));
    lift_limit(b);
    b->limit_failed = true;
}

/* ---- quota ---- */

static int set_quota(struct backstop *b, uint32_t mcpu, struct error *err)
{
    struct daemon *d = b->daemon;
    int r = fault(FAULT_GROUP_QUOTA);

    if (r < 0)
        return error_set(err, r, "cannot set the quota: %s", strerror(-r));
    r = mcpu ? cgroup_create(d->cgroup, d->group, CGROUP_CPU, err) : 0;
    if (r == 0)
        r = cgroup_set_quota(d->cgroup, d->group, mcpu ? mcpu : CGROUP_NO_QUOTA, err);
    return r == -ENOENT && mcpu == 0 ? 0 : r; /* no group has no quota */
}

/* A job outside of the group would not be held. A process of another program's group stays. */
static void gather(struct daemon *d)
{
    for (struct job *j = d->jobs->first; j; j = j->next)
        if (!j->adopted)
            job_group_enter(j, CGROUP_CPU, NULL);
}

/*
 * The group's quota is what containers leave. After a failure there is none: what may stand in the
 * group is noted until it is lifted, which each step tries again.
 */
static void write_quota(struct backstop *b, uint32_t mcpu)
{
    struct daemon *d = b->daemon;
    struct error err = {0};
    int r;

    if (b->quota_failed)
        mcpu = 0;
    if (mcpu == job_groups_quota(d->job_groups))
        return;
    r = set_quota(b, mcpu, &err);
    if (r < 0 && !b->quota_failed)
        daemon_log_as(error_why(&err), "no quota for the power cap: %s; it rests on jobs alone",
                      err.text);
    b->quota_failed |= r < 0;
    if (r == 0 || mcpu)
        job_groups_note_quota(d->job_groups, mcpu);
}

/* A container that gets no share, because nothing in it reports, runs nevertheless. */
static uint32_t share_of(const struct job *j)
{
    return j->confine->is_remote && j->wanted.share == 0 ? 1 : j->wanted.share;
}

/* A part of all shares, and never more than the container's own quota. */
static uint32_t part_of(const struct backstop *b, const struct job *j, uint32_t shares)
{
    uint32_t share = share_of(j), own = j->observed.allowed_mcpu;
    uint32_t part = (uint32_t)mul_div(b->quota_mcpu, share, shares > share ? shares : share);

    part = part < share * POLICY_CORE_MCPU ? part - part % QUANTUM : share * POLICY_CORE_MCPU;
    part = part > KEEPER_QUOTA_MIN ? part : KEEPER_QUOTA_MIN;
    return own && own < part ? own : part;
}

/* A job that shall pause runs on until its engine has done that; a paused one uses nothing. */
static bool uses_part(const struct job *j)
{
    return !j->observed.frozen && (j->admission.wanted || j->admission.phase == JOB_RUNNING);
}

/* Returns what all parts of containers add up to. */
static uint32_t divide(const struct backstop *b)
{
    uint32_t shares = 0, sum = 0;

    for (const struct job *j = b->daemon->jobs->first; j; j = j->next)
        if (uses_part(j))
            shares += share_of(j);
    for (struct job *j = b->daemon->jobs->first; j; j = j->next)
        if (j->confine->is_remote) {
            uint32_t part = part_of(b, j, shares);

            if (part < j->wanted.quota_mcpu)
                j->wanted.quota_mcpu = part;
            if (uses_part(j))
                sum += part;
        }
    return sum;
}

void backstop_divide(struct backstop *b)
{
    uint32_t rest;

    if (!b || b->quota_mcpu == 0)
        return;
    rest = (uint32_t)sub_sat(b->quota_mcpu, divide(b));
    write_quota(b, rest > KEEPER_QUOTA_MIN ? rest : KEEPER_QUOTA_MIN);
}

static bool has_container(const struct daemon *d)
{
    const struct job *j = d->jobs->first;

    while (j && !j->confine->is_remote)
        j = j->next;
    return j;
}

static void apply_quota(struct backstop *b, uint32_t mcpu)
{
    struct daemon *d = b->daemon;
    bool changed = mcpu != b->quota_mcpu;

    b->quota_mcpu = mcpu;
    if (mcpu == 0)
        write_quota(b, 0);
    if (!changed)
        return;
    if (mcpu)
        gather(d);
    backstop_divide(b);
    if (has_container(d) && d->decision) /* their engines are told by the next decision */
        daemon_changed(d);
}

/* ---- both ---- */

bool backstop_can_limit(const struct backstop *b)
{
    return b->n_own > 0 && b->own_uw > 0 && !b->limit_failed;
}

bool backstop_can_quota(const struct backstop *b)
{
    return b->daemon->weights && !b->quota_failed;
}

void backstop_apply(struct backstop *b, const struct keeper_plan *plan)
{
    if (b->n_own > 0)
        apply_limit(b, plan->limit_uw);
    if (b->daemon->weights)
        apply_quota(b, plan->quota_mcpu);
}

int backstop_new(struct daemon *d, struct backstop **ret)
{
    struct backstop *b = calloc(1, sizeof(*b));

    if (!b)
        return -ENOMEM;
    b->daemon = d;
    /* A user may not write them, whatever their mode is. */
    if (d->uid == 0)
        b->n_own = powercap_limits(meter_sensors(d->meter), b->own, LIMITS_MAX);
    for (size_t i = 0; i < b->n_own; i++)
        b->own_uw += b->own[i].uw;
    *ret = b;
    return 0;
}

struct backstop *backstop_free(struct backstop *b)
{
    if (!b)
        return NULL;
    if (b->limit_uw)
        lift_limit(b);
    free(b);
    return NULL;
}
