/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns a machine's power from readings of a meter, in two forms:
 *   - weights of (1, what a sensor of a part says, busy cores, load) by recursive least squares:
 *     the machine's power where a meter is missing now, but the sensor is not. Beside a sensor load
 *     counts as load / (1 core + load): the sensor tells the rest of what grows;
 *   - knots, the mean power at the loads that occurred: the curve of power over load, which is
 *     concave on real machines and which weights alone would draw straight.
 * A sample that is far off counts less, in proportion to how far beyond two usual residuals it is
 * (Huber, Robust estimation of a location parameter, Ann. Math. Stat. 35, 1964): power that rises
 * before its load is told, or after, is no reason to believe in another machine.
 * The error of the weights is that of forecasts by weights that are at least WATTS_FIT_LAG samples
 * old: what happens a moment later is known too well from what happens now. The errors are spread
 * over all the time that was learnt from. Their p90 is told with a confidence of 95 % (Wilks,
 * Determination of sample sizes for setting tolerance limits, Ann. Math. Stat. 12, 1941).
 *
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

#define WATTS_FIT_FEATURES 4 /* 1, sensor, busy, load */
#define WATTS_FIT_KNOTS    16
#define WATTS_FIT_ERRORS   512
#define WATTS_FIT_RECENT   32 /* errors of the curve */
#define WATTS_FIT_LAG      64 /* samples */
#define WATTS_FIT_VERSION  3

struct watts_fit_knot {
    double mcpu; /* mean load */
    double uw;   /* mean power at it */
    double weight;
};

/* All zero means that nothing was learnt. No pointers, no padding. */
struct watts_fit {
    double weight[WATTS_FIT_FEATURES]; /* in W, of features in 1, W and cores */
    double mean[WATTS_FIT_FEATURES];   /* of the last weights: what forecasts */
    double covariance[WATTS_FIT_FEATURES][WATTS_FIT_FEATURES];
    struct watts_fit_knot knot[WATTS_FIT_KNOTS]; /* by load */
    double lagged[2][WATTS_FIT_FEATURES];        /* earlier weights; the first are the older ones */
    double usual_w;                              /* mean size of a residual */
    double error[WATTS_FIT_ERRORS];              /* relative, of forecasts by the older ones */
    double knot_error[WATTS_FIT_RECENT];         /* a ring; of forecasts before learning */
    uint32_t errors;                             /* in `error` */
    uint32_t stride;                             /* one of so many is put there */
    uint32_t knot_errors;                        /* that were put into the ring */
    uint32_t reserved;
    uint32_t samples;
    uint32_t knots;
    uint32_t version; /* WATTS_FIT_VERSION, or 0 without samples */
};

/* The readings of one interval. sensor_uw 0: there is no such sensor, then or ever. */
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

/* Whether the machine was seen (nearly) idle. If not, a curve's idle power is where the line
 * through higher loads meets zero, which on a concave machine is too much. */
bool watts_fit_knows_idle(const struct watts_fit *f, uint32_t most_mcpu);

/* The power that the weights forecast for a sample (its uw does not count), with their error;
 * UNKNOWN before the errors of eight forecasts are known. */
struct power_range watts_fit_at(const struct watts_fit *f, const struct watts_sample *s);
