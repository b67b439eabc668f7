/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grid's carbon intensity from a file that an administrator's program writes: a line for each
 * time from which it counts, "2026-11-23T18:00Z 350" or seconds since 1970 and g/kWh, in any order;
 * what stands behind '#' is a remark. Event loop's thread; used by the tree.
 */
#pragma once

#include "base/error.h"
#include "edge/bundle.h"

#include <stdbool.h>
#include <time.h>

#define CARBON_BYTES_MAX (1 << 20)
#define CARBON_AHEAD_MS  (48 * INT64_C(3600000)) /* so far ahead units are told */

struct carbon {
    struct carbon_hour hour[BUNDLE_CARBON_MAX]; /* by rising from_ms: of now and the next 48 h */
    uint32_t count;
    struct timespec read; /* time of the file that was read */
};

/*
 * Reads a text. Returns 0, or -EINVAL, -E2BIG or -ENOMEM with "line: what is wrong". If a time
 * occurs twice, one of its lines counts.
 */
int carbon_parse(const char *text, int64_t now_ms, struct carbon *ret, struct error *err);

/*
 * Reads the file if it changed, or if @again. Returns 1: what units should know is another; 0: it
 * is as it was; -errno with *err, which names the file: @c is as before, until it changes again.
 */
int carbon_read(const char *path, bool again, int64_t now_ms, struct carbon *c, struct error *err);

/* g/kWh at that time; RULE_UNKNOWN. */
uint64_t carbon_at(const struct carbon *c, int64_t now_ms);
