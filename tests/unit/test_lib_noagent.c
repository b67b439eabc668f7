/* SPDX-License-Identifier: Apache-2.0 */
/* libtide in a program that `tide run` did not start. Strict C99, as the header promises. */
#include "tide/tide.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void unused_callback(const struct tide_state *state, void *arg)
{
    (void)state;
    (void)arg;
}

static void every_call_says_that_there_is_no_agent(void **fixture)
{
    struct tide_state now = {.size = sizeof(now), .target = 77};

    (void)fixture;
    assert_int_equal(tide_get(&now), -ENOENT);
    assert_int_equal(now.target, 77);
    assert_int_equal(tide_set(1, 0), -ENOENT);
    assert_int_equal(tide_freeze(), -ENOENT);
    assert_int_equal(tide_thaw(), -ENOENT);
    assert_int_equal(tide_on_change(unused_callback, NULL), -ENOENT);
    assert_int_equal(tide_on_change(NULL, NULL), -ENOENT);
    assert_int_equal(tide_declare(4), -ENOENT);
    assert_int_equal(tide_active(4), -ENOENT);
}

static void progress_is_accepted_and_dropped(void **fixture)
{
    (void)fixture;
    assert_int_equal(tide_progress(1, 2, "steps"), TIDE_DROPPED);
    assert_int_equal(tide_progress(2, 0, NULL), TIDE_DROPPED);
}

static void requests_are_dropped(void **fixture)
{
    uint64_t began = tide_request_begin();

    (void)fixture;
    assert_true(began == 0);
    tide_request_end(began);
}

static void a_controller_without_a_daemon_is_told_so(void **fixture)
{
    struct tide_ctl_options options = {.size = sizeof(options), .path = "/nonexistent/tide"};
    struct tide_ctl_options unsized = {0};
    char longest[200];
    tide_ctl *ctl = NULL;

    (void)fixture;
    assert_int_equal(tide_ctl_open(&options, &ctl), -ECONNREFUSED);
    assert_int_equal(tide_ctl_open(&unsized, &ctl), -EINVAL);
    for (size_t i = 0; i < sizeof(longest); i++)
        longest[i] = i + 1 < sizeof(longest) ? 'x' : '\0';
    options.path = longest;
    assert_int_equal(tide_ctl_open(&options, &ctl), -ENAMETOOLONG);
    assert_null(ctl);
    assert_null(tide_ctl_close(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_says_that_there_is_no_agent),
        cmocka_unit_test(progress_is_accepted_and_dropped),
        cmocka_unit_test(requests_are_dropped),
        cmocka_unit_test(a_controller_without_a_daemon_is_told_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
