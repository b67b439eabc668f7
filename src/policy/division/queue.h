/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of the policies with a queue: fcfs, priority and round-robin.
 *
 * Jobs stand in a row, which the policy orders. The first waiting job starts or resumes as soon as
 * there is room for it. Until then all jobs behind it wait, too (no backfilling). The exception:
 * while it waits for memory or devices, paused jobs may resume, as they hold what it needs. A
 * job that can never run does not hold the row up.
 *
 * Three parameters say how many cores a job gets.
 *   reassignment  strict         starts when its full request is free
 *                 always-attend  starts with what is free of its request, at least its minimum
 *                 max-prop       starts when its minimum is free; what is free is divided among
 *                                those who start in proportion to their requests, and may be more
 *   variant       as-is, or the most that jobs may do: rigid (the full request or nothing, and no
 *                 change later), moldable (a job keeps the size of its start), malleable
 *   resize        both  sizes of malleable jobs follow at every decision, as if they started now:
 *                       max-prop divides anew among all; what no waiting job can start with goes
 *                       to those who run, beyond their requests, in proportion to these
 *                 grow  the rule that the thesis' logs show: a running job never gives cores up;
 *                       what becomes free goes to running jobs below their request and to those who
 *                       wait in the order of the row; of one class those who run stand first
 *
 * A job without a request asks for its minimum. A request above what the job's place has counts as
 * all that the place has. Running jobs that cannot be paused go on with at least their minimum,
 * wherever they stand. A job also needs its memory, devices, parameter servers and workers; a
 * paused job keeps memory and devices. Where resize is `both`, cores are lent and borrowed as in
 * share.h.
 * Pure; used by the three policies alone, within one decision. Storage is the plan's scratch.
 */
#pragma once

#include "policy/division/layout.h"
#include "policy/division/order.h"
#include "policy/division/share.h"

/* The first parameters of each policy with a queue; its own follow. */
enum queue_param { QUEUE_REASSIGNMENT, QUEUE_VARIANT, QUEUE_RESIZE, QUEUE_PARAM_MAX };

extern const char *const queue_reassignment_names[], *const queue_variant_names[],
                                                         *const queue_resize_names[];

#define QUEUE_PARAMS                                                                               \
    [QUEUE_REASSIGNMENT] = {.name = "reassignment",                                                \
                            .max = 2,                                                              \
                            .text = "with how many cores a job starts",                            \
                            .names = queue_reassignment_names},                                    \
    [QUEUE_VARIANT] = {.name = "variant",                                                          \
                       .max = 3,                                                                   \
                       .text = "what jobs whose cores could change count as",                      \
                       .names = queue_variant_names},                                              \
    [QUEUE_RESIZE] = {.name = "resize",                                                            \
                      .max = 1,                                                                    \
                      .text = "whether running malleable jobs also give up cores",                 \
                      .names = queue_resize_names}

#define QUEUE_NOBODY UINT32_MAX

/* One job; sizes in mcpu. In the row the smaller (major, class, minor, arrival, id) goes first. */
struct ticket {
    int64_t major;
    uint32_t class;
    uint64_t minor;
    uint64_t arrival_ns;
    uint64_t id;
    uint64_t turn_ns; /* for round-robin: its run time since its last start or resume */
    int64_t least;
    int64_t most;
    int64_t request;
    int64_t has;         /* cores now; for a paused job, before the pause */
    int64_t mcpu;        /* in the plan; 0: does not run */
    uint32_t paused_for; /* index of the job that needs its cores, or QUEUE_NOBODY */
    uint8_t malleability;
    bool fixed;    /* has one possible size */
    bool newcomer; /* has no size of its own yet */
    bool sharing;  /* takes part in the division at the end */
};

struct queue;

/* The rules of a policy that pauses jobs. */
struct queue_pausing {
    /*
     * Returns when @running gives way to @waiting if nothing else happens. A time up to the
     * snapshot's now means at once; POLICY_NEVER means that time alone changes nothing.
     */
    uint64_t (*yields_ns)(const struct queue *queue, uint32_t running, uint32_t waiting);
    order_before_fn paused_first; /* @arg is the queue */
    void (*explain)(struct queue *queue, uint32_t job, uint32_t paused_for);
};

struct queue {
    const struct policy_snapshot *snapshot;
    struct policy_plan *plan;
    struct layout layout;
    struct sharing sharing;
    struct ticket *ticket;
    uint32_t *row;    /* jobs in their order */
    uint32_t *victim; /* running jobs that can be paused, in that order */
    uint32_t victim_count;
    uint8_t *child_level;                /* of each domain: the widest level among its children */
    const struct queue_pausing *pausing; /* NULL: no job is paused */
    int64_t unit;                        /* the policy's own parameter: ageing, quantum */
    int64_t param[QUEUE_PARAM_MAX];
    uint32_t head; /* the first job that must wait, or QUEUE_NOBODY */
    bool may_pass; /* the head waits for memory or devices: paused jobs may go past it */
    uint32_t next; /* the first job that waits for cores of a running one, or QUEUE_NOBODY */
};

void queue_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room);

/* Fills in the queue except its order: the policy sets major and minor of the tickets next. */
void queue_init(struct queue *queue, const struct policy *policy,
                const struct policy_snapshot *snapshot, struct policy_plan *plan);

/* Decides, and writes the plan. */
void queue_decide(struct queue *queue);
