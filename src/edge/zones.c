/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/zones.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ERROR_WORD "bad-time-zone"

#define DAY_S 86400

/* No way out of the directory: names are words of letters, digits, "_", "-", "+" with "/" between.
 */
static bool name_good(const char *name)
{
    size_t len = strlen(name);

    if (len == 0 || len >= sizeof(((struct zone *)NULL)->name) || !isalpha((unsigned char)name[0]))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_-+/", name[i]))
            return false;
    return true;
}

static int read_zone(const char *root, const char *name, struct zone *ret)
{
    _cleanup_free_ char *bytes = malloc(ZONE_BYTES_MAX);
    _cleanup_fd_ int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_fd_ int fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t len = 0;
    ssize_t n;

    if (!bytes)
        return -ENOMEM;
    if (fd < 0)
        return -errno;
    while (len < ZONE_BYTES_MAX && (n = read(fd, bytes + len, ZONE_BYTES_MAX - len)) != 0) {
        if (n < 0)
            return -errno;
        len += (size_t)n;
    }
    return zone_parse(bytes, len, ret);
}

int zones_name(struct zones *z, const char *name, uint32_t *ret, struct error *err)
{
    struct zone *zone;

    for (uint32_t i = 0; i < z->count; i++)
        if (strcmp(z->zone[i]->name, name) == 0) {
            *ret = i;
            return 0;
        }
    if (!name_good(name))
        return error_set(err, -EINVAL, "'%.40s' is no time zone: use one as Europe/Berlin", name);
    if (z->count == RULES_ZONES_MAX)
        return error_set(err, -E2BIG, "more than %d time zones", RULES_ZONES_MAX);
    zone = calloc(1, sizeof(*zone));
    if (!zone)
        return error_set(err, -ENOMEM, "out of memory");
    strcpy(zone->name, name);
    *ret = z->count;
    z->zone[z->count++] = zone;
    return 0;
}

int zones_read(struct zones *z, uint32_t number, struct error *err)
{
    const char *root = z->root ? z->root : ZONEINFO;
    struct zone *zone = z->zone[number];
    char name[sizeof(zone->name)];
    int r;

    if (zone_known(zone))
        return 0;
    strcpy(name, zone->name);
    r = read_zone(root, name, zone);
    if (r == -ENOENT || r == -EISDIR || r == -ENOTDIR)
        return error_set(err, -EINVAL,
                         "there is no time zone '%.60s' in %s (package tzdata; names are as "
                         "Europe/Berlin)",
                         name, root);
    if (r < 0)
        return error_set(err, r, "time zone '%.60s': %s", name, strerror(-r));
    strcpy(zone->name, name);
    return 0;
}

int zones_find(struct zones *z, const char *name, uint32_t *ret, struct error *err)
{
    uint32_t number;
    int r = zones_name(z, name, &number, err);

    r = r < 0 ? r : zones_read(z, number, err);
    if (r == 0)
        *ret = number;
    return r;
}

void zones_done(struct zones *z)
{
    for (uint32_t i = 0; i < z->count; i++)
        free(z->zone[i]);
    z->count = 0;
}

static int64_t offset(const struct zone *z, int64_t utc_s)
{
    return z ? zone_offset_s(z, utc_s) : 0;
}

/* The offset before a change is tried first: of a time that occurs twice this is the first. */
static int64_t to_utc(const struct zone *z, int64_t local_s)
{
    int64_t first = local_s - offset(z, local_s - DAY_S);
    int64_t second = local_s - offset(z, local_s + DAY_S);

    if (first + offset(z, first) == local_s)
        return first;
    return second + offset(z, second) == local_s ? second : first;
}

int zones_time(const struct zone *z, const char *text, int64_t now_s, int64_t *ret_utc_s)
{
    struct tm tm = {0}, day;
    const char *rest = strptime(text, "%Y-%m-%d", &tm);
    int64_t at;

    if (rest && (*rest == ' ' || *rest == 'T')) {
        rest = strptime(rest + 1, "%H:%M", &tm);
        if (!rest || (*rest && strcmp(rest, "Z") != 0))
            return -EINVAL;
        day = tm;
        at = timegm(&tm);
        if (tm.tm_mday != day.tm_mday) /* the 31st of a shorter month */
            return -EINVAL;
        *ret_utc_s = *rest ? at : to_utc(z, at);
        return 0;
    }
    rest = strptime(text, "%H:%M", &tm);
    if (!rest || *rest)
        return -EINVAL;
    at = now_s + offset(z, now_s);
    at = at - at % DAY_S + tm.tm_hour * 3600 + tm.tm_min * 60;
    if (to_utc(z, at) < now_s)
        at += DAY_S;
    *ret_utc_s = to_utc(z, at);
    return 0;
}

void zones_text(const struct zone *z, int64_t utc_s, char ret[ZONES_TIME_MAX])
{
    time_t local = utc_s + offset(z, utc_s);
    struct tm tm;

    gmtime_r(&local, &tm);
    strftime(ret, ZONES_TIME_MAX, "%Y-%m-%d %H:%M", &tm);
}
