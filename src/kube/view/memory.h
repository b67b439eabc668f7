/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is remembered of a training from one reconcile to the next. All of it can be lost: then it
 * is measured and waited for anew.
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
#define ECHO_NS     (5 * NS_PER_S)   /* until what was sent, and is not seen, is sent again */
#define PATIENCE_NS (60 * NS_PER_S)  /* with what may never happen: a node that joins, a step */
#define CEILING_NS  (600 * NS_PER_S) /* what did not pay is not tried again so soon */

enum pod_state {
    POD_EXPECTED, /* was made, is not seen yet */
    POD_WAITING,  /* for a node */
    POD_STARTING,
    POD_UP,
    POD_LEAVING, /* was asked to */
    POD_LOST,    /* its node is gone or silent, or its chief cannot reach it */
    POD_ENDED,   /* by itself, with success */
    POD_FAILED,
    POD_GOING /* is being deleted */
};

/* A pod, from one reconcile to the next. */
struct replica_record {
    enum kube_role role;
    enum pod_state state;
    uint32_t index;
    int64_t mcpu;       /* of one that is expected */
    int64_t since_ns;   /* in this state */
    int64_t acted_ns;   /* when something was last sent about it in this state; 0: not yet */
    int64_t sized_mcpu; /* what was last asked for; 0: nothing */
};

/* What can be refused, each after what it rests on. */
enum refused {
    REFUSED_SERVICE,
    REFUSED_CHIEF, /* and so on, by role */
    REFUSED_RESIZE = REFUSED_CHIEF + KUBE_ROLE_MAX,
    REFUSED_OTHER,
    REFUSED_MAX
};

struct refusal {
    int code; /* of the last try; 0: it was not refused */
    enum kube_action_kind kind;
    uint32_t count; /* in a row */
    int64_t until_ns;
    int64_t generation; /* of the training: with another spec it may be another matter */
    char text[KUBE_MESSAGE_MAX];
};

/* What is remembered of a training, but for its pods and the last status. */
struct record {
    bool announced; /* its service was sent, and the ConfigMap for … */
    bool warm;      /* it has worked for a while with the size that it has */
    int64_t next_index[KUBE_ROLE_MAX];
    int64_t generation; /* of the members; 0: nothing was told yet */
    int64_t told;
    uint64_t hash;
    struct fit fit; /* by workers of the size in the spec */
    struct trial trial[KUBE_ROLE_MAX];
    int64_t report_ns;  /* the last one that was looked at */
    int64_t heard_ns;   /* when something was last heard of the chief, or its pod began */
    int64_t sample_ns;  /* begin of the sample that is being taken; 0: none */
    int64_t changed_ns; /* last change of the size that the training has */
    int64_t wished_ns;  /* since when more workers are due; 0: they are not */
    int64_t ps_due_ns;  /* since when servers are */
    int64_t calm_ns;    /* until then nothing grows: something has just left */
    int64_t drain_ns;   /* since when it drains; 0: it does not */
    int64_t run_ns;     /* since when it runs; 0: it does not */
    uint64_t sample_examples, last_examples;
    uint64_t rate;    /* of the present size, thousandths of examples a second; 0: not measured */
    uint32_t samples; /* of the present size */
    uint32_t noise_permille;       /* by which they usually differ; 0: not known */
    uint32_t size_worker, size_ps; /* that the sample is of: workers of the spec's size */
    int32_t proven;                /* so many workers have paid once */
    int32_t ps_basis;              /* workers for which the last parameter server was added */
    int32_t ps_wish;               /* one more, for which room is made; 0: none */
    int64_t ps_wish_ns;            /* since when */
    uint64_t ps_rate;              /* before that */
    int32_t failures;              /* of nodes, of one or more at once, in a row */
    int64_t failed_ns;             /* the last of them */
    uint64_t failed_step;
    struct refusal refused[REFUSED_MAX];
    int64_t status_ns;     /* when the last status was sent; 0: send it again */
    int64_t shrink_ns;     /* since when threads are to go before their cores; 0: none */
    int64_t let_go_ns;     /* when our finalizer was last taken out; 0: not yet */
    uint64_t trust;        /* … this kube_world.trust */
    int64_t no_resize_ns;  /* until then nothing is resized: a node said no */
    int64_t finalizer_ns;  /* when it was sent; 0: not yet */
    int64_t contest_ns;    /* when something was last written that somebody had changed */
    int32_t contests;      /* how often, in a row */
    const char *contested; /* what; static */
};

/*
 * A training, from one reconcile to the next. A reconcile works on a copy of the record, which
 * takes its place when everything is decided.
 */
struct memory_entry {
    struct memory_entry *next;
    char *uid;
    bool seen;     /* in this reconcile */
    bool was_sent; /* there is a last status: … */
    struct kube_status sent;
    struct replica_record *replicas; /* by role, then index */
    uint32_t replica_count;
    uint32_t replica_room;
    struct record record;
};

#define MEMORY_BUCKETS 256

struct kube_memory {
    struct memory_entry *bucket[MEMORY_BUCKETS];
};

/* The entry of a training, made if there is none; NULL: no memory. */
struct memory_entry *memory_entry(struct kube_memory *memory, const char *uid);
void memory_sweep(struct kube_memory *memory); /* forgets those that were not seen */
