/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's containers and each of them, and what the files of containers need of each other.
 * Daemon's event loop only. Private to container*.c: container.c hears what the engine says,
 * container_dir.c has the control directories, container_join.c those that a job started,
 * container_limits.c writes limits: what is wanted, what is on its way and what is in place;
 * container_drift.c sees what others write;
 * container_store.c keeps them in the jobs' files.
 */
#pragma once

#include "base/container.h"
#include "base/cpuset.h"
#include "daemon/containers/container.h"
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
    bool known; /* held is */
};

struct container {
    struct container *next;
    struct containers *set;
    struct job *job;                 /* NULL: it does not run */
    struct listener *listener;       /* NULL: it has no control directory, or that cannot be used */
    int64_t ticket;                  /* of the call that is under way; 0: none */
    uint64_t called_ms, answered_ms; /* CLOCK_REALTIME: pauses of between are our own doing */
    uint64_t refused_ns;             /* since when an engine refuses that fails; 0: it does not */
    unsigned echoes;                 /* updates of ours whose event is to come */
    struct limits own;               /* what it began with */
    struct limits want, sent, placed;
    struct drift drift;
    struct cgroup_place place; /* of its control group, in this run; empty: to be looked for */
    uint64_t memory_bytes;
    bool paused, want_paused, by_hand; /* the last: by a person, who may take it back */
    bool inherited; /* paused by an earlier daemon, or about to be: once, that is nobody's hand */
    bool stale;     /* whether the last call was carried out is not known: inspect */
    bool stated;    /* own and placed are known */
    bool heard;     /* of since the last list was asked for, or in it */
    bool asked;     /* an inspection is under way */
    bool overtaken; /* by a call or by news: the answer may be older, ask again */
    bool news;      /* came while a call was under way: inspect behind it */
    unsigned again; /* to be written once more: somebody else wrote it, enum container_limit */
    unsigned accepted; /* changed by hand while it was pinned: not ours to write */
    unsigned sending;  /* of the update that is under way */
    bool adopted;      /* for this run, by `tide adopt` */
    bool joined;       /* the job whose program has started it */
    bool unwritten;    /* its own limits are noted, but not on disk: nothing is sent before */
    unsigned failures; /* of updates, one after another */
    char id[CONTAINER_ID_MAX];
    char key[CONTAINER_KEY_MAX + 1]; /* of its control directory */
    char service[PROTO_NAME_MAX];    /* of a Compose file; empty: of none */
};

/* One engine and its elastic containers. */
struct containers {
    struct containers *next;
    struct node *node;
    struct engine *engine;
    sd_event_source *io, *flush;
    struct container *first;
    int64_t listing;           /* ticket of the list that is under way; 0: none */
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

/* ---- container_limits.c ---- */

/* What an inspection found. The first time it is the container's own. */
void container_found(struct container *c, const struct engine_container *seen);

/* Sends what is wanted and not in place, if nothing is under way. */
void container_push(struct container *c);

/* Once what is noted is on disk: sends what had to wait for that. */
void containers_flush(struct containers *set);

/* Lets the next decision ask again for what an engine refused that was not well. */
void container_retry(struct container *c);

/* Its job is over: back to what it began with, for its next start. */
void container_reset(struct container *c);

/* The same of one that goes on. */
void container_let_go(struct container *c);

/* It was looked at since: a pause that somebody else has ended need not be. */
void container_found_free(struct container *c, enum engine_state state);

/* What is in place is not what is wanted. */
bool container_unsettled(const struct container *c);

/* ---- container_join.c ---- */

/* The job whose program has started it, by its label; NULL: it is a job of its own. */
struct job *container_starter(const struct node *n, const struct engine_container *seen);

/* It is @j's: its process @first is the only one in it, and the terms are @req's from now on. */
void container_join(struct container *c, struct job *j, pid_t first, const struct job_request *req);

/* It has ended. True if its job goes on, with processes that are not in it; false: it was all. */
bool container_leave(struct container *c);

/* ---- container_adopt.c ---- */

/* Asks once more for those that could not be taken up yet. */
void container_adopt_tick(struct node *n);

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
int container_dir_open(const struct node *n, const char *key);
void container_dir_remove(const struct node *n, const char *key);

/* Binds its socket in its control directory, if there is one and no other container has it. */
void container_listen(struct container *c);

/* Another container that says the same key; @listening: and has its socket there. */
struct container *container_of_key(const struct node *n, const struct container *but,
                                   const char *key, bool listening);

/* ---- container.c ---- */

void container_job_gone(struct job *j); /* it stops being @j's */

struct engine *container_engine(const struct container *c); /* NULL while it is away */
struct node *container_node(const struct container *c);
const char *container_engine_path(const struct container *c);
void container_inspect(struct container *c);

/*
 * It was seen to run: it becomes a job, as its labels ask or, with @adopted, that does; one that is
 * a job already is looked at again. Returns 0 or -errno.
 */
int container_take(struct container *c, const struct engine_container *seen,
                   struct job_request *adopted, struct error *err);

struct container *container_find(const struct containers *set, const char *id);
/* The one that is there, or a new one; @key NULL: its id is the key. NULL: no memory, a bad id. */
struct container *container_add(struct containers *set, const char *id, const char *key);
void container_free(struct container *c);
