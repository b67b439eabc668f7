/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller's memory of one training. Everything may be lost: measurements and waiting times
 * then begin anew.
 *
 * A record has five regions, and each region is always in one state. record_move() alone changes
 * states; a state knows when it began. An event without an arrow changes nothing.
 *
 *   the training    RUN leads to LIFE_RUNS, DRAIN to LIFE_DRAINS, REST to LIFE_WAITS: each from
 *                   both other states
 *
 *                                     LACK_WORKERS
 *   its workers     WORKERS_ENOUGH ──────────────────▶ WORKERS_DUE
 *                          ▲                                │
 *                          └────── HAVE_WORKERS, CHANGE ────┘
 *
 *                                     LACK_SERVERS                 ORDER_SERVERS
 *   its servers     SERVERS_ENOUGH ──────────────────▶ SERVERS_DUE ───────────────▶ SERVERS_ORDERED
 *                          ▲ ▲                              │                              │
 *                          │ └──────── DROP_SERVERS ────────┘                              │
 *                          └────────────────────────── HAVE_SERVERS ───────────────────────┘
 *
 *                                     BEGIN_SAMPLE
 *   its samples     SAMPLE_COLD ───────────────────▶ SAMPLE_FIRST   (BEGIN_SAMPLE: begins anew)
 *                          ▲                           │  │
 *                          └─── VOID_SAMPLE, CHANGE ───┘  │ END_SAMPLE: dropped, the first steps
 *                                                         ▼             of new nodes are slow
 *                   SAMPLE_WARM ───────────────────▶ SAMPLE_OPEN    (BEGIN_SAMPLE, END_SAMPLE:
 *                          ▲          BEGIN_SAMPLE     │             begins anew)
 *                          └─── VOID_SAMPLE, CHANGE ───┘
 *                   NEW_SIZE leads to SAMPLE_COLD from each
 *
 *                                     AWAIT_THREADS
 *   its resizes     THREADS_FOLLOW ──────────────────▶ THREADS_AWAITED
 *                          ▲                                │
 *                          └──────── THREADS_PARKED ────────┘
 *
 * A sixth machine decides which sizes pay: kube/view/trial.h.
 *
 * Pure; event loop's thread; used by the rooms of the controller's core.
 */
#pragma once

#include "kube/view/action.h"
#include "kube/view/trial.h"
#include "policy/model/fit.h"

enum record_state {
    LIFE_WAITS, /* it has not started, is invalid, or has ended */
    LIFE_RUNS,
    LIFE_DRAINS, /* it gives everything back: suspended or deleted */
    WORKERS_ENOUGH,
    WORKERS_DUE, /* more of them are wanted: they come together, a moment later */
    SERVERS_ENOUGH,
    SERVERS_DUE,
    SERVERS_ORDERED, /* growth.servers of them; room may have to be made first */
    SAMPLE_COLD,     /* no replica of this size has shown its speed yet */
    SAMPLE_FIRST,    /* measures, to drop the result */
    SAMPLE_WARM,     /* measures nothing now */
    SAMPLE_OPEN,
    THREADS_FOLLOW,  /* no worker has to park threads */
    THREADS_AWAITED, /* workers park threads: then their cores shrink */
    RECORD_STATE_MAX
};

enum record_event {
    ON_RUN,
    ON_DRAIN,
    ON_REST,
    ON_LACK_WORKERS,
    ON_HAVE_WORKERS,
    ON_LACK_SERVERS,
    ON_DROP_SERVERS,
    ON_ORDER_SERVERS,
    ON_HAVE_SERVERS, /* they have come, or their time is over */
    ON_CHANGE,       /* a worker or server comes or leaves */
    ON_NEW_SIZE,     /* all replicas work at a size that is not the measured one */
    ON_BEGIN_SAMPLE,
    ON_END_SAMPLE, /* with a rate; the next sample begins */
    ON_VOID_SAMPLE,
    ON_AWAIT_THREADS,
    ON_THREADS_PARKED,
    RECORD_EVENT_MAX
};

struct stage {
    enum record_state state;
    int64_t since_ns;
};

#define RECORD_REGIONS 5
#define WORKLOAD_ACTS  4

/* Rates of the training, by its size. */
struct rates {
    struct fit fit;                /* by number of workers of the spec's size */
    int64_t report_ns;             /* when the last evaluated report came */
    uint64_t begin_examples;       /* at the begin of the present sample */
    uint64_t last_examples;        /* in the last report */
    int64_t moved_ns;              /* when they last moved; 0: not known */
    int64_t pause_ns;              /* the longest time lately between two moves */
    uint32_t moves;                /* in the present sample */
    uint64_t rate;                 /* thousandths of examples a second; 0: not measured */
    uint32_t samples;              /* that rate is of */
    uint32_t size_worker, size_ps; /* the size that rate is of; workers of the spec's size */
    uint32_t noise_permille;       /* usual difference between samples; 0: not known */
};

/* How the training's size changed, and what that showed. */
struct growth {
    int64_t changed_ns;   /* last change */
    int64_t calm_ns;      /* nothing grows before: something has just left */
    int64_t no_resize_ns; /* no resize before: a Kubernetes node refused one */
    int64_t no_start_ns;  /* no worker.start before: the API server refused a worker's pod */
    int32_t proven;       /* largest number of workers that has paid */
    int32_t servers;      /* how many are ordered */
    int32_t basis;        /* workers there were when the last server was added */
    uint64_t rate;        /* before servers were ordered */
};

/* Failures of replicas. Several at once count as one. */
struct failures {
    int32_t count; /* in a row */
    int64_t at_ns;
    uint64_t step;
};

/* The list of replicas for the chief. */
struct members_record {
    int64_t generation; /* 0: none yet */
    uint64_t hash;
};

/*
 * Requests sent to the API server, and when; 0: not yet, or send it again. After a failed action
 * nothing of it is relied upon.
 */
struct sent {
    bool service;    /* and the ConfigMap of this trust */
    uint64_t trust;  /* kube_world.trust */
    int64_t members; /* the generation that the chief is answered with */
    int64_t status_ns;
    int64_t finalizer_ns;
    int64_t no_finalizer_ns;
    int64_t workload_ns[WORKLOAD_ACTS]; /* one for each action of KUBE_MAKE_WORKLOAD on */
};

/* A value of ours that somebody else keeps changing. */
struct contest {
    int32_t count;    /* how often, in a row */
    int64_t at_ns;    /* when we last rewrote it */
    const char *what; /* static */
};

/* Kinds of actions that can be refused; each rests on those before it. */
enum refused {
    REFUSED_SERVICE,
    REFUSED_CHIEF, /* then the other roles */
    REFUSED_RESIZE = REFUSED_CHIEF + KUBE_ROLE_MAX,
    REFUSED_WORKLOAD,
    REFUSED_OTHER,
    REFUSED_MAX
};

struct refusal {
    int code; /* of the last try, see kube_answer; 0: not refused */
    enum kube_action_kind kind;
    uint32_t count; /* in a row */
    int64_t until_ns;
    int64_t generation; /* of the training: another spec may be accepted */
    char text[KUBE_MESSAGE_MAX];
};

/* The memory of a training, without its pods and its last status. */
struct record {
    struct stage stage[RECORD_REGIONS];
    struct trial trial[KUBE_ROLE_MAX];
    struct rates rates;
    struct growth growth;
    struct failures failures;
    struct members_record members;
    struct sent sent;
    struct contest contest;
    struct refusal refused[REFUSED_MAX];
    int64_t next_index[KUBE_ROLE_MAX];
    int64_t heard_ns; /* the chief's last report, or the start of its pod */
};

void record_init(struct record *record);

/* @at_ns: when it happened; a state that begins with it began then. */
void record_move(struct record *record, enum record_event event, int64_t at_ns);

/* When the record came into @state; 0: it is in another state. */
int64_t record_since(const struct record *record, enum record_state state);
