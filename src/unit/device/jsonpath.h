/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers and switches in the JSON texts of plugs, meters and sensors, found by a path:
 * "ENERGY.Power", "phases[0].power". Any thread; used by the kinds of devices.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSONPATH_BYTES_MAX 65536

int jsonpath_check(const char *path); /* 0 or -EINVAL */

/*
 * Finds the number at @path in the text, and multiplies it by @scale, rounded. Returns 0, -ENOENT
 * (no such member), -ERANGE (negative, or too large), -EINVAL (no number there, or no JSON).
 */
int jsonpath_number(const void *text, size_t len, const char *path, uint64_t scale, uint64_t *ret);

/* true, false, 1, 0, "on" or "off" in any case, at @path. Returns 0, -ENOENT or -EINVAL. */
int jsonpath_switch(const void *text, size_t len, const char *path, bool *ret);
