/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time zones from the files of the tz database (TZif, RFC 8536, versions 2 to 4): the offset of
 * local time at any moment, and when it changes next. The caller reads the file. Pure; any thread.
 * Used by window.h, budget.h, src/unit and src/hub.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZONE_BYTES_MAX   65536
#define ZONE_CHANGES_MAX 1024

/* The rule of all years after the listed changes: index 0 begins DST, 1 ends it. */
struct zone_rule {
    int32_t offset_s, dst_offset_s;    /* east of Greenwich */
    uint8_t month[2], week[2], day[2]; /* 1…12; 1…5, 5: the last; 0: Sunday */
    int32_t at_s[2];                   /* local time of that day, from -167 to 167 hours */
    bool dst;
};

struct zone {
    uint32_t count;                     /* listed changes; the first is at INT64_MIN; 0: unknown */
    int64_t from_s[ZONE_CHANGES_MAX];   /* seconds since 1970, UTC */
    int32_t offset_s[ZONE_CHANGES_MAX]; /* from that moment on */
    struct zone_rule tail;
    char name[64]; /* "America/Argentina/Buenos_Aires"; the caller's */
};

/*
 * Reads a file's content. Returns 0 or -EINVAL: not TZif of version 2 or later, with leap seconds,
 * with more changes than ZONE_CHANGES_MAX, or with a rule that names days by their number in the
 * year (no zone of the database has one). *ret is written only if 0; its name becomes empty.
 */
int zone_parse(const void *tzif, size_t len, struct zone *ret);

/*
 * Whether its file was read. Of an unknown zone, which has a name alone, nobody knows the time: who
 * asks for its offset all the same gets UTC's.
 */
static inline bool zone_known(const struct zone *z)
{
    return z->count > 0;
}

int32_t zone_offset_s(const struct zone *z, int64_t utc_s);

/* The first change after @utc_s; INT64_MAX: none. */
int64_t zone_next_change_s(const struct zone *z, int64_t utc_s);

/*
 * The local day around @utc_s: its first second and the next day's. It has 23 to 25 hours where
 * clocks change, and begins at the first moment with its date where midnight does not exist.
 */
void zone_day(const struct zone *z, int64_t utc_s, int64_t *ret_begin_s, int64_t *ret_end_s);
