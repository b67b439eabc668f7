/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hold.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define ERROR_WORD "directory-in-use"

int hold_file(const char *dir, const char *name, bool over_exec, struct error *err)
{
    char path[PATH_MAX], pid[24] = "";
    int fd, n = snprintf(path, sizeof(path), "%s/%s", dir, name);

    if (n < 0 || (size_t)n >= sizeof(path))
        return -1;
    fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | (over_exec ? 0 : O_CLOEXEC), 0600);
    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        if (pread(fd, pid, sizeof(pid) - 1, 0) < 0)
            pid[0] = '\0';
        close_fd(fd);
        return error_set(err, -EBUSY,
                         "pid %ld runs with the directory %.160s already: end it first",
                         strtol(pid, NULL, 10), dir);
    }
    n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) < 0)
        return fd; /* held all the same */
    return fd;
}
