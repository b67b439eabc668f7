/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power curves of machines that nobody measured: medians and mean curves of SPECpower_ssj2008
 * results by year and sockets (prior_rows.h says from which collection). Servers differ much, so
 * the error of such a curve is wide; it is an assumption, and says so by its basis.
 *
 * The benchmark's load is a part of the throughput, which stands for busy cores here. Pure; any
 * thread.
 */
#pragma once

#include "power/model/watts.h"

#define PRIOR_YEAR_FIRST                                                                           \
    2004 /* of hardware in the table; newer than its last year counts as that */

/*
 * The median machine of that year with @sockets and @cores: POWER_ASSUMED. The error is the one
 * that 90 % of results left out one by one stay below. Returns 0, -ENOENT (nothing is known of such
 * machines) or -EINVAL (no cores, or too many).
 */
int prior_watts(uint32_t year, uint32_t sockets, uint32_t cores, struct watts *ret);

/*
 * The mean curve of that year's machines between two known powers, of the idle and of the fully
 * busy machine: POWER_MODELLED. Returns 0, -ENOENT, or -EINVAL (no cores; full below idle or above
 * POWER_UW_MAX).
 */
int prior_shape(uint32_t year, uint64_t idle_uw, uint64_t full_uw, uint32_t cores,
                struct watts *ret);
