/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "hub/people/audit.h"
#include "hub/people/guess.h"
#include "hub/people/password.h"
#include "hub/people/people.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GOOD "correct horse battery"

static char dir[64], path[96];
static struct error err;
static const unsigned char here[16] = {[12] = 127, [15] = 1};
static unsigned wait_s;

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(name);
}

static int set_up(void **state)
{
    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/tide-people-XXXXXX"
                                              : "/tmp/tide-people-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/people.db", dir);
    memset(&err, 0, sizeof(err));
    return 0;
}

static int tear_down(void **state)
{
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct people *opened_for(uint64_t idle_ms, uint64_t end_ms)
{
    struct people *p = NULL;

    if (people_open(path, &(struct people_options){idle_ms, end_ms}, &p, &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

static struct people *opened(void)
{
    return opened_for(0, 0);
}

static void add(struct people *p, const char *name, enum role role)
{
    if (people_add(p, name, role, GOOD, &err) < 0)
        fail_msg("%s", err.text);
}

static int login(struct people *p, const char *name, const char *password, char *cookie)
{
    char secret[SECRET_LEN + 1] = "";
    struct who who;
    int r = people_login(p, name, password, here, &who, secret, &wait_s, &err);

    if (cookie)
        strcpy(cookie, secret);
    return r;
}

/* Runs SQL on the file as any program could; returns SQLite's code. */
static int run_sql(const char *sql)
{
    sqlite3 *db;
    int rc;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    sqlite3_close(db);
    return rc;
}

static void a_user_logs_in_with_the_password_alone(void **state)
{
    struct people *p = opened();
    char cookie[SECRET_LEN + 1];
    struct who who;

    add(p, "ada", ROLE_OPERATOR);
    assert_int_equal(login(p, "ada", GOOD "?", cookie), -EACCES);
    assert_int_equal(login(p, "bob", GOOD, cookie), -EACCES);
    assert_string_equal(err.text, "there is no such user with that password");
    assert_int_equal(login(p, "ada", GOOD, cookie), 0);
    assert_int_equal(people_session(p, cookie, &who), 0);
    assert_string_equal(who.name, "ada");
    assert_int_equal(who.role, ROLE_OPERATOR);
    assert_true(who.session);
    cookie[3] = cookie[3] == 'a' ? 'b' : 'a';
    assert_int_equal(people_session(p, cookie, &who), -ENOENT);
    people_close(p);
}

static void users_sessions_and_tokens_survive_a_restart(void **state)
{
    struct people *p = opened();
    char cookie[SECRET_LEN + 1], token[PEOPLE_TOKEN_LEN + 1];
    struct who who;

    add(p, "ada", ROLE_VIEWER);
    assert_int_equal(login(p, "ada", GOOD, cookie), 0);
    assert_int_equal(people_token(p, "ada", 0, token, &err), 0);
    people_close(p);
    p = opened();
    assert_int_equal(people_session(p, cookie, &who), 0);
    assert_int_equal(people_bearer(p, token, &who), 0);
    assert_false(who.session);
    assert_int_equal(people_count(p), 1);
    people_close(p);
}

/* The file may be read by a thief of the backup: nothing in it lets anybody in. */
static void the_file_holds_no_secret(void **state)
{
    struct people *p = opened();
    char cookie[SECRET_LEN + 1], token[PEOPLE_TOKEN_LEN + 1];
    const char *secrets[] = {GOOD, cookie, token, token + strlen(PEOPLE_TOKEN_PREFIX)};
    char *text;
    size_t len;
    FILE *f;

    add(p, "ada", ROLE_VIEWER);
    assert_int_equal(login(p, "ada", GOOD, cookie), 0);
    assert_int_equal(people_token(p, "ada", 0, token, &err), 0);
    people_close(p); /* the last connection: all is in the one file now */
    f = fopen(path, "re");
    assert_non_null(f);
    text = malloc(1 << 20);
    assert_non_null(text);
    len = fread(text, 1, 1 << 20, f);
    fclose(f);
    assert_non_null(memmem(text, len, "$y$", 3));
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++)
        assert_null(memmem(text, len, secrets[i], strlen(secrets[i])));
    free(text);
}

static void a_session_ends_when_unused_and_in_the_end(void **state)
{
    struct people *p = opened_for(UINT64_C(3600000), UINT64_C(7200000));
    char cookie[SECRET_LEN + 1];
    struct who who;

    add(p, "ada", ROLE_VIEWER);
    assert_int_equal(login(p, "ada", GOOD, cookie), 0);
    assert_int_equal(run_sql("UPDATE session SET seen_ms = seen_ms - 3590000"), SQLITE_OK);
    assert_int_equal(people_session(p, cookie, &who), 0);
    assert_int_equal(run_sql("UPDATE session SET seen_ms = seen_ms - 3610000"), SQLITE_OK);
    assert_int_equal(people_session(p, cookie, &who), -ENOENT);
    assert_int_equal(login(p, "ada", GOOD, cookie), 0);
    assert_int_equal(people_session(p, cookie, &who), 0);
    assert_int_equal(run_sql("UPDATE session SET made_ms = made_ms - 7210000"), SQLITE_OK);
    assert_int_equal(people_session(p, cookie, &who), -ENOENT);
    assert_false(people_still(p, &who));
    people_close(p);
}

static void a_new_password_and_a_removal_end_sessions(void **state)
{
    struct people *p = opened();
    char cookie[SECRET_LEN + 1], token[PEOPLE_TOKEN_LEN + 1];
    struct who by_cookie, by_token, who;

    add(p, "root", ROLE_ADMINISTRATOR);
    add(p, "ada", ROLE_VIEWER);
    assert_int_equal(login(p, "ada", GOOD, cookie), 0);
    assert_int_equal(people_session(p, cookie, &by_cookie), 0);
    assert_int_equal(people_password(p, "ada", "another " GOOD, true, &err), 0);
    assert_int_equal(people_session(p, cookie, &who), -ENOENT);
    assert_false(people_still(p, &by_cookie));
    assert_int_equal(login(p, "ada", GOOD, NULL), -EACCES);
    assert_int_equal(login(p, "ada", "another " GOOD, cookie), 0);
    assert_int_equal(people_token(p, "ada", 0, token, &err), 0);
    assert_int_equal(people_bearer(p, token, &by_token), 0);
    assert_int_equal(people_role(p, "ada", ROLE_OPERATOR, true, &err), 0);
    assert_int_equal(people_bearer(p, token, &who), 0);
    assert_int_equal(who.role, ROLE_OPERATOR);
    assert_int_equal(people_remove(p, "ada", &err), 0);
    assert_int_equal(people_session(p, cookie, &who), -ENOENT);
    assert_int_equal(people_bearer(p, token, &who), -ENOENT);
    assert_false(people_still(p, &by_token));
    people_close(p);
}

static void a_new_password_and_another_role_end_tokens_unless_they_are_kept(void **state)
{
    struct people *p = opened();
    char cookie[SECRET_LEN + 1], token[PEOPLE_TOKEN_LEN + 1];
    struct who by_token, who;

    add(p, "ada", ROLE_VIEWER);
    add(p, "bob", ROLE_VIEWER);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(login(p, "ada", i ? "another " GOOD : GOOD, cookie), 0);
        assert_int_equal(people_token(p, "ada", 0, token, &err), 0);
        assert_int_equal(people_bearer(p, token, &by_token), 0);
        if (i)
            assert_int_equal(people_role(p, "ada", ROLE_OPERATOR, false, &err), 0);
        else
            assert_int_equal(people_password(p, "ada", "another " GOOD, false, &err), 0);
        assert_int_equal(people_session(p, cookie, &who), -ENOENT);
        assert_int_equal(people_bearer(p, token, &who), -ENOENT);
        assert_false(people_still(p, &by_token));
    }
    assert_int_equal(people_token(p, "ada", 0, token, &err), 0);
    assert_int_equal(people_password(p, "bob", "another " GOOD, false, &err), 0);
    assert_int_equal(people_role(p, "ada", ROLE_OPERATOR, false, &err), 0); /* no other one */
    assert_int_equal(people_password(p, "ada", "short", false, &err), -EINVAL);
    assert_int_equal(people_bearer(p, token, &who), 0);
    people_close(p);
}

/* A constraint that is looked at when the change is released, as a full disk would be noticed. */
static void a_change_that_cannot_be_released_is_undone_and_takes_in_no_later_one(void **state)
{
    struct people *p = opened();

    add(p, "root", ROLE_ADMINISTRATOR);
    assert_int_equal(
        run_sql("CREATE TABLE nowhere (n INTEGER PRIMARY KEY);"
                "CREATE TABLE odd (n INTEGER REFERENCES nowhere DEFERRABLE INITIALLY DEFERRED);"
                "CREATE TRIGGER odd AFTER UPDATE ON user BEGIN INSERT INTO odd VALUES (1); END;"),
        SQLITE_OK);
    assert_true(people_password(p, "root", "another " GOOD, true, &err) < 0);
    assert_int_equal(run_sql("DROP TRIGGER odd;"), SQLITE_OK); /* else the file is locked */
    add(p, "ada", ROLE_VIEWER);
    people_close(p);
    p = opened();
    assert_int_equal(login(p, "ada", GOOD, NULL), 0);
    assert_int_equal(login(p, "root", GOOD, NULL), 0);
    people_close(p);
}

static void a_token_ends_in_time_and_when_revoked(void **state)
{
    struct people *p = opened();
    char token[2][PEOPLE_TOKEN_LEN + 1];
    struct who who;

    add(p, "ada", ROLE_VIEWER);
    assert_int_equal(people_token(p, "bob", 0, token[0], &err), -ENOENT);
    assert_int_equal(people_token(p, "ada", 3600000, token[0], &err), 0);
    assert_int_equal(people_token(p, "ada", 0, token[1], &err), 0);
    assert_int_equal(people_bearer(p, token[0], &who), 0);
    assert_int_equal(run_sql("UPDATE token SET until_ms = until_ms - 3600001 WHERE until_ms > 0"),
                     SQLITE_OK);
    assert_int_equal(people_bearer(p, token[0], &who), -ENOENT);
    assert_int_equal(people_bearer(p, token[1], &who), 0);
    people_tidy(p);
    assert_int_equal(people_revoke_tokens(p, "ada", &err), 1);
    assert_int_equal(people_bearer(p, token[1], &who), -ENOENT);
    people_close(p);
}

static void the_last_administrator_stays(void **state)
{
    struct people *p = opened();

    add(p, "ada", ROLE_ADMINISTRATOR);
    add(p, "bob", ROLE_ADMINISTRATOR);
    assert_int_equal(people_role(p, "ada", ROLE_VIEWER, false, &err), 0);
    assert_int_equal(people_role(p, "bob", ROLE_OPERATOR, false, &err), -EBUSY);
    assert_int_equal(people_remove(p, "bob", &err), -EBUSY);
    assert_int_equal(people_role(p, "bob", ROLE_ADMINISTRATOR, false, &err), 0);
    assert_int_equal(people_role(p, "eve", ROLE_VIEWER, false, &err), -ENOENT);
    assert_int_equal(people_remove(p, "ada", &err), 0);
    people_close(p);
}

static void names_and_passwords_that_are_no_good_are_refused(void **state)
{
    static const char *const names[] = {
        "", "Ada", "1a", "a b", "-a", "a/b", "a\n", "a'--", "abcdefghijklmnopqrstuvwxyz0123456"};
    static const char *const passwords[] = {"", "short", "aaaaaaaaaaaaaaaa", "ada-ada-ada-ada"};
    char longest[PASSWORD_MAX + 2];
    struct people *p = opened();

    memset(longest, 'x', sizeof(longest));
    longest[0] = 'y';
    longest[sizeof(longest) - 1] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_int_equal(people_add(p, names[i], ROLE_VIEWER, GOOD, &err), -EINVAL);
    for (size_t i = 0; i < ARRAY_LEN(passwords); i++)
        assert_int_equal(people_add(p, "ada", ROLE_VIEWER, passwords[i], &err), -EINVAL);
    assert_int_equal(people_add(p, "ada", ROLE_VIEWER, longest, &err), -EINVAL);
    assert_int_equal(people_count(p), 0);
    add(p, "ada", ROLE_VIEWER);
    assert_int_equal(people_add(p, "ada", ROLE_VIEWER, GOOD, &err), -EEXIST);
    people_close(p);
}

/* ---- the audit log ---- */

static int rows;
static struct audit_row newest;

static void count(void *arg, const struct audit_row *row)
{
    if (rows++ == 0)
        newest = *row;
}

static void the_audit_log_is_append_only(void **state)
{
    struct people *p = opened();
    struct audit_row row;

    row =
        (struct audit_row){.user = "ada",
                           .from = "10.0.0.1",
                           .what = "switch",
                           .target = "a\x1b[2J\xc2\x9b|\xed\xa0\x80|\xe0\x80\x8a|\xe2\x80\xae|\xc3",
                           .outcome = "done"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(audit_append(p, &row, &err), 0);
    assert_int_equal(run_sql("UPDATE audit SET user = 'eve'"), SQLITE_CONSTRAINT);
    assert_int_equal(run_sql("DELETE FROM audit"), SQLITE_CONSTRAINT);
    assert_int_equal(run_sql("DELETE FROM audit WHERE id = 2"), SQLITE_CONSTRAINT);
    assert_int_equal(audit_tidy(p, 0, INT64_MAX, &err), 0);
    rows = 0;
    assert_int_equal(audit_list(p, 0, 0, 10, count, NULL, &err), 0);
    assert_int_equal(rows, 3);
    assert_int_equal(newest.id, 3);
    assert_string_equal(newest.target, "a?[2J?|?|???|?|?"); /* a terminal shows it as it is */
    rows = 0;
    assert_int_equal(audit_list(p, 0, 3, 1, count, NULL, &err), 0);
    assert_int_equal(rows, 1);
    assert_int_equal(newest.id, 2);
    people_close(p);
}

static void old_rows_of_the_audit_log_go(void **state)
{
    struct people *p = opened();
    char sql[256];

    snprintf(sql, sizeof(sql),
             "INSERT INTO audit (time_ms, user, origin, what, target, outcome)"
             " VALUES (%lld, '', '', 'old', '', '')",
             (long long)clock_real_ms() - 40 * 86400000ll);
    assert_int_equal(run_sql(sql), SQLITE_OK);
    assert_int_equal(audit_tidy(p, 41 * 86400, INT64_MAX, &err), 0);
    /* The clock has jumped, and retention does not follow it at once. */
    assert_int_equal(audit_tidy(p, 0, (int64_t)clock_real_ms() - 15 * 86400000ll, &err), 0);
    assert_int_equal(audit_tidy(p, 0, INT64_MAX, &err), 1); /* not less than 30 days */
    people_close(p);
}

/* ---- guessing ---- */

#define S NS_PER_S

static struct guess *fresh(void)
{
    static struct guess g;

    memset(&g, 0, sizeof(g));
    return &g;
}

/* One wrong password each @step until the limits refuse one; how many were looked at. */
static unsigned until_refused(struct guess *g, const char *user, const unsigned char *address,
                              uint64_t *now, uint64_t step, unsigned most)
{
    unsigned n = 0;

    for (; n < most && guess_wait_s(g, user, address, *now) == 0; n++) {
        guess_was(g, user, address, false, *now);
        *now += step;
    }
    return n;
}

static void wrong_passwords_make_the_pair_wait_ever_longer(void **state)
{
    struct guess *g = fresh();
    uint64_t now = 1000 * S;
    unsigned last = 0;

    assert_int_equal(until_refused(g, "ada", here, &now, 0, 100), GUESS_FREE_PAIR);
    for (int i = 0; i < 8; i++) {
        unsigned wait = guess_wait_s(g, "ada", here, now);

        assert_true(wait >= GUESS_FIRST_S && wait <= GUESS_LAST_S && wait >= last);
        assert_true(guess_wait_s(g, "ada", here, now + (wait - 1) * S) > 0);
        now += wait * S;
        assert_int_equal(guess_wait_s(g, "ada", here, now), 0);
        guess_was(g, "ada", here, false, now);
        last = wait;
    }
    assert_int_equal(guess_wait_s(g, "ada", here, now), GUESS_LAST_S);
    now += (GUESS_LAST_S + GUESS_FORGET_S + 1) * S;
    assert_int_equal(until_refused(g, "ada", here, &now, 0, 100), GUESS_FREE_PAIR);
}

static void a_guesser_elsewhere_does_not_lock_the_user_out(void **state)
{
    static const unsigned char there[16] = {[12] = 10, [15] = 9};
    struct guess *g = fresh();
    uint64_t now = 1000 * S;

    until_refused(g, "ada", there, &now, 0, 100);
    now += 5 * S; /* the common rate */
    assert_true(guess_wait_s(g, "ada", there, now) > 0);
    assert_int_equal(guess_wait_s(g, "ada", here, now), 0);
}

static void one_address_cannot_try_many_names(void **state)
{
    struct guess *g = fresh();
    uint64_t now = 1000 * S;
    char name[16];
    unsigned n = 0;

    for (;; n++, now += S) {
        snprintf(name, sizeof(name), "u%u", n);
        if (n > 200 || guess_wait_s(g, name, here, now) > 0)
            break;
        guess_was(g, name, here, false, now);
    }
    assert_int_equal(n, GUESS_FREE_ADDRESS);
}

static void many_addresses_cannot_try_one_name_for_long(void **state)
{
    struct guess *g = fresh();
    unsigned char address[16] = {[12] = 10};
    uint64_t now = 1000 * S;
    unsigned n = 0;

    for (;; n++, now += S) {
        address[14] = (unsigned char)(n >> 8);
        address[15] = (unsigned char)n;
        if (n > 1000 || guess_wait_s(g, "ada", address, now) > 0)
            break;
        guess_was(g, "ada", address, false, now);
    }
    assert_int_equal(n, GUESS_FREE_USER);
}

static void addresses_of_one_ipv6_network_count_as_one(void **state)
{
    struct guess *g = fresh();
    unsigned char address[16] = {0x20, 0x01, 0x0d, 0xb8};
    uint64_t now = 1000 * S;
    unsigned n = 0;

    for (;; n++, now += S) {
        address[15] = (unsigned char)n;
        if (n > 100 || guess_wait_s(g, "ada", address, now) > 0)
            break;
        guess_was(g, "ada", address, false, now);
    }
    assert_int_equal(n, GUESS_FREE_PAIR);
}

static void a_right_password_forgets_the_wrong_ones(void **state)
{
    struct guess *g = fresh();
    uint64_t now = 1000 * S;

    for (int round = 0; round < 5; round++) {
        until_refused(g, "ada", here, &now, S, GUESS_FREE_PAIR - 1);
        assert_int_equal(guess_wait_s(g, "ada", here, now), 0);
        guess_was(g, "ada", here, true, now);
    }
}

/* A flood of names must not push out what is known of a guesser who has to wait. */
static void a_flood_of_names_frees_no_guesser(void **state)
{
    struct guess *g = fresh();
    unsigned char address[16] = {[12] = 10};
    uint64_t now = 1000 * S;
    char name[16];

    for (int i = 0; i < 8; i++)
        guess_was(g, "ada", here, false, now);
    for (unsigned i = 0; i < 3 * GUESS_KEPT; i++) {
        memcpy(address + 13, &i, 3);
        snprintf(name, sizeof(name), "u%u", i);
        guess_was(g, name, address, false, now);
    }
    assert_true(guess_wait_s(g, "ada", here, now) > 0);
}

static void all_together_have_a_rate(void **state)
{
    struct guess *g = fresh();
    uint64_t now = 1000 * S;
    unsigned char address[16] = {[12] = 10};
    unsigned looked_at = 0;

    for (unsigned i = 0; i < 1000; i++) {
        address[14] = (unsigned char)(i >> 8);
        address[15] = (unsigned char)i;
        looked_at += guess_wait_s(g, "ada", address, now) == 0;
    }
    assert_int_equal(looked_at, GUESS_BURST);
}

static void the_file_of_a_newer_program_is_left_alone(void **state)
{
    struct people *p = opened();

    people_close(p);
    assert_int_equal(run_sql("PRAGMA user_version = 99"), SQLITE_OK);
    assert_int_equal(people_open(path, &(struct people_options){0}, &p, &err), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
        WITH_FILE(a_user_logs_in_with_the_password_alone),
        WITH_FILE(users_sessions_and_tokens_survive_a_restart),
        WITH_FILE(the_file_holds_no_secret),
        WITH_FILE(a_session_ends_when_unused_and_in_the_end),
        WITH_FILE(a_new_password_and_a_removal_end_sessions),
        WITH_FILE(a_new_password_and_another_role_end_tokens_unless_they_are_kept),
        WITH_FILE(a_change_that_cannot_be_released_is_undone_and_takes_in_no_later_one),
        WITH_FILE(a_token_ends_in_time_and_when_revoked),
        WITH_FILE(the_last_administrator_stays),
        WITH_FILE(names_and_passwords_that_are_no_good_are_refused),
        WITH_FILE(the_audit_log_is_append_only),
        WITH_FILE(old_rows_of_the_audit_log_go),
        WITH_FILE(the_file_of_a_newer_program_is_left_alone),
        cmocka_unit_test(wrong_passwords_make_the_pair_wait_ever_longer),
        cmocka_unit_test(a_guesser_elsewhere_does_not_lock_the_user_out),
        cmocka_unit_test(one_address_cannot_try_many_names),
        cmocka_unit_test(many_addresses_cannot_try_one_name_for_long),
        cmocka_unit_test(addresses_of_one_ipv6_network_count_as_one),
        cmocka_unit_test(a_right_password_forgets_the_wrong_ones),
        cmocka_unit_test(a_flood_of_names_frees_no_guesser),
        cmocka_unit_test(all_together_have_a_rate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
