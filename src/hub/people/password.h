/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes of passwords, by libcrypt's yescrypt: its salt and its cost stand in the hash, so a later
 * program may take a higher cost for new ones. One takes about 60 ms and 16 MiB. Any thread, no
 * state. Used by people.c, session.c and cmd_user.c.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>

#define PASSWORD_MIN      10  /* bytes */
#define PASSWORD_MAX      256 /* longer ones would only cost time */
#define PASSWORD_HASH_MAX 384

/* Whether a user may have that password: -EINVAL says why not. */
int password_good(const char *user, const char *password, struct error *err);

/* Returns 0 or -errno with *err. */
int password_hash(const char *password, char ret[PASSWORD_HASH_MAX], struct error *err);

/* Whether @password is the one of @hash. NULL: no such user; it takes as long, and is false. */
bool password_is(const char *hash, const char *password);
