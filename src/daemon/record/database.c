/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/record/database.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAL_PAGES 128 /* copied in one checkpoint: about a millisecond of the loop */

static int make_file(const char *path)
{
    _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1 ? 0 : -EPERM;
}

int database_run(struct database *d, const char *sql)
{
    return sqlite3_exec(d->db, sql, NULL, NULL, NULL);
}

static int read_version(struct database *d, unsigned *ret)
{
    sqlite3_stmt *s;
    int r = sqlite3_prepare_v2(d->db, "PRAGMA user_version", -1, &s, NULL);

    if (r != SQLITE_OK)
        return r;
    r = sqlite3_step(s);
    if (r == SQLITE_ROW)
        *ret = (unsigned)sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return r == SQLITE_ROW ? SQLITE_OK : r;
}

/* All steps or none: a daemon that is killed in between leaves the old version intact. */
static int upgrade(struct database *d, struct database_steps steps)
{
    char pragma[48];
    unsigned version = 0;
    int r = database_run(d, "BEGIN IMMEDIATE");

    if (r == SQLITE_OK)
        r = read_version(d, &version);
    if (r == SQLITE_OK && version > steps.n) {
        d->refusal = "a newer version of tided wrote it";
        return SQLITE_CANTOPEN;
    }
    for (; r == SQLITE_OK && version < steps.n; version++)
        r = database_run(d, steps.sql[version]);
    snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %u", steps.n);
    if (r == SQLITE_OK)
        r = database_run(d, pragma);
    return r == SQLITE_OK ? database_run(d, "COMMIT") : r;
}

static int open_file(struct database *d, struct database_steps steps, int pages_max)
{
    char settings[400];
    int r = make_file(d->path);

    d->refusal = r == -EPERM ? "it is no plain file of this user" : r < 0 ? strerror(-r) : NULL;
    if (r < 0)
        return SQLITE_CANTOPEN;
    r = sqlite3_open_v2(d->path, &d->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
    if (r != SQLITE_OK)
        return r;
    sqlite3_extended_result_codes(d->db, 1);
    /* Only our statements run on the file, whatever somebody has made of its schema. */
    sqlite3_db_config(d->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(d->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(d->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(d->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    snprintf(settings, sizeof(settings),
             "PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA page_size = %d;"
             "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = %d;"
             "PRAGMA journal_size_limit = %d; PRAGMA max_page_count = %d; PRAGMA mmap_size = 0;"
             "PRAGMA cache_size = -256; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON",
             DATABASE_PAGE_BYTES, WAL_PAGES, WAL_PAGES * DATABASE_PAGE_BYTES, pages_max);
    r = database_run(d, settings);
    return r == SQLITE_OK ? upgrade(d, steps) : r;
}

bool database_is_damage(int code)
{
    int primary = code & 0xff;

    return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_ERROR ||
           code == SQLITE_IOERR_SHORT_READ || primary == SQLITE_MISMATCH ||
           primary == SQLITE_CONSTRAINT || primary == SQLITE_SCHEMA;
}

/* Only one damaged file is kept: a disk that breaks every file shall not fill up with them. */
void database_move_aside(struct database *d)
{
    static const char *const endings[] = {"", "-wal"};
    char from[PATH_MAX + 8], to[PATH_MAX + 16];

    database_close(d);
    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        snprintf(from, sizeof(from), "%s%s", d->path, endings[i]);
        snprintf(to, sizeof(to), "%s.corrupt%s", d->path, endings[i]);
        unlink(to);
        if (rename(from, to) < 0 && errno != ENOENT)
            unlink(from);
    }
}

int database_open(struct database *d, struct database_steps steps, int pages_max, bool *ret_aside)
{
    int r = open_file(d, steps, pages_max);

    if (r != SQLITE_OK && database_is_damage(r)) {
        database_move_aside(d);
        *ret_aside = true;
        r = open_file(d, steps, pages_max);
    }
    return r;
}

void database_close(struct database *d)
{
    sqlite3_close(d->db);
    d->db = NULL;
}

const char *database_why(const struct database *d, int code)
{
    int primary = code & 0xff;
    int system = d->db ? sqlite3_system_errno(d->db) : 0;

    if (d->refusal)
        return d->refusal;
    if (primary == SQLITE_BUSY)
        return "another program has it open";
    if (primary == SQLITE_FULL)
        return strerror(ENOSPC);
    if ((primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN) && system)
        return strerror(system);
    return sqlite3_errstr(code);
}
