/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub's users, with a role and a password, the sessions of their browsers, and the tokens of
 * their scripts. They lie in an SQLite file of their own (people.db), so that the energy may lie in
 * another kind of store, is backed up or erased without it, and commands work beside a running hub:
 * every answer is read from the file, so a change counts at once. Only hashes are stored of
 * passwords, sessions and tokens. Event loop's thread. Used by src/hub/serve and cmd_user.c.
 */
#pragma once

#include "base/error.h"
#include "host/trust/secret.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEOPLE_FILE         "people.db" /* in the hub's directory */
#define PEOPLE_NAME_MAX     33          /* with the NUL; [a-z0-9._-], a letter first */
#define PEOPLE_USERS_MAX    4096
#define PEOPLE_SESSIONS_MAX 32 /* of a user: the longest unused one ends for a further one */
#define PEOPLE_TOKENS_MAX   32 /* of a user */
#define PEOPLE_TOKEN_PREFIX "tide_"
#define PEOPLE_TOKEN_LEN    (sizeof(PEOPLE_TOKEN_PREFIX) - 1 + SECRET_LEN)

/* Each may do what those before it may. */
enum role { ROLE_VIEWER, ROLE_OPERATOR, ROLE_ADMINISTRATOR, ROLE_MAX };
const char *role_name(enum role role);
int role_parse(const char *text, enum role *ret); /* 0 or -EINVAL */

struct people;

struct people_options {
    uint64_t idle_ms; /* a session that is not used for so long ends; 0: 12 hours */
    uint64_t end_ms;  /* every session ends after so long; 0: 7 days */
};

/* Opens or makes the file. Returns 0, -EPROTO (a newer program wrote it), -EBADMSG or -errno. */
int people_open(const char *path, const struct people_options *options, struct people **ret,
                struct error *err);
struct people *people_close(struct people *p); /* takes NULL, returns NULL */

/* ---- users ---- */

struct person {
    char name[PEOPLE_NAME_MAX];
    enum role role;
    int64_t made_ms, last_ms; /* last_ms: the last login; 0: none yet */
    uint32_t sessions, tokens;
};

/*
 * Each returns 0, -EINVAL (name, password), -EEXIST, -ENOENT, -EBUSY (the last administrator would
 * be gone), -ENOSPC, or -errno, with the reason in *err. A new password, another role and a removal
 * end all sessions of the user, and all tokens unless @keep_tokens.
 */
int people_add(struct people *p, const char *name, enum role role, const char *password,
               struct error *err);
int people_password(struct people *p, const char *name, const char *password, bool keep_tokens,
                    struct error *err);
int people_role(struct people *p, const char *name, enum role role, bool keep_tokens,
                struct error *err);
int people_role_and_password(struct people *p, const char *name, enum role role,
                             const char *password, bool keep_tokens,
                             struct error *err); /* both or none */
int people_remove(struct people *p, const char *name, struct error *err);

/* Calls @each with each user by name. */
int people_list(struct people *p, void (*each)(void *arg, const struct person *person), void *arg,
                struct error *err);
uint32_t people_count(struct people *p);

/* ---- who is it? ---- */

struct who {
    char name[PEOPLE_NAME_MAX];
    enum role role;
    bool session;              /* by a cookie; otherwise by a token */
    char hash[SECRET_LEN + 1]; /* of either */
};

/*
 * Begins a session. Returns 0 with the secret of its cookie; -EACCES: no such user, or not the
 * password; -EAGAIN: not looked at, as there were too many wrong ones (*ret_wait_s). @address is
 * the client's, 16 bytes.
 */
int people_login(struct people *p, const char *name, const char *password,
                 const unsigned char address[16], struct who *ret, char ret_cookie[SECRET_LEN + 1],
                 unsigned *ret_wait_s, struct error *err);

/* Whether it is the user's password, with the same limits and results as people_login(). */
int people_check(struct people *p, const char *name, const char *password,
                 const unsigned char address[16], unsigned *ret_wait_s, struct error *err);

/* The user of a cookie, or of a token. Returns 0, or -ENOENT: unknown or ended. */
int people_session(struct people *p, const char *cookie, struct who *ret);
int people_bearer(struct people *p, const char *token, struct who *ret);

/* Whether what proved @who is still good; the role may have changed. For answers that last. */
bool people_still(struct people *p, const struct who *who);

int people_logout(struct people *p, const struct who *who, struct error *err);

/* A new token of the user, for @for_ms; 0: until it is revoked. Only this once it is told. */
int people_token(struct people *p, const char *name, uint64_t for_ms,
                 char ret[PEOPLE_TOKEN_LEN + 1], struct error *err);
/* Ends all tokens of the user. Returns how many, or -errno. */
int people_revoke_tokens(struct people *p, const char *name, struct error *err);

/* Forgets sessions and tokens that have ended. */
void people_tidy(struct people *p);
