/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wholefile.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int wholefile_read(const char *path, size_t max, char **ret_text, size_t *ret_len,
                   struct stat *ret_status)
{
    /* Without O_NONBLOCK open() would wait if the path were a FIFO. */
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    _cleanup_free_ char *text = NULL;
    size_t len = 0, size;
    ssize_t n;

    if (fd < 0 || fstat(fd, ret_status) < 0)
        return -errno;
    if (!S_ISREG(ret_status->st_mode))
        return -EINVAL;
    if ((size_t)ret_status->st_size > max)
        return -EFBIG;
    size = (size_t)ret_status->st_size + 1; /* for the final NUL, or to notice a new byte */
    text = malloc(size);
    if (!text)
        return -ENOMEM;
    while (len < size && (n = read(fd, text + len, size - len)) != 0) {
        if (n < 0 && errno != EINTR)
            return -errno;
        len += n > 0 ? (size_t)n : 0;
    }
    if (len == size)
        return -EBUSY; /* somebody is writing to it */
    text[len] = '\0';
    *ret_text = TAKE_PTR(text);
    *ret_len = len;
    return 0;
}

static int write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);

        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            text += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

static int fill(int fd, const char *text, size_t len, const struct stat *status)
{
    int r = write_all(fd, text, len);

    if (r < 0)
        return r;
    if (status && fchown(fd, status->st_uid, status->st_gid) < 0)
        return -errno;
    if (fchmod(fd, status ? status->st_mode & 07777 : 0644) < 0) /* fchown() may clear bits */
        return -errno;
    return 0;
}

/* Without this a power cut after the rename could undo it. */
static int sync_directory_of(const char *path, size_t len)
{
    char directory[PATH_MAX];
    _cleanup_fd_ int fd = -1;

    snprintf(directory, sizeof(directory), "%.*s", (int)len, path);
    fd = open(len ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int wholefile_replace(const char *path, const char *text, size_t len, const struct stat *status)
{
    _cleanup_fd_ int fd = -1;
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char temporary[PATH_MAX];
    int r;

    r = snprintf(temporary, sizeof(temporary), "%.*s.%s.%d", (int)(name - path), path, name,
                 (int)getpid());
    if (r < 0 || (size_t)r >= sizeof(temporary))
        return -ENAMETOOLONG;
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    r = fill(fd, text, len, status);
    /* Without this a power cut could leave the new name with an empty file. */
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r == 0 && rename(temporary, path) < 0)
        r = -errno;
    if (r < 0) {
        unlink(temporary);
        return r;
    }
    return sync_directory_of(path, (size_t)(name - path));
}
