/* SPDX-License-Identifier: Apache-2.0 */
/* The outbox: order, receipts, restarts, a file that is full, a disk that is full, a damaged file.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "edge/outbox.h"

#define BOOT  UINT64_C(77)
#define BEGIN UINT64_C(1763856000000)

static char dir[] = "/tmp/tide-outbox-XXXXXX", path[128];
static struct error err;
static struct outbox_record got[4096];
static size_t n;

static struct outbox *open_box(uint64_t bytes)
{
    struct outbox *o = NULL;
    int r = outbox_open(path, bytes, BOOT, &o, &err);

    if (r != 0)
        fail_msg("%d: %s", r, err.text);
    return o;
}

static struct outbox *new_box(uint64_t bytes)
{
    char wal[160];

    unlink(path);
    snprintf(wal, sizeof(wal), "%s-wal", path);
    unlink(wal);
    return open_box(bytes);
}

/* Second @i of a point that draws 5 W and is not seen for 10 ms of each second. */
static void put(struct outbox *o, const char *point, uint64_t i)
{
    struct outbox_record r = {
        .from_ms = BEGIN + i * 1000,
        .to_ms = BEGIN + i * 1000 + 1000,
        .mono_ns = i,
        .total = {i * 5000000, i * 4900000, i * 5100000, POWER_MEASURED},
        .raw_uj = 1000 + i,
        .gap_ms = 10,
    };

    snprintf(r.point, sizeof(r.point), "%s", point);
    outbox_put(o, &r);
    assert_int_equal(r.boot, BOOT);
}

static void read_all(struct outbox *o)
{
    assert_int_equal(outbox_next(o, 0, 4096, got, &n), 0);
}

static size_t left(struct outbox *o)
{
    static struct outbox_record some[64];
    size_t count;

    assert_int_equal(outbox_next(o, 0, 64, some, &count), 0);
    return count;
}

static void records_come_back_as_they_were_until_their_receipt(void **state)
{
    struct outbox *o = new_box(1 << 20);

    for (uint64_t i = 0; i < 10; i++)
        put(o, "machine", i);
    read_all(o);
    assert_int_equal(n, 10);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(got[i].point, "machine");
        assert_int_equal(got[i].boot, BOOT);
        assert_int_equal(got[i].from_ms, BEGIN + i * 1000);
        assert_int_equal(got[i].total.uj, i * 5000000);
        assert_int_equal(got[i].total.low_uj, i * 4900000);
        assert_int_equal(got[i].total.high_uj, i * 5100000);
        assert_int_equal(got[i].total.basis, POWER_MEASURED);
        assert_int_equal(got[i].gap_ms, 10);
        assert_true(i == 0 || got[i].seq > got[i - 1].seq);
    }
    assert_int_equal(outbox_receipt(o, BOOT + 1, got[9].seq), 0); /* another boot's */
    assert_int_equal(left(o), 10);
    assert_int_equal(outbox_receipt(o, BOOT, got[3].seq), 0);
    assert_int_equal(left(o), 6);
    assert_int_equal(outbox_next(o, got[5].seq, 2, got, &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(got[0].from_ms, BEGIN + 6000);
    outbox_close(o);
}

/* Each child writes, flushes, and dies without closing: what was flushed is there, numbers go on.
 */
static void what_was_flushed_outlives_the_process(void **state)
{
    uint64_t last = 0;

    outbox_close(new_box(1 << 20));
    for (uint64_t life = 0; life < 20; life++) {
        struct outbox *o;

        if (fork() == 0) {
            o = open_box(1 << 20);
            put(o, "machine", 2 * life);
            if (outbox_flush(o, NULL) < 0)
                _exit(1);
            put(o, "machine", 2 * life + 1); /* is lost: total of the next one has it */
            kill(getpid(), SIGKILL);
        }
        wait(NULL);
        o = open_box(1 << 20);
        read_all(o);
        assert_int_equal(n, life + 1);
        assert_true(got[life].seq > last);
        last = got[life].seq;
        assert_int_equal(got[life].total.uj, 2 * life * 5000000);
        outbox_close(o);
    }
}

static void totals_go_on_after_a_restart(void **state)
{
    struct outbox *o = new_box(1 << 20);
    struct outbox_record last;

    assert_int_equal(outbox_last(o, "machine", &last), -ENOENT);
    put(o, "machine", 3);
    assert_int_equal(outbox_last(o, "machine", &last), 0); /* not written yet */
    assert_int_equal(last.total.uj, 15000000);
    read_all(o);
    outbox_receipt(o, BOOT, got[0].seq);
    outbox_close(o);
    assert_int_equal(outbox_open(path, 1 << 20, BOOT + 5, &o, &err), 0);
    assert_int_equal(outbox_boot(o), BOOT); /* the file's */
    assert_int_equal(left(o), 0);
    assert_int_equal(outbox_last(o, "machine", &last), 0);
    assert_int_equal(last.raw_uj, 1003);
    assert_int_equal(last.to_ms, BEGIN + 4000);
    assert_int_equal(last.total.uj, 15000000);
    outbox_close(o);
}

/*
 * A day of three points in a file of 160 KiB: less resolution, the same energy, all gaps, whole
 * time.
 */
static void a_full_file_loses_resolution_and_no_energy(void **state)
{
    static const char *const points[] = {"machine", "meter:a", "meter:b"};
    struct outbox *o = new_box(160 << 10);
    struct stat status;

    for (uint64_t i = 0; i < 86400; i++) {
        for (int p = 0; p < 3; p++)
            put(o, points[p], i);
        if (i % 300 == 299)
            assert_int_equal(outbox_flush(o, &err), 0);
    }
    read_all(o);
    assert_true(n < 4096);
    for (int p = 0; p < 3; p++) {
        uint64_t gaps = 0, to = BEGIN, coarsest = 0, finest = UINT64_MAX, newest = 0;

        for (size_t i = 0; i < n; i++) {
            uint64_t span = got[i].to_ms - got[i].from_ms;

            if (strcmp(got[i].point, points[p]) != 0)
                continue;
            assert_int_equal(got[i].from_ms, to); /* no second is missing or twice */
            to = got[i].to_ms;
            gaps += got[i].gap_ms;
            newest = got[i].total.uj;
            coarsest = span > coarsest ? span : coarsest;
            finest = span < finest ? span : finest;
        }
        assert_int_equal(to, BEGIN + UINT64_C(86400000));
        assert_int_equal(gaps, 86400 * 10);
        assert_int_equal(newest, UINT64_C(86399) * 5000000);
        assert_true(coarsest > 60000);  /* the old ones */
        assert_int_equal(finest, 1000); /* the new ones */
    }
    outbox_close(o);
    assert_int_equal(stat(path, &status), 0);
    assert_true(status.st_size <= (160 << 10) + (64 << 10));
}

/* A file that cannot grow: records stay in memory, then only each point's newest, and are sent. */
static void a_full_disk_keeps_records_in_memory(void **state)
{
    struct outbox *o = new_box(1 << 20);
    struct rlimit limit, old;
    struct outbox_record last;

    put(o, "machine", 0);
    assert_int_equal(outbox_flush(o, &err), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 4096; /* no write beyond succeeds */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (uint64_t i = 1; i <= 5000; i++)
        put(o, i & 1 ? "machine" : "meter:a", i);
    assert_true(outbox_flush(o, &err) < 0);
    assert_non_null(strstr(err.text, "outbox"));
    read_all(o);
    assert_true(n > 2 && n <= OUTBOX_MEMORY_MAX + 1);
    assert_int_equal(got[n - 1].total.uj, UINT64_C(5000) * 5000000);
    assert_int_equal(outbox_receipt(o, BOOT, got[n - 2].seq) < 0, 1); /* the file cannot change */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(outbox_flush(o, &err), 0); /* there is room again */
    outbox_close(o);
    o = open_box(1 << 20);
    assert_int_equal(outbox_last(o, "meter:a", &last), 0);
    assert_int_equal(last.total.uj, UINT64_C(5000) * 5000000);
    outbox_close(o);
}

/* A parent refuses a message with a gap that it cannot read, and all records wait behind it. */
static void gaps_of_months_stay_readable(void **state)
{
    struct outbox *o = new_box(40 << 10);

    for (uint64_t i = 0; i < 6000; i++) {
        struct outbox_record r = {.point = "area",
                                  .from_ms = BEGIN + i * 1000,
                                  .to_ms = BEGIN + i * 1000,
                                  .gap_ms = 2000000000};

        outbox_put(o, &r);
    }
    read_all(o);
    assert_true(n > 0 && n < 3000);
    for (size_t i = 0; i < n; i++)
        assert_true(got[i].gap_ms <= INT32_MAX);
    outbox_close(o);
}

static void a_damaged_file_is_moved_aside(void **state)
{
    struct outbox *o = new_box(1 << 20);
    int fd;

    for (uint64_t i = 0; i < 2000; i++)
        put(o, "machine", i);
    outbox_close(o);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    for (off_t at = 4096; at < 65536; at += 512)
        assert_int_equal(pwrite(fd, "garbage!", 8, at), 8);
    close(fd);
    assert_int_equal(outbox_open(path, 1 << 20, BOOT, &o, &err), 1);
    assert_non_null(strstr(err.text, "damaged"));
    read_all(o);
    assert_int_equal(n, 0);
    put(o, "machine", 1);
    read_all(o);
    assert_int_equal(n, 1);
    outbox_close(o);
}

/* The newest of record and note is what a restart goes on from; a note is never sent. */
static void a_note_is_remembered_and_not_sent(void **state)
{
    struct outbox *o = new_box(1 << 20);
    struct outbox_record note = {.point = "meter:p", .raw_uj = 70, .to_ms = 9}, last;

    put(o, "meter:p", 1);
    note.total = (struct energy_range){50, 40, 60, POWER_MEASURED};
    outbox_note(o, &note);
    assert_int_equal(outbox_last(o, "meter:p", &last), 0);
    assert_int_equal(last.raw_uj, 70);
    assert_int_equal(outbox_flush(o, &err), 0);
    outbox_close(o);
    o = open_box(1 << 20);
    assert_int_equal(outbox_last(o, "meter:p", &last), 0);
    assert_true(last.raw_uj == 70 && last.total.uj == 50 && last.to_ms == 9);
    read_all(o);
    assert_int_equal(n, 1);
    outbox_note(o, &note);
    put(o, "meter:p", 2); /* newer than the note */
    assert_int_equal(outbox_flush(o, &err), 0);
    assert_int_equal(outbox_last(o, "meter:p", &last), 0);
    assert_int_not_equal(last.raw_uj, 70);
    outbox_note(o, &note); /* alone */
    assert_int_equal(outbox_flush(o, &err), 0);
    outbox_close(o);
    o = open_box(1 << 20);
    assert_int_equal(outbox_last(o, "meter:p", &last), 0);
    assert_int_equal(last.raw_uj, 70);
    outbox_close(o);
}

/* The file of the first version that was committed. */
static void a_file_of_the_first_version_is_upgraded(void **state)
{
    struct outbox_record last;
    struct outbox *o;
    sqlite3 *db;

    outbox_close(new_box(1 << 20));
    unlink(path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(
            db,
            "CREATE TABLE record (seq INTEGER PRIMARY KEY, point TEXT NOT NULL, from_ms INTEGER "
            "NOT "
            "NULL, to_ms INTEGER NOT NULL, mono_ns INTEGER NOT NULL, uj INTEGER NOT NULL, low "
            "INTEGER "
            "NOT NULL, high INTEGER NOT NULL, basis INTEGER NOT NULL, gap INTEGER NOT NULL);"
            "CREATE TABLE total (point TEXT PRIMARY KEY, uj INTEGER NOT NULL, low INTEGER NOT NULL,"
            " high INTEGER NOT NULL, basis INTEGER NOT NULL) WITHOUT ROWID;"
            "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
            "INSERT INTO meta VALUES ('boot', 77), ('seq', 100000);"
            "INSERT INTO record VALUES (5, 'area', 1, 2, 3, 40, 30, 50, 4, 0);"
            "INSERT INTO total VALUES ('area', 40, 30, 50, 4); PRAGMA user_version = 1",
            NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    o = open_box(1 << 20);
    assert_int_equal(outbox_last(o, "area", &last), 0);
    assert_int_equal(last.total.high_uj, 50);
    assert_int_equal(last.raw_uj, 0);
    put(o, "area", 1);
    read_all(o);
    assert_int_equal(n, 2);
    assert_true(got[1].seq > 100000);
    outbox_close(o);
}

static void what_cannot_be_opened_is_said(void **state)
{
    struct outbox *o;

    assert_true(outbox_open("/nonexistent/outbox.db", 1 << 20, BOOT, &o, &err) < 0);
    assert_non_null(strstr(err.text, "/nonexistent/outbox.db"));
}

static void put_total(struct outbox *o, uint64_t i, uint64_t uj)
{
    struct outbox_record r = {.point = "area",
                              .from_ms = BEGIN + i * 1000,
                              .to_ms = BEGIN + i * 1000 + 1000,
                              .total = {uj, uj - 9, uj + 9, POWER_MEASURED},
                              .raw_uj = 1000 + i};

    outbox_put(o, &r);
}

static void a_total_at_its_end_stays_there_and_its_time_is_a_gap(void **state)
{
    struct outbox *o = new_box(1 << 20);

    put_total(o, 0, OUTBOX_UJ_MAX - 10);
    put_total(o, 1, OUTBOX_UJ_MAX - 5);
    put_total(o, 2, UINT64_MAX - 9);
    read_all(o);
    assert_int_equal(n, 3);
    assert_int_equal(got[0].gap_ms, 0);
    assert_int_equal(got[1].total.uj, OUTBOX_UJ_MAX - 5);
    assert_int_equal(got[1].total.high_uj, OUTBOX_UJ_MAX);
    assert_int_equal(got[1].gap_ms, 1000);
    assert_int_equal(got[2].total.low_uj, OUTBOX_UJ_MAX);
    assert_int_equal(got[2].total.uj, OUTBOX_UJ_MAX);
    assert_int_equal(got[2].gap_ms, 1000);
    outbox_close(o);
}

static void a_restart_begins_large_totals_anew_when_all_is_stored(void **state)
{
    struct outbox *o = new_box(1 << 20);
    struct outbox_record last;

    put_total(o, 0, (UINT64_C(1) << 61) - 100);
    read_all(o);
    outbox_receipt(o, BOOT, got[0].seq);
    outbox_close(o);
    assert_int_equal(outbox_open(path, 1 << 20, BOOT + 1, &o, &err), 0);
    assert_int_equal(outbox_boot(o), BOOT); /* not large yet */
    put_total(o, 1, UINT64_C(1) << 61);
    read_all(o);
    outbox_close(o);
    assert_int_equal(outbox_open(path, 1 << 20, BOOT + 1, &o, &err), 0);
    assert_int_equal(outbox_boot(o), BOOT); /* a record waits */
    outbox_receipt(o, BOOT, got[0].seq);
    outbox_close(o);
    assert_int_equal(outbox_open(path, 1 << 20, BOOT + 1, &o, &err), 0);
    assert_int_equal(outbox_boot(o), BOOT + 1);
    assert_int_equal(outbox_last(o, "area", &last), 0);
    assert_int_equal(last.total.high_uj, 0);
    assert_int_equal(last.raw_uj, 1001); /* the meter goes on where it was */
    outbox_close(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_total_at_its_end_stays_there_and_its_time_is_a_gap),
        cmocka_unit_test(a_restart_begins_large_totals_anew_when_all_is_stored),
        cmocka_unit_test(records_come_back_as_they_were_until_their_receipt),
        cmocka_unit_test(what_was_flushed_outlives_the_process),
        cmocka_unit_test(totals_go_on_after_a_restart),
        cmocka_unit_test(a_full_file_loses_resolution_and_no_energy),
        cmocka_unit_test(a_full_disk_keeps_records_in_memory),
        cmocka_unit_test(gaps_of_months_stay_readable),
        cmocka_unit_test(a_damaged_file_is_moved_aside),
        cmocka_unit_test(a_note_is_remembered_and_not_sent),
        cmocka_unit_test(a_file_of_the_first_version_is_upgraded),
        cmocka_unit_test(what_cannot_be_opened_is_said),
    };
    char command[160];
    int failed;

    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/outbox.db", dir);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command) || failed;
}
