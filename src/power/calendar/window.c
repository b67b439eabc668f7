/* SPDX-License-Identifier: Apache-2.0 */
#include "power/calendar/window.h"

#include <errno.h>
#include <string.h>

#define DAY_S     86400
#define ALL_DAYS  0x7f
#define LOOK_DAYS 8

int window_check(const struct window *w, uint32_t zones)
{
    return w->days && w->days <= ALL_DAYS && w->from_min < WINDOW_DAY_MIN &&
                   w->to_min <= WINDOW_DAY_MIN && w->zone < zones
               ? 0
               : -EINVAL;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char day_names[7][4] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};

static int read_day(const char **at)
{
    for (int d = 0; d < 7; d++) {
        bool same = true;

        for (int i = 0; i < 3 && same; i++)
            same = ((*at)[i] | 32) == (day_names[d][i] | 32);
        if (same) {
            *at += 3;
            return d;
        }
    }
    return -1;
}

/* Mon, Mon-Fri, or several of these with commas; Fri-Mon goes over Sunday. */
static bool read_days(const char **at, uint8_t *ret)
{
    uint8_t days = 0;

    do {
        int from = read_day(at), to = from;

        if (from < 0)
            return false;
        if (**at == '-') {
            ++*at;
            to = read_day(at);
            if (to < 0)
                return false;
        }
        for (int d = from;; d = (d + 1) % 7) {
            days |= (uint8_t)(1 << d);
            if (d == to)
                break;
        }
    } while (**at == ',' && ++*at);
    *ret = days;
    return true;
}

static bool read_minute(const char **at, uint16_t most, uint16_t *ret)
{
    const char *t = *at;
    uint32_t minute = 0;

    for (int i = 0; i < 5; i++) {
        if (i == 2 ? t[i] != ':' : t[i] < '0' || t[i] > '9') {
            *at = t + i;
            return false;
        }
    }
    minute = (uint32_t)((t[0] - '0') * 600 + (t[1] - '0') * 60 + (t[3] - '0') * 10 + (t[4] - '0'));
    if (t[3] > '5' || minute > most)
        return false;
    *at = t + 5;
    *ret = (uint16_t)minute;
    return true;
}

int window_parse(const char *text, size_t *ret_read, struct window *ret)
{
    struct window w = {.days = ALL_DAYS};
    const char *at = text;
    bool right = true;

    if (*at < '0' || *at > '9') {
        right = read_days(&at, &w.days) && *at == ' ';
        while (right && *at == ' ')
            at++;
    }
    right = right && read_minute(&at, WINDOW_DAY_MIN - 1, &w.from_min) && *at == '-';
    if (right) {
        at++;
        right = read_minute(&at, WINDOW_DAY_MIN, &w.to_min) && (*at == ' ' || *at == '\0');
    }
    while (right && *at == ' ')
        at++;
    *ret_read = (size_t)(at - text);
    if (!right)
        return -EINVAL;
    *ret = w;
    return 0;
}

/* ---- time ------------------------------------------------------------------------------------ */

static int64_t floor_mod(int64_t a, int64_t b)
{
    return (a % b + b) % b;
}

static bool open_at(const struct window *w, int64_t local_s)
{
    int64_t day = (local_s - floor_mod(local_s, DAY_S)) / DAY_S;
    int64_t minute = floor_mod(local_s, DAY_S) / 60;
    bool today = w->days >> floor_mod(day + 3, 7) & 1; /* 1 January 1970 was a Thursday */
    bool yesterday = w->days >> floor_mod(day + 2, 7) & 1;

    if (w->to_min > w->from_min)
        return today && minute >= w->from_min && minute < w->to_min;
    return (today && minute >= w->from_min) || (yesterday && minute < w->to_min);
}

bool window_open(const struct window *w, const struct zone *z, int64_t utc_s)
{
    return open_at(w, utc_s + zone_offset_s(z, utc_s));
}

/* The next local time of day at which any window like this may change. */
static int64_t next_mark(const struct window *w, int64_t local_s)
{
    int64_t of_day = floor_mod(local_s, DAY_S), begin = local_s - of_day;
    int64_t next = begin + DAY_S, mark[] = {w->from_min * 60, w->to_min * 60};

    for (int i = 0; i < 2; i++)
        if (mark[i] > of_day && begin + mark[i] < next)
            next = begin + mark[i];
    return next;
}

int64_t window_edge(const struct window *w, const struct zone *z, int64_t utc_s)
{
    bool open = window_open(w, z, utc_s);
    int64_t at = utc_s;

    while (at < utc_s + LOOK_DAYS * DAY_S) {
        int64_t offset = zone_offset_s(z, at), change = zone_next_change_s(z, at);
        int64_t mark = next_mark(w, at + offset) - offset;

        at = change < mark ? change : mark;
        if (window_open(w, z, at) != open)
            return at;
    }
    return utc_s + LOOK_DAYS * DAY_S;
}
