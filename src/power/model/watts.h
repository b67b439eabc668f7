/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power of a machine as a function of its load: a piecewise line through at most WATTS_POINTS
 * points, with the error that readings have against it. Load counts busy cores × speed in mcpu, so
 * one core busy at its base frequency is 1000.
 *
 * Integers; pure; any thread. Filled in by prior.h (tables), watts_fit.h (readings) and by what a
 * person or a peer states; used by the attribution, the keeper of a cap and the division of one.
 */
#pragma once

#include "power/measure/range.h"

#include <stdbool.h>
#include <stdint.h>

#define WATTS_POINTS     8
#define WATTS_SOURCE_MAX 64
#define WATTS_LOAD_MAX   (UINT32_C(1) << 30) /* mcpu: the largest machine and more */
#define WATTS_ERROR_MAX  4000                /* permille */

struct watts_point {
    uint32_t load_mcpu;
    uint64_t uw;
};

struct watts {
    struct watts_point point[WATTS_POINTS]; /* the first has load 0; loads rise, uw never falls */
    uint32_t count;                         /* 0: nothing is known */
    uint32_t error_permille;                /* 90 % of readings lie within */
    uint32_t basis;                         /* enum power_basis; UNKNOWN if nothing is known */
    char source[WATTS_SOURCE_MAX]; /* "calibrated 2026-11-23 against meter1", "SPECpower 2019, …" */
};

/*
 * Returns the power at @load_mcpu with its bounds, each at most POWER_UW_MAX: the line between two
 * points, beyond the last point the last line's slope. UNKNOWN where nothing is known.
 */
struct power_range watts_at(const struct watts *w, uint32_t load_mcpu);

/*
 * Returns the largest load, at most WATTS_LOAD_MAX, whose power is at most @uw; @surely: whose
 * upper bound is. 0 also if not even an idle machine lies below @uw, or nothing is known.
 */
uint32_t watts_load(const struct watts *w, uint64_t uw, bool surely);

/* Moves the whole curve by @bias_uw, clamped at 0 and POWER_UW_MAX. */
void watts_shift(struct watts *w, int64_t bias_uw);
