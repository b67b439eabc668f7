/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One look at the cluster in the making: the trainings with their pods, the room there is, the
 * actions so far. Its parts run one after the other: view/ (who has what), capacity/ (what is
 * free), grow/ (what pays, how many of what, which nodes come and go), core/ (begin and end of a
 * training, what to say). All of it lies in the plan's arena, and but for the records nothing of it
 * stays.
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
    uint32_t node; /* in the room; NOWHERE: none */
    int64_t mcpu;  /* of KUBE_CONTAINER: asked for */
    int64_t since_ns;
    int64_t acted_ns;
    int64_t sized_mcpu;
    enum kube_node_state reported; /* by the present chief; KUBE_NODE_STATE_MAX: not */
    uint32_t threads;              /* acknowledged */
    uint32_t told_threads;         /* 0: the node follows its container */
    int64_t gives_mcpu;            /* so much smaller it gets, for somebody else's pod */
    bool gone;                     /* LOST for good */
    bool victim;                   /* gives its room to somebody else's pod */
    bool kept;                     /* by a disruption budget */
    bool drops;                    /* this plan takes it out */
};

enum aim {
    AIM_NOTHING, /* the spec is at fault: hands off */
    AIM_RUN,
    AIM_SUSPEND,
    AIM_REMOVE, /* it is deleted */
    AIM_END     /* it succeeded or failed */
};

struct job {
    const struct kube_etj *etj;
    const struct kube_report *report; /* of the present chief; NULL: none yet */
    struct memory_entry *entry;
    struct record *record;           /* a copy of the entry's */
    const struct kube_status *sends; /* this plan does; NULL: none */
    struct quota_scope *quota_scope;
    struct replica *replicas; /* by role, then index; expected ones at the end of their role */
    uint32_t replica_count;
    uint32_t replica_room;
    struct replica *chief; /* NULL: none */
    int32_t priority;      /* 0: the highest of its namespace; the others are below */
    enum aim aim;
    bool held;    /* the last plan's actions are under way: there are no others */
    bool runs;    /* a chief exists or existed: it is not in the queue */
    bool silent;  /* no report for long: its size stays */
    bool starts;  /* this plan begins it */
    bool reports; /* its present chief does */
    bool begins;  /* it runs, and no chief works with its nodes yet: they come and go freely */
    bool rolled_back[KUBE_ROLE_MAX];
    bool wants_servers;          /* before it is said that its workers do not pay */
    bool failed;                 /* more restarts than it may have */
    int32_t have[KUBE_ROLE_MAX]; /* that stay, expected ones included */
    int32_t want[KUBE_ROLE_MAX];
    int64_t held_mcpu;              /* of its workers that stay */
    int64_t want_mcpu;              /* for all of its workers */
    int64_t worker_mcpu;            /* each, when they can be resized */
    uint32_t cursor[KUBE_ROLE_MAX]; /* of room_take(): no node before it has room */
    struct kube_status status;
    struct policy_reason why;
    char why_text[POLICY_TEXT_MAX];
    const char *lack;           /* what stops it from starting or growing; NULL: nothing */
    const char *trouble_reason; /* for condition Degraded; NULL: none */
    char trouble[KUBE_MESSAGE_MAX];
    struct fit_model model;
    bool has_model;
};

/* What a namespace's quotas leave. */
struct quota_scope {
    const char *name;
    struct kube_amount request_left; /* INT64_MAX: no limit */
    struct kube_amount limit_left;
};

struct node_capacity {
    const struct kube_node *node;
    struct kube_amount free;    /* may be negative */
    struct kube_amount elastic; /* free, once every training has its least */
    int64_t *extras;            /* free, of the node's */
    struct kube_amount promise; /* more, once those have left who were asked to */
    bool usable;                /* ready, and takes pods */
    bool plain;                 /* without taints that keep pods off */
    int64_t elastic_mcpu;       /* of its workers that can be resized */
};

struct name_map {
    const char **key;
    uint32_t *value;
    uint32_t mask;
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
    struct name_map node_by_name;
    struct quota_scope *quota_scopes;
    uint32_t quota_scope_count;
    struct job *jobs; /* by their priority, then age, then UID */
    uint32_t job_count;
    struct name_map job_by_uid;
    int32_t *budget;                /* what is left of each of the world's */
    bool others_wait;               /* somebody's pods wait for room that trainings use */
    int error;                      /* 0 or -ENOMEM: then the plan is not used, whatever is in it */
    struct kube_action lost_action; /* where one goes that there is no memory for */
    struct replica lost_replica;
};

/*
 * Zeroed memory that lives as long as the plan. NULL: core.error is set and stays; the caller
 * returns, and kube_reconcile() gives up after the phase that it is in.
 */
void *core_alloc(struct core *c, size_t count, size_t size);
void core_wake(struct core *c, int64_t at_ns);
/* Never NULL: without memory it is core.lost_action. */
struct kube_action *core_act(struct core *c, struct job *job, enum kube_action_kind kind,
                             struct replica *replica);
__attribute__((format(printf, 5, 6))) void core_event(struct core *c, struct job *job, bool warning,
                                                      const char *reason, const char *fmt, ...);
/* Whether what was sent at *acted_ns is to be sent again; notes that it is sent now. */
bool core_due(struct core *c, int64_t *acted_ns);
bool core_once(struct core *c, struct replica *replica); /* the same, of what is done to a pod */
/* Whether @what, sent at @since_ns and changed since by somebody else, is sent again: it takes ever
 * longer, so that two who want different things do not keep each other busy. */
bool core_again(struct core *c, struct job *job, int64_t since_ns, const char *what);

uint32_t name_hash(const char *key); /* FNV-1a */
void name_map_init(struct core *c, struct name_map *map, size_t count);
void name_map_put(struct name_map *map, const char *key, uint32_t value);
uint32_t name_map_get(const struct name_map *map, const char *key); /* or NOWHERE */

/* trainings.c */
void view_build(struct core *c);
/* Never NULL: without memory it is core.lost_replica. */
struct replica *view_add_replica(struct core *c, struct job *job, enum kube_role role,
                                 uint32_t index);
void view_count(struct job *job);
bool replica_stays(const struct replica *replica); /* serves, or will, and was not asked to go */
const struct kube_task *job_task(const struct job *job, enum kube_role role);
/*
 * What view_build() wants next time: first the memory for it, then nothing that can fail.
 * 0 or -ENOMEM, then nothing is stored.
 */
int memory_store(struct core *c);

/* refusal.c: what the API server will not have */
void refused_forget(struct core *c, struct job *job);                       /* what is over */
bool refused_now(struct core *c, const struct job *job, enum refused slot); /* leave it alone */
/* Whether a pod of this role may be made: nothing that it rests on was refused lately. */
bool refused_allow(struct core *c, const struct job *job, enum kube_role role);
void refused_tell(struct job *job);
