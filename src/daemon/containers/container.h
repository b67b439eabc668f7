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
 * Begins to watch the engine that listens on @socket_path, now or later. Returns 0 or -errno;
 * *ret is put in front of *others.
 */
int containers_new(struct daemon *d, const char *socket_path, struct containers **others,
                   struct error *err);
struct containers *containers_free(struct containers *all); /* every one; takes NULL, gives NULL */

/* One of the engine's containers stops being a job that is about to be freed. */
extern const struct job_observer containers_observer;

/* The first of @j's processes that lives in its container (others have started it), or NULL. */
const struct process *container_first(const struct job *j);

/* Whether @pid is in its control group: others on this machine can find its socket, too. */
bool container_holds(const struct container *c, pid_t pid);

/* ---- `tide adopt`: of a container that runs without a label of ours ---- */

struct adoption;
struct job_request;

/* @j NULL: it did not become one, *err says why. */
typedef void container_adopt_fn(void *arg, struct job *j, const struct error *err);

/*
 * Makes a job of the container that is called @name, or whose id is or begins with that. Its engine
 * has to be asked: @done is called once, also from here (*ret is set by then), but not after
 * container_adopt_cancel. The codes of *err: -ENOENT there is none; -EINVAL there are several;
 * -EBUSY it does not run; -EEXIST it is a job already; -EPERM it refuses (io.threadtide=false);
 * -ENOTCONN its engine is away, or another. Returns 0 or -ENOMEM.
 */
int container_adopt(struct daemon *d, const char *name, const struct job_request *req,
                    container_adopt_fn *done, void *arg, struct adoption **ret);
void container_adopt_cancel(struct adoption *a);   /* takes NULL */
void container_adopt_cancel_all(struct daemon *d); /* tells each: the daemon ends */

/* Lets go of an adopted one: the job ends, the container goes on with what it began with. */
int container_release(struct job *j, struct error *err);

/* Sends again what failed, and asks where the answer was lost. */
void containers_tick(struct containers *all);
bool containers_pending(const struct containers *all); /* also without jobs the tick has work */

/* What a person should know of the engines: which one has gone away. */
void containers_notes(const struct containers *all, json_t *ret_notes);

/*
 * For the job's file: the engine, what the container goes back to and what was written last (NULL:
 * the job is none). A daemon that reads it takes the job up as that container's: 0 or -EINVAL.
 */
json_t *container_to_json(const struct job *j);
int container_from_json(struct job *j, json_t *json);
