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

/*
 * The same of a time that has passed: a duration ago, the last time that the clock showed HH:MM,
 * YYYY-MM-DD with or without HH:MM[:SS] behind a blank or T, or seconds since 1970 of five digits
 * or more.
 */
int moment_past(const char *text, uint64_t now_ms, uint64_t *ret_ms);
