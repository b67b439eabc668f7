/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of each training from one reconcile to the next. All of it may be lost: measurements
 * and waiting times then begin anew.
 *
 * Event loop's thread; used by the rooms of the controller's core.
 */
#pragma once

#include "kube/view/action.h"
#include "kube/view/trial.h"
#include "policy/model/fit.h"

#define NOWHERE     UINT32_MAX
#define NS_PER_S    INT64_C(1000000000)
#define FOREVER     INT64_MAX
#define ECHO_NS     (5 * NS_PER_S)   /* a request without visible effect is then sent again */
#define PATIENCE_NS (60 * NS_PER_S)  /* limit for what may never come: a node that joins, a step */
#define CEILING_NS  (600 * NS_PER_S) /* how long a size that did not pay is not tried again */

enum pod_state {
    POD_EXPECTED, /* created, but no watch has shown it yet */
    POD_WAITING,  /* has no node yet */
    POD_STARTING,
    POD_UP,
    POD_LEAVING, /* asked to leave */
    POD_LOST,    /* its node is gone or silent, or its chief cannot reach it */
    POD_ENDED,   /* ended by itself, with success */
    POD_FAILED,
    POD_GOING /* being deleted */
};

/* A pod, from one reconcile to the next. */
struct replica_record {
    enum kube_role role;
    enum pod_state state;
    uint32_t index;
    int64_t mcpu;       /* if expected */
    int64_t since_ns;   /* when this state began */
    int64_t acted_ns;   /* the last request about it in this state; 0: none yet */
    int64_t sized_mcpu; /* the last size requested; 0: none */
};

/* Kinds of actions that can be refused; each rests on those before it. */
enum refused {
    REFUSED_SERVICE,
    REFUSED_CHIEF, /* then the other roles */
    REFUSED_RESIZE = REFUSED_CHIEF + KUBE_ROLE_MAX,
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
    bool announced; /* its service and the ConfigMap of @trust were sent */
    bool warm;      /* a first sample of the present size was taken, and dropped */
    int64_t next_index[KUBE_ROLE_MAX];
    int64_t generation; /* of the members; 0: none yet */
    int64_t told;       /* the generation that the chief is answered with */
    uint64_t hash;      /* of the members */
    struct fit fit;     /* rates by number of workers of the spec's size */
    struct trial trial[KUBE_ROLE_MAX];
    int64_t report_ns;  /* when the last evaluated report came */
    int64_t heard_ns;   /* the chief's last report, or the start of its pod */
    int64_t sample_ns;  /* begin of the present sample; 0: none */
    int64_t changed_ns; /* last change of the training's size */
    int64_t wished_ns;  /* since when more workers are due; 0: none are */
    int64_t ps_due_ns;  /* since when more servers are due; 0: none are */
    int64_t calm_ns;    /* nothing grows before: something has just left */
    int64_t drain_ns;   /* since when it drains; 0: it does not */
    int64_t run_ns;     /* since when it runs; 0: it does not */
    uint64_t sample_examples, last_examples;
    uint64_t rate;    /* of the present size, thousandths of examples a second; 0: not measured */
    uint32_t samples; /* of the present size */
    uint32_t noise_permille;       /* usual difference between samples; 0: not known */
    uint32_t size_worker, size_ps; /* the size that samples are of; workers in the spec's size */
    int32_t proven;                /* largest number of workers that has paid */
    int32_t ps_basis;              /* workers there were when the last server was added */
    int32_t ps_wish;               /* number of servers that room is made for; 0: none */
    int64_t ps_wish_ns;            /* when this wish began */
    uint64_t ps_rate;              /* the rate before it */
    int32_t failures;              /* of nodes, in a row; several at once count as one */
    int64_t failed_ns;             /* the last failure */
    uint64_t failed_step;          /* the step at that time */
    struct refusal refused[REFUSED_MAX];
    int64_t status_ns;     /* when the last status was sent; 0: send it again */
    int64_t shrink_ns;     /* since when cores wait for threads to be parked; 0: none do */
    int64_t let_go_ns;     /* when the removal of our finalizer was last sent; 0: not yet */
    uint64_t trust;        /* the kube_world.trust that was announced */
    int64_t no_resize_ns;  /* no resize before: a Kubernetes node refused one */
    int64_t finalizer_ns;  /* when our finalizer was sent; 0: not yet */
    int64_t contest_ns;    /* when we last rewrote a value that somebody else had changed */
    int32_t contests;      /* how often, in a row */
    const char *contested; /* which value; static */
};

/*
 * The entry of one training. A reconcile works on a copy of the record, and the copy replaces it
 * when everything is decided.
 */
struct memory_entry {
    struct memory_entry *next;
    char *uid;
    bool seen;                       /* in this reconcile */
    bool was_sent;                   /* @sent is set */
    struct kube_status sent;         /* the last status sent */
    struct replica_record *replicas; /* by role, then index */
    uint32_t replica_count;
    uint32_t replica_room;
    struct record record;
};

#define MEMORY_BUCKETS 256

struct kube_memory {
    struct memory_entry *bucket[MEMORY_BUCKETS];
};

/* The entry of a training, created if there is none; NULL: out of memory. */
struct memory_entry *memory_entry(struct kube_memory *memory, const char *uid);
void memory_sweep(struct kube_memory *memory); /* drops entries that this reconcile has not seen */
