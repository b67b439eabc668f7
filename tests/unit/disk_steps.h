/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps by which a file comes to the disk, in their order; each may fail. The test that includes
 * this file, once, is linked with --wrap=fsync and wraps its kind of rename itself.
 */
#pragma once

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char done[64]; /* 'f' a file synced, 'd' a directory, 'r' renamed */
static off_t synced;  /* bytes of the file that was synced */
static char failing;  /* this step fails with EIO */

int __real_fsync(int fd);
int __wrap_fsync(int fd);

static int note(char step)
{
    size_t n = strlen(done);

    assert_true(n + 1 < sizeof(done));
    done[n] = step;
    done[n + 1] = '\0';
    if (step == failing)
        errno = EIO;
    return step == failing ? -1 : 0;
}

int __wrap_fsync(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    if (S_ISREG(st.st_mode))
        synced = st.st_size;
    return note(S_ISDIR(st.st_mode) ? 'd' : 'f') < 0 ? -1 : __real_fsync(fd);
}
