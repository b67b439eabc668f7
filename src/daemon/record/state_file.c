/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/record/state_file.h"

#include "base/cleanup.h"
#include "base/failpoint.h"
#include "proto/proto.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int state_file_write(int dir_fd, const char *name, const char *text)
{
    char temp[PROTO_NAME_MAX + 8];
    _cleanup_fd_ int fd = -1;
    size_t len = strlen(text);
    ssize_t written;

    snprintf(temp, sizeof(temp), ".%s", name);
    unlinkat(dir_fd, temp, 0);
    if (fault(FAULT_STORE_OPEN) == 0)
        fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    written = fault(FAULT_STORE_WRITE) < 0 ? -1 : write(fd, text, len);
    failpoint(FAILPOINT_STORE_WRITTEN);
    if (written == (ssize_t)len && fault(FAULT_STORE_RENAME) == 0 &&
        renameat(dir_fd, temp, dir_fd, name) == 0) {
        failpoint(FAILPOINT_STORE_RENAMED);
        return 0;
    }
    int r = written >= 0 && written < (ssize_t)len ? -ENOSPC : -errno;
    unlinkat(dir_fd, temp, 0);
    return r;
}

int state_file_read(int dir_fd, const char *name, char *buf, size_t size)
{
    _cleanup_fd_ int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    ssize_t len;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return -EPERM;
    len = read(fd, buf, size - 1);
    if (len < 0)
        return -errno;
    if ((size_t)len == size - 1)
        return -EFBIG;
    buf[len] = '\0';
    return 0;
}
