/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/trust/tokens.h"

#include "base/cleanup.h"
#include "base/wholefile.h"
#include "hub/trust/authority.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ERROR_WORD "bad-token"

#define NO_AREA        "-"
#define BROKER         "broker="
#define UNIT           "unit="
#define LINE_MAX_BYTES (SECRET_LEN + EDGE_NAME_MAX + AREA_PATH_MAX + AREA_BROKER_MAX + 48)
#define BYTES_MAX      (TOKENS_MAX * LINE_MAX_BYTES)

struct entry {
    char hash[SECRET_LEN + 1];
    struct token token;
};

struct list {
    struct entry *entry; /* TOKENS_MAX */
    size_t count;
};

/* ---- the file ---- */

static int file_path(const char *dir, char ret[PATH_MAX], struct error *err)
{
    int n = snprintf(ret, PATH_MAX, "%s/tokens", dir);

    return n < 0 || n >= PATH_MAX
               ? error_set(err, -ENAMETOOLONG, "the path of the state is too long")
               : 0;
}

static void read_more(const char *word, struct token *t)
{
    if (strncmp(word, BROKER, strlen(BROKER)) == 0)
        snprintf(t->broker, sizeof(t->broker), "%.279s", word + strlen(BROKER));
    else if (strncmp(word, UNIT, strlen(UNIT)) == 0)
        snprintf(t->unit, sizeof(t->unit), "%.63s", word + strlen(UNIT));
}

/* Without those that have ended. */
static int read_list(const char *dir, int64_t now_s, struct list *ret, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    struct list l = {calloc(TOKENS_MAX, sizeof(struct entry)), 0};
    char path[PATH_MAX];
    struct stat status;
    size_t len;
    int r = l.entry ? file_path(dir, path, err) : error_set(err, -ENOMEM, "out of memory");

    if (r >= 0) {
        r = wholefile_read(path, BYTES_MAX, &text, &len, &status);
        if (r < 0 && r != -ENOENT)
            error_set(err, r, "cannot read %s: %s", path, strerror(-r));
    }
    if (r < 0 && r != -ENOENT) {
        free(l.entry);
        return r;
    }
    for (char *next = text; next && *next && l.count < TOKENS_MAX;) {
        struct entry *e = &l.entry[l.count];
        char more[AREA_BROKER_MAX + 8] = "";

        *e = (struct entry){0};
        if (sscanf(strsep(&next, "\n"), "%64s %63s %127s %" SCNd64 " %287s", e->hash, e->token.name,
                   e->token.area, &e->token.until_s, more) < 4 ||
            e->token.until_s <= now_s)
            continue;
        read_more(more, &e->token);
        if (strcmp(e->token.area, NO_AREA) == 0)
            e->token.area[0] = '\0';
        l.count++;
    }
    *ret = l;
    return 0;
}

static int write_list(const char *dir, const struct list *l, struct error *err)
{
    struct stat status = {.st_mode = 0600, .st_uid = geteuid(), .st_gid = getegid()};
    _cleanup_free_ char *text = malloc(l->count * LINE_MAX_BYTES + 1);
    char path[PATH_MAX];
    size_t n = 0;
    int r = text ? file_path(dir, path, err) : error_set(err, -ENOMEM, "out of memory");

    if (r < 0)
        return r;
    for (size_t i = 0; i < l->count; i++) {
        const struct entry *e = &l->entry[i];

        n += (size_t)snprintf(text + n, LINE_MAX_BYTES, "%s %s %s %" PRId64 "%s%s\n", e->hash,
                              e->token.name, *e->token.area ? e->token.area : NO_AREA,
                              e->token.until_s,
                              *e->token.broker ? " " BROKER
                              : *e->token.unit ? " " UNIT
                                               : "",
                              *e->token.broker ? e->token.broker : e->token.unit);
    }
    r = wholefile_replace(path, text, n, &status);
    return r < 0 ? error_set(err, r, "cannot write %s: %s", path, strerror(-r)) : 0;
}

/* ---- tokens ---- */

/* A machine below a unit stands where the unit does, and needs a broker to speak through. */
static int check_unit(const char *dir, const struct token *t, struct error *err)
{
    char trust[PATH_MAX], address[AREA_BROKER_MAX];

    if (!*t->unit)
        return 0;
    if (*t->area || *t->broker || strcmp(t->unit, t->name) == 0)
        return error_set(
            err, -EINVAL,
            "a machine below a unit has no area, no broker and no unit of its own name");
    if ((size_t)snprintf(trust, sizeof(trust), "%s/trust", dir) >= sizeof(trust))
        return error_set(err, -ENAMETOOLONG, "the path of the state is too long");
    return area_broker_of_unit(trust, t->unit, address) == 0
               ? 0
               : error_set(err, -EINVAL,
                           "unit %.63s has no broker of its own for machines: enrol it with "
                           "'tide-hub token %.63s --broker HOST' first",
                           t->unit, t->unit);
}

static int check(const char *name, const char *area, uint64_t for_s, struct error *err)
{
    if (!authority_name_good(name) || strcmp(name, AUTHORITY_HUB) == 0)
        return error_set(
            err, -EINVAL,
            "'%.70s' is no name of a unit: use 1 to 63 of a-z, 0-9 and '-' between them", name);
    if (area && *area && (strlen(area) >= AREA_PATH_MAX || !area_valid(area)))
        return error_set(err, -EINVAL, "'%.70s' is no area: use a path as unlp/lab3", area);
    if (for_s < 1 || for_s > TOKENS_FOR_MAX)
        return error_set(err, -EINVAL, "a token is good for at most 30 days");
    return 0;
}

static int fingerprint(const char *dir, char ret[SECRET_LEN + 1], struct error *err)
{
    _cleanup_free_ char *ca = NULL;
    char path[PATH_MAX];
    struct stat status;
    size_t len;
    int n = snprintf(path, sizeof(path), "%s/trust/ca.crt", dir);
    int r = n < 0 || (size_t)n >= sizeof(path) ? -ENAMETOOLONG
                                               : wholefile_read(path, 65536, &ca, &len, &status);

    if (r < 0)
        return error_set(err, r, "cannot read %s: %s", path, strerror(-r));
    r = secret_hash(ca, len, ret);
    return r < 0 ? error_set(err, r, "cannot hash %s", path) : 0;
}

static int add(const char *dir, const char *secret, const struct token *token, int64_t now_s,
               struct error *err)
{
    struct list l;
    int r = read_list(dir, now_s, &l, err);

    if (r < 0)
        return r;
    if (l.count == TOKENS_MAX)
        r = error_word(
            err,
            error_set(err, -ENOSPC, "%d tokens wait to be used: wait until some end", TOKENS_MAX),
            "hub-full");
    else
        r = secret_hash(secret, SECRET_LEN, l.entry[l.count].hash);
    if (r == 0) {
        l.entry[l.count++].token = *token;
        r = write_list(dir, &l, err);
    }
    free(l.entry);
    return r;
}

int tokens_make_for(const char *dir, const struct token *wanted, int64_t now_s,
                    char ret[TOKENS_TEXT_MAX], struct error *err)
{
    struct token token = *wanted;
    struct enrol_token text;
    int r = check(wanted->name, wanted->area, (uint64_t)wanted->until_s, err);

    token.until_s += now_s;
    if (r >= 0)
        r = check_unit(dir, wanted, err);
    if (r >= 0)
        r = fingerprint(dir, text.fingerprint, err);
    if (r < 0)
        return r;
    if (secret_make(text.secret) < 0)
        return error_set(err, -EIO, "no random numbers");
    r = add(dir, text.secret, &token, now_s, err);
    if (r == 0)
        enrol_token_text(&text, ret);
    return r;
}

int tokens_make(const char *dir, const char *name, const char *area, uint64_t for_s, int64_t now_s,
                char ret[TOKENS_TEXT_MAX], struct error *err)
{
    struct token token = {.until_s = (int64_t)for_s};
    int r = check(name, area, for_s, err); /* also that the texts fit */

    if (r < 0)
        return r;
    strcpy(token.name, name);
    strcpy(token.area, area ? area : "");
    return tokens_make_for(dir, &token, now_s, ret, err);
}

/* Its place; the count: it is none. */
static size_t find(const struct list *l, const char *secret)
{
    char hash[SECRET_LEN + 1];
    size_t i = 0;

    if (secret_hash(secret, SECRET_LEN, hash) < 0)
        return l->count;
    while (i < l->count && strcmp(l->entry[i].hash, hash) != 0)
        i++;
    return i;
}

bool tokens_has(const char *dir, const char secret[SECRET_LEN + 1], int64_t now_s)
{
    struct list l;
    bool found;

    if (read_list(dir, now_s, &l, NULL) < 0)
        return false;
    found = find(&l, secret) < l.count;
    free(l.entry);
    return found;
}

int tokens_take(const char *dir, const char secret[SECRET_LEN + 1], int64_t now_s,
                struct token *ret, struct error *err)
{
    struct list l;
    size_t i;
    int r = read_list(dir, now_s, &l, err);

    if (r < 0)
        return r;
    i = find(&l, secret);
    if (i == l.count) {
        free(l.entry);
        return error_set(err, -EACCES, "the token is unknown, was used, or has ended");
    }
    *ret = l.entry[i].token;
    l.entry[i] = l.entry[--l.count];
    r = write_list(dir, &l, err);
    free(l.entry);
    return r;
}

int tokens_restore(const char *dir, const char secret[SECRET_LEN + 1], const struct token *token,
                   struct error *err)
{
    return add(dir, secret, token, 0, err);
}
