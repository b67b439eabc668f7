/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns a machine's power from readings of a meter, in two forms:
 *   - weights of (1, what a sensor of a part says, busy cores, busy cores × speed) by recursive
 *     least squares: the machine's power where a meter is missing now, but the sensor is not;
 *   - knots, the mean power at the loads that occurred: the curve of power over load, which is
 *     concave on real machines and which weights alone would draw straight.
 * A curve needs three loads apart; `tide power calibrate` provides them.
 *
 * The only doubles of energy live here: + - * / alone, so the same samples give the same weights on
 * every machine of IEEE arithmetic (contraction is off), rounded to microwatts at the border.
 * Pure; one owner, who may copy, store and load it as bytes; a copy of another version is refused.
 */
#pragma once

#include "power/model/watts.h"

#include <stdbool.h>
#include <stdint.h>

#define WATTS_FIT_FEATURES 4 /* 1, sensor, busy, busy × speed */
#define WATTS_FIT_KNOTS    16
#define WATTS_FIT_ERRORS   32
#define WATTS_FIT_VERSION  1

struct watts_fit_knot {
    double mcpu; /* mean load */
    double uw;   /* mean power at it */
    double weight;
};

/* All zero means that nothing was learnt. No pointers, no padding. */
struct watts_fit {
    double weight[WATTS_FIT_FEATURES]; /* in W, of features in 1, W and cores */
    double covariance[WATTS_FIT_FEATURES][WATTS_FIT_FEATURES];
    struct watts_fit_knot knot[WATTS_FIT_KNOTS]; /* by load */
    double error[WATTS_FIT_ERRORS]; /* rings: relative errors of forecasts, before learning */
    double knot_error[WATTS_FIT_ERRORS];
    uint32_t errors; /* that were put into each */
    uint32_t samples;
    uint32_t knots;
    uint32_t version; /* WATTS_FIT_VERSION, or 0 without samples */
};

/* What is read in one interval. @sensor_uw 0: there is no such sensor, then or ever. */
struct watts_sample {
    uint64_t sensor_uw;
    uint32_t busy_mcpu; /* without the speed */
    uint32_t speed_permille;
    uint64_t uw; /* the meter's */
};

/* Whether bytes from a file are a fit: 0 or -EINVAL. */
int watts_fit_check(const struct watts_fit *f);

/* Learns from one sample; one that cannot be (above POWER_UW_MAX or WATTS_LOAD_MAX) is ignored. */
void watts_fit_add(struct watts_fit *f, const struct watts_sample *s);

/*
 * Draws the curve up to @most_mcpu: POWER_CALIBRATED, its error the p90 of forecasts. Its source is
 * the caller's to write. Returns false below three loads a twentieth of @most_mcpu apart.
 */
bool watts_fit_solve(const struct watts_fit *f, uint32_t most_mcpu, struct watts *ret);

/* The power that the weights forecast for a sample (its uw does not count), with their error;
 * UNKNOWN before the errors of eight forecasts are known. */
struct power_range watts_fit_at(const struct watts_fit *f, const struct watts_sample *s);
