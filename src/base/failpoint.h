/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places where a test kills tided, tide-power or tide-hub, or makes one of its calls fail. The
 * environment variable TIDE_FAILPOINT of the daemon is a list, separated by commas, of
 *
 *   NAME:N                 the daemon dies by SIGKILL at the N-th passage of NAME
 *   NAME:N:ENOSPC          the call fails with ENOSPC (or EMFILE, ENOMEM, EIO, EROFS, EAGAIN)
 *   NAME:N:delay=500ms     the daemon sleeps there
 *   NAME:N+:…              at the N-th passage and each later one
 *
 * A failpoint marks a step of a transaction; a fault stands before a system call or an allocation.
 * Only faults take errors. Only the user who starts the daemon can set the variable; without it a
 * passage costs one read of a variable. One thread; main calls failpoint_arm, src/daemon, src/edge,
 * src/unit and src/hub the others. Tests read the names from failpoint.c; tide-power's own begin
 * with unit-.
 */
#pragma once

#include <stdint.h>

enum failpoint {
    FAILPOINT_NONE,
    FAILPOINT_STORE_WRITTEN, /* a job's file has its temporary name */
    FAILPOINT_STORE_RENAMED,
    FAILPOINT_SOCKET_BOUND,   /* the daemon does not listen yet */
    FAILPOINT_JOB_BEGUN,      /* the job left the queue, and its runner does not know yet */
    FAILPOINT_GUARDIAN_NOTED, /* the guardian has the affinity of a process */
    FAILPOINT_GROUP_MADE,     /* a job's control group has no process yet */
    FAILPOINT_TARGET_LOWERED,
    FAILPOINT_ACK_RECEIVED,   /* the daemon has not acted on it yet; the same in *_ANSWERED */
    FAILPOINT_PROCESS_FENCED, /* before the process gets its cores */
    FAILPOINT_CORES_NARROWED, /* for a container: the engine has been asked */
    FAILPOINT_CORES_WIDENED,
    FAILPOINT_QUOTA_SET,
    FAILPOINT_TARGET_RAISED,
    FAILPOINT_WEIGHT_SET,
    FAILPOINT_CONTAINER_NOTED, /* the restore journal is on the disk */
    FAILPOINT_CONTAINER_TAKEN, /* it is a job, but no file has it yet */
    FAILPOINT_CONTAINER_ENDED, /* its limits are not restored yet */
    FAILPOINT_ENGINE_SERVED,   /* requests are sent, answers are handled */
    FAILPOINT_UPDATE_ASKED,    /* the request waits to be sent */
    FAILPOINT_UPDATE_ANSWERED,
    FAILPOINT_PAUSE_ASKED,
    FAILPOINT_PAUSE_ANSWERED,
    FAILPOINT_UNPAUSE_ASKED,
    FAILPOINT_UNPAUSE_ANSWERED,
    FAILPOINT_CAP_STORED,     /* a power cap is in its file, and not in force yet */
    FAILPOINT_CAP_PLACED,     /* a decision under a new power cap was carried out */
    FAILPOINT_BACKSTOP_NOTED, /* the guardian has the original of a power limit */
    FAILPOINT_POLICY_STORED,  /* of the hub: a policy and its number are on the disk, no unit has it
                               */
    FAILPOINT_POLICY_SENT,    /* the first unit's is with the broker's library */
    FAILPOINT_LEASES_STORED,  /* the book of leases is on the disk, no offer is sent */
    FAILPOINT_LEASE_SENT,     /* one offer was sent */
    FAILPOINT_UNIT_POLICY_STORED, /* tide-power has a policy in its file, and nobody knows yet */
    FAILPOINT_ORDER_NOTED,        /* the id of a command is on the disk, and nothing is switched */
    FAILPOINT_TENURE_STORED,      /* what counts without a lease is on the disk, not acknowledged */
    FAILPOINT_ENERGY_PUT,         /* the first message of a transaction, which is not ended */
    FAILPOINT_ENERGY_STORED,      /* it is on the disk, and no receipt is sent */
    FAILPOINT_ENERGY_TOLD,        /* the first receipt is with the broker's library */
    FAULT_STORE_OPEN,             /* a job's file, by its temporary name */
    FAULT_STORE_WRITE,
    FAULT_STORE_RENAME,
    FAULT_ACCEPT,      /* a connection on agent.sock */
    FAULT_PEER_MEMORY, /* the memory for a connection */
    FAULT_JOB_MEMORY,
    FAULT_PROCESS_MEMORY,
    FAULT_SEND, /* a message to an agent or controller */
    FAULT_AFFINITY,
    FAULT_GROUP_MAKE,
    FAULT_GROUP_REMOVE, /* a job's control group, as if a process had not left it yet */
    FAULT_GROUP_QUOTA,  /* of a power cap, on all jobs' groups together */
    FAULT_WEIGHT_WRITE,
    FAULT_FREEZER_LIST, /* the check whether each process may be paused */
    FAULT_POLICY_STORE,
    FAULT_ORDER_STORE,
    FAULT_TENURE_STORE,
    FAILPOINT_MAX
};

extern uint64_t failpoints_armed; /* a bit for each; 0 in everyday use */

void failpoint_arm(void);    /* reads TIDE_FAILPOINT */
void failpoint_disarm(void); /* called in a child that must outlive this process */
int failpoint_passed(enum failpoint here);

static inline void failpoint(enum failpoint here)
{
    if (__builtin_expect(failpoints_armed >> here & 1, 0))
        failpoint_passed(here);
}

/* Returns 0: make the call; or -errno, also in errno: treat the call as failed. */
static inline int fault(enum failpoint here)
{
    return __builtin_expect(failpoints_armed >> here & 1, 0) ? failpoint_passed(here) : 0;
}
