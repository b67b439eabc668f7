/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed-up tables from a formula or from measured points. Integers only, so that they are the same
 * on every machine. Any thread, nothing shared; used by the readers of scenarios and traces.
 */
#pragma once

#include "sim/engine/sim.h"

#include <stddef.h>
#include <stdint.h>

#define SPEEDUP_UNIT       INT64_C(1000000000) /* of a fraction: 1 */
#define SPEEDUP_POINTS_MAX 4096

/*
 * S(k) = k / (1 + (1−f)(k−1) + c·k(k−1)): Amdahl's law with the parallel fraction f and, with c >
 * 0, a term for contention (Gunther 1993). @parallel and @contention are f and c, 0 … SPEEDUP_UNIT.
 * Returns a table for 1 … @count cores (at most SIM_CORES_MAX), in one block that the caller gives
 * to free(); NULL without memory.
 */
struct sim_curve *speedup_amdahl(int64_t parallel, int64_t contention, uint32_t count);

/*
 * Makes a table from @points measured speeds, @speed[i] with @cores[i], which begin with 1 core and
 * increase: relative to the first, linear in between, constant beyond the last. Up to @count cores.
 */
struct sim_curve *speedup_measured(const uint32_t *cores, const double *speed, size_t points,
                                   uint32_t count);

/* ---- tables for fractions, made as they are met ------------------------------------------------
 */

/* Maximum cores of all tables of a set together (128 MiB). */
#define SPEEDUP_ENTRIES_MAX (UINT32_C(1) << 24)

struct speedup_set {
    uint32_t cores; /* length of each table */
    size_t count;
    struct speedup_entry {
        int64_t parallel;
        struct sim_curve *curve;
    } * entries; /* by fraction */
};

/* Amdahl's table for @parallel; it lives as long as the set. 0, -ENOMEM or -E2BIG (too many). */
int speedup_set_get(struct speedup_set *set, int64_t parallel, const struct sim_curve **ret_curve);
void speedup_set_done(struct speedup_set *set);
