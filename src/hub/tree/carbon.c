/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/carbon.h"

#include "base/cleanup.h"
#include "base/wholefile.h"
#include "edge/zones.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ERROR_WORD "bad-carbon-file"

#define LINES_MAX  20000
#define G_MAX      10000 /* g/kWh: ten times what the dirtiest coal makes */
#define HOUR_MS    3600000
#define SECONDS_ID 9 /* digits from which on a time is seconds since 1970 */

static int read_time(const char *text, uint64_t *ret_ms)
{
    char *end;
    uint64_t s = strtoull(text, &end, 10);
    int64_t utc_s;

    if (*end == '\0' && strlen(text) >= SECONDS_ID && s < UINT64_C(100000000000)) {
        *ret_ms = s * 1000;
        return 0;
    }
    if (strchr(text, 'Z') == NULL || zones_time(NULL, text, 0, &utc_s) < 0 || utc_s < 0)
        return -EINVAL;
    *ret_ms = (uint64_t)utc_s * 1000;
    return 0;
}

static int read_line(char *line, struct carbon_hour *ret)
{
    char *remark = strchr(line, '#'), time[40], amount[24], *end, more;
    int n;

    if (remark)
        *remark = '\0';
    n = sscanf(line, "%39s %23s %c", time, amount, &more);
    if (n <= 0)
        return -ENOENT; /* nothing in it */
    if (n != 2 || read_time(time, &ret->from_ms) < 0)
        return -EINVAL;
    ret->g = strtoull(amount, &end, 10);
    if (*end == '.') /* tenths say nothing here */
        ret->g += strtoul(end + 1, &end, 10) > 0;
    return *end || *amount < '0' || *amount > '9' || ret->g > G_MAX ? -EINVAL : 0;
}

static int by_time(const void *a, const void *b)
{
    const struct carbon_hour *x = a, *y = b;

    return x->from_ms < y->from_ms ? -1 : x->from_ms > y->from_ms;
}

/* Keeps the lines, by rising time, that count now or soon. */
static void choose(const struct carbon_hour *all, size_t n, int64_t now_ms, struct carbon *ret)
{
    ret->count = 0;
    for (size_t i = 0; i < n && ret->count < BUNDLE_CARBON_MAX; i++) {
        uint64_t end = i + 1 < n ? all[i + 1].from_ms : all[i].from_ms + HOUR_MS;

        if (i + 1 < n && all[i + 1].from_ms == all[i].from_ms)
            continue;
        if ((int64_t)end > now_ms && (int64_t)all[i].from_ms < now_ms + CARBON_AHEAD_MS)
            ret->hour[ret->count++] = all[i];
    }
}

int carbon_parse(const char *text, int64_t now_ms, struct carbon *ret, struct error *err)
{
    _cleanup_free_ struct carbon_hour *all = calloc(LINES_MAX, sizeof(*all));
    _cleanup_free_ char *copy = strdup(text);
    char *next = copy;
    size_t n = 0;

    if (!all || !copy)
        return error_set(err, -ENOMEM, "out of memory");
    for (unsigned line = 1; next && *next; line++) {
        int r = n == LINES_MAX ? -E2BIG : read_line(strsep(&next, "\n"), &all[n]);

        if (r == -E2BIG)
            return error_set(err, r, "%u: more than %d lines", line, LINES_MAX);
        if (r == -EINVAL)
            return error_set(
                err, r, "%u: no time and intensity, as in '2026-11-23T18:00Z 350' (g/kWh)", line);
        n += r == 0;
    }
    qsort(all, n, sizeof(*all), by_time);
    choose(all, n, now_ms, ret);
    return 0;
}

int carbon_read(const char *path, bool again, int64_t now_ms, struct carbon *c, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    struct carbon next = {0};
    struct error e = {0};
    struct stat status;
    size_t len;
    int r;

    if (stat(path, &status) < 0)
        return error_set(err, -errno, "%.200s: %s", path, strerror(errno));
    if (!again && status.st_mtim.tv_sec == c->read.tv_sec &&
        status.st_mtim.tv_nsec == c->read.tv_nsec)
        return 0;
    r = wholefile_read(path, CARBON_BYTES_MAX, &text, &len, &status);
    c->read = status.st_mtim;
    if (r < 0)
        return error_set(err, r, "%.200s: %s", path, strerror(-r));
    r = carbon_parse(text, now_ms, &next, &e);
    if (r < 0)
        return error_set(err, r, "%.120s:%.120s", path, e.text);
    next.read = status.st_mtim;
    r = next.count != c->count ||
        memcmp(next.hour, c->hour, next.count * sizeof(next.hour[0])) != 0;
    *c = next;
    return r;
}

uint64_t carbon_at(const struct carbon *c, int64_t now_ms)
{
    for (uint32_t i = c->count; i-- > 0;)
        if ((int64_t)c->hour[i].from_ms <= now_ms)
            return i + 1 < c->count || now_ms < (int64_t)c->hour[i].from_ms + HOUR_MS
                       ? c->hour[i].g
                       : RULE_UNKNOWN;
    return RULE_UNKNOWN;
}
