/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens by which people come in: a file with a line for each,
 *
 *     USER ID HASH UNTIL      # comment
 *
 * A token is ID-SECRET. The file has the SHA-256 of all of it, so the ID is its salt, and a line is
 * found by it; the secret has 256 random bits. UNTIL: seconds since 1970, 0: no end. Any thread, no
 * state. Used by gate.c and main.c.
 */
#pragma once

#include "base/error.h"
#include "gate/conf.h"
#include "host/trust/secret.h"

#include <stdint.h>
#include <sys/stat.h>

#define TOKENS_BYTES_MAX (1 << 20)
#define TOKENS_MAX       4096
#define TOKEN_ID_LEN     16
#define TOKEN_LEN        (TOKEN_ID_LEN + 1 + SECRET_LEN)

struct token {
    char user[CONF_NAME_MAX];
    char id[TOKEN_ID_LEN + 1];
    char hash[SECRET_LEN + 1];
    int64_t until_s;
};

struct tokens {
    struct token *of;
    size_t n;
};

/* Takes the text of a file, which it changes. Returns 0, -EINVAL with *err, or -ENOMEM. */
int gate_tokens_parse(char *text, struct tokens *ret, struct error *err);

/*
 * Reads the file; one that is not there has no tokens. Returns 0, -EPERM (others may write it) or
 * another -errno with *err.
 */
int gate_tokens_read(const char *path, struct tokens *ret, struct error *err);

void gate_tokens_done(struct tokens *t);

/* The line of a token that holds at @now_s (since 1970); NULL: it is unknown, or has ended. */
const struct token *gate_tokens_find(const struct tokens *t, const char *text, int64_t now_s);

/* The same for the id of one that was found before. */
const struct token *gate_tokens_by_id(const struct tokens *t, const char *id, int64_t now_s);

/*
 * Makes a token of @user and adds its line to the file, which it makes for the group @group where
 * there is none. Returns 0 with the token, which is nowhere else, or -errno with *err.
 */
int gate_tokens_add(const char *path, const char *user, int64_t until_s, const char *group,
                    char ret[TOKEN_LEN + 1], struct error *err);
