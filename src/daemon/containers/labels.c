/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/containers/labels.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "base/moment.h"
#include "base/startup.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHOWN 24 /* bytes of a value that a note quotes */

/* The name behind the prefix's dot; "": the prefix alone; NULL: another program's label. */
static const char *name_of(const char *key)
{
    size_t n = strlen(CONTAINER_LABEL);

    if (strncmp(key, CONTAINER_LABEL, n) != 0 || (key[n] && key[n] != '.'))
        return NULL;
    return key[n] ? key + n + 1 : "";
}

/* RFC 3339, "2026-11-21T18:30:00Z" or with "+01:00"; cuts off fractions of a second. */
static bool read_time(const char *text, uint64_t *ret_ms)
{
    struct tm tm = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    time_t at;

    if (!rest)
        return false;
    if (*rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (strcmp(rest, "Z") == 0)
        rest = "+00:00";
    if ((*rest != '+' && *rest != '-') || strlen(rest) != 6 || rest[3] != ':' ||
        !isdigit((unsigned char)rest[1]) || !isdigit((unsigned char)rest[2]) ||
        !isdigit((unsigned char)rest[4]) || !isdigit((unsigned char)rest[5]))
        return false;
    at = timegm(&tm);
    at -= (*rest == '-' ? -60 : 60) * (60 * atoi(rest + 1) + atoi(rest + 4));
    if (at <= 0)
        return false;
    *ret_ms = (uint64_t)at * 1000;
    return true;
}

/* Labels that are no attributes of the job, and their values. */
static const struct {
    const char *name, *takes;
} others[] = {
    {"", "true or false"},
    {"key", "1 to 64 letters, digits, - and _"},
    {"job", "the token of the job that starts it"},
    {"sized", "the number of threads that it was started with"},
};

static const char *other_takes(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (strcmp(others[i].name, name) == 0)
            return others[i].takes;
    return NULL;
}

/* 0: no number of threads. */
static uint32_t sized_of(const char *value)
{
    unsigned long n = isdigit((unsigned char)*value) ? strtoul(value, NULL, 10) : 0;

    return strspn(value, "0123456789") == strlen(value) && n <= STARTUP_NUMBER_MAX ? (uint32_t)n
                                                                                   : 0;
}

static bool other_good(const char *name, const char *value)
{
    if (!*name)
        return strcmp(value, "true") == 0 || strcmp(value, "false") == 0;
    return (strcmp(name, "key") != 0 ||
            labels_key_valid(value)) && /* "job" may name an ended one */
           (strcmp(name, "sized") != 0 || sized_of(value) > 0);
}

static bool take(const struct attribute *a, const char *value, uint64_t start_ms,
                 struct attributes *asked)
{
    int64_t read;
    uint64_t ms;

    if (a->kind != KIND_MOMENT) {
        if (attribute_parse(a, value, &read) < 0)
            return false;
    } else {
        if (moment_duration(value, &ms) == 0)
            ms += start_ms;
        else if (!read_time(value, &ms))
            return false;
        read = (int64_t)ms;
        if (!attribute_holds(a, read))
            return false;
    }
    attribute_set(a, asked, read);
    return true;
}

/* Replaces control characters: a hostile value must not reach the reader's terminal. */
static void printable(const char *value, char ret[SHOWN + 4])
{
    size_t n = strnlen(value, SHOWN + 1);

    for (size_t i = 0; i < n && i < SHOWN; i++)
        ret[i] = isprint((unsigned char)value[i]) ? value[i] : '?';
    memcpy(ret + (n < SHOWN ? n : SHOWN), n > SHOWN ? "..." : "", n > SHOWN ? 4 : 1);
}

static const char *takes(const struct attribute *a, char *buf, size_t size)
{
    switch (a->kind) {
    case KIND_MEMORY:
        return "an amount like 512M or 2G";
    case KIND_MOMENT:
        return "90s, 2h from its start, or 2026-01-31T18:30:00Z";
    case KIND_PROMISE:
        return "p99=50ms, from p99=1ms to p99=60s";
    case KIND_DEVICES:
        return "nvidia=1 or nvidia=2,uverbs=1";
    case KIND_CHOICE:
        return attribute_choices(a, " or ", buf, size);
    default:
        snprintf(buf, size, "%" PRId64 " to %" PRId64, a->least, a->most);
        return buf;
    }
}

static void complain(const struct attribute *a, const char *name, const char *value, char *note,
                     size_t size)
{
    const char *other = other_takes(name);
    char shown[SHOWN + 4], buf[64];

    printable(a || other ? value : name, shown);
    if (a || other)
        snprintf(note, size, "label " CONTAINER_LABEL "%s%s=%s left out: use %s", *name ? "." : "",
                 name, shown, a ? takes(a, buf, sizeof(buf)) : other);
    else
        snprintf(note, size, "there is no label " CONTAINER_LABEL ".%s", shown);
}

bool labels_key_valid(const char *key)
{
    size_t len = strlen(key);

    if (len == 0 || len > CONTAINER_KEY_MAX)
        return false;
    for (const char *p = key; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-')
            return false;
    return true;
}

static const char *value_of(const struct engine_label *labels, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(labels[i].key, key) == 0)
            return labels[i].value;
    return NULL;
}

const char *labels_key(const struct engine_label *labels, size_t n)
{
    const char *key = value_of(labels, n, CONTAINER_LABEL ".key");

    return key && labels_key_valid(key) ? key : NULL;
}

bool labels_refuse(const struct engine_label *labels, size_t n)
{
    const char *value = value_of(labels, n, CONTAINER_LABEL);

    return value && strcmp(value, "false") == 0;
}

const char *labels_job(const struct engine_label *labels, size_t n)
{
    return value_of(labels, n, CONTAINER_LABEL ".job");
}

const char *labels_service(const struct engine_label *labels, size_t n)
{
    return value_of(labels, n, "com.docker.compose.service");
}

bool labels_elastic(const struct engine_label *labels, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (name_of(labels[i].key))
            return !labels_refuse(labels, n);
    return false;
}

void labels_parse(const struct engine_label *labels, size_t n, uint64_t start_ms,
                  struct job_request *req, char *note, size_t size)
{
    struct attributes before = req->asked;
    const char *sized = value_of(labels, n, CONTAINER_LABEL ".sized");
    unsigned faults = 0;

    *note = '\0';
    req->sized = sized ? sized_of(sized) : req->sized;
    for (size_t i = 0; i < n; i++) {
        const char *name = name_of(labels[i].key), *value = labels[i].value;
        const struct attribute *a = name ? attribute_find(name, strlen(name)) : NULL;

        if (!name || (a ? take(a, value, start_ms, &req->asked)
                        : other_takes(name) && other_good(name, value)))
            continue;
        if (faults++ == 0) /* the note names only the first */
            complain(a, name, value, note, size);
    }
    if (faults > 1)
        snprintf(note + strlen(note), size - strlen(note), "; %u more", faults - 1);
    if (req->asked.max == 0 || req->asked.min <= req->asked.max)
        return;
    if (!*note)
        snprintf(note, size,
                 "labels min=%" PRId64 " and max=%" PRId64 " left out: min is above max",
                 req->asked.min, req->asked.max);
    req->asked.min = before.min;
    req->asked.max = before.max;
}
