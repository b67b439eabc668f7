/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/wallclock.h"
#include "hub/tree/ingest.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ERROR_WORD "usage"

static char dir[64], path[96], said[4096], receipts[65536];
static int broker; /* what publishing returns */
static unsigned given;
static struct error err;
static struct store *store;
static struct ingest *ingest;
static struct units *units;
static uint64_t boot; /* of the records that are taken */
static bool full;     /* the store's disk: a commit fails */

int __real_store_commit(struct store *s, struct error *e);
int __wrap_store_commit(struct store *s, struct error *e);

int __wrap_store_commit(struct store *s, struct error *e)
{
    int r = __real_store_commit(s, e);

    return full ? error_set(e, -ENOSPC, "the disk is full") : r;
}

static int on_receipt(void *arg, const char *unit, const char *text)
{
    if (broker == 0) {
        snprintf(receipts + strlen(receipts), sizeof(receipts) - strlen(receipts), "%s %s\n", unit,
                 text);
        given++;
    }
    return broker;
}

static void on_say(void *arg, const char *unit, const char *text)
{
    snprintf(said, sizeof(said), "%s: %s", unit, text);
}

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(name);
}

static int set_up(void **state)
{
    struct ingest_options options = {NULL, on_receipt, on_say, NULL};

    /* In memory: each transaction is synced, and a disk of a busy machine takes its time. */
    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/tide-ingest-XXXXXX"
                                              : "/tmp/tide-ingest-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/hub.db", dir);
    assert_int_equal(store_open(path, &store, &err), 0);
    options.store = store;
    assert_int_equal(units_new(&units), 0);
    assert_int_equal(ingest_new(&options, &ingest), 0);
    broker = 0;
    given = 0;
    full = false;
    boot = 7;
    said[0] = receipts[0] = '\0';
    return 0;
}

static int tear_down(void **state)
{
    ingest = ingest_free(ingest);
    store = store_close(store);
    units = units_free(units);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void take(const char *topic, const char *text)
{
    char name[EDGE_NAME_MAX];
    enum topic_leaf leaf;

    /* As tree.c does. */
    if (*text && topic_read(topic, name, &leaf) == 0 && leaf == TOPIC_ENERGY)
        assert_int_equal(ingest_energy(ingest, units_make(units, name), text, strlen(text), &err),
                         0);
}

static void take_golden(const char *unit, const char *name)
{
    char file[256], topic[TOPIC_MAX], text[4096];
    size_t len;
    FILE *f;

    snprintf(file, sizeof(file), "%s/%s.json", GOLDEN, name);
    f = fopen(file, "re");
    assert_non_null(f);
    len = fread(text, 1, sizeof(text) - 1, f);
    text[len] = '\0';
    fclose(f);
    snprintf(topic, sizeof(topic), "tide/1/%s/up/%s", unit, name);
    take(topic, text);
}

/* One record of a machine that has used @uj, behind the record @after; of one second to @to_ms. */
static void take_until(const char *unit, unsigned after, unsigned seq, unsigned uj, uint64_t to_ms)
{
    char topic[TOPIC_MAX], text[512];

    snprintf(
        text, sizeof(text),
        "{\"v\":1,\"boot\":%" PRIu64 ",\"after\":%u,\"records\":[{\"point\":\"machine\",\"seq\":%u,"
        "\"from\":%" PRIu64 ","
        "\"to\":%" PRIu64 ",\"mono\":1,\"uj\":%u,\"low\":%u,\"high\":%u,\"basis\":\"measured\","
        "\"gap\":0}]}",
        boot, after, seq, to_ms - 1000, to_ms, uj, uj, uj);
    take(topic_make(unit, TOPIC_ENERGY, topic), text);
}

static void take_after(const char *unit, unsigned after, unsigned seq, unsigned uj)
{
    take_until(unit, after, seq, uj, seq * 1000 + 1000);
}

static void take_energy(const char *unit, unsigned seq, unsigned uj)
{
    take_after(unit, 0, seq, uj);
}

static void flush(void)
{
    assert_int_equal(ingest_flush(ingest, &err), 0);
}

static bool add_up(void *arg, const struct store_point *p)
{
    *(uint64_t *)arg += p->energy.uj;
    return true;
}

static uint64_t stored(void)
{
    uint64_t sum = 0;

    assert_int_equal(store_points(store, add_up, &sum, &err), 0);
    return sum;
}

static void a_receipt_comes_after_the_records_are_stored(void **state)
{
    take_energy("lab3", 1, 100);
    assert_true(ingest_waits(ingest));
    assert_string_equal(receipts, "");
    assert_int_equal(stored(), 0);
    flush();
    assert_false(ingest_waits(ingest));
    assert_string_equal(receipts, "lab3 {\"v\":1,\"boot\":7,\"seq\":1}\n");
    assert_int_equal(stored(), 100);
}

static void a_unit_gets_one_receipt_for_several_messages(void **state)
{
    take_energy("lab3", 1, 100);
    take_energy("lab4", 5, 10);
    take_energy("lab3", 2, 150);
    take_energy("lab3", 1, 100);
    flush();
    assert_string_equal(receipts, "lab3 {\"v\":1,\"boot\":7,\"seq\":2}\n"
                                  "lab4 {\"v\":1,\"boot\":7,\"seq\":5}\n");
    assert_int_equal(stored(), 160);
    assert_int_equal(ingest_counts(ingest).known, 1);
}

static void what_was_stored_before_gets_its_receipt_again(void **state)
{
    take_energy("lab3", 1, 100);
    flush();
    take_energy("lab3", 1, 100);
    flush();
    assert_int_equal(given, 2);
    assert_int_equal(stored(), 100);
}

/* One that follows the other has merely a new disk. */
static void two_programs_of_one_name_are_told_once_and_count_once(void **state)
{
    const int64_t now_ms = (int64_t)wallclock_ms();

    for (unsigned seq = 1; seq <= 4; seq++)
        for (boot = 7; boot <= 8; boot++) {
            take_energy("lab3", seq, seq * 100);
            flush();
            if (seq == 1)
                assert_string_equal(said, "");
            if (seq == 2 && boot == 7)
                assert_non_null(strstr(said, "lab3: two programs say that they are lab3"));
            else if (seq >= 2)
                assert_string_equal(said, ""); /* not again */
            said[0] = '\0';
        }
    assert_int_equal(stored(), 800);
    assert_true(unit_has_twin(units_find(units, "lab3"), now_ms));
    assert_false(unit_has_twin(units_find(units, "lab3"), now_ms + 2 * UNITS_TWIN_MS));
}

static void a_receipt_that_the_broker_does_not_take_waits(void **state)
{
    broker = -EAGAIN;
    take_energy("lab3", 1, 100);
    flush();
    take_energy("lab3", 2, 200);
    flush();
    assert_string_equal(receipts, "");
    broker = 0;
    ingest_receipts(ingest);
    assert_string_equal(receipts, "lab3 {\"v\":1,\"boot\":7,\"seq\":2}\n");
    ingest_receipts(ingest);
    assert_int_equal(given, 1);
}

static void without_a_store_there_is_no_receipt(void **state)
{
    struct store *other;

    assert_int_equal(store_open(path, &other, &err), 0);
    assert_int_equal(store_begin(other, &err), 0); /* holds the file for longer than we wait */
    take_energy("lab3", 1, 100);
    assert_int_equal(ingest_flush(ingest, &err), -EBUSY);
    assert_string_equal(receipts, "");
    assert_int_equal(store_commit(other, &err), 0);
    store_close(other);
    take_after("lab3", 1, 2, 200); /* a receipt for this one would be one for the first, too */
    flush();
    assert_int_equal(stored(), 0);
    given = 0;
    take_energy("lab3", 1, 100); /* it sends again */
    flush();
    assert_int_equal(given, 1);
    assert_int_equal(stored(), 100);
}

static void a_message_behind_a_missing_one_is_asked_for_again(void **state)
{
    take_after("lab3", 3, 4, 400); /* the hub was away for the first three */
    take_after("lab3", 4, 5, 500);
    flush();
    assert_string_equal(receipts, "lab3 {\"v\":1,\"boot\":7,\"seq\":0}\n");
    take_after("lab3", 5, 6, 600); /* it was on its way: asked for once is enough */
    flush();
    assert_int_equal(given, 1);
    assert_int_equal(stored(), 0);
    receipts[0] = '\0';
    for (unsigned seq = 1; seq <= 6; seq++)
        take_after("lab3", seq - 1, seq, seq * 100);
    flush();
    assert_string_equal(receipts, "lab3 {\"v\":1,\"boot\":7,\"seq\":6}\n");
    assert_int_equal(stored(), 600);
    assert_int_equal(ingest_counts(ingest).stored, 6);
    take_energy("lab3", 2, 200); /* an old one, late: what is stored stays so */
    take_after("lab3", 6, 7, 700);
    flush();
    assert_int_equal(stored(), 700);
    take_after("lab3", 9, 10, 1000);
    flush();
    assert_int_equal(stored(), 700);
    assert_non_null(strstr(receipts, "\"seq\":0}"));
}

/* The part of a day that a unit has not sent yet begins there (budgets.c). */
static void up_to_when_a_unit_s_records_are_stored_is_known(void **state)
{
    const struct unit *u = units_make(units, "lab3");
    int64_t before_ms;

    take_energy("lab3", 1, 100);
    take_energy("lab3", 2, 150);
    assert_int_equal(u->stored_ms, 0);
    flush();
    assert_int_equal(u->stored_ms, 3000);
    full = true;
    take_energy("lab3", 3, 200);
    assert_int_equal(ingest_flush(ingest, &err), -ENOSPC);
    assert_int_equal(u->stored_ms, 3000);
    full = false;
    take_after("lab3", 7, 8, 400); /* one before it is missing: it is not stored */
    flush();
    assert_int_equal(u->stored_ms, 3000);
    before_ms = (int64_t)wallclock_ms();
    take_until("lab3", 0, 4, 250, (uint64_t)before_ms + 3600000); /* its clock is an hour ahead */
    flush();
    assert_in_range(u->stored_ms, before_ms, wallclock_ms());
}

static void many_messages_are_stored_before_memory_runs_out(void **state)
{
    char unit[32];

    for (int i = 0; i < 2 * INGEST_MESSAGES_MAX; i++) {
        snprintf(unit, sizeof(unit), "lab%d", i);
        take_energy(unit, 1, 1);
    }
    assert_false(ingest_waits(ingest));
    assert_int_equal(given, 2 * INGEST_MESSAGES_MAX);
    assert_int_equal(stored(), 2 * INGEST_MESSAGES_MAX);
}

static void what_nobody_can_read_is_said_and_gets_no_receipt(void **state)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "{\"v\":1}",
                                      "{\"v\":1,\"boot\":-1}",
                                      "{\"v\":1,\"boot\":7,\"records\":[{\"uj\":NaN}]}"};

    for (size_t i = 1; i < ARRAY_LEN(bad); i++) {
        said[0] = '\0';
        take("tide/1/lab3/up/energy", bad[i]);
        assert_non_null(strstr(said, "lab3: sent energy that is not understood: "));
    }
    take("tide/1/lab3/up/energy", bad[0]);
    take("tide/1/lab3/up/other", "{}");
    take("other/1/lab3/up/energy", "{}");
    flush();
    assert_string_equal(receipts, "");
    assert_int_equal(ingest_counts(ingest).unreadable, ARRAY_LEN(bad) - 1);
}

/* Its first record is as large as the protocol allows: no machine has used that. */
static void the_golden_messages_are_understood(void **state)
{
    take_golden("lab3", "energy");
    flush();
    assert_string_equal(
        said, "lab3: impossible records, which are not stored: 1 (tide why bad-broker-message)");
    assert_string_equal(receipts, "lab3 {\"v\":1,\"boot\":8112963841460668169,\"seq\":42}\n");
    assert_int_equal(stored(), 120000000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_receipt_comes_after_the_records_are_stored),
        TEST(a_unit_gets_one_receipt_for_several_messages),
        TEST(what_was_stored_before_gets_its_receipt_again),
        TEST(two_programs_of_one_name_are_told_once_and_count_once),
        TEST(a_receipt_that_the_broker_does_not_take_waits),
        TEST(without_a_store_there_is_no_receipt),
        TEST(a_message_behind_a_missing_one_is_asked_for_again),
        TEST(up_to_when_a_unit_s_records_are_stored_is_known),
        TEST(many_messages_are_stored_before_memory_runs_out),
        TEST(what_nobody_can_read_is_said_and_gets_no_receipt),
        TEST(the_golden_messages_are_understood),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
