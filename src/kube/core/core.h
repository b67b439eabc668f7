/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One reconcile in the making: the trainings with their pods, the room there is, the actions so
 * far. Its parts run one after the other: view.c (who has what), room.c (what is free), learn.c
 * (what pays), counts.c (how many of what), life.c and scale.c (what to do), status.c (what to
 * say). All of it lies in the plan's arena, and but for the records nothing of it stays.
 *
 * Private to these files; event loop's thread.
 */
#pragma once

#include "kube/core/reconcile.h"
#include "policy/model/fit.h"

#include <setjmp.h>

#define NOWHERE     UINT32_MAX
#define NS_PER_S    INT64_C(1000000000)
#define FOREVER     INT64_MAX
#define ECHO_NS     (5 * NS_PER_S)   /* until what was sent, and is not seen, is sent again */
#define PATIENCE_NS (60 * NS_PER_S)  /* with what may never happen: a node that joins, a step */
#define CEILING_NS  (600 * NS_PER_S) /* what did not pay is not tried again so soon */

/* ---- what is remembered ---------------------------------------------------------------------- */

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
struct seat_record {
    enum kube_role role;
    enum pod_state state;
    uint32_t index;
    int64_t mcpu;       /* of one that is expected */
    int64_t since_ns;   /* in this state */
    int64_t acted_ns;   /* when something was last sent about it in this state; 0: not yet */
    int64_t sized_mcpu; /* what was last asked for; 0: nothing */
};

/* A number of workers or parameter servers that is being tried, or was. */
struct trial {
    int32_t from, to;  /* to 0: none under way */
    int32_t top;       /* was too many, it seems: it is compared with to; 0: none */
    int32_t ceiling;   /* more did not pay; 0: none */
    int32_t above;     /* the ceiling that top had */
    uint64_t rate;     /* before it; 0: nobody knows */
    uint64_t top_rate; /* with top */
    int64_t until_ns;  /* the ceiling holds */
    int64_t hold_ns;   /* how long the last one did */
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

/* A training, from one reconcile to the next. */
struct record {
    struct record *next;
    char *uid;
    bool seen;      /* in this reconcile */
    bool announced; /* its service was sent, and the ConfigMap for … */
    bool warm;      /* it has worked for a while with the size that it has */
    struct seat_record *seats;
    uint32_t seat_count;
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
    struct kube_status *sent; /* the last status; NULL: none yet */
    int64_t status_ns;        /* when */
    int64_t shrink_ns;        /* since when threads are to go before their cores; 0: none */
    int64_t let_go_ns;        /* when our finalizer was last taken out; 0: not yet */
    uint64_t trust;           /* … this kube_world.trust */
    int64_t no_resize_ns;     /* until then nothing is resized: a node said no */
    int64_t finalizer_ns;     /* when it was sent; 0: not yet */
    int64_t contest_ns;       /* when something was last written that somebody had changed */
    int32_t contests;         /* how often, in a row */
    const char *contested;    /* what; static */
};

#define MEMORY_BUCKETS 256

struct kube_memory {
    struct record *bucket[MEMORY_BUCKETS];
};

/* The record of a training, made if there is none; NULL: no memory. */
struct record *memory_record(struct kube_memory *memory, const char *uid);
void memory_sweep(struct kube_memory *memory); /* forgets those that were not seen */

/* ---- one reconcile --------------------------------------------------------------------------- */

struct seat {
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
    struct record *record;
    struct space *space;
    struct seat *seats; /* by role, then index; expected ones at the end of their role */
    uint32_t seat_count;
    uint32_t seat_room;
    struct seat *chief; /* NULL: none */
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
    uint32_t cursor[KUBE_ROLE_MAX]; /* of room_take(): no spot before it has room */
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
struct space {
    const char *name;
    struct kube_amount request_left; /* INT64_MAX: no limit */
    struct kube_amount limit_left;
};

struct spot {
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
    struct spot *spots; /* by name */
    uint32_t spot_count;
    struct name_map spot_by_name;
    struct space *spaces;
    uint32_t space_count;
    struct job *jobs; /* by priority, then age, then UID */
    uint32_t job_count;
    struct name_map job_by_uid;
    int32_t *budget;  /* what is left of each of the world's */
    bool others_wait; /* somebody's pods wait for room that trainings use */
    jmp_buf out_of_memory;
};

/* Zeroed memory that lives as long as the plan. Does not return without. */
void *core_alloc(struct core *c, size_t count, size_t size);
void core_wake(struct core *c, int64_t at_ns);
struct kube_action *core_act(struct core *c, struct job *job, enum kube_action_kind kind,
                             struct seat *seat);
__attribute__((format(printf, 5, 6))) void core_event(struct core *c, struct job *job, bool warning,
                                                      const char *reason, const char *fmt, ...);
/* Whether what was sent at *acted_ns is to be sent again; notes that it is sent now. */
bool core_due(struct core *c, int64_t *acted_ns);
bool core_once(struct core *c, struct seat *seat); /* the same, of what is done to a pod */
/* Whether @what, sent at @since_ns and changed since by somebody else, is sent again: it takes ever
 * longer, so that two who want different things do not keep each other busy. */
bool core_again(struct core *c, struct job *job, int64_t since_ns, const char *what);

void name_map_init(struct core *c, struct name_map *map, size_t count);
void name_map_put(struct name_map *map, const char *key, uint32_t value);
uint32_t name_map_get(const struct name_map *map, const char *key); /* or NOWHERE */

/* view.c */
void view_build(struct core *c);
struct seat *view_add_seat(struct core *c, struct job *job, enum kube_role role, uint32_t index);
void view_count(struct job *job);
bool seat_stays(const struct seat *seat); /* serves, or will, and was not asked to go */
const struct kube_task *job_task(const struct job *job, enum kube_role role);
void memory_store(struct core *c); /* what view_build() wants next time */

/* room.c */
void room_build(struct core *c);
void room_count_trainings(struct core *c); /* what those of their pods need that have no node yet */
void room_count_elastic(struct core *c);   /* what there would be beside minima alone */
/* The most pods of such a role that could be added, up to @most, if others gave way. */
int64_t room_count(const struct core *c, const struct job *job, enum kube_role role, int64_t most);
/* Takes room for one more, on a node and of the quotas. */
bool room_take(struct core *c, struct job *job, enum kube_role role, uint32_t *ret_spot);
void room_give_back(struct core *c, struct job *job, enum kube_role role, uint32_t spot);
bool room_in(const struct kube_amount *free, const struct kube_amount *need);
bool room_has_extras(const struct spot *spot, const struct kube_pod *pod);
void room_take_extras(struct spot *spot, const struct kube_pod *pod);

/* place.c */
bool place_admits(const struct kube_place *place, const struct spot *spot);
bool labels_match(const struct kube_labels *labels, const struct kube_term *term, const char *name);

/* others.c: what others wait for is kept free, and our surplus leaves where that is needed */
void others_serve(struct core *c);

/* learn.c */
void learn(struct core *c, struct job *job);
void learn_judge(struct core *c, struct job *job); /* whether what was tried pays */
int32_t learn_ps(struct core *c, struct job *job); /* how many parameter servers it should have */
int32_t learn_most(struct core *c, const struct job *job, enum kube_role role); /* that may pay */
int32_t learn_useful(const struct job *job, int32_t workers); /* so many do as much as @workers */
/* The next number that does more; INT32_MAX: there is none. */
int32_t learn_next_useful(const struct job *job, int32_t workers);
/* @want, or what there is, until it is time to grow. */
int32_t learn_step(struct core *c, struct job *job, int32_t want);
void learn_changed(struct core *c, struct job *job, enum kube_role role, int32_t from, int32_t to);
void learn_hold(struct core *c, struct job *job, enum kube_role role, int32_t ceiling);
/* Its speed with 1 … @count workers, in thousandths of one worker's; it must have a model. */
void learn_curve(const struct job *job, uint32_t count, uint32_t *ret_table);
int32_t learn_efficiency(struct core *c, const struct job *job); /* percent; -1: not known */

/* counts.c */
void counts_decide(struct core *c);

/* life.c: begin, restart and end of a training */
void life_aim(struct core *c, struct job *job);
void life_act(struct core *c, struct job *job);

/* scale.c: nodes come and go */
bool scale_start(struct core *c, struct job *job); /* all of the least, or nothing */
void scale_create(struct core *c, struct job *job, enum kube_role role, uint32_t spot);
void scale_nodes(struct core *c, struct job *job);
void scale_delete(struct core *c, struct job *job, struct seat *seat);
/* Deletes those that have left, have ended or are lost; of all when @everything. */
void scale_clean(struct core *c, struct job *job, bool everything);

/* refuse.c: what the API server will not have */
void refused_forget(struct core *c, struct job *job);                       /* what is over */
bool refused_now(struct core *c, const struct job *job, enum refused slot); /* leave it alone */
/* Whether a pod of this role may be made: nothing that it rests on was refused lately. */
bool refused_allow(struct core *c, const struct job *job, enum kube_role role);
void refused_tell(struct job *job);

/* quota.c: what quotas leave */
int64_t quota_workers(const struct job *job, int64_t most); /* of spec.quota, beside the servers */
int32_t quota_servers(const struct job *job, int32_t most); /* and beside the least of workers */
int64_t quota_mcpu(const struct job *job); /* of it for all workers; INT64_MAX: no limit */
bool quota_allows(const struct job *job, enum kube_role role); /* of it, one more pod now */
/* How much more its workers may ask for in place, of its own quota and the namespace's. */
int64_t quota_more_mcpu(const struct job *job);
void quota_take_mcpu(struct job *job, int64_t mcpu);

/* resize.c */
void resize_nodes(struct core *c, struct job *job);

/* members.c */
void members_tell(struct core *c, struct job *job);

/* budget.c: PodDisruptionBudgets */
void budget_build(struct core *c);
bool budget_take(struct core *c, const struct kube_pod *pod);
bool budget_allows(const struct core *c, const struct kube_pod *pod); /* one more */

/* status.c: as the first of the training's actions, which rest on what it reserves */
void status_act(struct core *c, struct job *job, size_t first_action);
