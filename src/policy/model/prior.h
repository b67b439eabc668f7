/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of a speed-up curve that earlier runs of the same program left behind. It is believed
 * until the present run has measured two thread counts, gives way to what is measured from then on,
 * and is wrong when two counts disagree with it by more than noise.
 *
 * A shape has no rate: how fast one thread is, each run finds out by itself, in any unit.
 *
 * Pure, integers only. Called by the daemon and tests.
 */
#pragma once

#include "policy/model/fit.h"

struct prior {
    uint64_t parallel, contention; /* as in struct fit_model */
    uint32_t error_permille, confidence_permille;
    uint32_t count;               /* of `threads`, at least 2 */
    uint32_t threads[FIT_COUNTS]; /* the counts that it rests on, ascending */
};

/* False: no fit can have left this, so its file is wrong. */
bool prior_valid(const struct prior *prior);

/*
 * Writes what a later run may begin with. @before is the prior of this run, or NULL. Returns false
 * while fewer than two counts have two samples each, or the curve passes too far from them.
 */
bool prior_learn(const struct fit *fit, const struct prior *before, uint64_t now_ns,
                 struct prior *ret);

/*
 * Fits the curve through the measured counts, and through those of the prior, each of which weighs
 * as one sample of the present run. Before the first rate rate_one is 0.
 */
void prior_solve(const struct fit *fit, const struct prior *prior, uint64_t now_ns,
                 struct fit_model *ret_model);

/* Whether two counts of this run are in another ratio than the prior says, beyond noise. */
bool prior_disagrees(const struct fit *fit, const struct prior *prior, uint64_t now_ns);
