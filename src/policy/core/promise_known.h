/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a promise of latency can be kept, as far as measurements of earlier runs and promises of
 * the same user say. Only facts speak: without any the answer is "unknown". Pure, integers only;
 * tided (record/promised.h) calls it, and tests, on any thread.
 */
#pragma once

#include "policy/core/promise.h"

#include <stdbool.h>
#include <stdint.h>

/* Facts of all runs of a server so far; zero where nothing is known. */
struct promise_known {
    uint64_t requests;   /* that were seen */
    uint64_t fastest_ns; /* none was shorter */
    uint64_t best_ns;    /* lowest p99 of a window with the same cores from begin to end, … */
    uint32_t best_cores; /* … and those */
    uint32_t tried;      /* most cores of such a window */
    /* The last run whose promise was judged for long enough. */
    uint64_t kept_promise_ns;
    uint32_t kept_seconds, kept_permille;
    uint32_t kept_mcpu; /* cores that it had then, on average */
    uint32_t kept_rate; /* requests a second then, on average */
};

#define PROMISE_KNOWN_REQUESTS 100 /* so many, before the fastest of them says something */
#define PROMISE_KNOWN_SECONDS  60  /* so many judged seconds, before a run says something */

struct promise_asked {
    uint64_t promise_ns;
    uint32_t cores;       /* that the job may have, of its user's and its own maximum */
    uint32_t others;      /* of these: cores that its user's other promises need */
    uint32_t min;         /* its minimum; 0: none */
    enum promise_why why; /* of the job that runs */
};

enum promise_keepable { PROMISE_UNKNOWN, PROMISE_KEEPABLE, PROMISE_UNKEEPABLE };

/* The fact on which the answer rests. */
enum promise_ground {
    PROMISE_FIRST_RUN, /* unknown: nothing was measured, or too little */
    PROMISE_LESS,      /* unknown: it was kept, but a longer promise */
    PROMISE_TAKEN,     /* unknown: others need all cores beyond the minima */
    PROMISE_CROWDED,   /* unknown: others need cores that it had when it was kept */
    PROMISE_WAS_KEPT,
    PROMISE_MINIMUM,      /* not: its minimum is more than it may have */
    PROMISE_FASTEST,      /* not: no request was ever so short */
    PROMISE_BEST,         /* not: p99 never was, with as many cores */
    PROMISE_GIVEN_UP_NOW, /* not: all that it may have has just been tried */
    PROMISE_GROUND_MAX
};

enum promise_keepable promise_judge(const struct promise_known *known,
                                    const struct promise_asked *asked, enum promise_ground *ret);

/* Adds a window: @p99_ns of requests that all had @cores. */
void promise_known_window(struct promise_known *known, uint64_t p99_ns, uint32_t cores);
