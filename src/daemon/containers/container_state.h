/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The containers of an engine, and the functions shared within this room. Daemon's event
 * loop only. Private to this room:
 *
 *   container_watch.c    the engine's events: containers start, change and end
 *   container_step.c     the state machine: which operation is next (pure)
 *   container_limits.c   carries out the operations; own, wanted, sent and present limits
 *   container_confine.c  implements job/confine.h for a container
 *   container_drift.c    limits that other programs change
 *   container_memory.c   the memory limit, of which memory_watch.c knows what is needed (pure)
 *   container_take.c     a container becomes a job, or joins the job that started it
 *   container.c          the table of containers
 *   container_adopt.c    `tide adopt` and its reverse
 *   container_dir.c      control directories
 *   container_store.c    a container in its job's file
 *   labels.c             labels (pure)
 */
#pragma once

#include "base/container.h"
#include "base/cpuset.h"
#include "daemon/containers/container.h"
#include "daemon/containers/container_step.h"
#include "daemon/containers/memory_watch.h"
#include "daemon/job/job.h"
#include "host/cgroup/cgroup.h"
#include "host/engine/engine.h"

#include <systemd/sd-event.h>

struct limits {
    struct cpuset cpus;
    struct engine_quota quota;
    uint32_t shares;
    bool fenced; /* the plan chose the CPUs */
};

enum container_limit { CONTAINER_CPUS = 1, CONTAINER_QUOTA = 2, CONTAINER_SHARES = 4 };

/* The values that the kernel holds, and how often other programs changed them of late. */
struct drift {
    struct cgroup_settings held; /* as read or written last */
    uint64_t repaired_ns, rest_ns;
    unsigned n;
    bool known; /* `held` is valid; false after a lost answer */
};

/* In bytes; limits of 0: none. */
struct container_memory {
    uint64_t limit; /* as the kernel says, else the engine */
    uint64_t own;   /* the one that it began with, or that another program has set since */
    uint64_t asked; /* by our last change, if it asks: in place even if its answer was lost */
    bool asks;
    bool known; /* its control group was read at the last look */
    int64_t swap_bytes;
    uint64_t peak;
    struct memory_watch watch;
    struct memory_change *change; /* under way; NULL: none */
};

/* How a container became a job. */
enum container_origin {
    CONTAINER_BY_LABEL, /* by a label, or tide-runc's control directory */
    CONTAINER_ADOPTED,  /* by `tide adopt`, for this run */
    CONTAINER_JOINED,   /* a job's program started the container: it joined that job */
};

/* Our last pause or unpause: the engine's event with a time between is ours. CLOCK_REALTIME. */
struct pause_call {
    enum container_phase phase;     /* CONTAINER_NEW: none, or its answer was lost */
    uint64_t asked_ms, answered_ms; /* UINT64_MAX: lost, it may come late */
};

struct container {
    struct container *next;
    struct containers *set;
    struct job *job;              /* NULL: not running, or released */
    struct listener *listener;    /* NULL: no usable control directory */
    struct container_state state; /* moved by container_step() alone */
    int64_t ticket;               /* the outstanding call to the engine; 0: none */
    struct pause_call pause_call;
    uint64_t heard;      /* the last list of the engine that names it */
    uint64_t refused_ns; /* first refusal by a failing engine; 0: none */
    unsigned echoes;     /* updates of ours whose event is still to come */
    unsigned failures;   /* failed updates in a row */
    unsigned again;      /* enum container_limit: changed by another program, to be written again */
    unsigned accepted;   /* changed by a person while the job was pinned: kept */
    unsigned sending;    /* in the outstanding update */
    enum container_origin origin;
    struct limits own; /* before our first change; restored at the end */
    struct limits want, placed;
    struct limits sent; /* in the last update; may be in place if its answer was lost */
    struct drift drift;
    struct cgroup_place place; /* of its control group in this run; empty: not looked up */
    struct container_memory memory;
    bool fixed; /* the kubelet's CPU manager chooses its CPUs */
    char id[CONTAINER_ID_MAX];
    char key[CONTAINER_KEY_MAX + 1]; /* name of its control directory */
    char service[PROTO_NAME_MAX];    /* Compose service; empty: none */
};

/* One engine and its elastic containers. */
struct containers {
    struct containers *next;
    struct daemon *daemon;
    struct engine *engine;
    sd_event_source *io, *flush;
    struct container *first;
    engine_done *inspected;    /* takes the answer to CONTAINER_DO_INSPECT */
    int64_t listing;           /* ticket of the outstanding list; 0: none */
    uint64_t lists;            /* number of lists requested so far */
    enum cgroup_shares shares; /* how its runtime converts shares to weights */
    bool up;
    bool missed;               /* an answer was lost: list again */
    bool crowded;              /* the table of jobs was full: list again once a job has ended */
    char path[108];            /* the engine's socket */
    char away[JOB_REASON_MAX]; /* why it stopped answering; empty: it answers, or never did */
};

/* ---- container_confine.c ---- */

/* Confines @j through the container's engine; container_unbind() confines its processes again. */
void container_bind(struct container *c, struct job *j);
void container_unbind(struct job *j);
/* the job is about to be freed, or goes on without its container */
void container_job_gone(struct job *j);

/* ---- container_limits.c ---- */

/* Moves the state machine and carries out the action that it returns. */
void container_happens(struct container *c, enum container_event e);

/* An inspection found the container running. The first limits found are its own. */
void container_found(struct container *c, const struct engine_container *seen);

/* An inspection of a container that is no job: it has ended, or was released. */
void container_found_free(struct container *c, const struct engine_container *seen);

/* Writes the journal to disk, then sends the changes that waited for that. */
void containers_flush(struct containers *set);

/* Inspects containers with lost answers, and sends failed changes again. */
void container_tick(struct container *c);

/* The container's job is over: restores its own limits, for its next start. */
void container_reset(struct container *c);

/* Restores the own limits of a container that goes on without being a job. */
void container_let_go(struct container *c);

/* The job has no cores of its own, and a note says why. */
void container_cpus_fixed(struct job *j);

/* Whether a wanted limit is not in place. */
bool container_unsettled(const struct container *c);

/* ---- what its job shall have: written when the engine has time ---- */

void container_want_cores(struct job *j, const struct cpuset *cores); /* empty: its own */
/* CGROUP_WEIGHT_STD: a core. Waits for another change or container_write */
void container_want_weight(struct job *j, uint32_t weight);
void container_write(struct job *j);
void container_want_quota(struct job *j, uint32_t quota_mcpu); /* CGROUP_NO_QUOTA: its own */
int container_want_paused(struct job *j, bool paused);         /* 0: will take effect */

/*
 * Path of its control group in the cpu controller, "/docker/ID"; NULL: not known. The container may
 * make groups below it. Borrowed until control returns to the event loop.
 */
const char *container_group(const struct job *j);

/* The group's weight as read: tells how the container runtime converts shares. */
void container_weighs(struct job *j, uint32_t units);

/* Whether an operation on the container is outstanding. */
bool container_busy(const struct job *j);
/* Whether an operation is outstanding, or cores are still to be written. */
bool container_behind(const struct job *j);

/* CPUs of its own limits, and the same in thousandths of a core; 0: no limit. */
void container_own_cpus(const struct job *j, struct cpuset *ret);
uint32_t container_own_mcpu(const struct job *j);

/* Whether the engine answers and no person has paused it; else *ret_why for a person. */
bool container_can_pause(const struct job *j, const char **ret_why);
bool container_paused(const struct job *j); /* the pause is in place */

/* The job is not pinned any more: the policy governs limits that a person had changed. */
void container_unkeep(struct job *j);

/* Whether another program changed its limits so often that repairs have become rarer. */
bool container_contested(const struct job *j, uint64_t now_ns);

/* ---- container_take.c ---- */

/*
 * A running container becomes a job, with the attributes of its labels or of @adopted. A job
 * already is updated. Returns 0 or -errno.
 */
int container_take(struct container *c, const struct engine_container *seen,
                   struct job_request *adopted, struct error *err);

/* Gives the job the container's name, if no other job has it. */
void container_rename(struct job *j, const char *name);

/* Whether the run that is the job goes on. */
bool container_runs(const struct job *j);

/* The container has ended. Returns true if its job goes on, with processes outside of it. */
bool container_leave(struct container *c);

/* ---- container_adopt.c ---- */

/* Inspects again for adoptions that had to wait. */
void container_adopt_tick(struct daemon *d);

/* ---- container_drift.c: limits that other programs change ---- */

/* No operation is outstanding: what the kernel holds now counts as in place. */
void drift_settled(struct container *c);

/* An update has put @what (enum container_limit) of c->sent in place. */
void drift_written(struct container *c, unsigned what);

/* Another program changed a limit. Returns false if the repair has to wait, drift_resting(). */
bool drift_repair(struct container *c);
bool drift_resting(const struct container *c);

/* Compares the kernel's values with those in place, and has changed ones written again. */
void drift_look(struct container *c);

/* ---- container_memory.c ---- */

/* A run begins: nothing is known of what it needs. */
void container_memory_begin(struct container *c);

/* An inspection tells the limits. */
void container_memory_found(struct container *c, const struct engine_limits *limits);

/* Each second: reads limit and use. */
void container_memory_look(struct container *c);

/* Writes what is known into the job. */
void container_memory_show(const struct container *c, struct job *j);

/* The container is about to be freed: whoever waits for a change is told. */
void container_memory_gone(struct container *c);

/* ---- container_dir.c ---- */

/* Returns a descriptor or -errno. The directory is ours alone; follows no symbolic link. */
int container_dir_open(const struct daemon *d, const char *key);
void container_dir_remove(const struct daemon *d, const char *key);

/* Threads with which tide-runc sized the container's runtimes; 0: it did not. */
uint32_t container_dir_sized(const struct daemon *d, const char *key);

/* Binds the socket in its control directory, if that exists and no other container uses it. */
void container_listen(struct container *c);

/* Another container with the same key; @listening: one that has its socket there. */
struct container *container_of_key(const struct daemon *d, const struct container *but,
                                   const char *key, bool listening);

/* ---- container.c ---- */

struct engine *container_engine(const struct container *c); /* NULL while the engine is away */
struct daemon *container_daemon(const struct container *c);
const char *container_engine_path(const struct container *c);
bool container_only_cpus(const struct container *c); /* see engine_only_cpus() */

struct container *container_find(const struct containers *set, const char *id);
/* Returns the container, new if needed; @key NULL: its id. NULL: no memory, or an invalid id. */
struct container *container_add(struct containers *set, const char *id, const char *key);

/* ---- container_watch.c ---- */

void container_free(struct container *c);
