/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/containers/labels.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "base/moment.h"
#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHOWN 24 /* bytes of a value that a note repeats */

/* The name behind the prefix's dot, "" for the prefix alone, NULL for somebody else's label. */
static const char *name_of(const char *key)
{
    size_t n = strlen(CONTAINER_LABEL);

    if (strncmp(key, CONTAINER_LABEL, n) != 0 || (key[n] && key[n] != '.'))
        return NULL;
    return key[n] ? key + n + 1 : "";
}

/* Only digits, behind a sign perhaps: strtol alone takes blanks and stops anywhere. */
static bool read_integer(const char *text, long min, long max, long *ret)
{
    const char *digits = text + (*text == '-');
    char *end;
    long value;

    if (!isdigit((unsigned char)*digits))
        return false;
    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || *end || value < min || value > max)
        return false;
    *ret = value;
    return true;
}

/* RFC 3339, "2026-11-21T18:30:00Z" or with "+01:00"; fractions of a second are cut off. */
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

enum label_id {
    LABEL_ON,
    LABEL_MIN,
    LABEL_MAX,
    LABEL_WEIGHT,
    LABEL_PRIORITY,
    LABEL_CLASS,
    LABEL_REQUEST,
    LABEL_DEADLINE,
    LABEL_PLACEMENT,
    LABEL_MEMORY,
    LABEL_KEY,
    LABEL_JOB,
    LABEL_COUNT
};

/* Numbers have a range; the others say what they take. */
static const struct {
    const char *name;
    long min, max;
    const char *takes;
} table[] = {
    [LABEL_ON] = {"", 0, 0, "true or false"},
    [LABEL_MIN] = {"min", 1, PROTO_THREADS_MAX, NULL},
    [LABEL_MAX] = {"max", 1, PROTO_THREADS_MAX, NULL},
    [LABEL_WEIGHT] = {"weight", 1, JOB_WEIGHT_MAX, NULL},
    [LABEL_PRIORITY] = {"priority", -PROTO_PRIORITY_MAX, PROTO_PRIORITY_MAX, NULL},
    [LABEL_CLASS] = {"class", 0, PROTO_CLASS_MAX, NULL},
    [LABEL_REQUEST] = {"request", 1, PROTO_THREADS_MAX, NULL},
    [LABEL_DEADLINE] = {"deadline", 0, 0, "90s, 2h from its start, or 2026-01-31T18:30:00Z"},
    [LABEL_PLACEMENT] = {"placement", 0, 0, "shared, exclusive or quota"},
    [LABEL_MEMORY] = {"memory", 0, 0, "an amount like 512M or 2G"},
    [LABEL_KEY] = {"key", 0, 0, "1 to 64 letters, digits, - and _"},
    [LABEL_JOB] = {"job", 0, 0, "the token of the job that starts it"},
};

static enum label_id find(const char *name)
{
    unsigned id = 0;

    while (id < LABEL_COUNT && strcmp(table[id].name, name) != 0)
        id++;
    return (enum label_id)id;
}

static bool take_number(enum label_id id, long value, struct job_request *req)
{
    switch (id) {
    case LABEL_MIN:
        req->min = (uint32_t)value;
        return true;
    case LABEL_MAX:
        req->limit = (uint32_t)value;
        return true;
    case LABEL_WEIGHT:
        req->weight = (uint32_t)value;
        return true;
    case LABEL_PRIORITY:
        req->terms.priority = (int32_t)value;
        return true;
    case LABEL_CLASS:
        req->terms.class = (uint32_t)value;
        return true;
    case LABEL_REQUEST:
        req->terms.request = (uint32_t)value;
        return true;
    default:
        return false;
    }
}

static bool take_deadline(const char *value, uint64_t start_ms, struct job_request *req)
{
    uint64_t ms;

    if (moment_duration(value, &ms) == 0)
        req->terms.deadline_ms = start_ms + ms;
    else if (read_time(value, &ms))
        req->terms.deadline_ms = ms;
    else
        return false;
    return true;
}

/* Less than that of a program that does nothing is a unit forgotten. */
static bool take_memory(const char *value, struct job_request *req)
{
    uint64_t bytes;

    if (size_parse(value, &bytes) < 0 || bytes < JOB_MEMORY_MIN_BYTES)
        return false;
    req->terms.memory_bytes = bytes;
    return true;
}

static bool take(enum label_id id, const char *value, uint64_t start_ms, struct job_request *req)
{
    long number;

    switch (id) {
    case LABEL_ON:
        return strcmp(value, "true") == 0 || strcmp(value, "false") == 0;
    case LABEL_DEADLINE:
        return take_deadline(value, start_ms, req);
    case LABEL_PLACEMENT:
        return placement_parse(value, &req->placement) == 0;
    case LABEL_MEMORY:
        return take_memory(value, req);
    case LABEL_KEY:
        return labels_key_valid(value);
    case LABEL_JOB:
        return true; /* of one that has ended, perhaps */
    default:
        return read_integer(value, table[id].min, table[id].max, &number) &&
               take_number(id, number, req);
    }
}

/* A hostile value shall not get at the terminal of whoever reads the note. */
static void printable(const char *value, char ret[SHOWN + 4])
{
    size_t n = strnlen(value, SHOWN + 1);

    for (size_t i = 0; i < n && i < SHOWN; i++)
        ret[i] = isprint((unsigned char)value[i]) ? value[i] : '?';
    memcpy(ret + (n < SHOWN ? n : SHOWN), n > SHOWN ? "..." : "", n > SHOWN ? 4 : 1);
}

static void complain(enum label_id id, const char *name, const char *value, char *note, size_t size)
{
    char shown[SHOWN + 4];

    printable(id == LABEL_COUNT ? name : value, shown);
    if (id == LABEL_COUNT)
        snprintf(note, size, "label " CONTAINER_LABEL ".%s is none of ours", shown);
    else if (table[id].takes)
        snprintf(note, size, "label " CONTAINER_LABEL "%s%s=%s left out: use %s", *name ? "." : "",
                 name, shown, table[id].takes);
    else
        snprintf(note, size, "label " CONTAINER_LABEL ".%s=%s left out: use %ld to %ld", name,
                 shown, table[id].min, table[id].max);
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
    uint32_t min = req->min, limit = req->limit;
    unsigned faults = 0;

    *note = '\0';
    for (size_t i = 0; i < n; i++) {
        const char *name = name_of(labels[i].key);
        enum label_id id = name ? find(name) : LABEL_COUNT;

        if (!name || (id != LABEL_COUNT && take(id, labels[i].value, start_ms, req)))
            continue;
        if (faults++ == 0) /* one is enough to look for */
            complain(id, name, labels[i].value, note, size);
    }
    if (faults > 1)
        snprintf(note + strlen(note), size - strlen(note), "; %u more", faults - 1);
    if (req->limit == 0 || req->min <= req->limit)
        return;
    if (!*note)
        snprintf(note, size, "labels min=%u and max=%u left out: min is above max", req->min,
                 req->limit);
    req->min = min;
    req->limit = limit;
}
