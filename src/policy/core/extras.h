/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stage after the policy: lends idle cores as extra threads. Targets of a plan add up to the
 * cores, so what a job leaves idle in its serial phases is nobody's. Five times a second
 * the caller measures what runs and waits, and extras_look() gives threads beyond its share to a
 * job that uses its share, or takes them back:
 *
 *   idle for two looks, nobody waits ─▶ extra threads where they gain most ─▶ trial of two seconds
 *        ▲ hold-off: doubles after a short loan,                                 │ progress rose?
 *        │ begins anew after a long one                                          ▼
 *        └──────── all taken back: somebody waits, ◀──────────────── kept ◀── pays
 *                  cores are no longer idle, or the job no longer uses them
 *
 * An extra is no share: it gives no weight, no policy sees it, and it ends with a change of the
 * share. Pure, integers only; daemon, simulator and tests call it, on any thread.
 */
#pragma once

#include "policy/core/policy.h"

#include <stdbool.h>
#include <stdint.h>

#define EXTRAS_LOOK_NS  UINT64_C(200000000)  /* from look to look */
#define EXTRAS_TRIAL_NS UINT64_C(2000000000) /* then progress must have risen */
#define EXTRAS_HOLD_NS  UINT64_C(400000000)  /* hold-off after a loan, … */
#define EXTRAS_HOLD_MAX_NS                                                                         \
    UINT64_C(64000000000) /* … doubled by each that was short or did not pay */

#define EXTRAS_SWING_NS                                                                            \
    UINT64_C(5000000000) /* loans below this that follow each other at once swing: see extras.c */

/* State of the machine from look to look; all zero at first. */
struct extras {
    int64_t lendable_mcpu; /* at the last look */
    uint64_t until_ns;     /* gives none before */
    uint64_t hold_ns;
    uint32_t swings;  /* loans in a row that were taken back soon, and given again at once */
    bool idle_before; /* the last look could have given */
};

/* State of a job from look to look, kept by the caller; all zero at first. */
struct extras_loan {
    uint32_t extra;    /* threads beyond the share: the answer */
    uint32_t share;    /* the share that it belongs to */
    uint64_t since_ns; /* last raise */
    uint64_t trial_ns; /* begin of its trial */
    uint64_t until_ns; /* gets none before */
    uint64_t hold_ns;
    uint32_t swings;   /* as in struct extras */
    uint64_t before;   /* rate without extra threads, smoothed; 0: not known */
    int64_t base_mcpu; /* what it kept busy without them, smoothed; 0: not known */
    uint64_t trial_rate, trial_busy, trial_extra; /* sums over the looks of a trial */
    uint32_t trial_looks;
    bool paid; /* the trial is over */
};

/* Why threads of a loan were taken back, for people. */
enum extras_end {
    EXTRAS_KEPT,
    EXTRAS_WAITS,   /* a job waited for a core */
    EXTRAS_NO_IDLE, /* no core is idle any more */
    EXTRAS_UNUSED,  /* the job no longer uses its cores */
    EXTRAS_NO_GAIN, /* its progress did not rise */
    EXTRAS_BOUND,   /* its share changed, or it or its user may have no more */
    EXTRAS_END_MAX
};

struct extras_job {
    uint64_t id;       /* smaller is older */
    uint32_t user;     /* index of its user */
    uint32_t share;    /* cores by the plan; 0: does not run */
    uint32_t most;     /* threads that it may have; the share or less where none may be added */
    uint32_t weight;   /* what its speed is worth */
    uint32_t class;    /* smaller goes first, once users have the same number of extras */
    int64_t busy_mcpu; /* cores that it kept busy since the last look */
    int64_t wait_mcpu; /* its threads that could have run and had no core, on average */
    uint64_t rate;     /* progress per second in a unit of its own; 0: not known */
    const struct policy_curve *curve; /* by cores; NULL: unknown */
    struct extras_loan loan;
    enum extras_end end; /* the answer */
    bool ready;          /* within extras_look(): could use more */
};

struct extras_user {
    uint32_t most;  /* cores that all its jobs may have together */
    uint32_t extra; /* the answer: of all its jobs */
    uint32_t has;   /* used within */
};

struct extras_machine {
    uint64_t now_ns;
    int64_t idle_mcpu; /* of the cores that may be lent, since the last look */
};

/* Sets the loan of each job, and its `end` where something was taken back. */
void extras_look(struct extras *x, const struct extras_machine *machine, struct extras_job *jobs,
                 uint32_t count, struct extras_user *users, uint32_t user_count);

/* Threads beyond @share under this loan: none once the share has changed. */
static inline uint32_t extras_of(const struct extras_loan *loan, uint32_t share)
{
    return loan->share == share ? loan->extra : 0;
}

const char *extras_end_text(enum extras_end end); /* "a job waited for a core" */
