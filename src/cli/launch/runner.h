/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that a submitted job is before its program: it waits on agent.sock for the daemon's
 * word. Whatever becomes of the daemon, it does not give up its place: a daemon that was started
 * again finds the job by pid and start time, one that does not know it gets it anew, and when none
 * comes back for its patience the program begins without.
 * Single-threaded; the runner's own process, which `tide submit` forks.
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
    sigset_t mask;             /* of whoever submitted, for the program */
    struct sigaction action;   /* the same of SIGTERM */
    char name[PROTO_NAME_MAX]; /* another than asked for: see runner_wait() */
};

/*
 * From here on SIGTERM (`tide cancel`) is kept for runner_wait(). Called before the daemon knows of
 * the job.
 */
void runner_begin(struct runner *r);

/*
 * Waits for the job's turn. Returns 0: the program may begin. -ECANCELED: somebody ended the job.
 * Another -errno with *err: there is no daemon to wait for. Says on stderr when the job has another
 * id by then.
 */
int runner_wait(struct runner *r, struct error *err);

/* Gives the program the signals as they were; a SIGTERM that has come meanwhile ends the process.
 */
void runner_end(struct runner *r);
