/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where tests tear the daemon away: named steps of its transactions. TIDE_FAILPOINT=NAME:N in the
 * environment of who starts it ends it by SIGKILL when it passes NAME for the N-th time; nobody
 * else can ask for that. Otherwise a step costs one comparison with a variable that never changes.
 * One thread; failpoint_arm by main, failpoint by src/daemon. Tests read the names from
 * failpoint.c.
 */
#pragma once

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
    FAILPOINT_MAX
};

extern enum failpoint failpoint_armed; /* FAILPOINT_NONE: every day */

void failpoint_arm(void);    /* as the environment says */
void failpoint_disarm(void); /* in a child that is to outlive this process */
void failpoint_passed(void);

static inline void failpoint(enum failpoint here)
{
    if (__builtin_expect(failpoint_armed == here, 0))
        failpoint_passed();
}
