/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's configuration, tide-gate(8): where it listens, its certificate, and who may come
 * in. Whoever has no line `user = …` comes in by nothing. Any thread, no state; reading it asks the
 * system's user database. Used by gate.c and main.c.
 */
#pragma once

#include "base/error.h"
#include "host/trust/peer.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#define CONF_SECTION   "gate"
#define CONF_FILE      "/etc/tide/gate.conf"
#define CONF_BYTES_MAX (1 << 20)
#define CONF_USERS_MAX 1024
#define CONF_NAME_MAX  64

/* A local user, and how somebody elsewhere proves to be that one. */
struct gate_user {
    char name[CONF_NAME_MAX];
    char subject[PEER_SUBJECT_MAX]; /* of a certificate; "": by a token alone */
    uid_t uid;                      /* of gate_conf_read() */
};

struct gate_conf {
    char listen[256], certificate[PATH_MAX], key[PATH_MAX];
    char client_ca[PATH_MAX], tokens[PATH_MAX]; /* "": no certificates, no tokens */
    char api[108];                              /* tided's socket */
    struct gate_user *user;
    size_t users;
};

/* Takes the text of a file; @name for messages. Returns 0, -EINVAL with *err, or -ENOMEM. */
int gate_conf_parse(struct gate_conf *c, const char *name, const char *text, struct error *err);

/*
 * Reads the file, looks up its users and says what is missing. Returns 0 with *ret, or -errno with
 * *err: -ENOENT also for a user who does not exist, -EPERM for root.
 */
int gate_conf_read(const char *path, struct gate_conf *ret, struct error *err);

void gate_conf_done(struct gate_conf *c);

/* The user with this name, or of this certificate; NULL: may not come in. */
const struct gate_user *gate_conf_named(const struct gate_conf *c, const char *name);
const struct gate_user *gate_conf_certified(const struct gate_conf *c, const char *subject);
