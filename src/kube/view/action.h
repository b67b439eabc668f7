/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes out of one look at the cluster: a plan, which is a list of actions. Also what the
 * controller remembers between two looks, as far as the outside sees it.
 *
 * Event loop's thread; read by the shell, the tests and the benchmark.
 */
#pragma once

#include "kube/view/world.h"
#include "policy/core/policy.h"

enum kube_action_kind {
    KUBE_ADD_FINALIZER,
    KUBE_REMOVE_FINALIZER,
    KUBE_CREATE_SERVICE, /* and the ConfigMap with our CA; they may be there already */
    KUBE_PATCH_STATUS,   /* all that is ours of it */
    KUBE_CREATE_POD,
    KUBE_ASK_LEAVE,   /* sets KUBE_ANNOTATION_LEAVE to the text */
    KUBE_RESIZE_POD,  /* pods/resize of KUBE_CONTAINER */
    KUBE_DELETE_POD,  /* of this UID */
    KUBE_SET_MEMBERS, /* what the chief is answered from now on */
    KUBE_EVENT,
    KUBE_ACTION_MAX
};

/* One parameter server or worker, as the chief is told. */
struct kube_member {
    const char *host; /* borrowed from the pod */
    uint32_t index;
    uint32_t threads; /* 0: the node follows its own container's limit */
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

/* What is made of a training's template. */
struct kube_new_pod {
    int64_t mcpu; /* of KUBE_CONTAINER in a worker: request and limit; 0: as the spec says */
    uint32_t index;
    enum kube_role role;
};

struct kube_action {
    enum kube_action_kind kind;
    const struct kube_etj *etj; /* borrowed from the world */
    const struct kube_pod *pod; /* of the pod's actions, but not CREATE_POD */
    union {
        struct kube_new_pod create;
        struct {
            int64_t mcpu;
        } resize;
        struct {
            int32_t grace_s; /* -1: the pod's own; 0: its node is gone, nothing of it runs */
        } delete;
        const struct kube_status *status;   /* the plan's */
        const struct kube_members *members; /* the plan's */
        struct {
            bool warning;
            const char *reason; /* CamelCase; static */
            const char *text;   /* the plan's; also of ASK_LEAVE */
        } note;
    };
};

struct kube_plan {
    struct kube_action *actions;
    size_t count;
    int64_t wakeup_ns; /* of now_ns: reconcile again then, if nothing happens; INT64_MAX: never */
    void *arena;       /* what the actions point to */
};

/* How a controller is set up; the same in every replica. */
struct kube_settings {
    struct policy_spec policy;    /* of trainings that name none */
    int64_t batch_ns;             /* changes nobody waits for are made together */
    int64_t settle_ns;            /* after something has left, until anything grows */
    int64_t pending_ns;           /* until a pod that no node takes is withdrawn */
    int64_t drain_ns;             /* until a pod that was asked to leave is deleted */
    int64_t silent_ns;            /* without a report a training counts as static */
    int64_t node_lost_ns;         /* until pods of a node that is not ready are replaced */
    int32_t worker_gain_permille; /* of a worker's share: what one more has to add to stay */
    int32_t ps_gain_permille;     /* of the rate: what one more parameter server has to add */
};

struct kube_memory; /* what was seen and measured so far */

struct kube_memory *kube_memory_new(void); /* NULL: no memory */
struct kube_memory *kube_memory_free(struct kube_memory *memory);

/*
 * An action of this training failed: nothing that was sent before is counted upon. To be called by
 * whoever carries the plan out, before the next kube_reconcile().
 */
void kube_memory_doubt(struct kube_memory *memory, const struct kube_etj *etj);

/* What the API server said of an action, for good. */
struct kube_answer {
    enum kube_action_kind kind;
    enum kube_role role; /* of KUBE_CREATE_POD */
    uint32_t index;
    int code;         /* 0, -EINVAL, -EACCES, -EREMOTEIO; -EEXIST: the name is somebody else's */
    const char *text; /* of a refusal, for a person */
};

/*
 * Of an action of this training; @now_ns as in kube_world. When something that was to be made was
 * refused, what was to be made after it is not counted upon either.
 */
void kube_memory_answer(struct kube_memory *memory, const struct kube_etj *etj,
                        const struct kube_answer *answer, int64_t now_ns);

void kube_plan_done(struct kube_plan *plan);

const char *kube_action_name(enum kube_action_kind kind); /* "create pod" */
