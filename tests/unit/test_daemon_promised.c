/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what is known of promises, and its file: whose rows are whose, bounds, damage. */
#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/record/promised.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ME    1000
#define YOU   1001
#define MS(n) ((n)*NS_PER_MS)

static char dir[64];
static struct daemon d;
static struct job_table table;
static struct job job, other;
static struct process process;
static struct proto_latency said;

static int setup(void **unused)
{
    snprintf(dir, sizeof(dir), "/tmp/tide-promised-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    memset(&d, 0, sizeof(d));
    memset(&job, 0, sizeof(job));
    memset(&other, 0, sizeof(other));
    memset(&process, 0, sizeof(process));
    memset(&said, 0, sizeof(said));
    for (unsigned i = 0; i < 8; i++)
        cpuset_add(&d.cpus, i);
    d.state_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d.jobs = &table;
    table.first = &job;
    job.daemon = other.daemon = &d;
    job.processes = &process;
    process.job = &job;
    process.pid = 4711;
    job.uid = other.uid = ME;
    job.admission.wanted = other.admission.wanted = true;
    job.asked.attributes.slo_us = job.promise.slo_us = 50000;
    job.promise.has = 3;
    strcpy(job.id, "j1");
    strcpy(job.name, "serve-4711");
    return promised_new(d.state_fd, &d.promised);
}

static int teardown(void **unused)
{
    d.promised = promised_free(d.promised);
    unlinkat(d.state_fd, PROMISED_FILE, 0);
    close(d.state_fd);
    return rmdir(dir);
}

static void tells(uint32_t count, uint64_t ms)
{
    said.bucket[latency_bucket(MS(ms))] += count;
    said.begun = said.ended += count;
    latency_told(&process, &said, clock_now_ns());
    job.known.looked_ns = 0;
    promised_look(&d);
}

static struct promised_verdict verdict(uid_t uid, const char *name, int64_t ms)
{
    struct attributes asked = {.slo_us = ms * 1000};
    struct promised_verdict v;

    promised_judge(&d, NULL, uid, name, 0, &asked, &v);
    return v;
}

static void a_name_is_the_same_with_its_pid_behind(void **state)
{
    assert_int_equal(promised_name_len("serve-4711", 4711), 5);
    assert_int_equal(promised_name_len("serve-4711", 47), 10);
    assert_int_equal(promised_name_len("-4711", 4711), 5);
    assert_int_equal(promised_name_len("gpt-4", 0), 5);
}

static void what_was_seen_is_known_to_the_same_user_and_after_a_restart(void **state)
{
    assert_int_equal(verdict(ME, "serve", 20).keepable, PROMISE_UNKNOWN);
    tells(99, 80);
    assert_int_equal(verdict(ME, "serve", 20).keepable, PROMISE_UNKNOWN); /* too few */
    tells(51, 80);
    assert_int_equal(verdict(ME, "serve", 20).keepable, PROMISE_UNKEEPABLE);
    assert_non_null(strstr(verdict(ME, "serve", 20).text, "the fastest of 150 requests took more"));
    assert_int_equal(verdict(ME, "serve", 100).keepable, PROMISE_UNKNOWN);
    assert_int_equal(verdict(YOU, "serve", 20).keepable, PROMISE_UNKNOWN);
    assert_int_equal(verdict(ME, "serv", 20).keepable, PROMISE_UNKNOWN);
    assert_int_equal(verdict(ME, NULL, 20).keepable, PROMISE_UNKNOWN);
    d.promised = promised_free(d.promised);
    assert_int_equal(promised_new(d.state_fd, &d.promised), 0);
    assert_int_equal(verdict(ME, "serve", 20).keepable, PROMISE_UNKEEPABLE);
    tells(1, 3); /* a faster one */
    assert_int_equal(verdict(ME, "serve", 20).keepable, PROMISE_UNKNOWN);
}

static void a_run_that_kept_its_promise_says_so(void **state)
{
    tells(200, 30);
    for (uint64_t s = 1; s <= 70; s++) {
        job.latency.seconds.judged = job.latency.seconds.kept = s;
        tells(1, 30);
    }
    assert_int_equal(verdict(ME, "serve", 50).keepable, PROMISE_KEEPABLE);
    assert_non_null(
        strstr(verdict(ME, "serve", 50).text, "kept in 100.0 % of 70 seconds, with 3.0"));
    job.promise.slo_us = other.promise.slo_us = other.asked.attributes.slo_us = 50000;
    other.promise.room.need = 7;
    job.next = &other;
    assert_int_equal(verdict(ME, "serve", 50).keepable, PROMISE_UNKNOWN);
    assert_non_null(strstr(verdict(ME, "serve", 50).text, "other promises of its user leave"));
    assert_int_equal(verdict(ME, "else", 50).keepable, PROMISE_UNKNOWN);
    assert_non_null(strstr(verdict(ME, "else", 50).text, "other promises of its user need 6 of 6"));
}

static void seconds_of_a_promise_say_nothing_of_the_next_one(void **state)
{
    tells(200, 30);
    for (uint64_t s = 1; s <= 70; s++) {
        job.latency.seconds.judged = job.latency.seconds.kept = s;
        tells(1, 30);
    }
    job.asked.attributes.slo_us = 40000; /* the stage has not looked yet */
    tells(1, 30);
    assert_int_equal(verdict(ME, "serve", 40).keepable, PROMISE_UNKNOWN);
    assert_int_equal(verdict(ME, "serve", 50).keepable, PROMISE_KEEPABLE);
}

static void a_process_without_requests_says_nothing_of_the_fastest(void **state)
{
    tells(200, 80);
    memset(&process.latency, 0, sizeof(process.latency)); /* another one in its place */
    job.known.looked_ns = 0;
    promised_look(&d);
    assert_int_equal(verdict(ME, "serve", 20).keepable, PROMISE_UNKEEPABLE);
}

static void file_says(uint64_t used_s)
{
    int fd = openat(d.state_fd, PROMISED_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    d.promised = promised_free(d.promised);
    dprintf(fd,
            "promises 1\n%d serve %" PRIu64 " 500 70000000 80000000 4 8 100000000 90 1000 2000 5\n",
            ME, used_s);
    close(fd);
    assert_int_equal(promised_new(d.state_fd, &d.promised), 0);
}

/* A refused promise is not measured: no fact may refuse it for ever. */
static void what_is_a_day_old_or_of_a_wrong_clock_says_no_to_nothing(void **state)
{
    uint64_t now_s = clock_real_ms() / 1000;

    file_says(now_s - 3600);
    assert_int_equal(verdict(ME, "serve", 20).keepable, PROMISE_UNKEEPABLE); /* the fastest */
    assert_int_equal(verdict(ME, "serve", 75).keepable, PROMISE_UNKEEPABLE); /* p99 */
    for (unsigned wrong = 0; wrong < 2; wrong++) {
        file_says(wrong ? now_s + 1000000 : now_s - 2 * 86400);
        assert_int_equal(verdict(ME, "serve", 20).keepable, PROMISE_UNKNOWN);
        assert_int_equal(verdict(ME, "serve", 75).keepable, PROMISE_UNKNOWN);
        assert_int_equal(verdict(ME, "serve", 100).keepable, PROMISE_KEEPABLE);
    }
}

static void a_user_has_a_part_of_the_rows(void **state)
{
    unsigned known = 0;

    tells(200, 80);
    job.uid = YOU;
    for (unsigned i = 0; i < 2 * PROMISED_MAX; i++) {
        job.known = (struct job_known){0};
        snprintf(job.name, sizeof(job.name), "name%u", i);
        tells(1, 80);
    }
    assert_int_equal(verdict(ME, "serve", 20).keepable, PROMISE_UNKEEPABLE);
    assert_int_equal(verdict(YOU, "name511", 20).keepable, PROMISE_UNKEEPABLE);
    for (unsigned i = 0; i < 2 * PROMISED_MAX; i++) {
        snprintf(job.name, sizeof(job.name), "name%u", i);
        known += verdict(YOU, job.name, 20).keepable == PROMISE_UNKEEPABLE;
    }
    assert_int_equal(known, PROMISED_OWN);
}

static void a_damaged_file_is_none(void **state)
{
    static const char *const texts[] = {
        "", "promises 2\n", "promises 1\n1000 serve x\n\n1000",
        "promises 1\n1000 serve 1 500 9999999999 0 0 0 0 0 9999 0 0\n"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int fd = openat(d.state_fd, PROMISED_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        assert_int_equal(write(fd, texts[i], strlen(texts[i])), strlen(texts[i]));
        close(fd);
        d.promised = promised_free(d.promised);
        assert_int_equal(promised_new(d.state_fd, &d.promised), 0);
        assert_int_equal(verdict(1000, "serve", 20).keepable, PROMISE_UNKNOWN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_the_same_with_its_pid_behind),
        cmocka_unit_test_setup_teardown(what_was_seen_is_known_to_the_same_user_and_after_a_restart,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_that_kept_its_promise_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(seconds_of_a_promise_say_nothing_of_the_next_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_process_without_requests_says_nothing_of_the_fastest,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_a_day_old_or_of_a_wrong_clock_says_no_to_nothing,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_user_has_a_part_of_the_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_file_is_none, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
