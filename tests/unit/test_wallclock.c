/* SPDX-License-Identifier: Apache-2.0 */
/* TIDE_CLOCK. Each case is a process: a program reads the variable once. */
#include "base/wallclock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

static struct error err;

/* Runs @check in a child in which TIDE_CLOCK is @text. */
static void with(const char *text, void (*check)(void))
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("TIDE_CLOCK", text, 1);
        check();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0)
        fail_msg("TIDE_CLOCK=%s: status %x", text, (unsigned)status);
}

#define CHECK(condition)                                                                           \
    if (!(condition)) {                                                                            \
        fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                    \
        _exit(1);                                                                                  \
    }

static void is_real(void)
{
    uint64_t before = clock_real_ms(), ms;

    CHECK(wallclock_begin(&err) == 0);
    ms = wallclock_ms();
    CHECK(ms >= before && ms <= clock_real_ms());
}

static void is_refused(void)
{
    CHECK(wallclock_begin(&err) == -EINVAL && strstr(err.text, "TIDE_CLOCK="));
}

static void begins_in_2027(void)
{
    CHECK(wallclock_begin(&err) == 1);
    CHECK(wallclock_synced());
    CHECK(wallclock_ms() / 1000 - 1800000000 < 86400);
}

static void stands_still(void)
{
    CHECK(wallclock_begin(&err) == 1);
    usleep(20000);
    CHECK(wallclock_ms() == 1800000000500);
    CHECK(!wallclock_synced());
}

/* A real second long ago is 100 of this clock's. */
static void runs_fast(void)
{
    uint64_t real = clock_real_ms(), ms;

    CHECK(wallclock_begin(&err) == 1);
    ms = wallclock_ms();
    CHECK(ms >= (real - 1000000000000) * 100 && ms <= (clock_real_ms() - 1000000000000) * 100);
}

static void follows_its_file(void)
{
    const char *path = getenv("TIDE_CLOCK");
    FILE *f = fopen(path, "w");

    fputs("1800000000,0\n", f);
    fclose(f);
    CHECK(wallclock_begin(&err) == 1);
    CHECK(wallclock_ms() == 1800000000000);
    f = fopen(path, "w");
    CHECK(wallclock_ms() == 1800000000000); /* empty for a moment */
    fputs("1799913600,0,unsynchronised\n", f);
    fclose(f);
    CHECK(wallclock_ms() == 1799913600000);
    CHECK(!wallclock_synced());
    unlink(path);
    CHECK(wallclock_ms() == 1800000000000);
}

static void without_the_variable_the_time_is_the_real_one(void **state)
{
    with("", is_real);
}

static void what_is_no_clock_is_refused(void **state)
{
    const char *const texts[] = {"18:00",
                                 "1800000000",
                                 "1800000000,x",
                                 "1800000000,1,y",
                                 "-5,1",
                                 "1800000000,-1",
                                 "1800000000,nan",
                                 "/nowhere/tide",
                                 "1800000000,1,5,synced",
                                 "1800000000,1,5,",
                                 "99999999999999,1,5",
                                 "1800000000,1e9"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        with(texts[i], is_refused);
}

static void it_begins_runs_and_jumps_as_the_variable_says(void **state)
{
    char path[] = "/tmp/wallclock.XXXXXX";

    with("1800000000,1", begins_in_2027);
    with("1800000000.5,0,unsynchronised", stands_still);
    with("0,100,1000000000", runs_fast);
    close(mkstemp(path));
    with(path, follows_its_file);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_the_variable_the_time_is_the_real_one),
        cmocka_unit_test(what_is_no_clock_is_refused),
        cmocka_unit_test(it_begins_runs_and_jumps_as_the_variable_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
