/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices what happens to jobs, and tells it to those who listen (events.h) and to the history
 * (history.h): compares each job with what was told of it last. So nothing on the way of a decision
 * knows of either. Daemon's event loop only; called by node.c when there is time, by job.c and by
 * container.c.
 */
#pragma once

#include "base/cpuset.h"

#include <stdbool.h>
#include <stdint.h>

#define CHRONICLE_COMMAND_MAX 256
#define CHRONICLE_REASON_MAX  128

struct job;
struct node;

/* Part of each job: what was told of it last. */
struct seen {
    const char *state; /* NULL: nothing yet */
    uint64_t rate_ns;
    struct cpuset cores;
    unsigned changes; /* of job.n_changes */
    unsigned made;    /* history_made() when it was written */
    uint32_t target;
    int exit;           /* status of a container that ended; valid where exited */
    bool exited, final; /* final: the command is that of the program */
    bool oom;           /* a process of the container was killed for want of memory */
    char reason[CHRONICLE_REASON_MAX];
    char command[CHRONICLE_COMMAND_MAX]; /* or image */
};

/* Looks at everything, before the store writes what is dirty. */
void chronicle_look(struct node *n);

/* The job has ended and is about to be freed. */
void chronicle_ended(struct job *j);

/*
 * What an engine says of a container whose job has ended, for which it has some seconds: the event
 * waits for the status, the history is corrected. False: no job waits for that.
 */
bool chronicle_exited(struct node *n, const char *container, int exit);
void chronicle_oom(struct node *n, const char *container);
bool chronicle_pending(const struct node *n);
void chronicle_done(struct node *n); /* the daemon ends: told as it is known */
