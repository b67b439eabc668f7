/* SPDX-License-Identifier: Apache-2.0 */
/* Times as people write them: "90s", "1h30min", "18:30". Any thread; used by cli and node. */
#pragma once

#include <stdint.h>
#include <time.h>

#define MOMENT_MAX_MS (10 * 365 * 86400000ull) /* the longest duration */

/*
 * Numbers with units (ms, s, min, h, d) one behind the other. 0 or -EINVAL: also without a unit,
 * above MOMENT_MAX_MS, and "0s".
 */
int moment_duration(const char *text, uint64_t *ret_ms);

/*
 * Milliseconds since 1970 of a duration from now, or of the next time that the clock on the wall
 * shows HH:MM, as at(1) has it: today, or tomorrow where that has passed. 0 or -EINVAL.
 */
int moment_parse(const char *text, uint64_t now_ms, uint64_t *ret_ms);
