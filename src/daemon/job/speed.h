/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a job is with how many threads: measures the rate of what its agents report while its
 * threads stay as they are, keeps the fit (policy/model/fit.h) that makes a speed-up curve of it,
 * asks for an experiment now and then, and tells the policy's snapshot what is known.
 *
 * A rate is of the steps that the program reports itself, else of the operations that its runtimes
 * begin: more or less as many for the same work with any number of threads. While jobs have more
 * threads than there are cores, a rate says how far a job gets, but nothing of its curve.
 *
 * Daemon's event loop only; part of each job. Fed by agent.c and plan.c, read by decision.c,
 * view.c.
 */
#pragma once

#include "policy/model/fit.h"

#include <stdbool.h>
#include <stdint.h>

#define SPEED_RATE 100000 /* rates are in such parts of a unit per second */

struct job;

struct speed {
    struct fit fit;
    struct fit_model model; /* of the last sample */
    struct fit_model told;  /* what the last snapshot was given */
    bool known, told_known;
    /* the sample that is being taken */
    uint64_t begin_ns; /* 0: waits for the next heartbeat */
    uint64_t begin_units, last_units;
    uint32_t threads;
    bool exact;         /* it began when the number of units had just changed */
    bool own;           /* units are the program's own */
    bool crowded;       /* jobs had more threads than there are cores when it began */
    uint64_t rate;      /* of the last sample; 0: none with these units yet */
    uint32_t rate_of;   /* threads */
    uint32_t explore;   /* threads to run with instead of the share, to learn; 0: none */
    uint64_t resize_ns; /* what a resize takes, smoothed; 0: not measured */
};

/* One of the job's agents has reported. */
void speed_heartbeat(struct job *j, uint64_t now);

/* All of its agents have acknowledged a change of threads after so long. */
void speed_resized(struct job *j, uint64_t latency_ns);

uint64_t speed_resize_ns(const struct job *j); /* measured, or a guess */

/* Work left as time with one thread, by the progress that the program reports; else UINT64_MAX. */
uint64_t speed_remaining_ns(const struct job *j);

/* The threads that it should run with for now: its share, or fewer to learn from that. */
uint32_t speed_threads(const struct job *j);
