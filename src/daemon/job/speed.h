/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a job is with how many threads: measures the rate that its agents report while its
 * threads stay the same, fits a speed-up curve (policy/model/fit.h), runs an experiment now and
 * then, and puts the result into the policy's snapshot.
 *
 * A rate counts the program's own steps, else the operations that its runtimes begin: about as many
 * for the same work with any number of threads. While jobs have more threads than cores, a rate
 * shows progress but says nothing of the curve. The rate of a job with cores of its own is divided
 * by their speed beside the machine's fastest ones, so that its curve is one of fast cores,
 * whichever cores it was learnt on.
 *
 * A job of a program that ran before begins with the curve of those runs, until it disagrees.
 *
 * Daemon's event loop only; part of each job. Fed by agent.c, plan.c and curves.c, read by
 * decision.c, view.c.
 */
#pragma once

#include "policy/model/prior.h"

#include <stdbool.h>
#include <stdint.h>

#define SPEED_RATE 100000 /* unit of rates: this part of a unit per second */

struct job;

enum speed_earlier {
    SPEED_EARLIER_NONE,
    SPEED_EARLIER_OWN,    /* of the same user */
    SPEED_EARLIER_SHARED, /* of another user */
    SPEED_EARLIER_REFUTED,
};

struct speed {
    struct fit fit;
    struct prior prior; /* of earlier runs */
    enum speed_earlier earlier;
    struct fit_model model; /* fitted with the last sample */
    struct fit_model told;  /* given to the last snapshot */
    bool known, told_known;
    /* the present sample */
    uint64_t begin_ns; /* 0: waits for the next heartbeat */
    uint64_t begin_units, last_units;
    uint32_t threads;
    bool exact;          /* began when the number of units changed */
    bool own;            /* counts the program's own units */
    bool crowded;        /* began while jobs had more threads than cores */
    uint32_t core_speed; /* permille of a fast core's: mean of its own cores when it began */
    uint64_t rate;       /* of the last sample, as on fast cores; 0: none in these units yet */
    uint32_t rate_of;    /* threads at that rate */
    uint32_t explore;    /* threads of an experiment, instead of the share; 0: none */
    uint64_t beat_ns;    /* last heartbeat */
    uint64_t resize_ns;  /* duration of a resize, smoothed; 0: not measured */
};

/* Begins with the curve of earlier runs of the program. */
void speed_recall(struct job *j, const struct prior *prior, bool shared, uint64_t now);

/* Whether the curve comes from earlier runs, alone or with what this one measured. */
bool speed_recalled(const struct job *j);

/* The beginning for later runs; false: nothing is known yet. */
bool speed_learnt(const struct job *j, uint64_t now, struct prior *ret);

/* An agent of the job has reported. */
void speed_heartbeat(struct job *j, uint64_t now);

/* All its agents acknowledged a change of threads after @latency_ns. */
void speed_resized(struct job *j, uint64_t latency_ns);

/* Progress so far, in operations where they are counted, and the time of the last report. */
uint64_t speed_count(const struct job *j, uint64_t *ret_ns);

uint64_t speed_resize_ns(const struct job *j); /* measured, or a guess */

/* Remaining work as time with one thread, from the program's progress; UINT64_MAX: not known. */
uint64_t speed_remaining_ns(const struct job *j);

/* Threads for the job now: its share, or fewer in an experiment. */
uint32_t speed_threads(const struct job *j);
