/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worth of cores to a snapshot's jobs: the basis of a machine's demand for watts. Pure; any
 * thread.
 */
#pragma once

#include "policy/core/policy.h"

/*
 * Writes to @ret_worth[k] the worth of k = 0 … @cores cores: to each core its best use, by weight ×
 * speed, in thousandths of one core's speed. It begins at 0, rises, and is concave. Held jobs take
 * no part. A job's minimum (its size, if that is fixed) counts as a whole, each of its cores alike;
 * a core is worth no more to a job than the one before; a job without a curve counts as linear.
 *
 * @scratch has an entry per job, @ret_worth has @cores + 1. O(cores × jobs).
 */
void worth_of_cores(const struct policy_snapshot *snapshot, uint32_t cores, uint32_t *scratch,
                    uint64_t *ret_worth);
