/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of the agent in a program that closes any descriptor. */
#include "agent/process/ownfd.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cmocka.h>

static void adopt_pipe(struct ownfd *own, int *ret_other)
{
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    own->fd = -1;
    ownfd_adopt(own, fds[0]);
    *ret_other = fds[1];
}

static void adopted_number_is_high_and_not_inherited(void **state)
{
    struct ownfd own;
    int other;

    (void)state;
    adopt_pipe(&own, &other);
    assert_true(own.fd >= OWNFD_LOWEST);
    assert_true(fcntl(own.fd, F_GETFD) & FD_CLOEXEC);
    assert_true(ownfd_ok(&own));
    assert_int_equal(write(other, "x", 1), 1);
    ownfd_drop(&own);
    assert_int_equal(own.fd, -1);
    assert_false(ownfd_ok(&own));
    assert_int_equal(write(other, "x", 1), -1); /* SIGPIPE is ignored: the read end is closed */
    close(other);
}

static void closed_by_the_program_is_noticed(void **state)
{
    struct ownfd own;
    int other;

    (void)state;
    adopt_pipe(&own, &other);
    close(own.fd);
    errno = ENOTTY;
    assert_false(ownfd_ok(&own));
    assert_int_equal(errno, ENOTTY);
    ownfd_drop(&own);
    assert_int_equal(own.fd, -1);
    close(other);
}

static void number_taken_by_another_file_is_left_alone(void **state)
{
    struct ownfd own;
    int other;
    int theirs;
    int number;

    (void)state;
    adopt_pipe(&own, &other);
    number = own.fd;
    theirs = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(dup2(theirs, number), number);
    assert_false(ownfd_ok(&own));
    ownfd_drop(&own);
    assert_int_equal(own.fd, -1);
    assert_true(fcntl(number, F_GETFD) >= 0); /* still theirs */
    close(number);
    close(theirs);
    close(other);
}

static void number_taken_by_the_same_kind_of_file_is_left_alone(void **state)
{
    struct ownfd own = {.fd = -1};
    int pair[2];
    int theirs[2];
    int number;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, theirs), 0);
    ownfd_adopt(&own, pair[0]);
    number = own.fd;
    assert_int_equal(dup2(theirs[0], number), number);
    assert_false(ownfd_ok(&own));
    ownfd_drop(&own);
    assert_true(fcntl(number, F_GETFD) >= 0);
    close(number);
    close(pair[1]);
    close(theirs[0]);
    close(theirs[1]);
}

static void low_limit_of_descriptors_keeps_the_number(void **state)
{
    struct rlimit before;
    struct rlimit low;
    struct ownfd own;
    int other;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = (struct rlimit){.rlim_cur = 64, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    adopt_pipe(&own, &other);
    assert_true(own.fd >= 0 && own.fd < 64);
    assert_true(ownfd_ok(&own));
    ownfd_drop(&own);
    close(other);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adopted_number_is_high_and_not_inherited),
        cmocka_unit_test(closed_by_the_program_is_noticed),
        cmocka_unit_test(number_taken_by_another_file_is_left_alone),
        cmocka_unit_test(number_taken_by_the_same_kind_of_file_is_left_alone),
        cmocka_unit_test(low_limit_of_descriptors_keeps_the_number),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
