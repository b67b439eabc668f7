/* SPDX-License-Identifier: Apache-2.0 */
/* Times as people write them: "90s", "1h30min", "18:30". Any thread. */
#pragma once

#include <stdint.h>
#include <time.h>

#define MOMENT_MAX_MS (10 * 365 * 86400000ull) /* the longest duration */

/*
 * Reads one or more numbers with units (ms, s, min, h, d). Returns 0 or -EINVAL, also for a missing
 * unit, a sum above MOMENT_MAX_MS, and "0s".
 */
int moment_duration(const char *text, uint64_t *ret_ms);

/*
 * Reads a future time: a duration from now, or the next HH:MM of local time, today or tomorrow
 * (like at(1)). *ret_ms is milliseconds since 1970. Returns 0 or -EINVAL.
 */
int moment_parse(const char *text, uint64_t now_ms, uint64_t *ret_ms);

/*
 * Reads a past time: a duration ago, the last HH:MM, YYYY-MM-DD with or without HH:MM[:SS] behind a
 * blank or T, or seconds since 1970 in five to eleven digits. Otherwise like moment_parse().
 */
int moment_past(const char *text, uint64_t now_ms, uint64_t *ret_ms);
