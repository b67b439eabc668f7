/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed-up tables: their concave envelope, and the speed at any amount of cores.
 * Pure; used by policies, the fit, the simulator and the daemon.
 */
#pragma once

#include "policy/core/policy.h"

/*
 * Writes the smallest concave function of integers above @table, that is one whose steps never
 * grow, so that giving one core after the other by the largest step is optimal for it.
 * @ret_envelope has @count entries and is not @table. O(count).
 */
void curve_envelope(const uint32_t *table, uint32_t count, uint32_t *ret_envelope);

/*
 * Speed with @mcpu in thousandths of one core's: by the table, linear between whole cores, in
 * proportion below one core, the last entry beyond the end. Without a table a guess: Amdahl's law
 * with nine tenths parallel.
 */
uint64_t curve_speed(const struct policy_curve *curve, int64_t mcpu);
