/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process of a submitted job before its program begins: it waits on agent.sock for the daemon's
 * word. It keeps its place whatever happens to the daemon. A daemon that was started again finds
 * the job by pid and start time; a daemon that does not know the job registers it again. If no
 * daemon returns within the job's patience, the program begins without one. Single-threaded; runs
 * in the process that `tide submit` forks.
 */
#pragma once

#include "cli/launch/launch.h"

#include "proto/proto.h"

#include <signal.h>

#define RUNNER_PATIENCE_MS 30000 /* unless --patience says else */

struct runner {
    struct launch *launch;
    uint64_t patience_ms;
    struct api_answer job;     /* the registration's answer; its body is the job */
    sigset_t mask;             /* the submitter's signal mask, for the program */
    struct sigaction action;   /* the submitter's action for SIGTERM */
    char name[PROTO_NAME_MAX]; /* a name other than the one asked for, see runner_wait() */
};

/*
 * Keeps SIGTERM (`tide cancel`) for runner_wait() from here on. Call it before the daemon knows the
 * job.
 */
void runner_begin(struct runner *r);

/*
 * Waits for the job's turn. Returns 0: the program may begin. -ECANCELED: the job was cancelled.
 * Another -errno with *err: there is no daemon to wait for. Prints a line if the job has another id
 * by then.
 */
int runner_wait(struct runner *r, struct error *err);

/* Restores the signals for the program; a SIGTERM that has arrived meanwhile ends the process. */
void runner_end(struct runner *r);
