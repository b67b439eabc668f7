/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The containers of an engine, and what the files of this room need of each other. Daemon's event
 * loop only. Private to this room:
 *
 *   container_watch.c    what the engine says: containers come, change and end
 *   container_step.c     the state machine: which operation is next (pure)
 *   container_limits.c   carries the operations out; limits: own, wanted, sent, in place
 *   container_confine.c  job/confine.h: how the plan reaches a container
 *   container_drift.c    limits that somebody else writes
 *   container_take.c     a container becomes a job, or joins the one whose program has started it
 *   container.c          the table of containers
 *   container_adopt.c    `tide adopt` and its reverse
 *   container_dir.c      control directories
 *   container_store.c    what a job's file keeps
 *   labels.c             labels (pure)
 */
#pragma once

#include "base/container.h"
#include "base/cpuset.h"
#include "daemon/containers/container.h"
#include "daemon/containers/container_step.h"
#include "daemon/job/job.h"
#include "host/cgroup/cgroup.h"
#include "host/engine/engine.h"

#include <systemd/sd-event.h>

struct limits {
    struct cpuset cpus;
    struct engine_quota quota;
    uint32_t shares;
    bool fenced; /* the CPUs are our choice, not its own */
};

enum container_limit { CONTAINER_CPUS = 1, CONTAINER_QUOTA = 2, CONTAINER_SHARES = 4 };

/* What the kernel holds, and how often it was something else of late. */
struct drift {
    struct cgroup_settings held; /* after we looked last, or wrote */
    uint64_t repaired_ns, rest_ns;
    unsigned n;
    bool known; /* held is; not while the answer to an operation is lost */
};

/* How a container became a job. */
enum container_origin {
    CONTAINER_BY_LABEL, /* or by tide-runc's control directory */
    CONTAINER_ADOPTED,  /* by `tide adopt`, for this run */
    CONTAINER_JOINED,   /* a job's program has started it: it joined that job */
};

/* Our last pause or unpause: an event of that time is its own. CLOCK_REALTIME, as events have. */
struct pause_call {
    enum container_phase phase;     /* CONTAINER_NEW: none, or its answer was lost */
    uint64_t asked_ms, answered_ms; /* answered_ms UINT64_MAX: lost, it may come late */
};

struct container {
    struct container *next;
    struct containers *set;
    struct job *job;              /* NULL: it does not run, or was let go */
    struct listener *listener;    /* NULL: it has no control directory, or that cannot be used */
    struct container_state state; /* moved by container_step() alone */
    int64_t ticket;               /* the outstanding call to the engine; 0: none */
    struct pause_call pause_call;
    uint64_t heard;      /* number of the list that names it, or that news of it came behind */
    uint64_t refused_ns; /* since when an engine refuses that fails; 0: it does not */
    unsigned echoes;     /* updates of ours whose event is to come */
    unsigned failures;   /* of updates, one after another */
    unsigned again;      /* enum container_limit: to be written once more, somebody else wrote it */
    unsigned accepted;   /* changed by hand while the job was pinned: not ours to write */
    unsigned sending;    /* what the outstanding update writes */
    enum container_origin origin;
    struct limits own; /* what it began with: what it goes back to */
    struct limits want, placed;
    struct limits sent; /* by the last update: may be in place where its answer was lost */
    struct drift drift;
    struct cgroup_place place; /* its control group in this run; empty: to be looked for */
    uint64_t memory_bytes;
    char id[CONTAINER_ID_MAX];
    char key[CONTAINER_KEY_MAX + 1]; /* names its control directory */
    char service[PROTO_NAME_MAX];    /* in a Compose file; empty: none */
};

/* One engine and its elastic containers. */
struct containers {
    struct containers *next;
    struct daemon *daemon;
    struct engine *engine;
    sd_event_source *io, *flush;
    struct container *first;
    engine_done *inspected;    /* takes the answer to CONTAINER_DO_INSPECT, of a container */
    int64_t listing;           /* ticket of the list that is under way; 0: none */
    uint64_t lists;            /* asked for so far */
    enum cgroup_shares shares; /* what its runtime makes of them */
    bool up;
    bool missed;               /* an answer: list again */
    bool crowded;              /* one found no place among the jobs: list again when there is */
    char path[108];            /* of the engine's socket */
    char away[JOB_REASON_MAX]; /* why it does not answer any more; empty: it does, or never did */
};

/* ---- container_confine.c ---- */

/* @j is that container, and is confined through its engine from now on; or is processes again. */
void container_bind(struct container *c, struct job *j);
void container_unbind(struct job *j);
void container_job_gone(struct job *j); /* it is about to be freed, or goes on without it */

/* ---- container_limits.c ---- */

/* Moves the state machine, and does what it says is next. */
void container_happens(struct container *c, enum container_event e);

/* An inspection found it running. What is found first is the container's own. */
void container_found(struct container *c, const struct engine_container *seen);

/* The same of one that is no job: it has ended, or was let go. */
void container_found_free(struct container *c, const struct engine_container *seen);

/* Once what is noted is on disk: sends what had to wait for that. */
void containers_flush(struct containers *set);

/* Some time has passed: asks where an answer was lost, and sends again what failed. */
void container_tick(struct container *c);

/* Its job is over: back to what it began with, for its next start. */
void container_reset(struct container *c);

/* The same of one that goes on. */
void container_let_go(struct container *c);

/* What is in place is not what is wanted. */
bool container_unsettled(const struct container *c);

/* ---- what its job shall have: written when the engine has time ---- */

void container_want_cores(struct job *j,
                          const struct cpuset *cores);      /* empty: what it began with */
void container_want_weight(struct job *j, uint32_t weight); /* CGROUP_WEIGHT_STD: a core. Waits for
                                                             * another word or container_write */
void container_write(struct job *j);
void container_want_quota(struct job *j, uint32_t quota_mcpu); /* CGROUP_NO_QUOTA: its own */
int container_want_paused(struct job *j, bool paused);         /* 0: in the end it will be so */

/*
 * Its control group in the cpu controller, "/docker/ID"; NULL: it is not known. Its processes may
 * sit in groups of their own making below. Borrowed, until control goes back to the event loop.
 */
const char *container_group(const struct job *j);

/* Its control group was found to weigh so much: what its runtime makes of shares shows by it. */
void container_weighs(struct job *j, uint32_t units);

/* Something of it is on its way to the engine, or the engine's answer is. */
bool container_busy(const struct job *j);
/* That, or its cores are still to be written: its engine is away or did not say what it did. */
bool container_behind(const struct job *j);

/* CPUs that it may use by itself, and that as thousandths of a core; 0: as the machine has. */
void container_own_cpus(const struct job *j, struct cpuset *ret);
uint32_t container_own_mcpu(const struct job *j);

/* Its engine is there, and nobody else has paused it; else *ret_why says what is wrong. */
bool container_can_pause(const struct job *j, const char **ret_why);
bool container_paused(const struct job *j); /* in place */

/* It is pinned no more: limits that were changed by hand meanwhile are the policy's again. */
void container_unkeep(struct job *j);

/* Somebody else has written its limits so often that we have begun to give way. */
bool container_contested(const struct job *j, uint64_t now_ns);

/* ---- container_take.c ---- */

/*
 * It was seen to run: it becomes a job, as its labels ask or, with @adopted, that does; one that is
 * a job already is looked at again. Returns 0 or -errno.
 */
int container_take(struct container *c, const struct engine_container *seen,
                   struct job_request *adopted, struct error *err);

/* Gives the job the container's name, if that can be had. */
void container_rename(struct job *j, const char *name);

/* Whether the run that is the job goes on. */
bool container_runs(const struct job *j);

/* It has ended. True if its job goes on, with processes that are not in it; false: it was all. */
bool container_leave(struct container *c);

/* ---- container_adopt.c ---- */

/* Asks once more for those that could not be taken up yet. */
void container_adopt_tick(struct daemon *d);

/* ---- container_drift.c: limits that somebody else writes ---- */

/* Nothing of ours is on its way: what the kernel holds is what is known to be in place. */
void drift_settled(struct container *c);

/* An update has put @what (enum container_limit) of c->sent in place. */
void drift_written(struct container *c, unsigned what);

/* Something else was found than we had placed. False: to be put right later, drift_resting(). */
bool drift_repair(struct container *c);
bool drift_resting(const struct container *c);

/* Compares what the kernel holds with what is known, and has the rest written again. */
void drift_look(struct container *c);

/* ---- container_dir.c ---- */

/* A descriptor or -errno; of nobody but us, and on no link's way. */
int container_dir_open(const struct daemon *d, const char *key);
void container_dir_remove(const struct daemon *d, const char *key);

/* Binds its socket in its control directory, if there is one and no other container has it. */
void container_listen(struct container *c);

/* Another container that says the same key; @listening: and has its socket there. */
struct container *container_of_key(const struct daemon *d, const struct container *but,
                                   const char *key, bool listening);

/* ---- container.c ---- */

struct engine *container_engine(const struct container *c); /* NULL while it is away */
struct daemon *container_node(const struct container *c);
const char *container_engine_path(const struct container *c);

struct container *container_find(const struct containers *set, const char *id);
/* The one that is there, or a new one; @key NULL: its id is the key. NULL: no memory, a bad id. */
struct container *container_add(struct containers *set, const char *id, const char *key);

/* ---- container_watch.c ---- */

void container_free(struct container *c);
