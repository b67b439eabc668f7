/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of each training from one reconcile to the next. All of it may be lost: measurements
 * and waiting times then begin anew.
 *
 * Event loop's thread; used by the rooms of the controller's core.
 */
#pragma once

#include "base/name_map.h"
#include "kube/view/record.h"

#define NOWHERE     NAME_MAP_NONE
#define NS_PER_S    INT64_C(1000000000)
#define FOREVER     INT64_MAX
#define ECHO_NS     (5 * NS_PER_S)   /* a request without visible effect is then sent again */
#define PATIENCE_NS (60 * NS_PER_S)  /* limit for what may never come: a joining replica, a step */
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

/*
 * The entry of one training. A reconcile works on a copy of the record, and the copy replaces it
 * when everything is decided.
 */
struct memory_entry {
    char *uid;
    bool seen;                       /* in this reconcile */
    bool was_sent;                   /* @sent is set */
    struct kube_status sent;         /* the last status sent */
    struct replica_record *replicas; /* by role, then index */
    uint32_t replica_count;
    uint32_t replica_room;
    struct record record;
};

struct kube_memory {
    struct memory_entry **entry;
    uint32_t count, room;
    struct name_map by_uid; /* index into entry */
};

/* The entry of a training, created if there is none; NULL: out of memory. */
struct memory_entry *memory_entry(struct kube_memory *memory, const char *uid);
void memory_sweep(struct kube_memory *memory); /* drops entries that this reconcile has not seen */
