/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the plan confines a job. One table of functions with two implementations: processes of `tide
 * run` (confine/actuate.c: affinity, control groups, freezer) and a container (containers/: its
 * engine). job.confine points to the job's own, so that no caller asks for the kind. plan.c,
 * admission.c, balance.c and the tick call down; an implementation writes what it finds into
 * job.observed and job.placed, and tells the plan. Daemon's event loop only.
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"
#include "host/cgroup/cgroup.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job;
struct process;

struct confine {
    const char *kind; /* "process" or "container", as in events and the history */

    bool is_remote; /* an engine carries out changes, and answers later */
    bool any_uid;   /* its processes may be any user's */

    /* ---- its processes ---- */

    /* Whether process @pid is inside of the control group or container. */
    bool (*holds)(const struct job *j, pid_t pid);
    /* A process joined: notes its own limits and confines it. */
    void (*enter)(struct process *p);

    /* ---- what is wanted: 0 is done or on its way, -errno with the job's note filled in ---- */

    int (*set_cores)(struct job *j, const struct cpuset *cores); /* empty: no fence */
    int (*set_quota)(struct job *j, uint32_t quota_mcpu);        /* CGROUP_NO_QUOTA: its own */
    void (*set_weight)(struct job *j, uint32_t weight);          /* on failure sets the note */
    int (*set_paused)(struct job *j, bool paused);
    /* `tide pin` ended: the plan governs limits that a person changed meanwhile. */
    void (*unpin)(struct job *j);

    /* ---- what it can do ---- */

    bool (*can_limit)(const struct job *j); /* weight and quota can be set */
    /* Why not, for a person; borrowed until control returns to the event loop. */
    bool (*can_pause)(const struct job *j, const char **ret_why);

    /* ---- what is in place ---- */

    bool (*is_paused)(const struct job *j);
    /* When to check for a pause again; UINT64_MAX: the implementation reports it. */
    uint64_t (*next_look)(const struct job *j, uint64_t now_ns);
    bool (*is_busy)(const struct job *j);   /* a change or its answer is outstanding */
    bool (*is_behind)(const struct job *j); /* busy, or cores are still to be written */
    /* The job's control group in the cpu controller, "/docker/ID". Returns 0 or -ENOENT. */
    int (*group)(const struct job *j, char ret_path[CGROUP_PATH_MAX]);
    /* The weight of that group, as read. */
    void (*weighs)(struct job *j, uint32_t units);

    /* ---- changes by other programs ---- */

    /* Reads the heartbeats' limits; returns true if those of the job changed. */
    bool (*look_at_allowance)(struct job *j);
    /* At each tick: affinity, freezer. Returns true if another program changed something. */
    bool (*look_at_drift)(struct job *j);
    /* A note for a person on such a change, or "". */
    const char *(*note)(const struct job *j, uint64_t now_ns);

    /*
     * `tide cancel`: ends it as `docker stop` does, with SIGKILL after the seconds that are
     * returned. 0: its processes are to be asked; -ENOTCONN: nothing was done.
     */
    int (*stop)(struct job *j, struct error *err);
};
