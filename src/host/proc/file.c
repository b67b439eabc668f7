/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/file.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

int file_open_root(void)
{
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

int file_open(int root, const char *path, int flags)
{
    int fd;

    /* An absolute path would make openat forget the root. */
    path += strspn(path, "/");
    fd = openat(root, *path ? path : ".", flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static ssize_t read_retry(int fd, char *buf, size_t size)
{
    ssize_t n;

    do
        n = read(fd, buf, size);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

int file_read(int root, const char *path, char *buf, size_t size)
{
    _cleanup_fd_ int fd = file_open(root, path, O_RDONLY);
    ssize_t n;

    if (fd < 0)
        return fd;
    n = read_retry(fd, buf, size - 1);
    if (n < 0)
        return (int)n;
    buf[n] = '\0';
    return (int)n;
}

int file_read_all(int root, const char *path, char **ret_text, size_t *ret_len)
{
    _cleanup_fd_ int fd = file_open(root, path, O_RDONLY);
    _cleanup_free_ char *text = NULL;
    size_t len = 0, size = 0;

    if (fd < 0)
        return fd;
    for (;;) {
        ssize_t n;

        if (len + 1 >= size) { /* a pseudo-file has no size before it is read */
            char *bigger;

            size = size ? size * 2 : 4096;
            if (size > FILE_TEXT_MAX * 2)
                return -EFBIG;
            bigger = realloc(text, size);
            if (!bigger)
                return -ENOMEM;
            text = bigger;
        }
        n = read_retry(fd, text + len, size - len - 1);
        if (n < 0)
            return (int)n;
        if (n == 0)
            break;
        len += (size_t)n;
        if (len > FILE_TEXT_MAX)
            return -EFBIG;
    }
    text[len] = '\0';
    *ret_text = TAKE_PTR(text);
    *ret_len = len;
    return 0;
}

int text_scan_u64(const char **p, uint64_t *ret)
{
    const char *s = *p;
    uint64_t value = 0;

    if (*s < '0' || *s > '9')
        return -EINVAL;
    for (; *s >= '0' && *s <= '9'; s++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*s - '0'), &value))
            return -ERANGE;
    }
    *p = s;
    *ret = value;
    return 0;
}

int file_read_u64(int root, const char *path, uint64_t *ret)
{
    char buf[32];
    const char *p = buf;
    uint64_t value;
    int r = file_read(root, path, buf, sizeof(buf));

    if (r < 0)
        return r;
    r = text_scan_u64(&p, &value);
    if (r < 0)
        return r;
    if (*p == '\n')
        p++;
    if (*p)
        return -EINVAL;
    *ret = value;
    return 0;
}

int file_write(int root, const char *path, const char *text)
{
    _cleanup_fd_ int fd = file_open(root, path, O_WRONLY);
    size_t len = strlen(text);
    ssize_t n;

    if (fd < 0)
        return fd;
    do
        n = write(fd, text, len);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return (size_t)n == len ? 0 : -EIO;
}

int file_path(char *buf, size_t size, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(buf, size, fmt, ap);
    va_end(ap);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}
