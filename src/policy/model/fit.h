/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns a job's speed-up curve while it runs, from pairs of thread count and rate:
 *
 *   time per unit of work   T(k) = serial + parallel / k + contention (k − 1)
 *
 * which is Amdahl's law with a term for what more threads cost each other. Each count keeps the
 * median of its last rates. The curve fits all medians with the least relative error, weighted by
 * evidence, which grows with samples and halves with time.
 *
 * When the rate changes at the same count, the program does something else now: the other counts
 * are scaled with it and lose evidence, so that the shape holds until it is measured anew. When the
 * rate differs just after the count changed, the shape was wrong.
 *
 * Pure, integers only; one fit per job, which its owner may copy, store and load as bytes. Called
 * by the daemon, the simulator and tests.
 */
#pragma once

#include "policy/core/policy.h"

#include <stdbool.h>
#include <stdint.h>

#define FIT_COUNTS       12   /* thread counts kept; the one with the least evidence makes room */
#define FIT_RECENT       5    /* a median is taken over so many rates */
#define FIT_THREADS_MAX  4096 /* samples with more threads are ignored */
#define FIT_RATE_MAX     (UINT64_C(1) << 38) /* faster samples are ignored, too: choose the unit */
#define FIT_HALF_LIFE_NS (UINT64_C(600) * 1000000000) /* evidence halves in this time */
#define FIT_ONE          (UINT64_C(1) << 30)          /* stands for 1 in a model's fractions */
#define FIT_SAMPLE       16                           /* evidence of one sample */
#define FIT_FAR_PERMILLE 200                          /* a larger deviation is not noise */

struct fit_count {
    uint64_t rate;
    uint64_t last_ns;
    uint32_t threads;  /* 0: free */
    uint32_t evidence; /* at last_ns, in sixteenths of a sample */
};

/* All zero means that nothing is known. No pointers, no padding. */
struct fit {
    struct fit_count count[FIT_COUNTS];
    uint64_t recent[FIT_RECENT]; /* a ring: the last rates of the present visit */
    uint64_t first_ns;           /* time of the first sample */
    uint64_t explore_ns;         /* begin of the exploration, else end of the last one; 0: none */
    uint32_t threads;            /* of the present visit, a row of samples with one count */
    uint32_t visit;              /* number of samples in the visit */
    uint32_t far;                /* how many of its latest lie far off the count's rate */
    uint32_t noise_permille;     /* usual deviation of a rate from that of its count */
    uint32_t explore_from;       /* 0: no exploration is under way */
    uint32_t explore_to;
    uint32_t explore_loss_permille; /* part of its speed that this one, or the last, costs */
};

/* The fitted curve. Fractions are of T(1), the time per unit with one thread. */
struct fit_model {
    uint64_t parallel;       /* serial is the rest of FIT_ONE */
    uint64_t contention;     /* for each further thread; at most FIT_ONE */
    uint64_t rate_one;       /* with one thread, in the unit of the samples */
    uint32_t counts;         /* the number of distinct counts that it rests on, at least 2 */
    uint32_t error_permille; /* mean deviation of the counts from the curve */
    uint32_t confidence_permille;
};

/*
 * Adds a rate measured while @threads were active, in any unit that stays the same. A rate of 0 is
 * ignored: the program waited for something else.
 */
void fit_add(struct fit *fit, uint64_t now_ns, uint32_t threads, uint64_t rate);

/* Forgets everything except the noise: the program counts another unit from now on. */
void fit_forget(struct fit *fit);

/* Returns false with fewer than two counts, and when no curve of this kind passes near them. */
bool fit_solve(const struct fit *fit, uint64_t now_ns, struct fit_model *ret_model);

/* Returns the evidence for @count at @now_ns; 0: nothing is known of it. */
uint32_t fit_evidence(const struct fit_count *count, uint64_t now_ns);

/* Returns the time per unit with @threads, relative to FIT_ONE with one thread. */
uint64_t fit_time(const struct fit_model *model, uint64_t threads);

/* Writes the speed with 1 … @count threads relative to one, in thousandths, none of them 0. */
void fit_table(const struct fit_model *model, uint32_t count, uint32_t *ret_table);

/*
 * Returns how many threads a job that was granted @have should run for a while to learn its curve:
 * fewer, but at least @least; or 0: as many as granted. Explorations are rare and spend at most
 * FIT_BUDGET_PERMILLE of a job's progress. Call it after each sample and each change of @have.
 */
#define FIT_BUDGET_PERMILLE 50
uint32_t fit_explore(struct fit *fit, uint64_t now_ns, uint32_t have, uint32_t least);
