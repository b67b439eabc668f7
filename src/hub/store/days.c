/* SPDX-License-Identifier: Apache-2.0 */
/* Which days are counted, and since when. */
#include "hub/store/store_state.h"

#include "base/cleanup.h"
#include "edge/zones.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "store-failed"

#define ALL_DAYS "9223372036854775807" /* NOTE_UNTIL when none is counted yet */

static int64_t floor_s(int64_t ms)
{
    return ms >= 0 ? ms / 1000 : -((999 - ms) / 1000);
}

int64_t store_day(struct store *s, int64_t ms, int64_t *ret_end_ms)
{
    int64_t begin_s, end_s;

    if (ms < s->begin_ms || ms >= s->end_ms) {
        zone_day(s->zone, floor_s(ms), &begin_s, &end_s);
        s->begin_ms = begin_s * 1000;
        s->end_ms = end_s * 1000;
    }
    *ret_end_ms = s->end_ms;
    return s->begin_ms;
}

/* UTC needs no file. */
static int find_zone(const char *name, struct zone *ret, struct error *err)
{
    struct zones zones = {0};
    uint32_t which = 0;
    int r = 0;

    if (strcmp(name, "UTC") == 0) {
        *ret = (struct zone){.count = 1, .from_s = {INT64_MIN}, .name = "UTC"};
        return 0;
    }
    r = zones_find(&zones, name, &which, err);
    if (r == 0)
        *ret = *zones.zone[which];
    zones_done(&zones);
    return r;
}

/* When the newest row ends that ends at or before @upto_ms; 0: there is none. */
static int newest(struct store *s, int64_t upto_ms, int64_t *ret)
{
    static const int64_t steps[] = {STEP_SECOND, STEP_MINUTE, STEP_QUARTER};

    *ret = 0;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        int64_t last = 0;
        int r = store_ask_number(
            s, NEWEST_SAMPLE, &(struct values){.numbers = 2, .number = {steps[i], upto_ms}}, &last);

        if (r < 0 && r != -ENOENT)
            return r;
        *ret = last > *ret ? last : *ret;
    }
    return 0;
}

/* The sums of one day, anew; what it cost, by quarters of an hour of the same price. */
static int count_day(struct store *s, int64_t begin_ms, int64_t end_ms)
{
    const int64_t step_ms = STEP_QUARTER * INT64_C(1000);
    int r = s->db->dialect->write(s->db, CLEAR_DAY,
                                  &(struct values){.numbers = 2, .number = {begin_ms, end_ms}});

    for (int64_t from_ms = begin_ms, to_ms; r == 0 && from_ms < end_ms; from_ms = to_ms) {
        int64_t price = store_quarter_price(s, from_ms);

        for (to_ms = from_ms + step_ms; to_ms < end_ms && store_quarter_price(s, to_ms) == price;)
            to_ms += step_ms;
        to_ms = to_ms < end_ms ? to_ms : end_ms;
        r = s->db->dialect->write(s->db, FILL_DAY,
                                  &(struct values){.numbers = 5,
                                                   .number = {begin_ms, from_ms, to_ms,
                                                              price < 0 ? 0 : price, price >= 0}});
    }
    return r;
}

int store_fill_day(struct store *s, struct error *err)
{
    int64_t last = 0, begin_ms = 0, end_ms;
    char until[NOTE_MAX];
    int r = s->filled_ms ? store_begin(s, err) : 0;

    if (r < 0 || !s->filled_ms)
        return r;
    r = newest(s, s->filled_ms, &last);
    if (r == 0 && last) {
        begin_ms = store_day(s, last - 1, &end_ms);
        r = count_day(s, begin_ms, end_ms);
    }
    snprintf(until, sizeof(until), "%" PRId64, begin_ms);
    r = r ? r : store_set_note(s, NOTE_UNTIL, until);
    s->failed = r;
    r = store_commit(s, err);
    if (r == 0)
        s->filled_ms = begin_ms;
    return r ? r : begin_ms != 0;
}

/* Samples of an older program are in no day yet. */
static int first_days(struct store *s, struct error *err)
{
    int r = store_begin(s, err);

    if (r < 0)
        return r;
    r = store_set_note(s, NOTE_ZONE, "UTC");
    s->failed = r ? r : store_set_note(s, NOTE_UNTIL, ALL_DAYS);
    s->filled_ms = INT64_MAX;
    r = store_commit(s, err);
    while (r == 0 && (r = store_fill_day(s, err)) == 1)
        r = 0;
    return r;
}

int store_load_days(struct store *s, struct error *err)
{
    char zone[NOTE_MAX], until[NOTE_MAX];
    int r = store_note(s, NOTE_ZONE, zone);

    if (r == -ENOENT) {
        r = find_zone("UTC", s->zone, err);
        return r ? r : first_days(s, err);
    }
    r = r ? r : store_note(s, NOTE_UNTIL, until);
    if (r < 0)
        return error_set(err, r, "cannot read in which time zone days are counted: %s",
                         s->db->dialect->problem(s->db));
    s->filled_ms = strtoll(until, NULL, 10);
    return find_zone(zone, s->zone, err);
}

int store_days(struct store *s, const char *name, struct error *err)
{
    _cleanup_free_ struct zone *zone = calloc(1, sizeof(*zone));
    int r;

    if (!zone)
        return error_set(err, -ENOMEM, "out of memory");
    r = find_zone(name, zone, err);
    if (r < 0 || strcmp(s->zone->name, name) == 0)
        return r;
    r = store_begin(s, err);
    if (r < 0)
        return r;
    r = s->db->dialect->write(s->db, DROP_DAYS,
                              &(struct values){.numbers = 1, .number = {INT64_MAX}});
    r = r ? r : store_set_note(s, NOTE_ZONE, name);
    r = r ? r : store_set_note(s, NOTE_UNTIL, ALL_DAYS);
    s->failed = r;
    r = store_commit(s, err);
    if (r < 0)
        return r;
    free(s->zone);
    s->zone = TAKE_PTR(zone);
    s->begin_ms = s->end_ms = 0;
    s->filled_ms = INT64_MAX;
    return 0;
}
