/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who runs and who waits. A job of `tide run` begins by itself; a submitted one waits in the queue,
 * its runner asleep on agent.sock, until the policy starts it; one that can be paused, a container
 * or submitted processes, may give way to others for a while. decision.c writes down what is
 * wanted, plan.c has it brought about in its order: whoever stops goes first, whoever starts finds
 * its cores in place. Daemon's event loop only; called by decision.c, plan.c, control.c and the
 * API.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct job;
struct daemon;
struct policy_job;

enum job_phase {
    JOB_QUEUED, /* has not begun */
    JOB_RUNNING,
    JOB_PAUSED,
};

/* Part of each job. */
struct admission {
    enum job_phase phase;         /* in place */
    bool wanted;                  /* the policy lets it run */
    bool held;                    /* by a person: stays in the queue */
    bool submitted;               /* did not begin by itself */
    bool ending;                  /* `tide cancel`: nobody pauses it any more */
    uint32_t cores;               /* that it was started with, or had when it was paused */
    uint64_t begun_ns;            /* when it first ran; 0: not yet */
    uint64_t since_ns;            /* of the phase */
    uint64_t run_ns, wait_ns;     /* in earlier phases */
    struct admission_wait *waits; /* who wants to be told when it begins */
};

/* A new job: @submitted ones wait, others run. */
void admission_init(struct job *j, bool submitted, uint64_t now);

/* Fills in the members of the snapshot's job that say whether it runs, since when, and may stop. */
void admission_describe(const struct job *j, uint64_t now, struct policy_job *ret);

/* Whether a plan's verb (enum policy_verb) can be done to it; and takes it up, with its cores. */
bool admission_can(const struct job *j, uint32_t verb);
void admission_want(struct job *j, uint32_t verb, uint32_t cores);

/* Pauses jobs that shall not run any more, and takes back pauses that are not wanted any more. */
void admission_stop(struct daemon *d);

/* A job that shall run begins or goes on: plan.c says when its cores are in place. */
void admission_start(struct job *j);

/* What was paused goes on, by a guardian's hand or a person's: if that is not wanted, once more. */
void admission_runs(struct job *j);

/* Whether policies may pause it; "" or why not, for a person. */
bool admission_preemptible(const struct job *j, const char **ret_why);

/* It is cancelled: it goes on, since nothing that is paused can end, and is not paused again. */
void admission_end(struct job *j);

/* It turns out to run: its runner had lost all daemons, and did not wait for ever. */
void admission_began(struct job *j);

/*
 * Calls @fn(@arg, 0) once the job runs, -ECANCELED when it is cancelled or gone. At once when it
 * runs already. Returns 0 or -ENOMEM.
 */
typedef void (*admission_fn)(void *arg, int result);
int admission_wait(struct job *j, admission_fn fn, void *arg);
void admission_forget(struct job *j, void *arg); /* whoever waits with @arg has gone */
void admission_gone(struct job *j);              /* the job is about to be freed */

/* `tide hold`, `tide release`: 0, or -EBUSY with *err when it has begun. */
int admission_hold(struct job *j, bool held, struct error *err);
