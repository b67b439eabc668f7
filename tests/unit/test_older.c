/* SPDX-License-Identifier: Apache-2.0 */
/* On a kernel that has close_range(2), and on one that has not: syscall() is the test's own. */
#include "base/older.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define FIRST 100 /* above what the test itself has open */

static bool old_kernel;
static unsigned asked;

long __wrap_syscall(long number, unsigned first, unsigned last, unsigned flags);
long __real_syscall(long number, ...);

long __wrap_syscall(long number, unsigned first, unsigned last, unsigned flags)
{
    if (number == SYS_close_range)
        asked++;
    if (old_kernel) {
        errno = ENOSYS;
        return -1;
    }
    return __real_syscall(number, first, last, flags);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void open_five(void)
{
    for (int fd = FIRST; fd < FIRST + 5; fd++)
        assert_int_equal(dup2(STDERR_FILENO, fd), fd);
}

static void both_kernels_close_the_same(void **state)
{
    struct rlimit few = {.rlim_cur = 256, .rlim_max = 256};

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int old = 0; old < 2; old++) {
        old_kernel = old;
        asked = 0;
        open_five();
        older_close_range(FIRST + 1, FIRST + 2);
        assert_true(is_open(FIRST) && is_open(FIRST + 3) && is_open(FIRST + 4));
        assert_false(is_open(FIRST + 1) || is_open(FIRST + 2));
        older_close_range(FIRST + 4, UINT_MAX);
        assert_true(is_open(FIRST + 3));
        assert_false(is_open(FIRST + 4));
        assert_int_equal(asked, 2);
    }
}

static void an_empty_range_closes_nothing(void **state)
{
    for (int old = 0; old < 2; old++) {
        old_kernel = old;
        open_five();
        older_close_range(FIRST + 1, FIRST);
        assert_true(is_open(FIRST) && is_open(FIRST + 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_kernels_close_the_same),
        cmocka_unit_test(an_empty_range_closes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
