/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rundir.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ERROR_WORD "run-directory"

static int path_format(char ret_path[RUNDIR_PATH_MAX], const char *dir, const char *suffix)
{
    char path[RUNDIR_PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s%s", dir, suffix);

    if (n < 0 || (size_t)n >= sizeof(path))
        return -ENAMETOOLONG;
    snprintf(ret_path, RUNDIR_PATH_MAX, "%s", path);
    return 0;
}

bool rundir_is_named(void)
{
    const char *dir = getenv("TIDE_DIR");

    return dir && *dir;
}

int rundir_user(char ret_path[RUNDIR_PATH_MAX])
{
    const char *dir = getenv("TIDE_DIR");
    char suffix[24];

    if (dir && *dir)
        return path_format(ret_path, dir, "");
    dir = getenv("XDG_RUNTIME_DIR");
    if (dir && *dir == '/')
        return path_format(ret_path, dir, "/tide");
    snprintf(suffix, sizeof(suffix), "%u", (unsigned)getuid());
    return path_format(ret_path, "/tmp/tide-", suffix);
}

int rundir_find(char ret_path[RUNDIR_PATH_MAX])
{
    const char *dir = getenv("TIDE_DIR");

    if (!(dir && *dir) && access(RUNDIR_SYSTEM "/" RUNDIR_API_SOCKET, F_OK) == 0)
        return path_format(ret_path, RUNDIR_SYSTEM, "");
    return rundir_user(ret_path);
}

int rundir_machine(char ret_path[RUNDIR_PATH_MAX])
{
    const char *dir = getenv("TIDE_DIR");

    return path_format(ret_path, dir && *dir ? dir : RUNDIR_SYSTEM, "");
}

static int judge(const struct stat *st, const char *path, struct error *err)
{
    if (S_ISLNK(st->st_mode))
        return error_set(err, -ELOOP, "%s is a symbolic link: remove it", path);
    if (!S_ISDIR(st->st_mode))
        return error_set(err, -ENOTDIR, "%s is no directory: remove it", path);
    if (st->st_uid != geteuid())
        return error_set(err, -EPERM,
                         "%s belongs to another user (uid %u): use a directory of your own", path,
                         (unsigned)st->st_uid);
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return error_set(err, -EPERM, "others may write in %s: chmod go-w it", path);
    return 0;
}

static int cannot_make(const char *path, int code, struct error *err)
{
    return error_set(err, code, "cannot make the directory %s: %s", path, strerror(-code));
}

static int check_parent(const char *path, struct error *err)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash == path ? 1 : slash ? (int)(slash - path) : 0;

    snprintf(parent, sizeof(parent), "%.*s", length, path);
    if (access(*parent ? parent : ".", W_OK | X_OK) < 0)
        return cannot_make(path, -errno, err);
    return 0;
}

int rundir_check(const char *path, struct error *err)
{
    struct stat st;

    if (lstat(path, &st) == 0)
        return judge(&st, path, err);
    if (errno == ENOENT)
        return check_parent(path, err);
    return error_set(err, -errno, "%s: %s", path, strerror(errno));
}

int rundir_open(const char *path, struct error *err)
{
    _cleanup_fd_ int fd = -1;
    struct stat st;
    int r;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return cannot_make(path, -errno, err);
    r = rundir_check(path, err); /* explains more than open() */
    if (r < 0)
        return r;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    r = judge(&st, path, err); /* somebody may have replaced it since the first check */
    return r < 0 ? r : TAKE_FD(fd);
}
