/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's table of jobs. A job is a set of processes, each followed by its pidfd, so that a
 * recycled pid is never taken for it. What is asked of a job, observed, wanted and placed stand in
 * four parts, each of which says who writes it; beside them are its admission, extra threads,
 * latency, promise, what is known of it, and program, whose headers do. Daemon's event loop only;
 * called by all of src/daemon.
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"
#include "daemon/job/admission.h"
#include "daemon/job/devices.h"
#include "daemon/job/latency.h"
#include "daemon/job/speed.h"
#include "daemon/job/split.h"
#include "daemon/job/usage.h"
#include "policy/core/extras.h"
#include "policy/core/instances.h"
#include "policy/core/promise_room.h"
#include "power/measure/range.h"
#include "proto/attribute.h"
#include "proto/proto.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#define JOB_PROCESSES_MAX  256                   /* of one job; further ones get no target */
#define JOB_CHANGES_MAX    64                    /* kept for `tide explain` */
#define JOB_DEADLINE_MAX_S (10 * 366 * 86400ull) /* --deadline may lie no farther ahead */
#define JOB_REASON_MAX     128
#define JOB_CORES_MAX      32                  /* cores of a change as text; longer lists are cut */
#define JOB_GRACE_NS       (2 * 1000000000ull) /* a longer shrink makes the job `oversubscribed` */
#define JOB_YOUNG_NS       (30 * 1000000000ull) /* a job without agent counts for so long */
#define JOB_START_NS       (10 * 1000000000ull) /* then people are told that it has no agent */
#define JOB_NOTE_MAX       (4 * JOB_REASON_MAX)
#define JOB_COMMAND_MAX    256

struct confine;
struct container;
struct daemon;
struct connection;
struct seen;

/* Threads to keep active. */
struct threads {
    uint32_t intra; /* 0: no command */
    uint32_t inter; /* 0: the same as intra */
};

/* One row of `tide explain`. */
struct change {
    uint64_t time_ms;    /* CLOCK_REALTIME */
    uint64_t latency_ns; /* until the last acknowledgement; 0: outstanding */
    uint32_t from, to;
    char cores[JOB_CORES_MAX];
    char reason[JOB_REASON_MAX];
    bool lends; /* extra threads on idle cores, or their end */
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
    uint64_t start; /* ticks after boot: unique together with the pid */
    pid_t pid;
    int pidfd;
    sd_event_source *exit_source;
    struct connection *connection; /* of its agent; NULL: none */
    char comm[PROTO_SHORT_MAX];
    uint32_t signal, hello_max;
    unsigned n_backends; /* highest index + 1 */
    struct backend backend[PROTO_BACKENDS_MAX];

    struct threads want;  /* its part of the job's target */
    struct threads local; /* set by the process itself: not apportioned */
    struct threads sent;  /* the last target */
    uint64_t sent_generation, acked_generation, sent_ns;
    uint64_t shrink_since_ns; /* first target of the shrink that is not acknowledged; 0: none */
    uint64_t resent_ns;
    uint32_t held; /* threads that may still run: the largest target not superseded */
    bool waits;    /* the last target needs a safe point that the program has not reached */
    bool later;    /* acknowledged for a pool that does not exist yet */
    bool unsent;   /* its socket was full: send when it drains */

    bool outside;      /* outside of its job's container */
    bool leads;        /* the job was registered with it: gives the job's exit status */
    uint32_t features; /* enum proto_feature that its agent was told; 0: none yet */
    bool beat;         /* it has reported the fields below */
    enum proto_source source;
    uint32_t target, active, allowed_mcpu;
    uint64_t tasks, progress_done, progress_total;
    char unit[PROTO_SHORT_MAX];
    uint64_t rate_ns, rate_base;    /* time and count of the last sample */
    double rate;                    /* units/s, smoothed */
    struct process_latency latency; /* written by job/latency.c */
    struct split_use use;           /* processor time, where several processes share a target */

    struct cpuset original; /* affinity before our first change */
    bool fenced;            /* its affinity is the job's cores */
    unsigned moved;         /* enum cgroup_controllers: moved into the job's group */
};

/* The pause of submitted processes; written by confine/freezer.c. */
struct freezer {
    uint64_t since_ns;        /* since when the present one is wanted */
    bool able;                /* all its processes are in its group */
    bool want, paused;        /* paused: in place */
    bool stuck;               /* it could not be thawed */
    char why[ERROR_TEXT_MAX]; /* why not able */
};

/*
 * The requests for a job. Written by orders of its owner, an administrator and its own program
 * (api/, peers/), from a container's labels and limits that a person changes (containers/), and
 * after a restart from the job's file (record/). decision.c cuts lent and wants to what fits,
 * plan.c clears urgent once the order is carried out, job.c a pin whose process ended.
 */
struct job_asked {
    struct attributes attributes; /* the units are those of proto/attribute_rows.h */
    struct threads pinned;        /* intra 0: automatic */
    enum proto_source pinned_by;  /* SIGNAL, API, or DAEMON for `tide set` */
    bool granted;                 /* an administrator's pin: precedes users' shares */
    uint32_t sized; /* threads with which its runtimes were started; 0: theirs to choose */
    bool script;    /* starts programs: counts for no cores until one of them uses some */
    bool kept;      /* by `tide pin`: its cores too, and limits that a person changed */
    bool urgent;    /* a person or program asked: a grow does not wait for other jobs */
    struct cpuset kept_cores; /* by `tide pin`; empty: no fence */
    uint32_t lent;            /* cores lent to other jobs */
    uint32_t wants;           /* cores requested from other jobs, until it returns them */
    uint64_t borrow_order;    /* counts up; the latest borrower returns first */
};

/* Energy of the job's processes above the machine's idling; written by energy/. */
struct job_energy {
    struct energy_range total; /* since it began, but for the gap */
    uint64_t gap_ns;           /* time in which it ran and nothing is known of its energy */
    /* what may be shown: as of the end of the last window (energy/ledger.h) */
    struct power_range power; /* mean of that window */
    struct energy_range shown;
    uint64_t shown_gap_ns;
    struct energy_range written; /* what of it is in the history (record/) */
    uint64_t written_gap_ns;
    /* the present window */
    struct energy_range window;
    uint64_t window_ns, unsaved_ns;
    /* at the last division */
    uint64_t cpu_ns, looked_ns; /* of usage; looked_ns 0: not measured yet */
};

/* Bytes of a container; written by containers/container_memory.c. 0: none, or not known. */
struct job_memory {
    uint64_t limit;
    uint64_t counts; /* the limit, or the higher one that it is about to get */
    uint64_t high;   /* the most that it needed in ten minutes … */
    uint64_t least;  /* … and the lowest limit that it may get */
};

/*
 * Reports of processes, kernel and engine. Written by the modules that look: heartbeats (peers/),
 * the tick, usage.c, speed.c, and the implementations of `confine` (confine/, containers/).
 */
struct job_observed {
    struct speed speed;
    struct usage usage;
    struct device_set devices; /* that its processes have open; written by devices.c */
    struct job_energy energy;
    struct job_memory memory;
    uint32_t allowed_mcpu; /* own affinity, cpuset and quota; 0: the whole machine */
    int exit;              /* exit status; valid where exited */
    bool exited;           /* ended with a known status */
    bool out_of_memory;    /* the kernel killed a process of the container for want of memory */
    bool frozen;           /* a person paused it: takes no part until that ends */
    bool young;            /* at the last tick, within JOB_YOUNG_NS of its start */
};

/*
 * The plan's decision. Written by plan/ at each decision; in between, admission.c writes a job that
 * it starts or pauses, peers/control.c clears borrowed when the cores are returned, and
 * energy/backstop.c lowers quota_mcpu for a cap.
 */
struct job_wanted {
    uint32_t share;    /* cores from the policy, before loans */
    uint64_t share_ns; /* CLOCK_MONOTONIC, last change by the policy; 0: never */
    uint32_t borrowed; /* cores borrowed of those requested */
    uint32_t place;    /* place in the queue, from 1; 0: the policy has no order */
    char reason[JOB_REASON_MAX];
    struct {
        int64_t may_mcpu; /* user's share; 0: users need not be told apart */
        int64_t has_mcpu; /* cores of all the user's jobs */
        uint32_t scale;   /* of all weights */
        bool is_short;    /* the user's jobs could use more */
    } user;               /* written by plan/users.c */
    struct threads threads;
    struct cpuset kept;  /* what it has of the cores of `tide pin`; written by plan/users.c */
    struct cpuset cores; /* empty: no fence */
    uint32_t weight;     /* of a control group; usual: CGROUP_WEIGHT_STD */
    uint32_t quota_mcpu; /* CGROUP_NO_QUOTA: none */
    bool yields;         /* others are to interrupt it at once, besides its small weight */
    uint32_t of_speed[POLICY_SPEEDS_MAX]; /* its cores of each speed; all 0: any */
    bool overlaps; /* no core was left: it shares those that others have for themselves */

    struct threads threads_before; /* at the last decision */
    struct cpuset cores_before;
};

/* Extra threads on idle cores. Written by plan/idle.c. */
struct job_extras {
    struct extras_loan loan;
    /* at the last look, of which `looked_ns` is the time */
    uint64_t looked_ns, cpu_ns, wait_ns, units, units_ns, rate;
};

/* Its promise of latency. Written by plan/promises.c. */
struct job_promise {
    int64_t slo_us; /* the promise that the rest is about; 0: none */
    struct promise_state state;
    struct promise_room room; /* its need, and its bounds by the last decision */
    uint32_t source;          /* of the requests that the rest was learnt from */
    uint32_t has;             /* cores in place */
    uint32_t in_flight;       /* requests at the last look */
    uint64_t looked_ns;
    struct instances_state instances;
    struct instances_shape shape; /* of its processes; threads 0: by what they use */
};

/* Its promise in this run, for later ones. Written by record/promised.c. */
struct job_known {
    unsigned name_len;            /* of its name, the part that runs share; 0: not known yet */
    uint64_t looked_ns, requests; /* at the last look */
    uint32_t steady;              /* cores in place, … */
    uint64_t steady_ns;           /* … since then */
    uint64_t judged;              /* seconds at the last look */
    uint64_t looks, cores, rate;  /* sums over them */
};

/* Which program it runs, for the curves of earlier runs. Written by record/curves.c. */
struct job_program {
    bool looked, known;
    bool refuted;   /* and the curve of earlier runs is forgotten */
    pid_t pid;      /* of the process that runs it */
    uint64_t hash;  /* where known: job/program.h */
    uint64_t at_ns; /* the last look at what was learnt */
};

/*
 * Limits in place, and acknowledgements. Written by the modules that set them: implementations of
 * `confine` (confine/, containers/), link/target.c (commanded), and plan/ for refusals and delays.
 */
struct job_placed {
    struct cpuset cores; /* empty: no fence */
    uint32_t weight;     /* 0: to be written again */
    bool yields;         /* asked of its control group */
    uint32_t quota_mcpu; /* CGROUP_NO_QUOTA: none */
    unsigned groups;     /* enum cgroup_controllers with a group of the job's */
    struct freezer freezer;
    bool commanded;            /* got a target at least once */
    bool late;                 /* a shrink took longer than JOB_GRACE_NS */
    bool unfenceable;          /* cores cannot be written: not tried again for these processes */
    bool quota_failed;         /* its quota cannot be written */
    char note[JOB_REASON_MAX]; /* for a person: limits that could not be set, and why */
};

struct job {
    struct job *next; /* older to newer */
    struct daemon *daemon;
    struct process *processes; /* the registered one first */
    unsigned n_processes;
    uint32_t number; /* in the id; grows with age until the last one is used */
    char id[PROTO_ID_MAX];
    char name[PROTO_NAME_MAX];
    char token[PROTO_TOKEN_MAX];
    uid_t uid;
    char owner[PROTO_SHORT_MAX];     /* name or number of the user */
    uint64_t created_ns, created_ms; /* CLOCK_MONOTONIC, CLOCK_REALTIME */
    uint64_t met_ns;                 /* when this daemon made or recovered it */
    char command[JOB_COMMAND_MAX];   /* or image */

    const struct confine *confine; /* how the plan confines it */
    struct container *container;   /* written by containers/; NULL: a job of processes */
    const char *container_id;      /* borrowed from the container; NULL: none */
    const char *service;           /* its Compose service, borrowed; "": none */
    bool adopted;                  /* a container without labels of ours, by `tide adopt` */

    struct admission admission; /* written by admission.c */
    struct job_asked asked;
    struct job_observed observed;
    struct job_wanted wanted;
    struct job_extras extras;
    struct job_latency latency; /* written by job/latency.c */
    struct job_promise promise;
    struct job_known known;
    struct job_placed placed;
    struct job_program program;

    struct change changes[JOB_CHANGES_MAX];
    unsigned n_changes; /* of all time; the newest is changes[(n-1) % JOB_CHANGES_MAX] */
    struct seen *seen;  /* chronicle.c's; NULL: no event told yet */
    bool dirty;         /* to be written to jobs/ID.json */
};

/*
 * Callbacks on what happens to jobs, for modules above: the daemon's top level lists the observers,
 * and calls them in that order. NULL: not interested.
 */
struct job_observer {
    void (*process_gone)(struct process *p);             /* left its job, about to be freed */
    void (*ended)(struct job *j);                        /* by itself; gone() follows */
    void (*gone)(struct job *j);                         /* about to be freed, without processes */
    void (*settled)(struct job *j);                      /* job_settled() */
    void (*resized)(struct job *j, uint64_t latency_ns); /* all agents have acknowledged */
    /* An engine's late report on a container; true: an ended job waited for the status. */
    bool (*exited)(struct daemon *d, const char *container_id, int exit);
    void (*out_of_memory)(struct daemon *d, const char *container_id);
};

struct job_table {
    struct job *first;
    const struct job_observer *const *observers; /* list that ends with NULL; NULL: none */
    const struct confine *confine; /* for a new job, and one that stops being a container */
    unsigned n;
    uint32_t last_number;
    uint64_t last_borrow;
    unsigned capacity; /* cores of all jobs together at the last decision */
    bool by_curves;    /* the policy uses speed-up curves */
};

/* ---- jobs ---- */

struct job_request {
    const char *name; /* NULL: made from the id */
    struct attributes asked;
    struct threads pinned;
    uint32_t sized; /* as in struct job_asked */
    bool script;    /* as in struct job_asked; a daemon that is started again forgets it */
    bool submitted; /* waits in the queue: admission.h */
    bool held;      /* … until a person releases it */
    bool granted;   /* as in struct job_asked */
    bool again;     /* recovered from an earlier daemon: users' limits are for new jobs */
};

/*
 * Adds a job of @uid with a new id and token. Returns 0, -EEXIST (the name is taken), -EINVAL
 * (name), -ENOSPC (PROTO_JOBS_MAX), -ENOMEM; *err for a person.
 */
int job_new(struct daemon *d, uid_t uid, const struct job_request *req, struct job **ret,
            struct error *err);

/* No attributes, and the placement of the daemon's configuration. */
struct job_request job_request_usual(const struct daemon *d);

/*
 * Gives a job of @uid that asks for no promise of latency the configured one of its name, of which
 * the first @len letters count.
 */
void job_request_promise(const struct daemon *d, uid_t uid, struct job_request *req, size_t len);

/* The job's attributes as asked for at present, without the name. */
struct job_request job_request_of(const struct job *j);

/* Replaces what is asked for the job, but threads and name. The caller has it decided anew. */
void job_ask(struct job *j, const struct attributes *asked);

/* Gives the job its id under an earlier daemon. Returns 0, -EINVAL or -EEXIST. */
int job_set_id(struct job *j, const char *id);

/* Removes the job and its processes from the table, and restores their limits. */
void job_free(struct job *j);

/* Sends SIGTERM to its processes, a waiting job's runner included. Returns how many got it. */
unsigned job_terminate(const struct job *j);

/* The job's last process ended: forgets the job and its file. */
void job_end(struct job *j);

/* Process @pid leaves its job, unless that is @but. A job without processes ends. */
void job_leave(struct daemon *d, pid_t pid, const struct job *but);

struct job *job_of_number(const struct daemon *d, uint64_t number); /* or NULL */

/* Finds a job by id, name or the pid of one of its processes. Borrowed, or NULL. */
struct job *job_find(const struct daemon *d, const char *text);
struct job *job_find_token(const struct daemon *d, const char *token);

/* The job of @pid or of its nearest ancestor in one, if the user is the same. */
struct job *job_find_pid(const struct daemon *d, pid_t pid, uid_t uid);

/* A name: 1 … PROTO_NAME_MAX-1 of [A-Za-z0-9._+:@-], no number (that is a pid), no id of a job. */
bool job_name_valid(const char *name);

/* ---- announcements ---- */

void job_announce_settled(struct job *j); /* if it is settled */
void job_announce_resized(struct job *j, uint64_t latency_ns);
bool job_announce_exited(struct daemon *d, const char *container_id, int exit);
void job_announce_out_of_memory(struct daemon *d, const char *container_id);

/* ---- processes ---- */

/*
 * Follows @pid as part of @j; returns the process if it is known. Returns 0, -ESRCH (gone, or its
 * pid was recycled: @start, 0 = any), -EPERM (owner_check), -ENOSPC, -errno.
 */
int process_add(struct job *j, pid_t pid, uint64_t start, struct process **ret);

/*
 * As above, within the limits of its user. The process leaves its previous job: it was started anew
 * (`tide run` within `tide run`). If it may not join @j, it stays where it is.
 */
int process_join(struct job *j, pid_t pid, uint64_t start, struct process **ret);
void process_free(struct process *p);

bool process_malleable(const struct process *p); /* connected, with a malleable backend */
bool job_waits(const struct job *j);             /* a process of it waits for a safe point */
uint32_t process_max(const struct process *p);   /* threads of its largest pool */

/* ---- views ---- */

/*
 * "running": its threads can be changed; "moldable": they were chosen when it started, and stay;
 * "rigid": they cannot be changed (yet); "starting": young, an agent may still report. An agent
 * reports once a thread pool exists.
 */
const char *job_state(const struct job *j, uint64_t now_ns);
/* A note for a person on what no number shows, or "". */
void job_note(const struct job *j, uint64_t now_ns, char ret_note[JOB_NOTE_MAX]);
/* A connected agent has reported a runtime that is not moldable. */
bool job_reported(const struct job *j);
bool job_reported_any(const struct job *j); /* the same, or a moldable one */
/* An agent's word is enough for it to count in full. A moldable runtime's use is measured instead
 * where cores are shared; fenced or limited, it would only show the limit. */
bool job_tells_use(const struct job *j);
bool job_malleable(const struct job *j);
bool job_settled(const struct job *j); /* every target was sent and acknowledged */
bool job_oversubscribed(const struct job *j);
uint32_t job_max(const struct job *j);
uint32_t job_active(const struct job *j);
uint32_t job_target(const struct job *j); /* commanded, else as reported by agents */
double job_rate(const struct job *j);

/* Progress of its processes, in the program's units or in operations of its runtimes. */
struct job_progress {
    uint64_t done, total; /* total 0: not known */
    const char *unit;     /* any bytes; owned by the process */
};

void job_progress(const struct job *j, struct job_progress *ret);

/* Cores that it may run on now: its fence, else its processes' own affinity. */
void job_cores(const struct job *j, struct cpuset *ret);
/* Cores that it may use: the smallest of its cores, its own limit and our quota. */
uint32_t job_allowed_mcpu(const struct job *j);

/* Adds a row to its changes. */
void job_record(struct job *j, uint32_t from, uint32_t to, const char *reason);
/* The same for extra threads; takes the place of such a row before it: they come and go. */
void job_record_extras(struct job *j, uint32_t from, uint32_t to, const char *reason);
const struct change *job_last_change(const struct job *j); /* or NULL */
