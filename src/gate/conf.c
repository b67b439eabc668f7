/* SPDX-License-Identifier: Apache-2.0 */
#include "gate/conf.h"

#include "base/cleanup.h"
#include "base/rundir.h"
#include "base/suggest.h"
#include "base/wholefile.h"
#include "host/inifile.h"

#include <errno.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "config-error"

#define BLANKS " \t\r"

static const struct key {
    const char *name;
    size_t offset, size; /* size 0: a user */
    bool path;
} keys[] = {
#define TEXT_OF(member)                                                                            \
    offsetof(struct gate_conf, member), sizeof(((struct gate_conf *)NULL)->member)
    {"listen", TEXT_OF(listen), false},
    {"certificate", TEXT_OF(certificate), true},
    {"key", TEXT_OF(key), true},
    {"client-ca", TEXT_OF(client_ca), true},
    {"tokens", TEXT_OF(tokens), true},
    {"api", TEXT_OF(api), true},
    {"user", 0, 0, false},
};

/* "NAME" or "NAME SUBJECT" */
static int take_user(struct gate_conf *c, const char *value, struct error *err)
{
    size_t len = strcspn(value, BLANKS);
    const char *subject = value + len + strspn(value + len, BLANKS);
    struct gate_user *more;

    if (len == 0 || len >= CONF_NAME_MAX || strlen(subject) >= PEER_SUBJECT_MAX)
        return error_set(err, -EINVAL, "'%.60s': use NAME, or NAME and a certificate's subject",
                         value);
    if (c->users == CONF_USERS_MAX)
        return error_set(err, -EINVAL, "there are more than %d", CONF_USERS_MAX);
    if (*subject && gate_conf_certified(c, subject))
        return error_set(err, -EINVAL, "the subject '%.100s' stands there twice", subject);
    more = realloc(c->user, (c->users + 1) * sizeof(*more));
    if (!more)
        return error_set(err, -ENOMEM, "out of memory");
    c->user = more;
    more += c->users++;
    *more = (struct gate_user){.uid = 0};
    memcpy(more->name, value, len);
    strcpy(more->subject, subject);
    return 0;
}

static int take_key(void *arg, const char *name, const char *value, struct error *err)
{
    const char *names[ARRAY_LEN(keys)], *near;
    const struct key *k = NULL;

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        names[i] = keys[i].name;
        if (strcmp(names[i], name) == 0)
            k = &keys[i];
    }
    if (!k) {
        near = suggest_nearest(name, names, ARRAY_LEN(keys));
        return error_set(err, -ENOENT, "there is no such key%s%s%s", near ? ": did you mean '" : "",
                         near ? near : "", near ? "'?" : "");
    }
    if (k->size == 0)
        return take_user(arg, value, err);
    if (!*value || strlen(value) >= k->size)
        return error_set(err, -EINVAL, "it has no value, or one that is too long");
    if (k->path && *value != '/')
        return error_set(err, -EINVAL, "'%.80s' is no absolute path", value);
    strcpy((char *)arg + k->offset, value);
    return 0;
}

int gate_conf_parse(struct gate_conf *c, const char *name, const char *text, struct error *err)
{
    const struct inifile file = {CONF_SECTION, "the gateway's", name};

    return inifile_parse(&file, text, take_key, c, err);
}

static int resolve(struct gate_conf *c, struct error *err)
{
    for (size_t i = 0; i < c->users; i++) {
        const struct passwd *entry = getpwnam(c->user[i].name);

        if (!entry)
            return error_set(err, -ENOENT, "user: there is no user '%.60s' on this machine",
                             c->user[i].name);
        if (entry->pw_uid == 0)
            return error_set(err, -EPERM, "user: '%.60s' is root, whom no gateway may name",
                             c->user[i].name);
        c->user[i].uid = entry->pw_uid;
    }
    return 0;
}

static int check(const struct gate_conf *c, struct error *err)
{
    bool certified = false;

    for (size_t i = 0; i < c->users; i++)
        certified |= *c->user[i].subject != '\0';
    if (!*c->certificate || !*c->key)
        return error_set(err, -EINVAL, "%s is missing: what the gateway proves itself with",
                         *c->certificate ? "key" : "certificate");
    if (!*c->client_ca && !*c->tokens)
        return error_set(err, -EINVAL, "neither client-ca nor tokens: nobody could come in");
    if (certified && !*c->client_ca)
        return error_set(err, -EINVAL, "client-ca is missing: who signs the users' certificates");
    return 0;
}

int gate_conf_read(const char *path, struct gate_conf *ret, struct error *err)
{
    struct gate_conf c = {.listen = ":7443", .api = RUNDIR_SYSTEM "/" RUNDIR_API_SOCKET};
    _cleanup_free_ char *text = NULL;
    struct error why = {0};
    struct stat status;
    size_t len;
    int r = wholefile_read(path, CONF_BYTES_MAX, &text, &len, &status);

    if (r < 0)
        return error_set(err, r, "%.200s: %s", path, strerror(-r));
    r = strlen(text) == len ? gate_conf_parse(&c, path, text, err)
                            : error_set(err, -EINVAL, "%.200s: it holds a NUL byte", path);
    if (r == 0) {
        r = resolve(&c, &why);
        if (r == 0)
            r = check(&c, &why);
        if (r < 0)
            error_set(err, r, "%.100s: %.150s", path, why.text);
    }
    if (r < 0)
        gate_conf_done(&c);
    else
        *ret = c;
    return r;
}

void gate_conf_done(struct gate_conf *c)
{
    free(c->user);
    c->user = NULL;
    c->users = 0;
}

const struct gate_user *gate_conf_named(const struct gate_conf *c, const char *name)
{
    for (size_t i = 0; i < c->users; i++)
        if (strcmp(c->user[i].name, name) == 0)
            return &c->user[i];
    return NULL;
}

const struct gate_user *gate_conf_certified(const struct gate_conf *c, const char *subject)
{
    for (size_t i = 0; *subject && i < c->users; i++)
        if (strcmp(c->user[i].subject, subject) == 0)
            return &c->user[i];
    return NULL;
}
