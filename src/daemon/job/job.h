/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's table of jobs: a job is one `tide run`, a set of processes; a process is followed by
 * its pidfd, so that a number used again is never taken for it. What is known of a job stands in
 * four parts: asked, observed, wanted, placed; each says who writes it.
 * Daemon's event loop only; called by all of src/daemon.
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"
#include "daemon/job/admission.h"
#include "daemon/job/speed.h"
#include "daemon/job/split.h"
#include "daemon/job/usage.h"
#include "proto/attribute.h"
#include "proto/proto.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#define JOB_PROCESSES_MAX 256                   /* of one job; a further process is not commanded */
#define JOB_CHANGES_MAX   64                    /* kept for `tide explain` */
#define JOB_DEADLINE_S    (10 * 366 * 86400ull) /* --deadline: at most so far away */
#define JOB_REASON_MAX    128
#define JOB_CORES_MAX     32                   /* text of a change; longer lists are cut */
#define JOB_DEADLINE_NS   (2 * 1000000000ull)  /* a shrink that takes longer is `oversubscribed` */
#define JOB_GRACE_NS      (30 * 1000000000ull) /* how long a job without agent counts */
#define JOB_START_NS      (10 * 1000000000ull) /* then one without agent is told to a person */
#define JOB_NOTE_MAX      (4 * JOB_REASON_MAX)
#define JOB_COMMAND_MAX   256

struct confine;
struct container;
struct daemon;
struct connection;
struct seen;

/* Threads to keep active. */
struct threads {
    uint32_t intra; /* 0: nobody commands */
    uint32_t inter; /* 0: the same as intra */
};

/* One row of `tide explain`. */
struct change {
    uint64_t time_ms;    /* CLOCK_REALTIME */
    uint64_t latency_ns; /* until the last acknowledgement; 0: not there yet */
    uint32_t from, to;
    char cores[JOB_CORES_MAX];
    char reason[JOB_REASON_MAX];
};

struct backend {
    bool known, malleable;
    struct threads max, target, active;
    char name[PROTO_SHORT_MAX];
    char version[PROTO_SHORT_MAX];
    char note[PROTO_NOTE_MAX];
};

struct process {
    struct process *next;
    struct job *job;
    uint64_t start; /* ticks after boot: with the pid it names the process for ever */
    pid_t pid;
    int pidfd;
    sd_event_source *exit_source;
    struct connection *connection; /* its agent's connection; NULL: none (yet, any more) */
    char comm[PROTO_SHORT_MAX];
    uint32_t signal, hello_max;
    unsigned n_backends; /* highest index + 1 */
    struct backend backend[PROTO_BACKENDS_MAX];

    struct threads want;  /* this process's part of the job's */
    struct threads local; /* set from within (signal, API): kept out of the split */
    struct threads sent;  /* last TARGET */
    uint64_t sent_generation, acked_generation, sent_ns;
    uint64_t shrink_since_ns; /* first TARGET of the shrink that is not acknowledged; 0: none */
    uint64_t resent_ns;
    uint32_t held; /* threads that may still run: the most of what is not superseded */
    bool later;    /* acknowledged as "once there is a pool" */
    bool unsent;   /* its socket was full: sent again when it drains */

    bool outside; /* of its job's container */
    bool leads;   /* the job was registered with it: its exit status is the job's */
    bool beat;    /* the fields below were reported */
    enum proto_source source;
    uint32_t target, active, allowed_mcpu;
    uint64_t tasks, progress_done, progress_total;
    char unit[PROTO_SHORT_MAX];
    uint64_t rate_ns, rate_base; /* time and count of the last sample */
    double rate;                 /* units/s, smoothed */
    struct split_use use;        /* of processor time, where several share a target */

    struct cpuset original; /* affinity before we changed it */
    bool fenced;            /* its threads carry the job's cores now, by affinity */
    unsigned moved;         /* enum cgroup_controllers: in which it sits in the job's group */
};

/* A pause of submitted processes; confine/freezer.c's. */
struct freezer {
    uint64_t since_ns;        /* of what is wanted */
    bool able;                /* its processes are in its group */
    bool want, paused;        /* the second: in place */
    char why[ERROR_TEXT_MAX]; /* not able */
};

/*
 * What is asked for a job. Written by the orders of its owner, of an administrator and of its own
 * program (api/, peers/), from a container's labels and limits that a person changes (containers/),
 * and after a restart from the job's file (record/). decision.c cuts lent and wants to what fits,
 * plan.c clears urgent once the order is carried out, job.c a pin whose process has ended.
 */
struct job_asked {
    struct attributes attributes; /* the units are those of proto/attribute_rows.h */
    struct threads pinned;        /* intra 0: automatic */
    enum proto_source pinned_by;  /* SIGNAL, API, or DAEMON for `tide set` */
    bool granted;                 /* an administrator has pinned it: it precedes users' shares */
    bool kept;                    /* by `tide pin`: also its cores, and limits changed by hand */
    bool urgent;                  /* a person or program asked: a grow waits for no other job */
    struct cpuset kept_cores;     /* by `tide pin`; empty: no fence */
    uint32_t lent;                /* cores that it lends to other jobs */
    uint32_t wants;               /* cores that it wishes to borrow, until it gives them back */
    uint64_t borrow_order;        /* counts up; later borrowers give back first */
};

/*
 * What processes, kernel and engine report. Written by those who look: heartbeats (peers/), the
 * tick, usage.c, speed.c, and the implementations of `confine` (confine/, containers/).
 */
struct job_observed {
    struct speed speed;
    struct usage usage;
    uint64_t own_memory_bytes; /* the container's own limit; 0: none */
    uint32_t allowed_mcpu;     /* by its own affinity, cpuset and quota; 0: all of the machine */
    int exit;                  /* exit status; valid where exited */
    bool exited;               /* it has ended, and its status is known */
    bool out_of_memory;        /* the kernel killed a process of the container for want of memory */
    bool frozen;               /* by a person: takes no part until that ends */
    bool young;                /* at the last tick: within JOB_GRACE_NS of its start */
};

/*
 * What the plan decided. Written by plan/ at each decision; between decisions, admission.c writes a
 * job that it begins or pauses, peers/control.c clears borrowed when the cores are given back.
 */
struct job_wanted {
    uint32_t share;    /* cores that the policy gives, before lending */
    uint64_t share_ns; /* CLOCK_MONOTONIC, when the policy last gave another share; 0: never */
    uint32_t borrowed; /* cores of what it wishes to borrow */
    uint32_t place;    /* in the queue, from 1; 0: the policy says nothing of it */
    char reason[JOB_REASON_MAX];
    struct {
        int64_t may_mcpu; /* that its user may have; 0: users need not be told apart */
        int64_t has_mcpu; /* that its user's jobs have together */
        uint32_t scale;   /* of all weights */
        bool is_short;    /* its user's jobs could use more */
    } user;               /* plan/users.c's */
    struct threads threads;
    struct cpuset cores; /* empty: no fence */
    uint32_t weight;     /* as a control group's, CGROUP_WEIGHT_STD is the usual one */
    uint32_t quota_mcpu; /* CGROUP_NO_QUOTA: none */
    bool overlaps;       /* exclusive, but no core was left for it alone */

    struct threads threads_before; /* at the last decision */
    struct cpuset cores_before;
};

/*
 * What has been put in place and acknowledged. Written by those who put it there: `confine`'s
 * implementations (confine/, containers/), link/target.c (commanded), and plan/ for what they
 * refused or what is late.
 */
struct job_placed {
    struct cpuset cores; /* empty: no fence */
    uint32_t weight;     /* 0: to be written anew */
    uint32_t quota_mcpu; /* CGROUP_NO_QUOTA: none */
    unsigned groups;     /* enum cgroup_controllers: in which it has a group of ours */
    struct freezer freezer;
    bool commanded;            /* its threads were, at least once */
    bool late;                 /* a shrink missed its deadline, JOB_DEADLINE_NS */
    bool unfenceable;          /* writing its cores failed: not tried again for these processes */
    bool quota_failed;         /* the same for its quota */
    char note[JOB_REASON_MAX]; /* what could not be put in place, for a person */
};

struct job {
    struct job *next; /* by age */
    struct daemon *daemon;
    struct process *processes; /* the registered one first */
    unsigned n_processes;
    uint32_t number; /* of the id; grows with age */
    char id[PROTO_ID_MAX];
    char name[PROTO_NAME_MAX];
    char token[PROTO_TOKEN_MAX];
    uid_t uid;
    char owner[PROTO_SHORT_MAX];     /* name of the user, or the number */
    uint64_t created_ns, created_ms; /* CLOCK_MONOTONIC, CLOCK_REALTIME */
    uint64_t met_ns; /* by this daemon; later than created when it found the job again */
    char command[JOB_COMMAND_MAX]; /* or image */

    const struct confine *confine; /* how it is held to what it is given */
    struct container *container;   /* containers/'s: that is this job; NULL: processes */
    const char *container_id;      /* NULL: it is none; borrowed from it, as is */
    const char *service;           /* that of a Compose file; "": none */
    bool adopted;                  /* a container without labels of ours, by `tide adopt` */

    struct admission admission; /* waits, runs or is paused; admission.c's */
    struct job_asked asked;
    struct job_observed observed;
    struct job_wanted wanted;
    struct job_placed placed;

    struct change changes[JOB_CHANGES_MAX];
    unsigned n_changes; /* ever; the newest is changes[(n-1) % JOB_CHANGES_MAX] */
    struct seen *seen;  /* chronicle.c's; NULL: nothing was told of it yet */
    bool dirty;         /* to be written to jobs/ID.json */
};

/*
 * What happens to jobs, for those who stand above: each module that wants to know has one of these,
 * and the daemon's top level lists them. They are told in the order of that list; a function that
 * is NULL does not want to know.
 */
struct job_observer {
    void (*process_gone)(struct process *p); /* out of its job's list, about to be freed */
    void (*ended)(struct job *j);            /* by itself; gone() comes next */
    void (*gone)(struct job *j);             /* about to be freed; it has no processes left */
    void (*settled)(struct job *j);          /* job_settled() */
    void (*resized)(struct job *j, uint64_t latency_ns); /* all agents have acknowledged */
    /* An engine's late word on a container: true if a job that has ended waited for the status. */
    bool (*exited)(struct daemon *d, const char *container_id, int exit);
    void (*out_of_memory)(struct daemon *d, const char *container_id);
};

struct job_table {
    struct job *first;
    const struct job_observer *const *observers; /* up to a NULL; NULL: none */
    const struct confine *confine; /* of a new job, and of one that stops being a container */
    unsigned n;
    uint32_t last_number;
    uint64_t last_borrow;
    unsigned capacity; /* cores that all of them have together, at the last decision */
    bool by_curves;    /* the policy wants to know how jobs speed up */
};

/* ---- jobs ---- */

struct job_request {
    const char *name; /* NULL: made from the id */
    struct attributes asked;
    struct threads pinned;
    bool submitted; /* waits for its turn: admission.h */
    bool again;     /* an earlier daemon had it: a user's limits are for newcomers */
};

/*
 * Adds a job of @uid with a fresh id and token. Returns 0, -EEXIST (the name is taken), -EINVAL
 * (name), -ENOSPC (PROTO_JOBS_MAX), -ENOMEM; *err for a person.
 */
int job_new(struct daemon *d, uid_t uid, const struct job_request *req, struct job **ret,
            struct error *err);

/* Nothing is asked for; the placement is the one that the daemon is configured with. */
struct job_request job_request_usual(const struct daemon *d);

/* What was asked for it, as of now; the name is left out. */
struct job_request job_request_of(const struct job *j);

/* Gives the job an id that it had under an earlier daemon. -EINVAL or -EEXIST. */
int job_set_id(struct job *j, const char *id);

/* Takes it from the table, with its processes, and gives back what was placed for it. */
void job_free(struct job *j);

/*
 * Asks its processes to end, as kill(1) does; what they make of it is theirs. The runner of a job
 * that waits is one of them. Returns how many were asked.
 */
unsigned job_terminate(const struct job *j);

/* Its last process is gone: forgets it and its file. */
void job_end(struct job *j);

/*
 * Process @pid leaves whatever job it is in, unless that is @but. A job that loses its last process
 * by that ends.
 */
void job_leave(struct daemon *d, pid_t pid, const struct job *but);

struct job *job_of_number(const struct daemon *d, uint64_t number); /* or NULL */

/* @text is an id, a name or the pid of one of its processes. Borrowed, or NULL. */
struct job *job_find(const struct daemon *d, const char *text);
struct job *job_find_token(const struct daemon *d, const char *token);

/* The job that @pid or one of its ancestors belongs to, if that is the same user's. */
struct job *job_find_pid(const struct daemon *d, pid_t pid, uid_t uid);

/* A name: 1 … PROTO_NAME_MAX-1 of [A-Za-z0-9._+:@-], no number (that is a pid), no id of a job. */
bool job_name_valid(const char *name);

/* ---- announcements ---- */

void job_announce_settled(struct job *j); /* if it is */
void job_announce_resized(struct job *j, uint64_t latency_ns);
bool job_announce_exited(struct daemon *d, const char *container_id, int exit);
void job_announce_out_of_memory(struct daemon *d, const char *container_id);

/* ---- processes ---- */

/*
 * Follows @pid as part of @j; an already known one is returned as it is.
 * Returns 0, -ESRCH (gone, or its number was used again: @start, 0 = any), -EPERM (owner_check),
 * -ENOSPC, -errno.
 */
int process_add(struct job *j, pid_t pid, uint64_t start, struct process **ret);

/*
 * The same, within the limits of its user. The process leaves the job that it was in: it was
 * started anew (`tide run` within `tide run`). One that may not join @j stays where it is.
 */
int process_join(struct job *j, pid_t pid, uint64_t start, struct process **ret);
void process_free(struct process *p);

bool process_malleable(const struct process *p); /* connected, with a malleable backend */
uint32_t process_max(const struct process *p);   /* threads its largest pool was built with */

/* ---- views ---- */

/*
 * "running": its threads can be changed; "rigid": they cannot (yet); "starting": so young that an
 * agent may well report. Agents are lazy: a program without thread pools has none that reports.
 */
const char *job_state(const struct job *j, uint64_t now_ns);
/* What a person should know of it and no number shows; empty if nothing. */
void job_note(const struct job *j, uint64_t now_ns, char ret_note[JOB_NOTE_MAX]);
bool job_reported(const struct job *j); /* an agent of its is connected and named a runtime */
bool job_malleable(const struct job *j);
bool job_settled(const struct job *j); /* every target is sent and acknowledged */
bool job_oversubscribed(const struct job *j);
uint32_t job_max(const struct job *j);
uint32_t job_active(const struct job *j);
uint32_t job_target(const struct job *j); /* commanded, else what its agents follow */
double job_rate(const struct job *j);

/* How far its processes are, in the program's units or in operations of its runtimes. */
struct job_progress {
    uint64_t done, total; /* total 0: not known */
    const char *unit;     /* any bytes; the process's */
};

void job_progress(const struct job *j, struct job_progress *ret);

/* Cores it may run on now: the fence, else the processes' own affinity. */
void job_cores(const struct job *j, struct cpuset *ret);
/* What it may use: the smallest of its cores, its own limit and the quota that we set. */
uint32_t job_allowed_mcpu(const struct job *j);

/* Adds a row to its changes. */
void job_record(struct job *j, uint32_t from, uint32_t to, const char *reason);
const struct change *job_last_change(const struct job *j); /* or NULL */
