/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time zones that a power policy names, each read once from the machine's zoneinfo files. Any
 * thread. Used by bundle.c, src/unit and src/hub. A zone whose file cannot be read keeps its
 * number, and is unknown (zone_known()).
 */
#pragma once

#include "base/error.h"
#include "power/rules/rules.h"

#define ZONEINFO "/usr/share/zoneinfo"

struct zones {
    const char *root; /* ZONEINFO, or a test's */
    struct zone *zone[RULES_ZONES_MAX];
    uint32_t count;
};

/*
 * Gives the zone @name ("America/Argentina/Buenos_Aires") a number, without reading it. Returns 0
 * and the number, -EINVAL (it is no name), -E2BIG (more than RULES_ZONES_MAX) or -ENOMEM, with
 * *err.
 */
int zones_name(struct zones *z, const char *name, uint32_t *ret, struct error *err);

/* Reads the file of a zone that is unknown. Returns 0, -EINVAL (there is none) or another -errno.
 */
int zones_read(struct zones *z, uint32_t number, struct error *err);

/* Both. */
int zones_find(struct zones *z, const char *name, uint32_t *ret, struct error *err);
void zones_done(struct zones *z);

/*
 * Reads a time: "18:30" (the next one after @now_s), "2026-11-23 18:30", both on the clock of the
 * zone (NULL: UTC), the latter with a "Z" behind it in UTC; "T" may stand for the blank. Of a time
 * that occurs twice this is the first; one that is left out is an hour later. Returns 0 or -EINVAL.
 */
int zones_time(const struct zone *z, const char *text, int64_t now_s, int64_t *ret_utc_s);

#define ZONES_TIME_MAX 24
/* "2026-11-23 18:30" on the clock of the zone (NULL: UTC). */
void zones_text(const struct zone *z, int64_t utc_s, char ret[ZONES_TIME_MAX]);
