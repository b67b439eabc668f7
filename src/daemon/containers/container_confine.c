/* SPDX-License-Identifier: Apache-2.0 */
/* Implements job/confine.h for a container: tells its engine what the plan wants. */
#include "daemon/containers/container_state.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"

#include <errno.h>
#include <stdio.h>

#define ERROR_WORD "engine-fault"

#define GRACE_S    10 /* as `docker stop` */
#define TIMEOUT_MS (1000 * (GRACE_S + 20))

static bool holds(const struct job *j, pid_t pid)
{
    return container_holds(j->container, pid);
}

/* The engine restricts the container with all processes in it. */
static void enter(struct process *p)
{
    container_own_cpus(p->job, &p->original);
}

/* An update takes an engine some 20 ms whatever it contains, so weight and cores share one. */
static void take_weight_along(struct job *j)
{
    container_want_weight(j, j->wanted.weight);
    j->placed.weight = j->wanted.weight;
}

static int set_cores(struct job *j, const struct cpuset *cores)
{
    take_weight_along(j);
    container_want_cores(j, cores);
    return 0;
}

static int set_quota(struct job *j, uint32_t quota_mcpu)
{
    take_weight_along(j);
    container_want_quota(j, quota_mcpu);
    j->placed.quota_mcpu = quota_mcpu;
    return 0;
}

static void set_weight(struct job *j, uint32_t weight)
{
    j->placed.weight = weight;
    container_want_weight(j, weight);
    container_write(j);
}

static bool can_limit(const struct job *j)
{
    return !j->container || !container_only_cpus(j->container);
}

static uint64_t next_look(const struct job *j, uint64_t now_ns)
{
    return UINT64_MAX;
}

static int group(const struct job *j, char ret_path[CGROUP_PATH_MAX])
{
    const char *path = container_group(j);

    snprintf(ret_path, CGROUP_PATH_MAX, "%s", path ? path : "");
    return path ? 0 : -ENOENT;
}

/* Limits of its own come from the engine; container_drift.c watches what others write. */
static bool look_at_nothing(struct job *j)
{
    return false;
}

static const char *note(const struct job *j, uint64_t now_ns)
{
    return container_contested(j, now_ns)
               ? "somebody else keeps writing its limits: they are put right, but ever more "
                 "rarely; 'tide pin' leaves them as they are"
               : "";
}

/* ---- `tide cancel` ---- */

static void on_stopped(void *arg, const struct engine_result *result)
{
    struct container *c = container_find(arg, result->target);

    if (!c || result->code >= 0)
        return;
    daemon_err("%s", result->text);
    if (!c->job)
        return;
    snprintf(c->job->placed.note, sizeof(c->job->placed.note), "it could not be cancelled: %.90s",
             result->text);
    c->job->admission.ending = false; /* may be paused again */
    job_terminate(c->job);
    daemon_changed(c->set->daemon);
}

/* Most containers' programs ignore SIGTERM, so that only the engine can end them for sure. */
static int stop(struct job *j, struct error *err)
{
    struct engine_then then = {.done = on_stopped, .timeout_ms = TIMEOUT_MS};
    struct container *c = j->container;
    struct engine *engine = c ? container_engine(c) : NULL;
    int64_t ticket = -ENOTCONN;

    if (!c)
        return 0;
    if (container_only_cpus(c))
        return error_word(
            err,
            error_set(err, -EOPNOTSUPP,
                      "job %s is a pod's container, which only the cluster can end: kubectl "
                      "delete pod",
                      j->id),
            "pod-of-cluster");
    then.arg = c->set;
    if (engine)
        ticket = engine_stop(engine, c->id, GRACE_S, then);
    if (ticket > 0)
        return GRACE_S;
    return error_word(err,
                      error_set(err, -ENOTCONN,
                                "job %s is a container, and its engine on %.100s does not answer; "
                                "cancel it again when that runs",
                                j->id, c->set->path),
                      "no-engine");
}

static const struct confine container_confine = {
    .kind = "container",
    .is_remote = true,
    .any_uid = true,
    .holds = holds,
    .enter = enter,
    .set_cores = set_cores,
    .set_quota = set_quota,
    .set_weight = set_weight,
    .set_paused = container_want_paused,
    .unpin = container_unkeep,
    .can_limit = can_limit,
    .can_pause = container_can_pause,
    .is_paused = container_paused,
    .next_look = next_look,
    .is_busy = container_busy,
    .is_behind = container_behind,
    .group = group,
    .weighs = container_weighs,
    .look_at_allowance = look_at_nothing,
    .look_at_drift = look_at_nothing,
    .note = note,
    .stop = stop,
};

void container_bind(struct container *c, struct job *j)
{
    j->container = c;
    j->container_id = c->id;
    j->service = c->service;
    j->adopted = c->origin == CONTAINER_ADOPTED;
    container_memory_show(c, j);
    j->confine = &container_confine;
}

void container_unbind(struct job *j)
{
    j->container = NULL;
    j->container_id = NULL;
    j->service = "";
    j->adopted = false;
    j->observed.memory = (struct job_memory){0};
    j->confine = j->daemon->jobs->confine;
}

void container_job_gone(struct job *j)
{
    struct container *c = j->container;

    if (!c)
        return;
    container_unbind(j);
    c->job = NULL;
    if (c->origin == CONTAINER_JOINED)
        c->origin = CONTAINER_BY_LABEL;
}
