/* SPDX-License-Identifier: Apache-2.0 */
#include "power/calendar/zone.h"

#include <errno.h>
#include <string.h>

#define HEADER_BYTES 44
#define DAY_S        86400
#define OFFSET_MAX_S (26 * 3600)  /* RFC 8536: 25 h 59 min 59 s */
#define AT_MAX_S     (168 * 3600) /* of a rule: up to a week and a bit */

/* ---- days ------------------------------------------------------------------------------------ */

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Days since 1970 of the first of a month; from the Gregorian calendar's cycle of 400 years. */
static int64_t days_before_month(int64_t year, int64_t month)
{
    int64_t y = month <= 2 ? year - 1 : year; /* years begin in March here */
    int64_t era = floor_div(y, 400), of_era = y - era * 400;
    int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5;

    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int64_t year_of(int64_t day)
{
    int64_t year = 1970 + floor_div(day * 400, 146097);

    while (days_before_month(year, 1) > day)
        year--;
    while (days_before_month(year + 1, 1) <= day)
        year++;
    return year;
}

/* The day that the rule names in a year: the week-th such weekday of the month. */
static int64_t day_of_rule(const struct zone_rule *r, int which, int64_t year)
{
    int64_t first = days_before_month(year, r->month[which]);
    int64_t next = r->month[which] == 12 ? days_before_month(year + 1, 1)
                                         : days_before_month(year, r->month[which] + 1);
    int64_t weekday = (first % 7 + 7 + 4) % 7; /* 1 January 1970 was a Thursday */
    int64_t day = first + (r->day[which] - weekday + 7) % 7 + 7 * (r->week[which] - 1);

    return day < next ? day : day - 7;
}

/* ---- the file -------------------------------------------------------------------------------- */

struct reader {
    const uint8_t *at;
    size_t left;
    bool short_of; /* something was read beyond the end */
};

static const uint8_t *take(struct reader *r, uint64_t len)
{
    const uint8_t *at = r->at;

    if (len > r->left) {
        r->short_of = true;
        r->left = 0;
        return NULL;
    }
    r->at += len;
    r->left -= len;
    return at;
}

static uint32_t big32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int64_t big64(const uint8_t *at)
{
    return (int64_t)((uint64_t)big32(at) << 32 | big32(at + 4));
}

struct counts {
    uint32_t is_ut, is_standard, leaps, changes, types, characters;
};

static int read_header(struct reader *r, struct counts *ret)
{
    const uint8_t *at = take(r, HEADER_BYTES);

    if (!at || memcmp(at, "TZif", 4) != 0 || at[4] < '2')
        return -EINVAL;
    *ret = (struct counts){big32(at + 20), big32(at + 24), big32(at + 28),
                           big32(at + 32), big32(at + 36), big32(at + 40)};
    return 0;
}

static int read_changes(struct reader *r, const struct counts *n, struct zone *ret)
{
    const uint8_t *time = take(r, (uint64_t)n->changes * 8), *type = take(r, n->changes);
    const uint8_t *types = take(r, (uint64_t)n->types * 6);

    take(r, (uint64_t)n->characters + n->is_standard + n->is_ut);
    if (r->short_of)
        return -EINVAL;
    for (uint32_t i = 0; i <= n->changes; i++) {
        uint32_t t = i ? type[i - 1] : 0;
        int32_t offset;

        if (t >= n->types)
            return -EINVAL;
        offset = (int32_t)big32(types + 6 * t);
        ret->from_s[i] = i ? big64(time + 8 * (size_t)(i - 1)) : INT64_MIN;
        ret->offset_s[i] = offset;
        if (offset <= -OFFSET_MAX_S || offset >= OFFSET_MAX_S)
            return -EINVAL;
        if (i && ret->from_s[i] <= ret->from_s[i - 1])
            return -EINVAL;
    }
    ret->count = n->changes + 1;
    return 0;
}

/* ---- the rule in the file's last line, as in POSIX's TZ: CET-1CEST,M3.5.0,M10.5.0/3 -------------
 */

static bool skip_char(struct reader *r, char c)
{
    if (!r->left || *r->at != (unsigned char)c)
        return false;
    take(r, 1);
    return true;
}

static bool skip_name(struct reader *r)
{
    size_t n = 0;

    if (skip_char(r, '<')) {
        while (r->left && *r->at != '>')
            take(r, 1);
        return skip_char(r, '>');
    }
    for (; r->left && ((*r->at | 32) >= 'a' && (*r->at | 32) <= 'z'); n++)
        take(r, 1);
    return n >= 3;
}

static bool read_number(struct reader *r, int32_t most, int32_t *ret)
{
    int32_t n = 0;

    if (!r->left || *r->at < '0' || *r->at > '9')
        return false;
    while (r->left && *r->at >= '0' && *r->at <= '9') {
        n = n * 10 + *take(r, 1) - '0';
        if (n > most)
            return false;
    }
    *ret = n;
    return true;
}

/* [+-]hh[:mm[:ss]] */
static bool read_time(struct reader *r, int32_t *ret_s)
{
    int32_t h, m = 0, s = 0, sign = 1;

    if (skip_char(r, '-'))
        sign = -1;
    else
        skip_char(r, '+');
    if (!read_number(r, 167, &h))
        return false;
    if (skip_char(r, ':') &&
        (!read_number(r, 59, &m) || (skip_char(r, ':') && !read_number(r, 59, &s))))
        return false;
    *ret_s = sign * (h * 3600 + m * 60 + s);
    return true;
}

/* Mm.w.d[/time] */
static bool read_date(struct reader *r, struct zone_rule *rule, int which)
{
    int32_t month, week, day;

    if (!skip_char(r, ',') || !skip_char(r, 'M') || !read_number(r, 12, &month) ||
        !skip_char(r, '.') || !read_number(r, 5, &week) || !skip_char(r, '.') ||
        !read_number(r, 6, &day) || month < 1 || week < 1)
        return false;
    rule->month[which] = (uint8_t)month;
    rule->week[which] = (uint8_t)week;
    rule->day[which] = (uint8_t)day;
    rule->at_s[which] = 2 * 3600;
    return !skip_char(r, '/') || read_time(r, &rule->at_s[which]);
}

static int read_rule(struct reader *r, struct zone *ret)
{
    struct zone_rule *rule = &ret->tail;
    int32_t west;

    if (!skip_char(r, '\n'))
        return -EINVAL;
    if (skip_char(r, '\n')) { /* no rule: the last offset stays */
        rule->offset_s = ret->offset_s[ret->count - 1];
        return 0;
    }
    if (!skip_name(r) || !read_time(r, &west))
        return -EINVAL;
    rule->offset_s = -west;
    rule->dst_offset_s = -west + 3600;
    rule->dst = !skip_char(r, '\n');
    if (rule->dst) {
        if (!skip_name(r))
            return -EINVAL;
        if (r->left && *r->at != ',') {
            if (!read_time(r, &west))
                return -EINVAL;
            rule->dst_offset_s = -west;
        }
        if (!read_date(r, rule, 0) || !read_date(r, rule, 1) || !skip_char(r, '\n'))
            return -EINVAL;
    }
    return rule->offset_s > -OFFSET_MAX_S && rule->offset_s < OFFSET_MAX_S &&
                   rule->dst_offset_s > -OFFSET_MAX_S && rule->dst_offset_s < OFFSET_MAX_S
               ? 0
               : -EINVAL;
}

/* The first block has times of 32 bits and is skipped; the second one and the rule count. */
int zone_parse(const void *tzif, size_t len, struct zone *ret)
{
    struct reader r = {.at = tzif, .left = len};
    struct counts n;
    struct zone z = {0};

    if (len > ZONE_BYTES_MAX || read_header(&r, &n) < 0)
        return -EINVAL;
    take(&r, (uint64_t)n.changes * 5 + (uint64_t)n.types * 6 + n.characters +
                 (uint64_t)n.leaps * 8 + n.is_standard + n.is_ut);
    if (read_header(&r, &n) < 0 || n.leaps || n.changes >= ZONE_CHANGES_MAX || n.types == 0)
        return -EINVAL;
    if (read_changes(&r, &n, &z) < 0 || read_rule(&r, &z) < 0)
        return -EINVAL;
    *ret = z;
    return 0;
}

/* ---- questions ------------------------------------------------------------------------------- */

/* Moments at which the rule changes the offset, in the year of @utc_s and its neighbours. */
static int rule_changes(const struct zone *z, int64_t utc_s, int64_t *ret_s, int32_t *ret_offset_s)
{
    int64_t year = year_of(floor_div(utc_s, DAY_S));
    int n = 0;

    for (int64_t y = year - 1; z->tail.dst && y <= year + 1; y++)
        for (int which = 0; which < 2; which++) {
            int32_t before = which ? z->tail.dst_offset_s : z->tail.offset_s;

            ret_s[n] = day_of_rule(&z->tail, which, y) * DAY_S + z->tail.at_s[which] - before;
            ret_offset_s[n++] = which ? z->tail.offset_s : z->tail.dst_offset_s;
        }
    return n;
}

/* Moments near the ends of time count as moments that are a million years away. */
static int64_t bounded(int64_t utc_s)
{
    const int64_t most = INT64_C(31556952) * 1000000;

    return utc_s > most ? most : utc_s < -most ? -most : utc_s;
}

/* The offset at @utc_s; the change that brought it is at *ret_since_s. */
static int32_t offset_since(const struct zone *z, int64_t utc_s, int64_t *ret_since_s)
{
    uint32_t low = 0, high = z->count;
    int64_t change[6];
    int32_t then[6], offset;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (z->from_s[middle] <= utc_s)
            low = middle;
        else
            high = middle;
    }
    *ret_since_s = z->from_s[low];
    if (low + 1 < z->count)
        return z->offset_s[low];
    offset = z->tail.dst ? z->offset_s[low] : z->tail.offset_s;
    for (int i = 0, n = rule_changes(z, utc_s, change, then); i < n; i++)
        if (change[i] <= utc_s && change[i] > *ret_since_s) {
            *ret_since_s = change[i];
            offset = then[i];
        }
    return offset;
}

int32_t zone_offset_s(const struct zone *z, int64_t utc_s)
{
    int64_t since;

    return offset_since(z, bounded(utc_s), &since);
}

int64_t zone_next_change_s(const struct zone *z, int64_t utc_s)
{
    int64_t change[6], next = INT64_MAX;
    int32_t then[6];

    utc_s = bounded(utc_s);
    for (uint32_t i = 1; i < z->count; i++)
        if (z->from_s[i] > utc_s)
            return z->from_s[i];
    for (int i = 0, n = rule_changes(z, utc_s, change, then); i < n; i++)
        if (change[i] > utc_s && change[i] < next)
            next = change[i];
    return next;
}

void zone_day(const struct zone *z, int64_t utc_s, int64_t *ret_begin_s, int64_t *ret_end_s)
{
    int64_t at = bounded(utc_s), since, day, end;
    int32_t offset = offset_since(z, at, &since);

    day = floor_div(at + offset, DAY_S);
    for (;;) { /* back, over changes within this day */
        *ret_begin_s = day * DAY_S - offset;
        if (*ret_begin_s > since) /* not at a change: it may repeat the first hour */
            break;
        *ret_begin_s = since;
        offset = offset_since(z, since - 1, &since);
        if (floor_div(*ret_begin_s - 1 + offset, DAY_S) != day)
            break;
    }
    for (offset = zone_offset_s(z, at);;) { /* ahead */
        end = (day + 1) * DAY_S - offset;
        since = zone_next_change_s(z, at);
        if (since > end) /* a change at its end may begin the date's last hour again */
            break;
        at = since;
        offset = zone_offset_s(z, at);
        if (floor_div(at + offset, DAY_S) != day) {
            end = at;
            break;
        }
    }
    *ret_end_s = end;
}
