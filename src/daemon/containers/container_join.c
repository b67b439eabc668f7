/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container that a job's own program has started, `docker tide run` in `tide submit`, is no job
 * of its own: it joins that one, whose processes outside of it go on waiting for it, and leaves it
 * at its end. And how a person ends either kind.
 */
#include "daemon/confine/actuate.h"
#include "daemon/containers/container_state.h"
#include "daemon/containers/labels.h"
#include "daemon/job/confine.h"
#include "daemon/job/job.h"
#include "daemon/node.h"

#include "policy/core/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define GRACE_S    10 /* as `docker stop` */
#define TIMEOUT_MS (1000 * (GRACE_S + 20))

/* A job's token is known to its own programs alone, so that no label gets into another's job. */
struct job *container_starter(const struct node *n, const struct engine_container *seen)
{
    const char *token = labels_job(seen->labels, seen->n_labels);
    struct job *j = token ? job_find_token(n, token) : NULL;

    return j && !j->container ? j : NULL;
}

void container_join(struct container *c, struct job *j, pid_t first, const struct job_request *req)
{
    actuate_release(j);
    for (struct process *p = j->processes; p; p = p->next)
        p->outside = p->pid != first;
    c->origin = CONTAINER_JOINED;
    j->asked = req->asked;
    j->dirty = true;
}

bool container_leave(struct container *c)
{
    struct job *j = c->job;
    bool outside = false;

    for (const struct process *p = j->processes; p; p = p->next)
        outside |= p->outside;
    if (!outside)
        return false;
    for (struct process *p = j->processes, *next; p; p = next) {
        next = p->next;
        if (!p->outside)
            process_free(p);
    }
    container_job_gone(j);
    if (!j->admission.wanted) /* nothing is left that could be paused */
        admission_want(j, POLICY_VERB_RESUME, j->admission.cores);
    actuate_release(j);
    for (struct process *p = j->processes; p; p = p->next)
        j->confine->enter(p);
    if (j->admission.ending) /* who waited for it ends by itself; a script would go on */
        job_terminate(j);
    j->dirty = true;
    node_store_later(j->node);
    return true;
}

/* ---- `tide cancel` ---- */

static void on_stopped(void *arg, const struct engine_result *result)
{
    struct container *c = container_find(arg, result->target);

    if (!c || result->code >= 0)
        return;
    node_log("%s", result->text);
    if (!c->job)
        return;
    snprintf(c->job->note, sizeof(c->job->note), "it could not be cancelled: %.90s", result->text);
    c->job->admission.ending = false; /* it goes on like others, until somebody asks again */
    job_terminate(c->job);
    node_changed(c->set->node);
}

/* Without its engine nobody would end it who is deaf to SIGTERM, as most containers' programs are.
 */
int container_stop(struct job *j, struct error *err)
{
    struct engine_then then = {.done = on_stopped, .timeout_ms = TIMEOUT_MS};
    struct container *c = j->container;
    struct engine *engine = c ? container_engine(c) : NULL;
    int64_t ticket = -ENOTCONN;

    if (!c)
        return 0;
    then.arg = c->set;
    if (engine)
        ticket = engine_stop(engine, c->id, GRACE_S, then);
    if (ticket > 0)
        return GRACE_S;
    return error_set(err, -ENOTCONN,
                     "job %s is a container, and its engine on %.100s does not answer", j->id,
                     c->set->path);
}
