/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which jobs run and which wait. A job of `tide run` starts by itself. A submitted one waits in the
 * queue, its runner asleep on agent.sock, until the policy starts it. A container or submitted
 * processes may be paused by the policy, and give way to others for a while; a person may pause any
 * job that can be. decision.c writes down what is wanted; plan.c carries it out in order: pauses
 * first, and a job starts once its cores are free. Daemon's event loop only; called by decision.c,
 * plan.c, control.c and the API.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct job;
struct daemon;
struct policy_job;

enum job_phase {
    JOB_QUEUED, /* not started yet */
    JOB_RUNNING,
    JOB_PAUSED,
};

/* Part of each job. */
struct admission {
    enum job_phase phase;         /* in place */
    bool wanted;                  /* the policy wants it to run */
    bool held;                    /* a person keeps it in the queue, or paused */
    bool submitted;               /* starts when the policy says so */
    bool ending;                  /* `tide cancel`: not paused any more */
    bool told;                    /* that it cannot be resumed */
    uint32_t cores;               /* at its start, or when it was paused */
    uint64_t begun_ns;            /* first start; 0: not yet */
    uint64_t since_ns;            /* start of the phase */
    uint64_t run_ns, wait_ns;     /* in earlier phases */
    uint64_t held_ns;             /* the part of waiting in which a person held it, … */
    uint64_t held_since_ns;       /* … but for the present hold, since then */
    struct admission_wait *waits; /* callbacks that wait for its start */
};

/* A new job: a @submitted one waits, any other runs. */
void admission_init(struct job *j, bool submitted, uint64_t now);

/* Fills in the snapshot's members on whether the job runs, since and until when, and may be paused.
 */
void admission_describe(const struct job *j, uint64_t now, struct policy_job *ret);

/* Whether a plan's verb (enum policy_verb) fits the job; takes up the verb and the cores. */
bool admission_can(const struct job *j, uint32_t verb);
void admission_want(struct job *j, uint32_t verb, uint32_t cores);

/* Pauses jobs that shall wait, and revokes pauses that are not wanted any more. */
void admission_stop(struct daemon *d);

/* Starts or resumes a job that shall run; plan.c calls it when the cores are in place. */
void admission_start(struct job *j);

/* The guardian or a person ended the pause: pauses again if the policy still wants that. */
void admission_runs(struct job *j);

/* Whether policies may pause the job; *ret_why: "" or the reason, for a person. */
bool admission_preemptible(const struct job *j, const char **ret_why);

/* How long it has waited for its turn: without the time in which a person held it. */
uint64_t admission_waited_ns(const struct job *j, uint64_t now);

/* Whether a person keeps a job paused that had begun: it takes no part in the plan. */
bool admission_held_back(const struct job *j);

/* The job is cancelled: it is resumed, since no paused process can end, and not paused again. */
void admission_end(struct job *j);

/* The job turns out to run: its runner found no daemon for too long, and started. */
void admission_began(struct job *j);

/*
 * Calls @fn(@arg, 0) once the job runs (at once if it does), or with -ECANCELED when it is
 * cancelled or ends, or with -ESHUTDOWN when the daemon ends: the job waits on, and nobody is to be
 * told. Behind an error the job is not to be used any more. Returns 0 or -ENOMEM.
 */
typedef void (*admission_fn)(void *arg, int result);
int admission_wait(struct job *j, admission_fn fn, void *arg);
void admission_forget(struct job *j, void *arg); /* drops the callback with @arg */
void admission_gone(struct job *j);              /* the job is about to be freed */

/*
 * `tide hold`, `tide release`: a job that waits is not started, one that runs is paused, and no
 * policy takes it up until it is released. Returns 0 or -EBUSY, with why it cannot be paused.
 */
int admission_hold(struct job *j, bool held, struct error *err);
