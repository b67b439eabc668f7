/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for a machine's meter while that sends nothing, by the curve that its readings taught
 * (watts_fit.h), over the power of the packages, where sensors tell it, and the load.
 *
 * The data's way, once a division of tided's meter (daemon/energy/meter.c):
 *   reading, packages' watts, load -> stand_in_add(), while the best source that was seen tells
 *   packages' watts, load -> stand_in_at() -> the machine's power and energy, while it does not
 *   curve by load (watts_fit_solve) -> idle power, bounds of jobs, caps
 *
 * It speaks where it has been alone: before STAND_IN_SAMPLES readings, beyond the loads that were
 * seen, and without the packages' sensors that it learnt beside, it knows nothing. A source that
 * comes back is compared first: where most of STAND_IN_TRIAL readings lie outside of what was
 * forecast, the meter or the machine is another, and all is learnt anew.
 *
 * Pure; one owner, who may store and load it as bytes (the members before `away`).
 */
#pragma once

#include "power/measure/range.h"
#include "power/model/watts_fit.h"

#include <stdint.h>

#define STAND_IN_SAMPLES 256 /* twice what the honest errors of watts_fit.h need */
#define STAND_IN_TRIAL   16
#define STAND_IN_AWAY    8  /* intervals without a reading: who comes back then is compared */
#define STAND_IN_ODD     64 /* samples in a row with or without packages, until that is so */

/* All zero: nothing was learnt. */
struct stand_in {
    struct watts_fit fit;
    uint32_t basis; /* CALIBRATED: learnt from a meter, MODELLED: from the packages, UNKNOWN */
    uint32_t below_permille, above_permille; /* the last reading's bounds around its value */
    uint32_t beside;                         /* 1: the packages' sensors were beside the meter */
    uint32_t away;                           /* intervals in which the source said nothing */
    uint32_t trial, missed;                  /* readings to compare still, and those outside */
    uint32_t odd;
};

/* Whether bytes from a file are one: 0 or -EINVAL. */
int stand_in_check(const struct stand_in *s);

/*
 * Learns from one interval. @reading is its power: POWER_MEASURED by a source of the whole machine,
 * POWER_MODELLED by the packages alone, which teach nothing once there was better. UNKNOWN: the
 * source is away. @sample->sensor_uw: the packages'; 0: not told.
 */
void stand_in_add(struct stand_in *s, const struct watts_sample *sample,
                  const struct power_range *reading);

/* The machine's power by what was learnt, its bounds those of the forecasts and of the readings
 * that taught it; UNKNOWN as above. */
struct power_range stand_in_at(const struct stand_in *s, const struct watts_sample *sample);
