/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a job is held to what the plan gives it. One table of functions with two implementations:
 * processes of `tide run` (confine/actuate.c: affinity, control groups, freezer) and a container
 * (containers/: its engine). Each job points to its own, job.confine, so that nobody has to ask
 * which kind it is. These are calls downwards, of plan.c, admission.c, balance.c and the tick; what
 * an implementation finds out it writes into the job
 * (job.observed, job.placed) and tells the plan. Daemon's event loop only.
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
    const char *kind; /* "process" or "container", as events and the history have it */

    bool is_remote; /* an engine changes it, and answers later */

    /* ---- its processes ---- */

    /* Whether process @pid lies inside of what is confined. */
    bool (*holds)(const struct job *j, pid_t pid);
    /* A process has joined: notes the limits that it has by itself and puts it under the fence. */
    void (*enter)(struct process *p);

    /* ---- what is wanted: 0 is done or on its way, -errno with the job's note filled in ---- */

    int (*set_cores)(struct job *j, const struct cpuset *cores); /* empty: no fence */
    int (*set_quota)(struct job *j, uint32_t quota_mcpu);        /* CGROUP_NO_QUOTA: its own */
    void (*set_weight)(struct job *j, uint32_t weight);          /* the note says if it failed */
    int (*set_paused)(struct job *j, bool paused);
    /* `tide pin` has ended: limits that a person has changed meanwhile are the plan's again. */
    void (*unpin)(struct job *j);

    /* ---- what it can do ---- */

    bool (*can_limit)(const struct job *j); /* by weight and quota */
    /* Why not: for a person, borrowed until control goes back to the event loop. */
    bool (*can_pause)(const struct job *j, const char **ret_why);

    /* ---- what is in place ---- */

    bool (*is_paused)(const struct job *j);
    /* When to look again whether a pause is in place; UINT64_MAX: the implementation tells. */
    uint64_t (*next_look)(const struct job *j, uint64_t now_ns);
    bool (*is_busy)(const struct job *j);   /* a change is on its way, or its answer is */
    bool (*is_behind)(const struct job *j); /* that, or cores are still to be written */
    /* Its control group in the cpu controller, "/docker/ID". Returns 0 or -ENOENT. */
    int (*group)(const struct job *j, char ret_path[CGROUP_PATH_MAX]);
    /* That group was found to weigh so much. */
    void (*weighs)(struct job *j, uint32_t units);

    /* ---- what somebody else does ---- */

    /* The heartbeats' allowance: true if that of the job changed. */
    bool (*look_at_allowance)(struct job *j);
    /* At each tick: affinity, freezer. True if something was changed from outside. */
    bool (*look_at_drift)(struct job *j);
    /* "" or what a person should know of that. */
    const char *(*note)(const struct job *j, uint64_t now_ns);

    /*
     * `tide cancel`: ends it as `docker stop` does, with SIGKILL after the seconds that are
     * returned. 0: its processes are to be asked; -ENOTCONN: nothing was done.
     */
    int (*stop)(struct job *j, struct error *err);
};
