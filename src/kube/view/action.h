/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan, a list of actions, that one look at the cluster results in; and the memory that the
 * controller keeps between two looks, as far as the outside sees it.
 *
 * Event loop's thread; read by the shell, the tests and the benchmark.
 */
#pragma once

#include "kube/view/world.h"
#include "policy/core/policy.h"

enum kube_action_kind {
    KUBE_ADD_FINALIZER,
    KUBE_REMOVE_FINALIZER,
    KUBE_CREATE_SERVICE, /* and the ConfigMap with our CA; both may exist already */
    KUBE_PATCH_STATUS,   /* all fields of the status that the controller owns */
    KUBE_CREATE_POD,
    KUBE_ASK_LEAVE,   /* sets KUBE_ANNOTATION_LEAVE to the text */
    KUBE_RESIZE_POD,  /* pods/resize of KUBE_CONTAINER */
    KUBE_DELETE_POD,  /* only if it still has this UID */
    KUBE_SET_MEMBERS, /* sets the answer to the chief's reports */
    KUBE_EVENT,
    KUBE_MAKE_WORKLOAD,   /* asks the training's queue */
    KUBE_TURN_WORKLOAD,   /* it may be admitted, or may not: its training is paused */
    KUBE_TELL_WORKLOAD,   /* news for Kueue */
    KUBE_DELETE_WORKLOAD, /* only if it still has this UID */
    KUBE_ACTION_MAX
};

/* One parameter server or worker, as the chief sees it. */
struct kube_member {
    const char *host; /* borrowed from the pod */
    uint32_t index;
    uint32_t threads; /* 0: the replica follows its own container's limit */
    enum kube_role role;
    bool leave;
};

struct kube_members {
    int64_t generation;
    int32_t slots;
    enum kube_mode mode;
    bool suspend;
    const struct kube_member *at; /* parameter servers, then workers, each by index */
    uint32_t count;
};

/* Where the pods of one role may run, beyond what their template says; {0}: anywhere. Everything is
 * borrowed from the world, or the plan's. */
struct kube_demand {
    const struct kube_label *selector; /* labels of the node: all of them */
    const struct kube_toleration *tolerations;
    uint32_t selector_count;
    uint32_t toleration_count;
    const char *topology_key;   /* NULL: none */
    const char *topology_value; /* that the node has to have, or had better have */
    bool topology_required;
    bool no_gpus;             /* not on nodes with GPUs … */
    const char *const *gpus;  /* … of these resources (RESOURCE.present is "true"), … */
    const char *const *hosts; /* … which do not say so: their kubernetes.io/hostname */
    uint32_t gpu_count;
    uint32_t host_count;
    const char *host;         /* of the node where its watts count: rather there; NULL: any */
    const char *const *bound; /* hostnames of other nodes that watts bind: those taken first */
    uint32_t taken_count;     /* not on these … */
    uint32_t bound_count;     /* … nor on the rest, unless its template says how pods spread */
};

/* A pod to create from a training's template. */
struct kube_new_pod {
    const struct kube_demand *demand; /* NULL: none */
    int64_t mcpu;       /* of KUBE_CONTAINER in a worker: request and limit; 0: as the spec says */
    int64_t start_mcpu; /* its limit until it is in the training; 0: none of its own */
    uint32_t index;
    enum kube_role role;
};

enum kube_news {
    KUBE_NEWS_RELEASED,  /* nothing runs any more after an eviction: its quota is free */
    KUBE_NEWS_READY,     /* its minimum is in the training */
    KUBE_NEWS_SUCCEEDED, /* it has ended */
    KUBE_NEWS_FAILED
};

/* About the training's Workload. */
struct kube_queueing {
    const struct kube_workload *workload; /* NULL: to make */
    const char *version;                  /* of Kueue's group */
    int32_t priority;
    enum kube_news news;
    bool active;
    int64_t wall_ns;
};

/* The name of a training's Workload: "etj-NAME-" and the begin of its UID. */
void kube_workload_name(const struct kube_etj *etj, char ret[KUBE_NAME_MAX + 1]);

struct kube_action {
    enum kube_action_kind kind;
    const struct kube_etj *etj; /* borrowed from the world */
    const struct kube_pod *pod; /* set by actions on an existing pod */
    union {
        struct kube_new_pod create;
        struct {
            int64_t mcpu;
            int64_t limit_mcpu; /* 0: in the pod's present ratio to the request */
        } resize;
        struct {
            int32_t grace_s; /* -1: the pod's own; 0: its node is gone, so nothing of it runs */
        } delete;
        const struct kube_status *status;   /* the plan's */
        const struct kube_members *members; /* the plan's */
        struct {
            bool warning;
            const char *reason; /* CamelCase; static */
            const char *text;   /* the plan's; ASK_LEAVE uses it, too */
        } note;
        struct kube_queueing queueing;
    };
};

struct kube_plan {
    struct kube_action *actions;
    size_t count;
    int64_t wakeup_ns; /* when to reconcile again if nothing changes before; INT64_MAX: never */
    void *arena;       /* memory that the actions point to */
};

#define KUBE_GPUS_MAX 16

/* The settings of a controller; the same in every replica. */
struct kube_settings {
    const char
        *gpus[KUBE_GPUS_MAX]; /* resources of nodes that are left to those who ask for them */
    uint32_t gpu_count;
    struct policy_spec policy;    /* for trainings that name none */
    int64_t batch_ns;             /* urgent changes aside, changes within this time go together */
    int64_t settle_ns;            /* pause in growth after something has left */
    int64_t pending_ns;           /* after it a pod that no node takes is withdrawn */
    int64_t drain_ns;             /* after it a pod that was asked to leave is deleted */
    int64_t silent_ns;            /* after it a training without reports keeps its size */
    int64_t node_lost_ns;         /* after it pods of a node that is not ready are replaced */
    int32_t worker_gain_permille; /* least gain of one more worker, of a worker's share */
    int32_t ps_gain_permille;     /* least gain of one more parameter server, of the rate */
};

struct kube_memory; /* observations and measurements so far */

struct kube_memory *kube_memory_new(void); /* NULL: no memory */
struct kube_memory *kube_memory_free(struct kube_memory *memory);

/*
 * Notes that an action of this training failed: no earlier request is relied upon any more. The
 * caller that carries out plans calls it before the next kube_reconcile().
 */
void kube_memory_doubt(struct kube_memory *memory, const struct kube_etj *etj);

/* The API server's final answer to an action. */
struct kube_answer {
    enum kube_action_kind kind;
    enum kube_role role; /* for KUBE_CREATE_POD */
    uint32_t index;
    int code;         /* 0, -EINVAL, -EACCES, -EREMOTEIO; -EEXIST: somebody else has the name;
                         -ESHUTDOWN: the namespace is being deleted */
    const char *text; /* why it was refused, for a person */
};

/*
 * Notes the answer to an action of this training; @now_ns as in kube_world. After a refused
 * creation, the later creations of the plan are not expected either.
 */
void kube_memory_answer(struct kube_memory *memory, const struct kube_etj *etj,
                        const struct kube_answer *answer, int64_t now_ns);

void kube_plan_done(struct kube_plan *plan);

const char *kube_action_name(enum kube_action_kind kind); /* "create pod" */
