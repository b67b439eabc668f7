/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of the API server as plain structs: nodes, pods, trainings (ElasticTrainingJob, "etj"),
 * quotas, disruption budgets and chiefs' reports, as far as the controller reads them.
 *
 * x_parse() turns an object's JSON into a struct, in one allocated block per field. The struct
 * keeps no reference to the JSON, except the templates of an etj. A wrong value in an etj or a
 * report is a fault, with a text that names the field. Other objects exist anyhow, so they are read
 * without the wrong value. x_free() takes NULL.
 *
 * Event loop's thread; made by object_cache.c and chiefs_channel.c, read by everything of src/kube.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KUBE_GROUP     "threadtide.io"
#define KUBE_VERSION   "v1alpha1"
#define KUBE_KIND      "ElasticTrainingJob"
#define KUBE_PLURAL    "elastictrainingjobs"
#define KUBE_FINALIZER KUBE_GROUP "/drain"

/* Kueue: its group, and the labels of a training that ask for its queue. */
#define KUBE_KUEUE_GROUP          "kueue.x-k8s.io"
#define KUBE_LABEL_QUEUE          KUBE_KUEUE_GROUP "/queue-name"
#define KUBE_LABEL_QUEUE_PRIORITY KUBE_KUEUE_GROUP "/priority-class"

/*
 * On a node: the cores that its watts allow (a quantity), and until when (RFC 3339; absent:
 * always). Trainings do not grow beyond it. Whoever may annotate nodes writes it: the node's
 * tide-power, or a person.
 */
#define KUBE_ANNOTATION_POWER_CPU   KUBE_GROUP "/power-cpu"
#define KUBE_ANNOTATION_POWER_UNTIL KUBE_GROUP "/power-until"
#define KUBE_ANNOTATION_POWER_CAP   KUBE_GROUP "/power-cap"  /* watts, for people */
#define KUBE_ANNOTATION_POWER_DRAW  KUBE_GROUP "/power-draw" /* watts when it was written */

/* A node's label, by which affinity names nodes. */
#define KUBE_LABEL_HOSTNAME "kubernetes.io/hostname"

/* Labels that say whose a pod is; the annotation asks it to leave, and its value says why. */
#define KUBE_LABEL_JOB        KUBE_GROUP "/job"
#define KUBE_LABEL_ROLE       KUBE_GROUP "/role"
#define KUBE_LABEL_INDEX      KUBE_GROUP "/index"
#define KUBE_ANNOTATION_LEAVE KUBE_GROUP "/leave"

/* The CPU limit that a worker's pod was made with, until the worker is in the training. */
#define KUBE_ANNOTATION_START KUBE_GROUP "/start-cpu"

/* On a training's Workload: what it asks for, as a hash; and that its training is paused. */
#define KUBE_ANNOTATION_ASKS   KUBE_GROUP "/asks"
#define KUBE_ANNOTATION_PAUSED KUBE_GROUP "/paused"

#define KUBE_CONTAINER    "tide" /* a pod's container that trains; the others are the user's */
#define KUBE_PORT         2222
#define KUBE_CONTROL_PORT 2223

/* Limits of what an object can make us allocate. */
#define KUBE_NAME_MAX    253
#define KUBE_LIST_MAX    1000       /* labels, taints, terms, values, containers, … of one list */
#define KUBE_TEXT_MAX    4096       /* bytes of one string that is kept */
#define KUBE_TASKS_MAX   1000       /* workers, or parameter servers, of one training */
#define KUBE_SLOTS_MAX   4096       /* slots of a synchronous training */
#define KUBE_INDEX_MAX   1000000000 /* of a pod */
#define KUBE_MESSAGE_MAX 256        /* of a message in a status, and NUL */
#define KUBE_REASON_MAX  48         /* of a reason in CamelCase, and NUL */
#define KUBE_PAUSES_MAX  64         /* in one report */

struct kube_meta {
    char *namespace; /* "" of a node */
    char *name;
    char *uid;
    int64_t generation;
    int64_t created_ns; /* since 1970 */
    int64_t deleted_ns; /* when deletion was asked for; 0: not */
};

/* An amount that is requested or available. */
struct kube_amount {
    int64_t mcpu;
    int64_t bytes;
    int64_t pods;
};

/* An amount of any other resource: GPUs, huge pages, disk. */
struct kube_extra {
    char *name;
    int64_t amount;
};

struct kube_extras {
    struct kube_extra *at;
    uint32_t count;
};

struct kube_label {
    char *key;
    char *value;
};

struct kube_labels {
    struct kube_label *at;
    uint32_t count;
};

/* ---- where pods may run ---------------------------------------------------------------------- */

enum kube_effect {
    KUBE_NO_SCHEDULE,
    KUBE_PREFER_NO_SCHEDULE,
    KUBE_NO_EXECUTE,
    KUBE_EFFECT_ANY, /* of a toleration */
    KUBE_EFFECT_MAX
};

struct kube_taint {
    char *key;
    char *value;
    enum kube_effect effect;
};

struct kube_toleration {
    char *key;   /* "": every key */
    char *value; /* NULL: the key has to exist, with any value */
    enum kube_effect effect;
};

enum kube_operator {
    KUBE_IN,
    KUBE_NOT_IN,
    KUBE_EXISTS,
    KUBE_DOES_NOT_EXIST,
    KUBE_GT,
    KUBE_LT,
    KUBE_OPERATOR_MAX
};

struct kube_requirement {
    char *key;
    char **values;
    uint32_t value_count;
    enum kube_operator op;
    bool field; /* of metadata.name instead of a label */
};

/* Matches if all of its requirements do. */
struct kube_term {
    struct kube_requirement *at;
    uint32_t count;
};

/* A pod's requirements on its node; preferences are the scheduler's business. */
struct kube_place {
    struct kube_labels selector; /* nodeSelector */
    struct kube_term *terms;     /* required node affinity: one of them has to match */
    struct kube_toleration *tolerations;
    uint32_t term_count;
    uint32_t toleration_count;
    char *node_name; /* spec.nodeName of a pod that the scheduler does not place; mostly NULL */
};

struct kube_node {
    struct kube_meta meta;
    struct kube_amount allocatable;
    struct kube_extras extras; /* allocatable */
    struct kube_labels labels;
    struct kube_taint *taints;
    uint32_t taint_count;
    bool capped;            /* its watts allow power_mcpu alone … */
    int64_t power_mcpu;     /* … until power_until_ns */
    int64_t power_until_ns; /* since 1970; 0: without end */
    bool unschedulable;
    bool ready;
};

/* ---- pods ------------------------------------------------------------------------------------ */

enum kube_role { KUBE_CHIEF, KUBE_PS, KUBE_WORKER, KUBE_ROLE_MAX };

enum kube_pod_phase {
    KUBE_POD_PENDING,
    KUBE_POD_RUNNING,
    KUBE_POD_SUCCEEDED,
    KUBE_POD_FAILED,
    KUBE_POD_UNKNOWN,
    KUBE_POD_PHASE_MAX
};

/* The state of a resize in place. */
enum kube_resize {
    KUBE_RESIZE_NONE,
    KUBE_RESIZE_IN_PROGRESS,
    KUBE_RESIZE_DEFERRED,   /* the node has no room now */
    KUBE_RESIZE_INFEASIBLE, /* the node will never have room */
    KUBE_RESIZE_MAX
};

struct kube_pod {
    struct kube_meta meta;
    char *node;      /* NULL: not scheduled yet */
    char *owner_uid; /* of the controlling owner; NULL: none */
    char *job;       /* name of the training it belongs to by its labels; NULL: somebody else's */
    char *ip;        /* NULL: none yet */
    char *trouble;   /* why a container does not start: "ImagePullBackOff"; NULL: nothing known */
    char *message;   /* explains the trouble, or why it is not scheduled; may be NULL */
    char *leave;     /* KUBE_ANNOTATION_LEAVE; NULL: stays */
    struct kube_labels labels;  /* only kept for a training's pod */
    struct kube_place place;    /* only kept until the pod is scheduled */
    struct kube_amount request; /* of all containers, init containers and overhead, as scheduled */
    struct kube_amount limit;   /* the same; mcpu and bytes 0 where a container has none */
    struct kube_extras extras;  /* that its containers ask for */
    int64_t mcpu;               /* request of the container KUBE_CONTAINER */
    int64_t limit_mcpu;         /* its limit; 0: none */
    int64_t actual_mcpu;        /* what the node gives it now; 0: not known */
    int64_t actual_limit_mcpu;  /* the same of its limit */
    int64_t start_mcpu;         /* KUBE_ANNOTATION_START; 0: none */
    int64_t started_ns;         /* of the pod on its node, since 1970; 0: not yet */
    int64_t finished_ns;        /* when the last of its containers ended; 0: not */
    uint32_t index;             /* of a training's pod */
    int32_t priority;
    int32_t exit_code; /* of KUBE_CONTAINER, once that has ended */
    enum kube_role role;
    enum kube_pod_phase phase;
    enum kube_resize resize;
    bool ready;
    bool unschedulable; /* the scheduler has found no node */
    bool gated;         /* a scheduling gate keeps the scheduler off */
};

/* ---- trainings ------------------------------------------------------------------------------- */

enum kube_mode { KUBE_SYNC, KUBE_ASYNC, KUBE_MODE_MAX };

/* How close to the chief its servers and workers shall be. */
enum kube_closeness { KUBE_PREFER, KUBE_REQUIRE, KUBE_CLOSENESS_MAX };

enum kube_phase {
    KUBE_PENDING,    /* waits for room */
    KUBE_STARTING,   /* its pods begin */
    KUBE_RUNNING,    /* its chief reports */
    KUBE_SUSPENDING, /* drains, as spec.suspend demands */
    KUBE_SUSPENDED,
    KUBE_SUCCEEDED,
    KUBE_FAILED,
    KUBE_TERMINATING, /* drains, since it is deleted */
    KUBE_INVALID,     /* its spec cannot be carried out: nothing was created */
    KUBE_PHASE_MAX
};

enum kube_condition_type {
    KUBE_ACCEPTED,     /* the spec can be carried out */
    KUBE_READY,        /* chief and the minimum of servers and workers are in the training */
    KUBE_PROGRESSING,  /* steps are made */
    KUBE_DEGRADED,     /* a person should know of some trouble */
    KUBE_COMPLETE,     /* ended: reason Succeeded or Failed */
    KUBE_IS_SUSPENDED, /* everything is given back, to go on later */
    KUBE_CONDITION_MAX
};

enum kube_truth { KUBE_UNKNOWN, KUBE_FALSE, KUBE_TRUE, KUBE_TRUTH_MAX };

struct kube_condition {
    enum kube_truth status;
    char reason[KUBE_REASON_MAX];
    char message[KUBE_MESSAGE_MAX];
    int64_t since_ns;   /* lastTransitionTime; 0: never set */
    int64_t generation; /* observedGeneration */
};

/* The numbers of parameter servers, or of workers. */
struct kube_count {
    int64_t next_index; /* never used yet; no lower one is used again */
    int32_t desired;
    int32_t actual; /* pods that are not on their way out */
    int32_t ready;  /* in the training */
};

struct kube_progress {
    uint64_t step;
    uint64_t epoch;
    uint64_t examples;
    double loss; /* NAN: not known */
    double examples_per_s;
    double step_s;
    uint32_t compute_permille;
    uint32_t communication_permille;
};

#define KUBE_SIZES_MAX 64

/* A size that a training had. */
struct kube_size {
    int64_t since_ns; /* since 1970, whole seconds */
    int32_t ps, workers;
};

/* The status that the controller writes, and reads back after a restart. */
struct kube_status {
    int64_t observed_generation;
    int64_t members_generation;
    uint64_t members_hash;      /* of the members that generation stands for */
    int64_t progress_ns;        /* when the progress was written, since 1970 */
    int32_t restarts;           /* of the chief, after failures */
    int32_t efficiency_percent; /* of a linear speed-up; -1: not known */
    enum kube_phase phase;
    bool has_progress;
    char failed_uid[KUBE_NAME_MAX + 1]; /* the last chief pod that counted as a restart */
    char reason[KUBE_REASON_MAX];
    char message[KUBE_MESSAGE_MAX];
    struct kube_condition conditions[KUBE_CONDITION_MAX];
    struct kube_count ps;
    struct kube_count worker;
    struct kube_progress progress;
    struct kube_size sizes[KUBE_SIZES_MAX]; /* the newest last; the oldest are dropped */
    uint32_t size_count;
};

/* The spec's part for parameter servers, workers or the chief. */
struct kube_task {
    int32_t min;
    int32_t max;
    struct kube_amount request; /* of one pod, everything in the template included */
    struct kube_amount limit;
    int64_t mcpu; /* of KUBE_CONTAINER in it */
    int64_t limit_mcpu;
    struct kube_place place;
    struct kube_extras extras; /* of its containers: GPUs, for instance */
    json_t *template;          /* metadata and spec of a pod, as the user wrote it; NULL: none */
    json_t *resources;         /* of KUBE_CONTAINER; NULL: none */
};

struct kube_etj {
    struct kube_meta meta;
    char *version; /* of the object; NULL: it does not say */
    char *fault;   /* why the spec cannot be carried out; then only meta and status count */
    char *image;
    char *policy;         /* as written, "": the cluster's default */
    char *priority_class; /* "": none */
    char *queue;          /* KUBE_LABEL_QUEUE; "": none */
    char *queue_priority; /* KUBE_LABEL_QUEUE_PRIORITY; "": none */
    uint64_t asks;        /* hash of what a queue is asked for: another one needs a new admission */
    json_t *command;      /* arrays of strings; NULL: none */
    json_t *args;
    json_t *env; /* array, as in a container */
    struct kube_task task[KUBE_ROLE_MAX];
    int64_t worker_mcpu_min;   /* least size of a worker by resizes in place … */
    int64_t worker_mcpu_max;   /* … and largest; both task[KUBE_WORKER].mcpu: no resizes */
    int64_t worker_start_mcpu; /* limit of a worker until it is in the training; 0: as always */
    struct kube_amount quota;  /* limit of all its pods' requests together; 0: no limit */
    int64_t checkpoint_interval_s;
    char *checkpoint_path; /* "": none */
    int32_t replicas;      /* workers, pinned by a person; 0: the policy decides */
    int32_t slots;
    int32_t priority;
    int32_t backoff_limit;
    int32_t finalizer; /* index of ours among its finalizers; -1: ours is missing */
    enum kube_mode mode;
    char *
        topology_key; /* label of nodes whose value they shall share with the chief's; NULL: none */
    enum kube_closeness closeness;
    bool gpu_nodes; /* also onto nodes with GPUs that it does not ask for */
    bool suspend;
    struct kube_status status;
};

/* ---- limits that others set ------------------------------------------------------------------ */

struct kube_quota {
    struct kube_meta meta;
    struct kube_amount request_left; /* hard - used; INT64_MAX: not limited; may be negative */
    struct kube_amount limit_left;   /* of limits.cpu and limits.memory; pods unused */
    bool scoped;                     /* counts only some pods, and ours may not be among them */
};

struct kube_pdb {
    struct kube_meta meta;
    struct kube_term selector; /* every requirement; none: every pod of the namespace */
    bool nothing;              /* no selector at all: selects no pod */
    int32_t allowed;           /* disruptions allowed now */
};

/* ---- Kueue ----------------------------------------------------------------------------------- */

/* The queue's answer for the pods of one role. */
struct kube_assignment {
    int32_t count;  /* pods that it admits; -1: it does not say */
    char **flavors; /* of each resource; they may repeat */
    uint32_t flavor_count;
    struct kube_place place; /* nodeSelector and tolerations that its checks add */
};

/* A training's place in a queue. */
struct kube_workload {
    struct kube_meta meta;
    char *version;
    char *owner_uid;     /* of the controlling owner; NULL: none */
    char *cluster_queue; /* that has admitted it; "": none */
    char *why;           /* why it waits, or was evicted, for a person; "": nothing is known */
    char *evicted_for;   /* "Preempted", … */
    uint64_t asks;       /* KUBE_ANNOTATION_ASKS */
    json_t *conditions;  /* array; NULL: none */
    struct kube_assignment assignment[KUBE_ROLE_MAX];
    bool active; /* may be admitted */
    bool paused; /* it is not active since its training is paused */
    bool reserved;
    bool admitted;
    bool evicted;
    bool finished;
    bool pods_ready;
};

/* Nodes that a queue hands out. */
struct kube_flavor {
    struct kube_meta meta;
    struct kube_place place; /* its labels as a selector, and tolerations */
};

/* A PriorityClass, or Kueue's WorkloadPriorityClass. */
struct kube_class {
    struct kube_meta meta;
    int32_t value;
    bool standard; /* of pods that name none */
};

/* ---- reports --------------------------------------------------------------------------------- */

enum kube_node_state {
    KUBE_NODE_JOINING,
    KUBE_NODE_IN,
    KUBE_NODE_DRAINING,
    KUBE_NODE_RELEASED,
    KUBE_NODE_LOST,
    KUBE_NODE_STATE_MAX
};

/* The chief's report of one replica. */
struct kube_reported_node {
    enum kube_role role;
    enum kube_node_state state;
    uint32_t index;
    uint32_t threads; /* that it acknowledged; 0: not known */
};

/* The last report of a training's chief. */
struct kube_report {
    int64_t at_ns;   /* the receiver's clock, as kube_world.now_ns */
    char *namespace; /* both set by the receiver, not by kube_report_parse() */
    char *job;
    char *chief_uid; /* of the chief's pod; set by the receiver, too */
    struct kube_reported_node *nodes;
    uint32_t node_count;
    uint32_t pauses_ms[KUBE_PAUSES_MAX]; /* since the report before */
    uint32_t pause_count;
    uint64_t duplicates;
    struct kube_progress progress;
    bool finished;
};

/* ---- functions ------------------------------------------------------------------------------- */

/*
 * Parse one object. Return 0, -EINVAL (wrong metadata: *err, may be NULL, names the field) or
 * -ENOMEM. An etj with a wrong spec is returned with ->fault set.
 */
int kube_node_parse(const json_t *json, struct kube_node **ret, struct error *err);
int kube_pod_parse(const json_t *json, struct kube_pod **ret, struct error *err);
int kube_etj_parse(const json_t *json, struct kube_etj **ret, struct error *err);
int kube_quota_parse(const json_t *json, struct kube_quota **ret, struct error *err);
int kube_pdb_parse(const json_t *json, struct kube_pdb **ret, struct error *err);
int kube_workload_parse(const json_t *json, struct kube_workload **ret, struct error *err);
int kube_flavor_parse(const json_t *json, struct kube_flavor **ret, struct error *err);
int kube_class_parse(const json_t *json, struct kube_class **ret, struct error *err);

/* Parses the body of POST /v1/jobs/NAMESPACE/NAME/report; the receiver sets the names in it. */
int kube_report_parse(const json_t *json, struct kube_report **ret, struct error *err);

struct kube_node *kube_node_free(struct kube_node *node);
struct kube_pod *kube_pod_free(struct kube_pod *pod);
struct kube_etj *kube_etj_free(struct kube_etj *etj);
struct kube_quota *kube_quota_free(struct kube_quota *quota);
struct kube_pdb *kube_pdb_free(struct kube_pdb *pdb);
struct kube_workload *kube_workload_free(struct kube_workload *workload);
struct kube_flavor *kube_flavor_free(struct kube_flavor *flavor);
struct kube_class *kube_class_free(struct kube_class *class);
struct kube_report *kube_report_free(struct kube_report *report);

const char *kube_role_name(enum kube_role role);                /* "chief", "ps", "worker" */
const char *kube_phase_name(enum kube_phase phase);             /* "Running" */
const char *kube_mode_name(enum kube_mode mode);                /* "sync" */
const char *kube_condition_name(enum kube_condition_type type); /* "Ready" */
