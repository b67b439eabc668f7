/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/in_force.h"

#include "base/cleanup.h"
#include "base/failpoint.h"
#include "base/fnv.h"
#include "base/wholefile.h"
#include "hub/compile/yaml.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ERROR_WORD "hub-state"

#define HEAD     "# threadtide policy "
#define HEAD_MAX 160
#define FILE_MAX (YAML_BYTES_MAX + HEAD_MAX)

/* The values in the first line of the file. */
struct head {
    uint64_t number, edition, made_ms, hash;
};

static int file_path(const char *dir, char ret[PATH_MAX], struct error *err)
{
    int n = snprintf(ret, PATH_MAX, "%s/" IN_FORCE_FILE, dir);

    return n < 0 || n >= PATH_MAX
               ? error_set(err, -ENAMETOOLONG, "the path of the state is too long")
               : 0;
}

static uint64_t hash_of(const char *text, size_t len)
{
    return fnv_bytes(FNV_START, text, len);
}

/* ---- the file ---- */

/* Returns the bytes of the head, 0: the file has none. */
static size_t read_head(const char *text, struct head *ret)
{
    const char *end = strchr(text, '\n');
    struct head h;

    if (!end || sscanf(text, HEAD "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNx64, &h.number,
                       &h.edition, &h.made_ms, &h.hash) != 4)
        return 0;
    *ret = h;
    return (size_t)(end + 1 - text);
}

static int write_file(const char *dir, const struct head *h, const char *text, size_t len,
                      struct error *err)
{
    struct stat status = {.st_mode = 0600, .st_uid = geteuid(), .st_gid = getegid()};
    _cleanup_free_ char *whole = malloc(len + HEAD_MAX);
    char path[PATH_MAX];
    int n, r = file_path(dir, path, err);

    if (r < 0)
        return r;
    if (!whole)
        return error_set(err, -ENOMEM, "out of memory");
    n = snprintf(whole, HEAD_MAX, HEAD "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIx64 "\n",
                 h->number, h->edition, h->made_ms, h->hash);
    memcpy(whole + n, text, len);
    r = wholefile_replace(path, whole, (size_t)n + len, &status);
    if (r == 0)
        failpoint(FAILPOINT_POLICY_STORED);
    return r < 0 ? error_set(err, r, "cannot write %s: %s", path, strerror(-r)) : 0;
}

/* *ret_text is the text behind the head. -ENOENT without a text in *err: there is no file. */
static int read_file(const char *dir, struct head *ret, char **ret_text, size_t *ret_len,
                     struct error *err)
{
    char path[PATH_MAX];
    struct stat status;
    size_t len, head;
    char *text;
    int r = file_path(dir, path, err);

    if (r < 0)
        return r;
    r = wholefile_read(path, FILE_MAX, &text, &len, &status);
    if (r < 0)
        return r == -ENOENT ? r : error_set(err, r, "cannot read %s: %s", path, strerror(-r));
    *ret = (struct head){0};
    head = read_head(text, ret);
    memmove(text, text + head, len - head + 1);
    *ret_text = text;
    *ret_len = len - head;
    return 0;
}

/* ---- the policy ---- */

/*
 * Numbers begin with the seconds since 1970: a hub whose directory was lost goes on above those
 * that its units have.
 */
static uint64_t next_number(uint64_t number, int64_t now_ms)
{
    uint64_t least = now_ms > 0 ? (uint64_t)now_ms / 1000 : 1;

    return number + 1 > least ? number + 1 : least;
}

static int compile(const char *text, size_t len, int64_t now_ms, struct in_force *ret,
                   struct error *err)
{
    int r = policy_compile(text, len, NULL, now_ms / 1000, &ret->rules, err);

    if (r < 0)
        return r;
    if (areas_make(&ret->rules, &ret->areas) < 0) {
        policy_done(&ret->rules);
        return error_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

static void take_head(struct in_force *p, const struct head *h)
{
    p->number = h->number;
    p->edition = h->edition;
    p->made_ms = (int64_t)h->made_ms;
    p->valid_until_ms = p->made_ms + p->rules.valid_s * 1000;
}

/* Compiles and puts in the place of what was in force. Takes the text over if it returns 0. */
static int replace(const char *dir, const struct head *h, char *text, size_t len, bool write,
                   int64_t now_ms, struct in_force *p, struct error *err)
{
    struct in_force next = {.text = text, .len = len};
    int r = compile(text, len, now_ms, &next, err);

    if (r < 0)
        return r;
    r = write ? write_file(dir, h, text, len, err) : 0;
    if (r < 0) {
        areas_done(&next.areas);
        policy_done(&next.rules);
        return r;
    }
    take_head(&next, h);
    in_force_done(p);
    *p = next;
    p->rules.set.zone = (const struct zone *const *)p->rules.zones.zone;
    return 0;
}

int in_force_read(const char *dir, int64_t now_ms, struct in_force *p, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    struct error e = {0};
    struct head h;
    bool other;
    size_t len;
    int r = read_file(dir, &h, &text, &len, err);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    other = h.number == 0 || h.hash != hash_of(text, len);
    if (!other && p->number == h.number)
        return 0;
    if (other) {
        h.number = next_number(h.number > p->number ? h.number : p->number, now_ms);
        h.edition = h.number;
        h.made_ms = (uint64_t)now_ms;
        h.hash = hash_of(text, len);
    }
    r = replace(dir, &h, text, len, other, now_ms, p, &e);
    if (r < 0)
        return error_set(err, r, "%s/" IN_FORCE_FILE ": %.200s", dir, e.text);
    text = NULL; /* it is the policy's now */
    return 1;
}

int in_force_put(const char *dir, const char *text, size_t len, uint64_t edition, int64_t now_ms,
                 struct in_force *p, struct error *err)
{
    _cleanup_free_ char *copy = NULL;
    struct head h = {.made_ms = (uint64_t)now_ms, .hash = hash_of(text, len)};
    int r;

    if (edition && edition != p->edition)
        return error_set(err, -ESTALE,
                         "the policy was changed meanwhile (number %" PRIu64 "): read it again",
                         p->edition);
    if (len > YAML_BYTES_MAX)
        return error_set(err, -E2BIG, "the text has %zu bytes, the most is %d", len,
                         YAML_BYTES_MAX);
    copy = malloc(len + 1);
    if (!copy)
        return error_set(err, -ENOMEM, "out of memory");
    memcpy(copy, text, len);
    copy[len] = '\0';
    h.number = h.edition = next_number(p->number, now_ms);
    r = replace(dir, &h, copy, len, true, now_ms, p, err);
    if (r == 0)
        copy = NULL; /* it is the policy's now */
    return r;
}

int in_force_renew(const char *dir, int64_t now_ms, struct in_force *p, struct error *err)
{
    struct head h = {next_number(p->number, now_ms), p->edition, (uint64_t)now_ms,
                     hash_of(p->text, p->len)};
    int r = write_file(dir, &h, p->text, p->len, err);

    if (r == 0)
        take_head(p, &h);
    return r;
}

int in_force_leave(const char *dir, const char *text, size_t len, struct error *err)
{
    _cleanup_free_ char *old = NULL;
    struct head h = {0};
    size_t old_len;
    int r = read_file(dir, &h, &old, &old_len, err);

    if (r < 0 && r != -ENOENT)
        return r;
    return write_file(dir, &h, text, len, err);
}

int in_force_peek(const char *dir, uint64_t *ret_number, bool *ret_current, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    struct head h;
    size_t len;
    int r = read_file(dir, &h, &text, &len, err);

    if (r < 0)
        return r;
    *ret_number = h.number;
    *ret_current = h.number && h.hash == hash_of(text, len);
    return 0;
}

int in_force_text(const char *dir, char **ret, struct error *err)
{
    struct head h;
    size_t len;

    return read_file(dir, &h, ret, &len, err);
}

void in_force_done(struct in_force *p)
{
    if (!p->text)
        return;
    areas_done(&p->areas);
    policy_done(&p->rules);
    free(p->text);
    *p = (struct in_force){0};
}
