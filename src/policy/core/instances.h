/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a server of several processes uses its cores: as few instances at work at a time with many
 * threads each, or many with few. On four cores 1 × 4, 2 × 2 or 4 × 1 (Packrat, Bhardwaj et al.,
 * "Automatic Reconfiguration for Latency Minimization in CPU-based DNN Serving", 2023). The caller
 * looks ten times a second while the server has requests:
 *
 *   processes at work, time of a request ──▶ instances_choose() ──▶ threads of each process
 *
 * Every process that serves gets so many threads; those without a request sleep, and use no core.
 * The shape begins as even parts.
 *
 *     more at work than instances in five of eight looks, or more than
 *     twice as many in three:                                               narrower
 *     for two seconds no more at work than the next wider shape has:        wider, a trial
 *     a trial in which requests are not a twentieth shorter:                back; not wider for a
 *                                                                           minute, twice as long
 *                                                                           each time
 *     narrower soon after wider:                                            the two seconds double
 *
 * Pure, integers only; tided (plan/promises.c), the simulator and tests call it, on any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define INSTANCES_LOOK_NS       UINT64_C(100000000)
#define INSTANCES_CALM_NS       UINT64_C(2000000000)    /* before a wider shape, … */
#define INSTANCES_CALM_MAX_NS   UINT64_C(512000000000)  /* … doubled where that was too early */
#define INSTANCES_FUTILE_NS     UINT64_C(60000000000)   /* no wider shape after one in vain, … */
#define INSTANCES_FUTILE_MAX_NS UINT64_C(3600000000000) /* … doubled each time */

/* At most so many processes work at a time, with so many threads each. */
struct instances_shape {
    uint32_t count, threads; /* 0: none chosen */
};

/* State of a job from look to look, kept by the caller; all zero at first. */
struct instances_state {
    struct instances_shape shape; /* the last answer, … */
    uint32_t cores, processes;    /* … and what it was for */
    uint64_t changed_ns;          /* since then */
    uint64_t service_ns;          /* time of a request with it; 0: not measured yet */
    /* Looks with this shape. */
    uint64_t looked_ns;
    uint32_t looks;
    uint32_t crowded; /* a bit each, the last one lowest: more were at work than instances, … */
    uint32_t twice;   /* … and more than twice as many */
    int64_t at_work;  /* smoothed, in 256ths; … */
    uint64_t mean;    /* … and by what ended */
    /* Growing wider. */
    struct instances_shape before; /* of a trial; count 0: none is under way */
    uint64_t before_ns;            /* time of a request with it */
    uint64_t widened_ns;           /* 0: never, or it held for long */
    uint64_t calm_ns;
    uint32_t futile; /* threads that did not help: neither do more, … */
    uint64_t until_ns, futile_ns;
};

/* The caller's view. Any values are allowed, and answered in bounds. */
struct instances_look {
    uint64_t now_ns;     /* monotonic */
    uint32_t cores;      /* that the job has; 0 counts as 1 */
    uint32_t processes;  /* that serve requests; 0 counts as 1 */
    uint32_t at_work;    /* processes with requests at present */
    uint64_t service_ns; /* median of those that ended in the window; 0: none did */
    uint64_t window_ns;  /* how long that is */
    uint32_t ended;      /* in it */
};

/*
 * The shape for now: at least one instance and one thread, at most as many instances as processes,
 * and instances × threads never more than the cores.
 */
struct instances_shape instances_choose(struct instances_state *s,
                                        const struct instances_look *look);
