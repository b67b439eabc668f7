/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next step of a transaction, from the wanted state and the state in place:
 *
 *   lower targets → acknowledged, or expired → narrow cores and quotas
 *                 → widen them, where no other job still has to leave → raise targets → start
 *
 * No list of steps is worked off: each acknowledgement, engine's answer, deadline or decision has
 * the difference between the two states computed anew. So the latest decision wins by itself, and
 * a daemon that starts in the middle goes on from there.
 *
 * Pure: no clock, no I/O, no allocation. plan.c fills the state in and carries the actions out;
 * tests/unit/test_daemon_settle.c is the model of everything else.
 */
#pragma once

#include "base/cpuset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SETTLE_GRACE_NS (2 * 1000000000ull) /* the longest wait for a shrink */
#define SETTLE_NEVER    UINT64_MAX

struct settle_threads {
    uint32_t intra, inter; /* intra 0: no command */
};

struct settle_process {
    bool malleable;             /* its threads can be commanded */
    bool commanded;             /* at least once; before that it may run @max threads */
    uint32_t max;               /* threads of its pools */
    uint32_t held;              /* threads that may still run, unacknowledged targets included */
    struct settle_threads want; /* its part of the job's target */
    struct settle_threads sent; /* the last target */
    bool waits;                 /* for a safe point: it parks nobody soon */
    uint64_t shrink_since_ns;   /* first unacknowledged target below @held; 0: none */
};

struct settle_job {
    /* wanted */
    struct cpuset want_cores; /* empty: no fence */
    uint32_t want_quota_mcpu;
    bool wanted;    /* shall run */
    bool exclusive; /* no other job gets its cores */
    bool weighed;   /* its weight is in force: jobs on the same cores get their parts */
    bool urgent;    /* a person asked: does not wait for others' threads to park */

    /* in place */
    struct cpuset cores; /* empty: no fence */
    uint32_t quota_mcpu;
    bool running;       /* neither queued nor paused */
    bool paused;        /* by the plan: none of its threads is on a core */
    bool frozen;        /* by a person, who alone can end that */
    bool busy;          /* a change of it is under way */
    bool behind;        /* under way, or to be made again */
    bool remote;        /* an engine changes it, and answers later */
    bool stuck;         /* no answer for now: its cores are not changed again */
    bool quota_refused; /* not tried again */

    struct settle_process *processes; /* borrowed */
    unsigned n_processes;

    bool late; /* computed: a shrink has missed its deadline */
};

struct settle_state {
    uint64_t now_ns;
    struct cpuset cpus;      /* that the daemon gives out */
    struct settle_job *jobs; /* borrowed */
    unsigned n_jobs;
};

enum settle_verb {
    SETTLE_LOWER,  /* send a process its target */
    SETTLE_NARROW, /* restrict a job to cores that it had, or that no job has */
    SETTLE_WIDEN,
    SETTLE_QUOTA,
    SETTLE_RAISE,
    SETTLE_START, /* start or resume it */
    SETTLE_VERB_MAX,
};

struct settle_action {
    enum settle_verb verb;
    unsigned job, process; /* indices */
    struct cpuset cores;   /* of NARROW, WIDEN */
};

/* The most actions for @jobs jobs with @processes processes in all. */
#define SETTLE_ACTIONS_MAX(jobs, processes) (4 * (size_t)(jobs) + 2 * (size_t)(processes))

struct settle_actions {
    struct settle_action *action; /* room for SETTLE_ACTIONS_MAX */
    size_t n;
    uint64_t next_ns; /* when to look again: a shrink expires; or SETTLE_NEVER */
};

/*
 * Returns all that can be done now, in this order, and changes @s to the state afterwards: local
 * changes in place, an engine's under way. If an action turns out otherwise (it failed, or the
 * engine had nothing to do), fill the state in again and repeat.
 */
void settle(struct settle_state *s, struct settle_actions *ret);
