/* SPDX-License-Identifier: Apache-2.0 */
#include "runc/control_dir.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

bool control_dir_is_key(const char *key)
{
    size_t n = strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");

    return n > 0 && n <= CONTAINER_KEY_MAX && key[n] == '\0';
}

int control_dir_open(bool make, char ret_run[RUNDIR_PATH_MAX])
{
    _cleanup_fd_ int run = -1;
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int r = rundir_machine(ret_run);

    if (r < 0)
        return r;
    run = make ? rundir_open(ret_run, NULL) : open(ret_run, flags);
    if (run < 0)
        return make ? run : -errno;
    if (make && mkdirat(run, CONTAINER_RUN_DIR, 0755) < 0 && errno != EEXIST)
        return -errno;
    r = openat(run, CONTAINER_RUN_DIR, flags);
    return r < 0 ? -errno : r;
}

/* The directory's mode lets other users reach the socket in it, and nothing else. */
int control_dir_make(int containers, const char *key)
{
    struct stat st;

    if (mkdirat(containers, key, 0711) < 0 && errno != EEXIST)
        return -errno;
    if (fstatat(containers, key, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    return fchmodat(containers, key, 0711, 0) < 0 ? -errno : 0;
}

void control_dir_write(int containers, const char *key, const struct startup *size)
{
    char path[CONTAINER_KEY_MAX + sizeof(CONTAINER_STARTUP) + 1], mark[STARTUP_MARK_MAX];
    _cleanup_fd_ int fd = -1;

    snprintf(path, sizeof(path), "%s/" CONTAINER_STARTUP, key);
    fd = openat(containers, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    startup_mark(size, mark);
    if (fd >= 0)
        dprintf(fd, "%s", mark);
}

struct startup control_dir_read(int containers, const char *key)
{
    char path[CONTAINER_KEY_MAX + sizeof(CONTAINER_STARTUP) + 1], mark[STARTUP_MARK_MAX] = "";
    _cleanup_fd_ int fd = -1;
    struct startup size = {0};

    snprintf(path, sizeof(path), "%s/" CONTAINER_STARTUP, key);
    fd = openat(containers, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && read(fd, mark, sizeof(mark) - 1) > 0)
        startup_read_mark(mark, &size);
    return size;
}
