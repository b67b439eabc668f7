/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next step of a transaction, from what is wanted and what is in place:
 *
 *   lower targets → acknowledged, or expired → narrow cores and quotas
 *                 → widen them, where nobody still has to leave → raise targets → start
 *
 * It is no list of steps that somebody works off, but the difference between two states, looked at
 * again whenever something moved: an acknowledgement, an engine's answer, a deadline, a decision.
 * So the latest decision wins by itself, and a daemon that begins in the middle goes on from there.
 *
 * Pure: no clock, no I/O, no allocation. plan.c fills the state in and carries the actions out;
 * tests/unit/test_daemon_settle.c is the model of everything else.
 */
#pragma once

#include "base/cpuset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SETTLE_GRACE_NS (2 * 1000000000ull) /* a shrink that takes longer is not waited for */
#define SETTLE_NEVER    UINT64_MAX

struct settle_threads {
    uint32_t intra, inter; /* intra 0: nobody commands */
};

struct settle_process {
    bool malleable;             /* its threads can be commanded */
    bool commanded;             /* at least once; before that it may run @max */
    uint32_t max;               /* threads its pools have */
    uint32_t held;              /* threads that may still run, targets not acknowledged included */
    struct settle_threads want; /* its part of the job's target */
    struct settle_threads sent; /* the last target */
    uint64_t shrink_since_ns;   /* of the first target below @held not acknowledged; 0: none */
};

struct settle_job {
    /* wanted */
    struct cpuset want_cores; /* empty: no fence */
    uint32_t want_quota_mcpu;
    bool wanted;    /* to run */
    bool exclusive; /* its cores are nobody else's */
    bool urgent;    /* a person asked: it does not wait for what others park */

    /* in place */
    struct cpuset cores; /* empty: no fence */
    uint32_t quota_mcpu;
    bool running;       /* neither queued nor paused */
    bool paused;        /* by the plan: none of its threads is on a core */
    bool frozen;        /* by a person: the same, until that person ends it */
    bool busy;          /* a change of it is on its way */
    bool behind;        /* or has to be made once more */
    bool remote;        /* it is changed by an engine, which answers later */
    bool stuck;         /* nobody answers there now: its cores are not asked for again */
    bool quota_refused; /* not asked for again */

    struct settle_process *processes; /* borrowed */
    unsigned n_processes;

    bool late; /* computed: a shrink has missed its deadline */
};

struct settle_state {
    uint64_t now_ns;
    struct cpuset cpus;      /* the daemon's */
    struct settle_job *jobs; /* borrowed */
    unsigned n_jobs;
};

enum settle_verb {
    SETTLE_LOWER,  /* send a process its target */
    SETTLE_NARROW, /* fence a job into cores, all of which it had, or none of which anybody has */
    SETTLE_WIDEN,
    SETTLE_QUOTA,
    SETTLE_RAISE,
    SETTLE_START, /* begin it, or let it go on */
    SETTLE_VERB_MAX,
};

struct settle_action {
    enum settle_verb verb;
    unsigned job, process; /* indices */
    struct cpuset cores;   /* of NARROW, WIDEN */
};

/* So many actions are the most for @jobs jobs that have @processes processes together. */
#define SETTLE_ACTIONS_MAX(jobs, processes) (4 * (size_t)(jobs) + 2 * (size_t)(processes))

struct settle_actions {
    struct settle_action *action; /* room for SETTLE_ACTIONS_MAX */
    size_t n;
    uint64_t next_ns; /* look again then: a shrink expires; SETTLE_NEVER */
};

/*
 * All that can be done now, in this order. Changes @s to what it will be then: local changes in
 * place, those of an engine on their way. Where one turns out otherwise (it failed, or the engine
 * had nothing to do), fill the state in again and ask once more.
 */
void settle(struct settle_state *s, struct settle_actions *ret);
