/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one reconcile: trainings with their pods, free room, actions so far. Its parts run
 * one after the other: view/ (who has which cores), capacity/ (free room), grow/ (which sizes pay,
 * how many pods, which come and go), core/ (a training's begin and end, its status). All of it lies
 * in the plan's arena and goes with it; only the records stay.
 *
 * Event loop's thread; used by the rooms of the controller's core alone.
 */
#pragma once

#include "kube/view/memory.h"

struct replica {
    const struct kube_pod *pod; /* NULL: expected */
    enum kube_role role;
    enum pod_state state;
    uint32_t index;
    uint32_t node; /* index into core.nodes; NOWHERE: none */
    int64_t mcpu;  /* request of KUBE_CONTAINER */
    int64_t since_ns;
    int64_t acted_ns;
    int64_t sized_mcpu;
    enum kube_node_state reported; /* by the present chief; KUBE_NODE_STATE_MAX: not reported */
    uint32_t threads;              /* acknowledged */
    uint32_t told_threads;         /* 0: the replica follows its container */
    int64_t gives_mcpu;            /* mcpu by which it shrinks for a foreign pod */
    bool gone;                     /* POD_LOST for good */
    bool victim;                   /* leaves to make room for a foreign pod */
    bool kept;                     /* a disruption budget forbids that it leaves */
    bool drops;                    /* this plan removes it */
};

enum aim {
    AIM_NOTHING, /* the spec is at fault: hands off */
    AIM_RUN,
    AIM_SUSPEND,
    AIM_REMOVE, /* the training is deleted */
    AIM_END     /* the training succeeded or failed */
};

/* The answer of Kueue to a training. */
enum queue_state {
    QUEUE_NONE,    /* it asks for no queue, or there is no Kueue */
    QUEUE_UNKNOWN, /* what runs goes on, and nothing begins */
    QUEUE_WAITS,   /* it gives everything back, or begins later */
    QUEUE_ADMITTED
};

struct job {
    const struct kube_etj *etj;
    const struct kube_workload *workload; /* its own; NULL: none */
    enum queue_state queue;
    const struct kube_report *report; /* of the present chief; NULL: none yet */
    struct memory_entry *entry;
    struct record *record;           /* a copy of the entry's */
    const struct kube_status *sends; /* the status that this plan sends; NULL: none */
    struct quota_scope *quota_scope;
    struct replica *replicas; /* by role, then index; expected ones at the end of their role */
    uint32_t replica_count;
    uint32_t replica_room;
    struct replica *chief; /* NULL: none */
    int32_t priority;      /* 0: the highest of its namespace; others are negative */
    enum aim aim;
    bool held;    /* the last plan's actions are under way: it gets no others */
    bool runs;    /* it has started, so it is not in the queue */
    bool silent;  /* no report for long: its size stays */
    bool starts;  /* this plan starts it */
    bool reports; /* its present chief has reported */
    bool begins;  /* it runs, but no chief uses its replicas yet: they come and go freely */
    bool keeps;   /* its size has just changed, so it gives no workers to others */
    bool rolled_back[KUBE_ROLE_MAX];
    bool wants_servers;          /* tries servers before its workers are judged */
    bool failed;                 /* its restarts exceed the limit */
    int32_t have[KUBE_ROLE_MAX]; /* pods that stay, expected ones included */
    int32_t want[KUBE_ROLE_MAX];
    int64_t held_mcpu;   /* of its workers that stay */
    int64_t want_mcpu;   /* for all of its workers */
    int64_t worker_mcpu; /* for each worker that can be resized */
    int64_t start_mcpu;  /* of the counted room, what its start takes; 0: it does not fit now */
    struct kube_demand demand[KUBE_ROLE_MAX];
    const char *zone; /* value of spec.topology.key where it runs; NULL: not known, or no key */
    uint32_t cursor[KUBE_ROLE_MAX]; /* for room_take(): no node before it has room */
    struct kube_status status;
    struct policy_reason why;
    char why_text[POLICY_TEXT_MAX];
    bool unpowered;             /* a node had room for one more pod, but not the watts */
    const char *lack;           /* why it cannot start or grow; NULL: it can */
    const char *trouble_reason; /* for condition Degraded; NULL: none */
    char trouble[KUBE_MESSAGE_MAX];
    struct fit_model model;
    bool has_model;
};

/* The rest that the quotas of one namespace leave. */
struct quota_scope {
    const char *name;
    struct kube_amount request_left; /* INT64_MAX: no limit */
    struct kube_amount limit_left;
};

struct node_capacity {
    const struct kube_node *node;
    struct kube_amount free; /* may be negative */
    int64_t unpowered_mcpu;  /* of its cores, those that its watts do not allow; no training grows
                                into them */
    struct kube_amount elastic; /* free, if every training shrank to its minimum */
    int64_t *extras;            /* free, one for each of the node's extras */
    struct kube_amount promise; /* additionally free once leaving and shrinking pods are done */
    bool usable;                /* ready, and takes pods */
    bool plain;                 /* has no taints that keep pods off */
    bool gpu;                   /* has a resource of settings.gpus */
    bool gpu_told;              /* its labels say so, too */
    int64_t elastic_mcpu;       /* of its workers that can be resized */
    int64_t leaving_mcpu;       /* of pods that will be gone in a moment */
};

struct core {
    const struct kube_settings *settings;
    const struct kube_world *world;
    struct kube_memory *memory;
    struct kube_plan *plan;
    size_t action_room;
    int64_t now_ns;
    int64_t wakeup_ns;
    struct node_capacity *nodes; /* by name */
    uint32_t node_count;
    bool capped; /* a node's watts do not allow all of its cores */
    struct name_map node_by_name;
    struct quota_scope *quota_scopes;
    uint32_t quota_scope_count;
    struct job *jobs; /* by their priority, then age, then UID */
    uint32_t job_count;
    struct name_map job_by_uid;
    struct name_map workload_by_owner; /* index into the world's */
    int32_t *budget;                   /* disruptions left in each budget of the world */
    bool others_wait;                  /* foreign pods wait for room that trainings use */
    int error;                         /* 0 or -ENOMEM; with -ENOMEM the plan is discarded */
    struct kube_action lost_action;    /* takes an action that there is no memory for */
    struct replica lost_replica;
};

/*
 * Zeroed memory that lives as long as the plan. NULL: core.error is set and stays set; the caller
 * returns, and kube_reconcile() gives up after the present phase.
 */
void *core_alloc(struct core *c, size_t count, size_t size);
void core_map(struct core *c, struct name_map *map, size_t count); /* with room for @count names */
void core_wake(struct core *c, int64_t at_ns);
/* Never NULL: without memory it is core.lost_action. */
struct kube_action *core_act(struct core *c, struct job *job, enum kube_action_kind kind,
                             struct replica *replica);
__attribute__((format(printf, 5, 6))) void core_event(struct core *c, struct job *job, bool warning,
                                                      const char *reason, const char *fmt, ...);
/* Whether the request of *acted_ns is to be sent (again); if so, notes the present time there. */
bool core_due(struct core *c, int64_t *acted_ns);
bool core_once(struct core *c, struct replica *replica); /* the same for requests about a pod */
/* Whether to send @what again, which we sent at @since_ns and somebody else has changed since. The
 * delay doubles, so that two opponents do not keep each other busy. */
bool core_again(struct core *c, struct job *job, int64_t since_ns, const char *what);

/* queue.c */
void queue_find(struct core *c);
const struct kube_workload *queue_workload(const struct core *c, const struct kube_etj *etj);
enum queue_state queue_state(const struct core *c, const struct kube_etj *etj);
const struct kube_flavor *queue_flavor(const struct core *c, const char *name); /* NULL: none */
/* The most pods of the role that a queue has admitted; INT32_MAX: no queue bounds them. */
int32_t queue_most(const struct job *job, enum kube_role role);

/* trainings.c */
void view_build(struct core *c);
/* Never NULL: without memory it is core.lost_replica. */
struct replica *view_add_replica(struct core *c, struct job *job, enum kube_role role,
                                 uint32_t index);
void view_count(struct job *job);
bool replica_stays(const struct replica *replica); /* serves or will serve, and is not to leave */
const struct kube_task *job_task(const struct job *job, enum kube_role role);
bool job_is_resized(const struct job *job); /* its workers have room to be resized in place */
/*
 * Stores the records for the next view_build(). Allocates everything first, so that it stores all
 * or nothing. Returns 0 or -ENOMEM.
 */
int memory_store(struct core *c);

/* refusal.c: actions that the API server refuses */
void refused_forget(struct core *c, struct job *job); /* drops refusals that no longer hold */
/* Whether a refusal is too recent for another try. */
bool refused_now(struct core *c, const struct job *job, enum refused slot);
/* Whether a pod of this role may be created: nothing that it rests on was refused lately. */
bool refused_allow(struct core *c, const struct job *job, enum kube_role role);
void refused_tell(struct job *job); /* makes the first refusal the training's trouble */
