/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed-up tables: their concave envelope, and the speed at any amount of cores.
 * Pure; used by policies, the fit, the simulator and the daemon.
 */
#pragma once

#include "policy/core/policy.h"

/*
 * Writes the smallest concave function of integers above @table. Its steps never grow, so giving
 * out cores one by one, each where the step is largest, is optimal.
 * @ret_envelope has @count entries and is not @table. O(count).
 */
void curve_envelope(const uint32_t *table, uint32_t count, uint32_t *ret_envelope);

/*
 * Returns the speed with @mcpu in thousandths of one core's: the table's, linear between whole
 * cores, proportional below one core, and the last entry beyond the end. Without a table it guesses
 * by Amdahl's law with nine tenths parallel.
 */
uint64_t curve_speed(const struct policy_curve *curve, int64_t mcpu);
