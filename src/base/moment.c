/* SPDX-License-Identifier: Apache-2.0 */
#include "base/moment.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint64_t ms;
} units[] = {{"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}};

/* Reads one "10min" and moves *text behind it. */
static int read_part(const char **text, uint64_t *ret_ms)
{
    const char *p = *text;
    uint64_t value = 0;
    size_t len = 0;

    if (!isdigit((unsigned char)*p))
        return -EINVAL;
    for (; isdigit((unsigned char)*p); p++) {
        value = value * 10 + (uint64_t)(*p - '0');
        if (value > MOMENT_MAX_MS)
            return -EINVAL;
    }
    while (isalpha((unsigned char)p[len]))
        len++;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strlen(units[i].name) != len || memcmp(units[i].name, p, len) != 0)
            continue;
        if (value > MOMENT_MAX_MS / units[i].ms)
            return -EINVAL;
        *ret_ms = value * units[i].ms;
        *text = p + len;
        return 0;
    }
    return -EINVAL;
}

int moment_duration(const char *text, uint64_t *ret_ms)
{
    uint64_t total = 0;

    do {
        uint64_t part;

        if (read_part(&text, &part) < 0)
            return -EINVAL;
        total += part;
    } while (*text && total <= MOMENT_MAX_MS);
    if (total == 0 || total > MOMENT_MAX_MS)
        return -EINVAL;
    *ret_ms = total;
    return 0;
}

/* Reads "18:30" or "7:05". */
static bool read_clock(const char *text, int *ret_hour, int *ret_minute)
{
    size_t hours = strspn(text, "0123456789");
    const char *minute = text + hours + 1;

    if (hours < 1 || hours > 2 || text[hours] != ':' || strlen(minute) != 2 ||
        strspn(minute, "0123456789") != 2)
        return false;
    *ret_hour = hours == 2 ? (text[0] - '0') * 10 + text[1] - '0' : text[0] - '0';
    *ret_minute = (minute[0] - '0') * 10 + minute[1] - '0';
    return *ret_hour < 24 && *ret_minute < 60;
}

int moment_parse(const char *text, uint64_t now_ms, uint64_t *ret_ms)
{
    time_t now = (time_t)(now_ms / 1000);
    uint64_t from_now;
    struct tm tm;
    time_t at;

    if (moment_duration(text, &from_now) == 0) {
        *ret_ms = now_ms + from_now;
        return 0;
    }
    if (!localtime_r(&now, &tm) || !read_clock(text, &tm.tm_hour, &tm.tm_min))
        return -EINVAL;
    tm.tm_sec = 0;
    tm.tm_isdst = -1;
    at = mktime(&tm);
    if (at <= now) {
        tm.tm_mday++;
        tm.tm_isdst = -1;
        at = mktime(&tm);
    }
    *ret_ms = (uint64_t)at * 1000;
    return 0;
}

/* A date without a time means midnight. */
static bool read_date(const char *text, struct tm *ret)
{
    static const char *const formats[] = {"%Y-%m-%d", "%Y-%m-%d%t%H:%M", "%Y-%m-%d%t%H:%M:%S",
                                          "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"};

    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        struct tm tm = {.tm_isdst = -1};
        const char *end = strptime(text, formats[i], &tm);

        if (!end || *end)
            continue;
        *ret = tm;
        return true;
    }
    return false;
}

static bool read_seconds(const char *text, uint64_t *ret_ms)
{
    size_t len = strlen(text);

    if (len < 5 || len > 11 || strspn(text, "0123456789") != len)
        return false;
    *ret_ms = strtoull(text, NULL, 10) * 1000;
    return true;
}

int moment_past(const char *text, uint64_t now_ms, uint64_t *ret_ms)
{
    time_t now = (time_t)(now_ms / 1000), at;
    uint64_t ago;
    struct tm tm;

    if (read_seconds(text, ret_ms))
        return 0;
    if (moment_duration(text, &ago) == 0) {
        *ret_ms = now_ms > ago ? now_ms - ago : 0;
        return 0;
    }
    if (localtime_r(&now, &tm) && read_clock(text, &tm.tm_hour, &tm.tm_min)) {
        tm.tm_sec = 0;
        tm.tm_isdst = -1;
        at = mktime(&tm);
        if (at > now) {
            tm.tm_mday--;
            tm.tm_isdst = -1;
            at = mktime(&tm);
        }
    } else if (read_date(text, &tm)) {
        at = mktime(&tm);
    } else {
        return -EINVAL;
    }
    if (at < 0)
        return -EINVAL;
    *ret_ms = (uint64_t)at * 1000;
    return 0;
}
