/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/record/database.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

int database_finish(sqlite3_stmt *s)
{
    int r = sqlite3_step(s);

    sqlite3_reset(s);
    return r == SQLITE_DONE ? SQLITE_OK : r;
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
static int upgrade(struct database *d)
{
    char pragma[48];
    unsigned version = 0;
    int r = database_run(d, "BEGIN IMMEDIATE");

    if (r == SQLITE_OK)
        r = read_version(d, &version);
    if (r == SQLITE_OK && version > d->form->version) {
        d->refusal = "a newer version of tided wrote it";
        return SQLITE_CANTOPEN;
    }
    d->made += version == 0;
    for (; r == SQLITE_OK && version < d->form->version; version++)
        r = database_run(d, d->form->steps[version]);
    snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %u", d->form->version);
    if (r == SQLITE_OK)
        r = database_run(d, pragma);
    return r == SQLITE_OK ? database_run(d, "COMMIT") : r;
}

int database_open_file(const char *path, sqlite3 **ret, int *ret_errno)
{
    int r = make_file(path);

    *ret_errno = -r;
    if (r < 0)
        return SQLITE_CANTOPEN;
    r = sqlite3_open_v2(path, ret,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
    if (r != SQLITE_OK)
        return r;
    sqlite3_extended_result_codes(*ret, 1);
    /* Only our statements run on the file, whatever somebody has made of its schema. */
    sqlite3_db_config(*ret, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(*ret, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(*ret, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(*ret, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    return SQLITE_OK;
}

int database_open(struct database *d)
{
    char settings[400];
    int error, r = database_open_file(d->path, &d->db, &error);

    d->refusal = error == EPERM ? "it is no plain file of this user"
                 : error        ? strerror(error)
                                : NULL;
    if (r != SQLITE_OK)
        return r;
    snprintf(settings, sizeof(settings),
             "PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA page_size = %d;"
             "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = %d;"
             "PRAGMA journal_size_limit = %d; PRAGMA max_page_count = %d; PRAGMA mmap_size = 0;"
             "PRAGMA cache_size = -%d; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON",
             DATABASE_PAGE_BYTES, DATABASE_WAL_PAGES, d->journal_pages * DATABASE_PAGE_BYTES,
             d->pages_max, d->form->cache_kib);
    r = database_run(d, settings);
    if (r == SQLITE_OK)
        r = upgrade(d);
    for (unsigned i = 0; r == SQLITE_OK && i < d->form->statements; i++)
        r = sqlite3_prepare_v3(d->db, d->form->text[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &d->statement[i], NULL);
    return r;
}

bool database_is_damage(int code)
{
    int primary = code & 0xff;

    return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_ERROR ||
           code == SQLITE_IOERR_SHORT_READ || primary == SQLITE_MISMATCH ||
           primary == SQLITE_CONSTRAINT || primary == SQLITE_SCHEMA;
}

/* Only one damaged file is kept: a disk that breaks every file shall not fill up with them. */
void database_rename_aside(const char *path)
{
    static const char *const endings[] = {"", "-wal"};
    char from[PATH_MAX + 8], to[PATH_MAX + 16];

    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        snprintf(from, sizeof(from), "%s%s", path, endings[i]);
        snprintf(to, sizeof(to), "%s.corrupt%s", path, endings[i]);
        unlink(to);
        if (rename(from, to) < 0 && errno != ENOENT)
            unlink(from);
    }
}

void database_move_aside(struct database *d)
{
    database_close(d);
    database_rename_aside(d->path);
}

void database_close(struct database *d)
{
    for (unsigned i = 0; i < d->form->statements; i++) {
        sqlite3_finalize(d->statement[i]);
        d->statement[i] = NULL;
    }
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
