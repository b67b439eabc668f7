/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elastic containers. The daemon watches engines (host/engine/engine.h). Each container that runs
 * and is elastic, by a label of ours or by a control directory that tide-runc made, becomes a job:
 *
 *   engine's news → inspect → labels, limits → job, a socket in its control directory
 *   plan → job/confine.h → container_step() → one operation at a time → plan_advance()
 *
 * A container goes back to the limits that its engine had when it was first seen; these are in the
 * restore journal before anything is changed. Daemon's event loop only; called by daemon.c, the API
 * and store.c.
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CONTAINER_ID_MAX 65 /* 64 hexadecimal digits */

struct container;
struct containers;
struct job;
struct job_observer;
struct daemon;
struct process;

/*
 * Watches the engine on @socket_path, which may start later. Returns 0 or -errno; *ret goes before
 * *others.
 */
int containers_new(struct daemon *d, const char *socket_path, struct containers **others,
                   struct error *err);
struct containers *containers_free(struct containers *all); /* all of them; NULL, returns NULL */

/* Releases a container whose job is about to be freed. */
extern const struct job_observer containers_observer;

/* @j's first process inside of its container, or NULL. */
const struct process *container_first(const struct job *j);

/* Whether @pid is in the container's control group: other processes can reach its socket, too. */
bool container_holds(const struct container *c, pid_t pid);

/* ---- `tide adopt`: of a container that runs without a label of ours ---- */

struct adoption;
struct job_request;

/* @j NULL: the container did not become a job, *err says why. */
typedef void container_adopt_fn(void *arg, struct job *j, const struct error *err);

/*
 * Makes a job of the container whose name or id is @name, or whose id begins with it. The engine
 * has to be asked: @done is called once, perhaps before this returns (*ret is set by then), and
 * never after container_adopt_cancel. Codes of *err: -ENOENT not found; -EINVAL several match;
 * -EBUSY not running; -EEXIST a job already; -EPERM its label refuses (io.threadtide=false);
 * -ENOTCONN its engine is away, or has changed. Returns 0 or -ENOMEM.
 */
int container_adopt(struct daemon *d, const char *name, const struct job_request *req,
                    container_adopt_fn *done, void *arg, struct adoption **ret);
void container_adopt_cancel(struct adoption *a);   /* takes NULL */
void container_adopt_cancel_all(struct daemon *d); /* tells each that the daemon ends */

/* Releases an adopted container: the job ends, the container goes on with its own limits. */
int container_release(struct job *j, struct error *err);

/* ---- `tide memory`: the memory limit of a container that runs ---- */

struct memory_change;

/* @err->code 0: the limit is in place. @j NULL: the container has ended. */
typedef void container_memory_fn(void *arg, struct job *j, const struct error *err);

/* A person's word; the caller answers for who may change the job. */
struct memory_order {
    uint64_t bytes; /* 0: back to the limit that the container began with */
    uid_t uid;
    bool governs; /* an administrator, who may give more than that */
    container_memory_fn *done;
    void *arg;
};

/*
 * Has the engine set the limit. The order's done is called once, perhaps before this returns (*ret
 * is NULL then), and never after container_memory_cancel. Returns 0 or, without calling done,
 * -errno: -EOPNOTSUPP no container, or a pod's; -EPERM more than it began with; -ENOSPC more than
 * other jobs leave; -ERANGE less than it needs; -EAGAIN what it needs is not known; -EBUSY another
 * change is under way; -ENOTCONN; -ENOMEM.
 */
int container_memory_change(struct job *j, const struct memory_order *order,
                            struct memory_change **ret, struct error *err);
void container_memory_cancel(struct memory_change *m); /* takes NULL; the engine may go on */

/* Sends failed changes again, and inspects where an answer was lost. */
void containers_tick(struct containers *all);
bool containers_pending(const struct containers *all); /* the tick has work even without jobs */

/* Appends a note for people on each engine that stopped answering. */
void containers_notes(const struct containers *all, json_t *ret_notes);

/*
 * The container in the job's file: engine, own limits, last written limits (NULL: no container).
 * Reading it makes the job that container's again: 0 or -EINVAL.
 */
json_t *container_to_json(const struct job *j);
int container_from_json(struct job *j, json_t *json);
