/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container becomes a job. One that a job's own program has started (`tide submit` with `docker
 * tide run` inside) joins that job instead, whose processes outside of the container go on waiting
 * for it, and leaves the job at its end.
 */
#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/confine/actuate.h"
#include "daemon/containers/container_state.h"
#include "daemon/containers/labels.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"
#include "host/proc/proc.h"
#include "policy/core/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "engine-fault"

/*
 * Containers can be renamed. Each look tries the name again, since another job may hold it for now.
 */
void container_rename(struct job *j, const char *name)
{
    if (strcmp(j->name, name) == 0 || !job_name_valid(name) || job_find(j->daemon, name))
        return;
    snprintf(j->name, sizeof(j->name), "%s", name);
    j->dirty = true;
    daemon_store_later(j->daemon);
}

/* Asks the kernel: the engine's report of a run may arrive when the next one has begun. */
bool container_runs(const struct job *j)
{
    const struct process *first = container_first(j);

    return first && proc_pidfd_signal(first->pidfd, 0) == 0;
}

/* The job's processes live in the container from now on. */
static int follow(struct container *c, const struct engine_container *seen, struct job *j,
                  struct error *err)
{
    struct process *p;
    int r;

    container_memory_begin(c);
    container_bind(c, j);
    r = process_add(j, seen->pid, 0, &p);
    if (r < 0) {
        container_unbind(j);
        return error_set(err, r, "%s", r == -ESRCH ? "it has ended" : strerror(-r));
    }
    p->outside = false;
    c->job = j;
    c->place = (struct cgroup_place){0};
    failpoint(FAILPOINT_CONTAINER_TAKEN);
    j->observed.frozen = c->state.pause == PAUSE_PERSON;
    j->observed.allowed_mcpu = container_own_mcpu(j);
    if (c->fixed)
        container_cpus_fixed(j);
    daemon_log("job %s (%s) is container %.12s", j->id, j->name, c->id);
    return 0;
}

/* Makes a job for a container that no job has started. @req, its attributes, gets the container's
 * name if no job has that. */
static int new_job(struct container *c, const struct engine_container *seen,
                   struct job_request *req, struct error *err)
{
    struct daemon *d = c->set->daemon;
    struct job *j;
    int r;

    if (job_name_valid(seen->name) && !job_find(d, seen->name))
        req->name = seen->name;
    job_request_promise(d, d->uid, req, sizeof(j->name));
    r = job_new(d, d->uid, req, &j, err);
    if (r < 0)
        return r;
    snprintf(j->command, sizeof(j->command), "%s", seen->image);
    r = follow(c, seen, j, err);
    if (r < 0)
        job_free(j);
    return r;
}

/* Only a job's own programs know its token, so that no label can join another user's job. */
static struct job *starter_of(const struct daemon *d, const struct engine_container *seen)
{
    const char *token = labels_job(seen->labels, seen->n_labels);
    struct job *j = token ? job_find_token(d, token) : NULL;

    return j && !j->container ? j : NULL;
}

/* Only process @first of @j is in the container; @req's attributes apply from now on. */
static void take_over(struct container *c, struct job *j, pid_t first,
                      const struct job_request *req)
{
    actuate_release(j);
    for (struct process *p = j->processes; p; p = p->next)
        p->outside = p->pid != first;
    c->origin = CONTAINER_JOINED;
    j->asked.sized = req->sized;
    job_ask(j, &req->asked);
}

static int join(struct container *c, const struct engine_container *seen, struct job *starter,
                const struct job_request *req, struct error *err)
{
    int r = follow(c, seen, starter, err);

    if (r < 0)
        return r;
    take_over(c, starter, seen->pid, req);
    daemon_store_now(starter->daemon);          /* the next daemon has to know whose it is */
    if (starter->admission.phase == JOB_PAUSED) /* paused before the start */
        starter->confine->set_paused(starter, true);
    if (starter->admission.ending)
        starter->confine->stop(starter, NULL);
    return 0;
}

static int job_by_labels(struct container *c, const struct engine_container *seen,
                         struct error *err)
{
    struct job_request req = job_request_usual(c->set->daemon);
    struct job *starter = starter_of(c->set->daemon, seen);
    char note[JOB_REASON_MAX];
    int r;

    if (starter)
        req = job_request_of(starter);
    req.sized = container_dir_sized(c->set->daemon, c->key);
    labels_parse(seen->labels, seen->n_labels, (uint64_t)seen->started_ns / NS_PER_MS, &req, note,
                 sizeof(note));
    r = starter ? join(c, seen, starter, &req, err) : new_job(c, seen, &req, err);
    if (r == 0 && *note)
        snprintf(c->job->placed.note, sizeof(c->job->placed.note), "%s", note);
    return r;
}

/* Limits first: how many cores a process of the job may use follows from them. */
int container_take(struct container *c, const struct engine_container *seen,
                   struct job_request *adopted, struct error *err)
{
    const char *service = labels_service(seen->labels, seen->n_labels);
    int r = 0;

    container_listen(c);
    c->heard = c->set->lists;
    if (service && strlen(service) < sizeof(c->service))
        strcpy(c->service, service);
    container_found(c, seen);
    if (c->job) {
        if (c->origin != CONTAINER_JOINED)
            container_rename(c->job, seen->name);
    } else {
        r = adopted ? new_job(c, seen, adopted, err) : job_by_labels(c, seen, err);
    }
    daemon_store_later(c->set->daemon);
    daemon_changed(c->set->daemon);
    return r;
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
    if (!j->admission.wanted) { /* its container was paused; the rest goes on */
        if (j->admission.held)
            admission_hold(j, false, NULL);
        admission_want(j, POLICY_VERB_RESUME, j->admission.cores);
    }
    actuate_release(j);
    for (struct process *p = j->processes; p; p = p->next)
        j->confine->enter(p);
    if (j->admission.ending) /* a waiting parent would end by itself, but a script would go on */
        job_terminate(j);
    j->dirty = true;
    daemon_store_later(j->daemon);
    return true;
}
