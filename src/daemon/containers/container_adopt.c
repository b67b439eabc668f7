/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide adopt` and its reverse. The engines list their containers, one after the other. The wanted
 * one is found as docker(1) finds it: by id, name, or the beginning of the id. It is then inspected
 * and becomes a job as a labelled container does.
 */
#include "daemon/confine/guardian.h"
#include "daemon/containers/container_state.h"
#include "daemon/containers/labels.h"
#include "daemon/daemon.h"
#include "daemon/link/agent_socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "engine-fault"

struct adoption {
    struct adoption *next;
    struct daemon *daemon;
    struct containers *asked; /* the engine that is listing now */
    int64_t ticket;
    struct containers *found; /* the engine that has the container; NULL: none yet */
    container_adopt_fn *done;
    void *arg;
    struct job_request req;
    struct error away; /* of the last engine that did not answer */
    bool answered;     /* an engine did */
    bool exact;        /* matched by name or whole id, which precede the beginning of an id */
    bool several;
    bool again;               /* retry at the next tick: a release of the container is under way */
    char name[ENGINE_ID_MAX]; /* as the person wrote it */
    char id[CONTAINER_ID_MAX];
};

void container_adopt_cancel(struct adoption *a)
{
    struct adoption **at;

    if (!a)
        return;
    for (at = &a->daemon->adoptions; *at != a;)
        at = &(*at)->next;
    *at = a->next;
    if (a->ticket > 0)
        engine_cancel(a->asked->engine, a->ticket);
    free(a);
}

static void conclude(struct adoption *a, struct job *j, const struct error *err)
{
    container_adopt_fn *done = a->done;
    void *arg = a->arg;

    container_adopt_cancel(a);
    done(arg, j, err);
}

void container_adopt_cancel_all(struct daemon *d)
{
    struct error err;

    error_set(&err, -ECANCELED, "the daemon is shutting down");
    while (d->adoptions)
        conclude(d->adoptions, NULL, &err);
}

/* ---- the container itself ---- */

/*
 * Processes in the container that were jobs by themselves, by our agent, join its job: they lose
 * their connection, and when their agents reconnect they find the job of their ancestors.
 */
static void gather(const struct container *c)
{
    struct job *j = c->set->daemon->jobs->first;

    while (j) {
        struct process *p = j == c->job ? NULL : j->processes;

        while (p && !container_holds(c, p->pid))
            p = p->next;
        if (p)
            job_leave(j->daemon, p->pid, c->job);
        j = p ? c->set->daemon->jobs->first : j->next;
    }
}

static int take_up(struct adoption *a, const struct engine_container *seen, struct job **ret,
                   struct error *err)
{
    const char *key = engine_label(seen, CONTAINER_LABEL ".key");
    struct container *c = container_find(a->found, seen->id);
    int r;

    if (c && c->job)
        return error_word(
            err,
            error_set(err, -EEXIST, "container %.64s is already job %s", seen->name, c->job->id),
            "container-is-job");
    if (seen->state != ENGINE_RUNNING && seen->state != ENGINE_PAUSED)
        return error_word(err,
                          error_set(err, -EBUSY, "container %.64s is not running: it is %s",
                                    seen->name, engine_state_name(seen->state)),
                          "container-not-running");
    if (labels_refuse(seen->labels, seen->n_labels))
        return error_word(
            err,
            error_set(err, -EPERM,
                      "container %.64s may not become a job: its label is " CONTAINER_LABEL
                      "=false",
                      seen->name),
            "container-refuses");
    if (c && c->state.phase >= CONTAINER_INSPECTING)
        return -EAGAIN; /* a release is under way, and may change what was inspected */
    c = container_add(a->found, seen->id, key && labels_key_valid(key) ? key : NULL);
    if (!c)
        return error_set(err, -ENOMEM, "out of memory");
    c->origin = CONTAINER_ADOPTED;
    r = container_take(c, seen, &a->req, err);
    if (r < 0) {
        c->origin = CONTAINER_BY_LABEL;
        return r;
    }
    gather(c);
    *ret = c->job;
    return 0;
}

static void inspect(struct adoption *a);

static void on_inspected(void *arg, const struct engine_result *result)
{
    struct adoption *a = arg;
    struct error err = {0};
    struct job *j = NULL;

    a->ticket = 0;
    if (result->code < 0 || result->n_containers == 0)
        error_set(&err, result->code < 0 ? result->code : -EBADMSG, "%s", result->text);
    else if (take_up(a, result->containers, &j, &err) == -EAGAIN) {
        a->again = true;
        daemon_changed(a->daemon);
        return;
    }
    conclude(a, j, &err);
}

void container_adopt_tick(struct daemon *d)
{
    for (struct adoption *a = d->adoptions, *next; a; a = next) {
        next = a->next;
        if (!a->again)
            continue;
        a->again = false;
        inspect(a);
    }
}

static void inspect(struct adoption *a)
{
    struct engine_then then = {.done = on_inspected, .arg = a};
    struct error err;

    a->asked = a->found;
    a->ticket = engine_inspect(a->found->engine, a->id, then);
    if (a->ticket > 0)
        return;
    error_set(&err, (int)a->ticket, "%s cannot be asked: %s", a->found->path,
              strerror((int)-a->ticket));
    conclude(a, NULL, &err);
}

/* ---- which one it is ---- */

static void choose(struct adoption *a)
{
    struct error err;

    if (a->found && !a->several) {
        inspect(a);
        return;
    }
    if (a->several)
        error_word(&err,
                   error_set(&err, -EINVAL,
                             "'%s' is the beginning of several containers' ids, or two engines "
                             "have a container of that name",
                             a->name),
                   "ambiguous-container");
    else if (a->answered)
        error_word(&err, error_set(&err, -ENOENT, "there is no container '%s'", a->name),
                   "no-container");
    else if (a->away.code)
        err = a->away;
    else
        error_word(&err, error_set(&err, -ENOTCONN, "this daemon watches no container engine"),
                   "no-engine");
    conclude(a, NULL, &err);
}

static void look_for(struct adoption *a, const struct engine_result *list)
{
    for (size_t i = 0; i < list->n_containers; i++) {
        const struct engine_container *seen = &list->containers[i];
        bool exact = strcmp(seen->id, a->name) == 0 || strcmp(seen->name, a->name) == 0;

        if ((!exact && (a->exact || strncmp(seen->id, a->name, strlen(a->name)) != 0)) ||
            strlen(seen->id) >= sizeof(a->id))
            continue;
        a->several = a->found && a->exact == exact;
        a->exact = exact;
        a->found = a->asked;
        snprintf(a->id, sizeof(a->id), "%s", seen->id);
    }
}

static void ask(struct adoption *a, struct containers *set);

static void on_listed(void *arg, const struct engine_result *result)
{
    struct adoption *a = arg;

    a->ticket = 0;
    a->answered |= result->code == 0;
    if (result->code == 0)
        look_for(a, result);
    else
        error_set(&a->away, result->code, "%s", result->text);
    ask(a, a->asked->next);
}

/* Asks the first engine from @set on that is up; behind the last one, chooses among the matches. */
static void ask(struct adoption *a, struct containers *set)
{
    for (; set; set = set->next) {
        a->asked = set;
        a->ticket =
            engine_list(set->engine, NULL, (struct engine_then){.done = on_listed, .arg = a});
        if (a->ticket > 0)
            return;
        error_word(&a->away,
                   error_set(&a->away, -ENOTCONN, "no container engine answers on %s", set->path),
                   "no-engine");
    }
    a->ticket = 0;
    choose(a);
}

int container_adopt(struct daemon *d, const char *name, const struct job_request *req,
                    container_adopt_fn *done, void *arg, struct adoption **ret)
{
    struct adoption *a = calloc(1, sizeof(*a));

    if (!a)
        return -ENOMEM;
    a->daemon = d;
    a->req = *req;
    a->done = done;
    a->arg = arg;
    snprintf(a->name, sizeof(a->name), "%s", name);
    a->next = d->adoptions;
    d->adoptions = a;
    *ret = a;
    ask(a, d->containers);
    return 0;
}

/* ---- and back ---- */

int container_release(struct job *j, struct error *err)
{
    struct container *c = j->container;

    if (!c || c->origin != CONTAINER_ADOPTED)
        return error_word(err, error_set(err, -EINVAL, "job %s is no adopted container", j->id),
                          "container-of-labels");
    c->origin = CONTAINER_BY_LABEL;
    j->adopted = false;
    job_end(j);
    agent_socket_unlisten(c->listener);
    c->listener = NULL;
    container_let_go(c);
    return 0;
}
