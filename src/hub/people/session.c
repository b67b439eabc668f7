/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/people/people_state.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "edge/sqlite_errno.h"
#include "hub/people/password.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "login-refused"

#define SEEN_MS 60000 /* how exactly the file knows when a session was used last */

/* ---- passwords ---- */

int people_check(struct people *p, const char *name, const char *password,
                 const unsigned char address[16], unsigned *ret_wait_s, struct error *err)
{
    char hash[PASSWORD_HASH_MAX] = "";
    sqlite3_stmt *q;
    bool right;

    *ret_wait_s = guess_wait_s(&p->guess, name, address, clock_now_ns());
    if (*ret_wait_s)
        return error_set(err, -EAGAIN, "too many wrong passwords: try again in %u s", *ret_wait_s);
    q = people_query(p, "SELECT password FROM user WHERE name = ?1", "s", name);
    if (!q)
        return people_said(p, sqlite_errno(sqlite3_errcode(p->db)), "read the users", err);
    if (sqlite3_step(q) == SQLITE_ROW)
        people_text(q, 0, hash, sizeof(hash));
    sqlite3_finalize(q);
    right = password_is(hash[0] ? hash : NULL, password);
    guess_was(&p->guess, name, address, right, clock_now_ns());
    /* The same words for both: nobody learns which names there are. */
    return right ? 0 : error_set(err, -EACCES, "there is no such user with that password");
}

static int begin(struct people *p, const char *name, const char *hash)
{
    int64_t now = (int64_t)clock_real_ms();
    int r = people_change(
        p, people_query(p,
                        "DELETE FROM session WHERE hash IN (SELECT hash FROM session WHERE user ="
                        " ?1 ORDER BY seen_ms DESC LIMIT -1 OFFSET ?2)",
                        "si", name, (int64_t)PEOPLE_SESSIONS_MAX - 1));

    if (r >= 0)
        r = people_change(p, people_query(p,
                                          "INSERT INTO session (hash, user, made_ms, seen_ms)"
                                          " VALUES (?1, ?2, ?3, ?3)",
                                          "ssi", hash, name, now));
    if (r >= 0)
        r = people_change(
            p, people_query(p, "UPDATE user SET last_ms = ?2 WHERE name = ?1", "si", name, now));
    return r < 0 ? r : 0;
}

int people_login(struct people *p, const char *name, const char *password,
                 const unsigned char address[16], struct who *ret, char ret_cookie[SECRET_LEN + 1],
                 unsigned *ret_wait_s, struct error *err)
{
    char cookie[SECRET_LEN + 1], hash[SECRET_LEN + 1];
    int r = people_check(p, name, password, address, ret_wait_s, err);

    if (r < 0)
        return r;
    r = secret_make(cookie);
    if (r >= 0)
        r = secret_hash(cookie, SECRET_LEN, hash);
    if (r < 0)
        return error_set(err, r, "no random numbers: %s", strerror(-r));
    r = begin(p, name, hash);
    if (r < 0)
        return people_said(p, r, "begin a session", err);
    r = people_session(p, cookie, ret);
    if (r < 0)
        return error_set(err, -EACCES, "the user is gone");
    strcpy(ret_cookie, cookie);
    return 0;
}

/* ---- sessions and tokens ---- */

/* The user to whom one of the two statements leads from the hash; its third column is a time. */
static int look_up(struct people *p, const char *sql, const char *hash, struct who *ret,
                   int64_t *ret_ms)
{
    int64_t now = (int64_t)clock_real_ms();
    sqlite3_stmt *q = people_query(p, sql, "siii", hash, now, now - (int64_t)p->options.idle_ms,
                                   now - (int64_t)p->options.end_ms);
    bool found = q && sqlite3_step(q) == SQLITE_ROW;

    if (found) {
        people_text(q, 0, ret->name, sizeof(ret->name));
        ret->role = (enum role)sqlite3_column_int(q, 1);
        *ret_ms = sqlite3_column_int64(q, 2);
        memmove(ret->hash, hash, SECRET_LEN + 1);
    }
    sqlite3_finalize(q);
    return found ? 0 : -ENOENT;
}

/* ?2 now, ?3 and ?4 the oldest use and begin that are good; from the future: the clock was set. */
#define SESSION                                                                                    \
    "SELECT u.name, u.role, s.seen_ms FROM session s JOIN user u ON u.name = s.user"               \
    " WHERE s.hash = ?1 AND s.seen_ms > ?3 AND s.made_ms > ?4 AND s.made_ms <= ?2 + 60000"
#define TOKEN                                                                                      \
    "SELECT u.name, u.role, t.until_ms FROM token t JOIN user u ON u.name = t.user"                \
    " WHERE t.hash = ?1 AND (t.until_ms = 0 OR t.until_ms > ?2) AND ?3 < ?2 AND ?4 < ?2"

int people_session(struct people *p, const char *cookie, struct who *ret)
{
    char hash[SECRET_LEN + 1];
    int64_t now = (int64_t)clock_real_ms(), seen;
    int r;

    if (strlen(cookie) != SECRET_LEN || secret_hash(cookie, SECRET_LEN, hash) < 0)
        return -ENOENT;
    r = look_up(p, SESSION, hash, ret, &seen);
    if (r < 0)
        return r;
    ret->session = true;
    if (now - seen > SEEN_MS || now < seen)
        people_change(
            p, people_query(p, "UPDATE session SET seen_ms = ?2 WHERE hash = ?1", "si", hash, now));
    return 0;
}

int people_bearer(struct people *p, const char *token, struct who *ret)
{
    char hash[SECRET_LEN + 1];
    int64_t until;

    if (strlen(token) != PEOPLE_TOKEN_LEN || secret_hash(token, PEOPLE_TOKEN_LEN, hash) < 0 ||
        look_up(p, TOKEN, hash, ret, &until) < 0)
        return -ENOENT;
    ret->session = false;
    return 0;
}

bool people_still(struct people *p, const struct who *who)
{
    struct who now;
    int64_t ms;

    return look_up(p, who->session ? SESSION : TOKEN, who->hash, &now, &ms) == 0;
}

int people_logout(struct people *p, const struct who *who, struct error *err)
{
    int r =
        people_change(p, people_query(p, "DELETE FROM session WHERE hash = ?1", "s", who->hash));

    return r < 0 ? people_said(p, r, "end the session", err) : 0;
}

int people_token(struct people *p, const char *name, uint64_t for_ms,
                 char ret[PEOPLE_TOKEN_LEN + 1], struct error *err)
{
    char secret[SECRET_LEN + 1], hash[SECRET_LEN + 1], token[PEOPLE_TOKEN_LEN + 1];
    int64_t now = (int64_t)clock_real_ms();
    int r = secret_make(secret);

    if (people_number(people_query(p, "SELECT 1 FROM user WHERE name = ?1", "s", name), 0) == 0)
        return error_word(err, error_set(err, -ENOENT, "there is no user '%.40s'", name),
                          "hub-has-none");
    if (people_number(people_query(p, "SELECT count(*) FROM token WHERE user = ?1", "s", name),
                      0) >= PEOPLE_TOKENS_MAX)
        return error_word(err,
                          error_set(err, -ENOSPC, "'%s' has %d tokens: revoke them first", name,
                                    PEOPLE_TOKENS_MAX),
                          "hub-full");
    snprintf(token, sizeof(token), "%s%s", PEOPLE_TOKEN_PREFIX, r < 0 ? "" : secret);
    if (r >= 0)
        r = secret_hash(token, PEOPLE_TOKEN_LEN, hash);
    if (r < 0)
        return error_set(err, r, "no random numbers: %s", strerror(-r));
    r = people_change(p, people_query(p,
                                      "INSERT INTO token (hash, user, made_ms, until_ms)"
                                      " VALUES (?1, ?2, ?3, ?4)",
                                      "ssii", hash, name, now,
                                      for_ms ? now + (int64_t)for_ms : (int64_t)0));
    if (r < 0)
        return people_said(p, r, "store the token", err);
    strcpy(ret, token);
    return 0;
}

int people_revoke_tokens(struct people *p, const char *name, struct error *err)
{
    return people_said(
        p, people_change(p, people_query(p, "DELETE FROM token WHERE user = ?1", "s", name)),
        "revoke tokens", err);
}

void people_tidy(struct people *p)
{
    int64_t now = (int64_t)clock_real_ms();

    people_change(p, people_query(p, "DELETE FROM session WHERE seen_ms <= ?1 OR made_ms <= ?2",
                                  "ii", now - (int64_t)p->options.idle_ms,
                                  now - (int64_t)p->options.end_ms));
    people_change(
        p, people_query(p, "DELETE FROM token WHERE until_ms > 0 AND until_ms <= ?1", "i", now));
}
