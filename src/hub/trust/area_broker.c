/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/trust/area_broker.h"

#include "base/cleanup.h"
#include "base/wholefile.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "hub-state"

#define BYTES_MAX (AUTHORITY_UNITS_MAX * 128)
#define BROKER    "broker"
#define MACHINE   "machine"

/* ---- addresses ---- */

int area_broker_read(const char *text, char ret[AREA_BROKER_MAX])
{
    const char *end = *text == '[' ? strchr(text, ']') : NULL;
    const char *colon = strchr(end ? end : text, ':');
    size_t host = colon ? (size_t)(colon - text) : strlen(text);
    unsigned long port = AREA_BROKER_PORT;
    char *rest;

    if (host == 0 || host > AREA_BROKER_MAX - 8 ||
        (*text == '[' && (!end || text[host - 1] != ']')))
        return -EINVAL;
    if (strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") !=
        strlen(text))
        return -EINVAL;
    if (colon) {
        port = strtoul(colon + 1, &rest, 10);
        if (*rest || rest == colon + 1 || port < 1 || port > 65535)
            return -EINVAL;
    }
    snprintf(ret, AREA_BROKER_MAX, "%.*s:%lu", (int)host, text, port);
    return 0;
}

void area_broker_host(const char *address, char ret[AREA_BROKER_MAX])
{
    const char *colon = strrchr(address, ':');
    bool brackets = *address == '[';
    size_t len = colon ? (size_t)(colon - address) : strlen(address);

    snprintf(ret, AREA_BROKER_MAX, "%.*s", (int)(len - (brackets ? 2 : 0)), address + brackets);
}

/* ---- the file ---- */

static int file_path(const char *dir, char ret[PATH_MAX])
{
    return (size_t)snprintf(ret, PATH_MAX, "%s/areas", dir) >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* An absent file is an empty text. */
static int read_text(const char *dir, char **ret, struct error *err)
{
    char path[PATH_MAX];
    struct stat status;
    size_t len;
    int r = file_path(dir, path);

    if (r == 0)
        r = wholefile_read(path, BYTES_MAX, ret, &len, &status);
    if (r == -ENOENT) {
        *ret = strdup("");
        r = *ret ? 0 : -ENOMEM;
    }
    return r < 0 ? error_set(err, r, "cannot read %.160s/areas: %s", dir, strerror(-r)) : 0;
}

struct line {
    char word[16], name[EDGE_NAME_MAX], value[AREA_BROKER_MAX];
};

/* The next line that can be read; false: there is none. */
static bool next_line(char **text, struct line *ret)
{
    while (*text && **text)
        if (sscanf(strsep(text, "\n"), "%15s %63s %279s", ret->word, ret->name, ret->value) == 3)
            return true;
    return false;
}

static int find(const char *dir, const char *word, const char *name, size_t size, char *ret)
{
    _cleanup_free_ char *text = NULL;
    struct error ignored;
    struct line line;
    int r = read_text(dir, &text, &ignored);
    char *next = text;

    if (r < 0)
        return r;
    while (next_line(&next, &line))
        if (strcmp(line.word, word) == 0 && strcmp(line.name, name) == 0) {
            snprintf(ret, size, "%s", line.value);
            return 0;
        }
    return -ENOENT;
}

static int put(const char *dir, const char *word, const char *name, const char *value,
               struct error *err)
{
    struct stat status = {.st_mode = 0600, .st_uid = geteuid(), .st_gid = getegid()};
    _cleanup_free_ char *text = NULL, *made = NULL;
    char path[PATH_MAX];
    struct line line;
    size_t len;
    char *next;
    FILE *f;
    int r = read_text(dir, &text, err);

    if (r < 0 || (r = file_path(dir, path)) < 0)
        return r;
    f = open_memstream(&made, &len);
    if (!f)
        return error_set(err, -ENOMEM, "out of memory");
    next = text;
    while (next_line(&next, &line))
        if (strcmp(line.word, word) != 0 || strcmp(line.name, name) != 0)
            fprintf(f, "%s %s %s\n", line.word, line.name, line.value);
    if (*value)
        fprintf(f, "%s %s %s\n", word, name, value);
    if (fclose(f) != 0)
        return error_set(err, -ENOMEM, "out of memory");
    r = wholefile_replace(path, made, len, &status);
    return r < 0 ? error_set(err, r, "cannot write %.160s: %s", path, strerror(-r)) : 0;
}

/* ---- what is in it ---- */

int area_broker_of_unit(const char *dir, const char *unit, char ret[AREA_BROKER_MAX])
{
    return find(dir, BROKER, unit, AREA_BROKER_MAX, ret);
}

int area_broker_of_machine(const char *dir, const char *machine, char ret_unit[EDGE_NAME_MAX])
{
    return find(dir, MACHINE, machine, EDGE_NAME_MAX, ret_unit);
}

int area_broker_put(const char *dir, const char *unit, const char *address, struct error *err)
{
    return put(dir, BROKER, unit, address, err);
}

int area_broker_put_machine(const char *dir, const char *machine, const char *unit,
                            struct error *err)
{
    char before[EDGE_NAME_MAX];

    if (!*unit && area_broker_of_machine(dir, machine, before) == -ENOENT)
        return 0;
    return put(dir, MACHINE, machine, unit, err);
}

/* Names of the unit's machines that the records call revoked. */
static char *revoked_of(const char *text, const char *unit, const struct authority *records)
{
    _cleanup_free_ char *copy = strdup(text);
    char *next = copy, *names = NULL;
    struct line line;
    size_t len;
    FILE *f = copy ? open_memstream(&names, &len) : NULL;

    if (!f)
        return NULL;
    while (next_line(&next, &line))
        if (strcmp(line.word, MACHINE) == 0 && strcmp(line.value, unit) == 0 &&
            authority_revoked(records, line.name))
            fprintf(f, "%s%s", ftell(f) > 0 ? " " : "", line.name);
    if (fclose(f) == 0)
        return names;
    free(names);
    return NULL;
}

int area_broker_each(const char *dir, struct authority *records,
                     void (*each)(void *arg, const char *unit, const char *revoked), void *arg,
                     struct error *err)
{
    _cleanup_free_ char *text = NULL, *copy = NULL;
    struct line line;
    int r = read_text(dir, &text, err);
    char *next;

    if (r < 0)
        return r;
    next = copy = strdup(text);
    while (next_line(&next, &line)) {
        _cleanup_free_ char *revoked = NULL;

        if (strcmp(line.word, BROKER) != 0)
            continue;
        revoked = revoked_of(text, line.name, records);
        if (!revoked)
            return error_set(err, -ENOMEM, "out of memory");
        each(arg, line.name, revoked);
    }
    return copy ? 0 : error_set(err, -ENOMEM, "out of memory");
}

void area_broker_looked(const char *dir, struct stat *ret)
{
    char path[PATH_MAX];

    if (file_path(dir, path) < 0 || stat(path, ret) < 0)
        *ret = (struct stat){0};
}
