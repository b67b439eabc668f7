/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where tests tear the daemon away, or make one of its calls fail. TIDE_FAILPOINT in the
 * environment of who starts it is a list with commas of
 *
 *   NAME:N                 SIGKILL at the N-th passage of NAME
 *   NAME:N:ENOSPC          the call there fails so (also EMFILE, ENOMEM, EIO, EAGAIN)
 *   NAME:N:delay=500ms     the daemon sleeps there
 *   NAME:N+:…              at the N-th passage and all that follow
 *
 * A failpoint is a step of a transaction; a fault is a call to the kernel or for memory that is
 * about to be made. Errors are for faults. Nobody but who starts the daemon can ask for any of it;
 * otherwise a passage costs one look at a variable that never changes. One thread; failpoint_arm by
 * main, the others by src/daemon. Tests read the names from failpoint.c.
 */
#pragma once

#include <stdint.h>

enum failpoint {
    FAILPOINT_NONE,
    FAILPOINT_STORE_WRITTEN, /* under another name */
    FAILPOINT_STORE_RENAMED,
    FAILPOINT_SOCKET_BOUND,   /* nobody listens yet */
    FAILPOINT_JOB_BEGUN,      /* let out of the queue, nobody is told yet */
    FAILPOINT_GUARDIAN_NOTED, /* the affinity of a process */
    FAILPOINT_GROUP_MADE,     /* empty yet */
    FAILPOINT_TARGET_LOWERED,
    FAILPOINT_ACK_RECEIVED,   /* nothing is done about it yet, as with answers */
    FAILPOINT_PROCESS_FENCED, /* its turn has come: not yet */
    FAILPOINT_CORES_NARROWED, /* a container's: asked for */
    FAILPOINT_CORES_WIDENED,
    FAILPOINT_QUOTA_SET,
    FAILPOINT_TARGET_RAISED,
    FAILPOINT_WEIGHT_SET,
    FAILPOINT_CONTAINER_NOTED, /* its own limits, on disk */
    FAILPOINT_CONTAINER_TAKEN, /* it is a job, not written down */
    FAILPOINT_CONTAINER_ENDED, /* its limits are not put back yet */
    FAILPOINT_ENGINE_SERVED,   /* what was asked is sent, what came is dealt with */
    FAILPOINT_UPDATE_ASKED,    /* not sent */
    FAILPOINT_UPDATE_ANSWERED,
    FAILPOINT_PAUSE_ASKED,
    FAILPOINT_PAUSE_ANSWERED,
    FAILPOINT_UNPAUSE_ASKED,
    FAILPOINT_UNPAUSE_ANSWERED,
    FAULT_STORE_OPEN, /* a job's file, under another name */
    FAULT_STORE_WRITE,
    FAULT_STORE_RENAME,
    FAULT_ACCEPT,      /* a connection on agent.sock */
    FAULT_PEER_MEMORY, /* of a connection */
    FAULT_JOB_MEMORY,
    FAULT_PROCESS_MEMORY,
    FAULT_SEND, /* a message to an agent or controller */
    FAULT_AFFINITY,
    FAULT_GROUP_MAKE,
    FAULT_WEIGHT_WRITE,
    FAILPOINT_MAX
};

extern uint64_t failpoints_armed; /* a bit for each; 0: every day */

void failpoint_arm(void);    /* as the environment says */
void failpoint_disarm(void); /* in a child that is to outlive this process */
int failpoint_passed(enum failpoint here);

static inline void failpoint(enum failpoint here)
{
    if (__builtin_expect(failpoints_armed >> here & 1, 0))
        failpoint_passed(here);
}

/* 0: make the call. -errno, and errno: it has failed so. */
static inline int fault(enum failpoint here)
{
    return __builtin_expect(failpoints_armed >> here & 1, 0) ? failpoint_passed(here) : 0;
}
