/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/people/people_state.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "edge/sqlite_errno.h"
#include "hub/people/password.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/random.h>

#define ERROR_WORD "hub-state"

#define IDLE_MS (12 * UINT64_C(3600000))
#define END_MS  (7 * UINT64_C(86400000))

/*
 * A row of the audit log can neither be changed nor, for 30 days, be removed, by whatever program.
 * Rows name users by text: they outlive them.
 */
static const char *const steps[] = {
    "CREATE TABLE user (name TEXT PRIMARY KEY, role INTEGER NOT NULL, password TEXT NOT NULL,"
    " made_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;"
    "CREATE TABLE session (hash TEXT PRIMARY KEY, user TEXT NOT NULL REFERENCES user (name)"
    " ON DELETE CASCADE, made_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX session_of ON session (user);"
    "CREATE TABLE token (hash TEXT PRIMARY KEY, user TEXT NOT NULL REFERENCES user (name)"
    " ON DELETE CASCADE, made_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX token_of ON token (user);"
    "CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL,"
    " user TEXT NOT NULL, origin TEXT NOT NULL, what TEXT NOT NULL, target TEXT NOT NULL,"
    " outcome TEXT NOT NULL);"
    "CREATE INDEX audit_by_time ON audit (time_ms);"
    "CREATE TRIGGER audit_stays BEFORE UPDATE ON audit"
    " BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;"
    "CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit"
    " WHEN OLD.time_ms > (CAST(strftime('%s', 'now') AS INTEGER) - 2592000) * 1000"
    " BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;",
};

static const char *const role_names[] = {"viewer", "operator", "administrator"};
static_assert(ARRAY_LEN(role_names) == ROLE_MAX, "a role without a name");

const char *role_name(enum role role)
{
    return role < ROLE_MAX ? role_names[role] : "?";
}

int role_parse(const char *text, enum role *ret)
{
    for (enum role role = 0; role < ROLE_MAX; role++)
        if (strcmp(text, role_names[role]) == 0) {
            *ret = role;
            return 0;
        }
    return -EINVAL;
}

/* ---- SQLite ---- */

int people_said(struct people *p, int r, const char *doing, struct error *err)
{
    return r < 0 ? error_set(err, r, "cannot %s: %s", doing, sqlite3_errmsg(p->db)) : r;
}

sqlite3_stmt *people_query(struct people *p, const char *sql, const char *types, ...)
{
    sqlite3_stmt *q = NULL;
    va_list args;

    if (sqlite3_prepare_v2(p->db, sql, -1, &q, NULL) != SQLITE_OK)
        return NULL;
    va_start(args, types);
    for (int i = 0; types[i]; i++)
        if (types[i] == 's')
            sqlite3_bind_text(q, i + 1, va_arg(args, const char *), -1, SQLITE_TRANSIENT);
        else
            sqlite3_bind_int64(q, i + 1, va_arg(args, int64_t));
    va_end(args);
    return q;
}

int people_finish(sqlite3_stmt *q, int rc)
{
    sqlite3_finalize(q);
    return sqlite_errno(rc);
}

int people_change(struct people *p, sqlite3_stmt *q)
{
    int r = q ? people_finish(q, sqlite3_step(q)) : sqlite_errno(sqlite3_errcode(p->db));

    return r < 0 ? r : sqlite3_changes(p->db);
}

int64_t people_number(sqlite3_stmt *q, int64_t otherwise)
{
    int64_t value = q && sqlite3_step(q) == SQLITE_ROW ? sqlite3_column_int64(q, 0) : otherwise;

    sqlite3_finalize(q);
    return value;
}

void people_text(sqlite3_stmt *q, int column, char *ret, size_t size)
{
    const unsigned char *text = sqlite3_column_text(q, column);

    snprintf(ret, size, "%s", text ? (const char *)text : "");
}

/* ---- the file ---- */

static int run(struct people *p, const char *sql)
{
    return sqlite_errno(sqlite3_exec(p->db, sql, NULL, NULL, NULL));
}

/* Under a lock, since a command may open the file for the first time beside the hub. */
static int upgrade(struct people *p)
{
    char text[64];
    int64_t version;
    int r = run(p, "BEGIN IMMEDIATE");

    if (r < 0)
        return r;
    version = people_number(people_query(p, "PRAGMA user_version", ""), -1);
    if (version < 0 || version > (int64_t)ARRAY_LEN(steps)) {
        run(p, "ROLLBACK");
        return version < 0 ? -EBADMSG : -EPROTO;
    }
    for (int64_t i = version; r == 0 && i < (int64_t)ARRAY_LEN(steps); i++)
        r = run(p, steps[i]);
    snprintf(text, sizeof(text), "PRAGMA user_version = %zu", ARRAY_LEN(steps));
    if (r == 0 && version < (int64_t)ARRAY_LEN(steps))
        r = run(p, text);
    return r < 0 ? r : run(p, "COMMIT");
}

static int open_file(struct people *p, const char *path)
{
    int r = sqlite_errno(sqlite3_open_v2(
        path, &p->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL));

    if (r == 0)
        sqlite3_busy_timeout(p->db, 1000);
    r = r ? r
          : run(p, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                   "PRAGMA foreign_keys = ON");
    return r ? r : upgrade(p);
}

int people_open(const char *path, const struct people_options *options, struct people **ret,
                struct error *err)
{
    struct people *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return error_set(err, -ENOMEM, "out of memory");
    p->options = *options;
    p->options.idle_ms = options->idle_ms ? options->idle_ms : IDLE_MS;
    p->options.end_ms = options->end_ms ? options->end_ms : END_MS;
    if (getrandom(&p->guess.seed, sizeof(p->guess.seed), 0) < 0)
        r = -errno;
    else
        r = open_file(p, path);
    if (r == 0) {
        *ret = p;
        return 0;
    }
    error_set(err, r, "%s: %s", path,
              r == -EPROTO ? "a newer version of this program wrote it"
              : p->db      ? sqlite3_errmsg(p->db)
                           : strerror(-r));
    people_close(p);
    return r;
}

struct people *people_close(struct people *p)
{
    if (!p)
        return NULL;
    sqlite3_close(p->db);
    free(p);
    return NULL;
}

/* ---- users ---- */

static int check_name(const char *name, struct error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    size_t len = strlen(name);

    if (len > 0 && len < PEOPLE_NAME_MAX && strchr(letters, name[0]) &&
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == len)
        return 0;
    return error_word(
        err,
        error_set(err, -EINVAL,
                  "'%.40s' is no name of a user: use 1 to %d of a-z, 0-9, '.', '_' and '-', a "
                  "letter first",
                  name, PEOPLE_NAME_MAX - 1),
        "bad-request");
}

static int nobody(const char *name, struct error *err)
{
    return error_word(err, error_set(err, -ENOENT, "there is no user '%.40s'", name),
                      "hub-has-none");
}

uint32_t people_count(struct people *p)
{
    return (uint32_t)people_number(people_query(p, "SELECT count(*) FROM user", ""), 0);
}

int people_add(struct people *p, const char *name, enum role role, const char *password,
               struct error *err)
{
    char hash[PASSWORD_HASH_MAX];
    int r = check_name(name, err);

    if (r == 0)
        r = password_good(name, password, err);
    if (r < 0)
        return r;
    if (people_count(p) >= PEOPLE_USERS_MAX)
        return error_word(err,
                          error_set(err, -ENOSPC, "there are %d users already", PEOPLE_USERS_MAX),
                          "hub-full");
    r = password_hash(password, hash, err);
    if (r < 0)
        return r;
    r = people_change(p, people_query(p,
                                      "INSERT INTO user (name, role, password, made_ms)"
                                      " VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
                                      "sisi", name, (int64_t)role, hash, (int64_t)clock_real_ms()));
    if (r == 0)
        return error_word(err, error_set(err, -EEXIST, "there is a user '%s' already", name),
                          "hub-conflict");
    return r < 0 ? people_said(p, r, "add the user", err) : 0;
}

/*
 * Changes a user, and ends what a thief of the old password or the holder of the old role may have:
 * both or none. Returns as people_change().
 */
static int change_and_end(struct people *p, sqlite3_stmt *change, const char *name,
                          bool keep_tokens)
{
    int r = run(p, "SAVEPOINT change"), ended = 0;

    if (r < 0) {
        sqlite3_finalize(change);
        return r;
    }
    r = people_change(p, change);
    if (r > 0)
        ended = people_change(p, people_query(p, "DELETE FROM session WHERE user = ?1", "s", name));
    if (r > 0 && ended >= 0 && !keep_tokens)
        ended = people_change(p, people_query(p, "DELETE FROM token WHERE user = ?1", "s", name));
    r = ended < 0 ? ended : r;
    if (r > 0) {
        int kept = run(p, "RELEASE change");

        r = kept < 0 ? kept : r;
    }
    if (r <= 0) /* also where the release failed: what is left open would take in later changes */
        run(p, "ROLLBACK TO change; RELEASE change");
    return r;
}

int people_password(struct people *p, const char *name, const char *password, bool keep_tokens,
                    struct error *err)
{
    char hash[PASSWORD_HASH_MAX];
    int r = password_good(name, password, err);

    if (r == 0)
        r = password_hash(password, hash, err);
    if (r < 0)
        return r;
    r = change_and_end(
        p, people_query(p, "UPDATE user SET password = ?2 WHERE name = ?1", "ss", name, hash), name,
        keep_tokens);
    if (r == 0)
        return nobody(name, err);
    return r < 0 ? people_said(p, r, "change the password", err) : 0;
}

/* In the statement itself: two commands at once cannot remove the last two. */
#define NOT_THE_LAST " AND (role <> 2 OR (SELECT count(*) FROM user WHERE role = 2) > 1"
static_assert(ROLE_ADMINISTRATOR == 2, "the number in NOT_THE_LAST");

static int refused(struct people *p, const char *name, struct error *err)
{
    if (people_number(people_query(p, "SELECT 1 FROM user WHERE name = ?1", "s", name), 0) == 0)
        return nobody(name, err);
    return error_word(err,
                      error_set(err, -EBUSY,
                                "'%s' is the last administrator: make somebody else one first "
                                "('tide-hub user role')",
                                name),
                      "hub-conflict");
}

int people_role(struct people *p, const char *name, enum role role, bool keep_tokens,
                struct error *err)
{
    int r;

    if (people_number(people_query(p, "SELECT role FROM user WHERE name = ?1", "s", name), -1) ==
        (int64_t)role)
        return 0;
    r = change_and_end(
        p,
        people_query(p, "UPDATE user SET role = ?2 WHERE name = ?1" NOT_THE_LAST " OR ?2 = 2)",
                     "si", name, (int64_t)role),
        name, keep_tokens);
    if (r == 0)
        return refused(p, name, err);
    return r < 0 ? people_said(p, r, "change the role", err) : 0;
}

int people_role_and_password(struct people *p, const char *name, enum role role,
                             const char *password, bool keep_tokens, struct error *err)
{
    int r = run(p, "SAVEPOINT both");

    if (r < 0)
        return people_said(p, r, "change the user", err);
    r = people_role(p, name, role, keep_tokens, err);
    if (r == 0)
        r = people_password(p, name, password, keep_tokens, err);
    if (r == 0) {
        r = run(p, "RELEASE both");
        if (r < 0)
            people_said(p, r, "change the user", err);
    }
    if (r < 0)
        run(p, "ROLLBACK TO both; RELEASE both");
    return r;
}

int people_remove(struct people *p, const char *name, struct error *err)
{
    int r = people_change(
        p, people_query(p, "DELETE FROM user WHERE name = ?1" NOT_THE_LAST ")", "s", name));

    if (r == 0)
        return refused(p, name, err);
    return r < 0 ? people_said(p, r, "remove the user", err) : 0;
}

int people_list(struct people *p, void (*each)(void *arg, const struct person *person), void *arg,
                struct error *err)
{
    sqlite3_stmt *q = people_query(
        p,
        "SELECT name, role, made_ms, last_ms, (SELECT count(*) FROM session WHERE user = name),"
        " (SELECT count(*) FROM token WHERE user = name) FROM user ORDER BY name",
        "");
    int rc = SQLITE_ERROR;

    while (q && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct person person = {.role = (enum role)sqlite3_column_int(q, 1),
                                .made_ms = sqlite3_column_int64(q, 2),
                                .last_ms = sqlite3_column_int64(q, 3),
                                .sessions = (uint32_t)sqlite3_column_int(q, 4),
                                .tokens = (uint32_t)sqlite3_column_int(q, 5)};

        people_text(q, 0, person.name, sizeof(person.name));
        each(arg, &person);
    }
    return people_said(p, people_finish(q, rc), "read the users", err);
}
