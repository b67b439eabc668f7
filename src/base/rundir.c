/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rundir.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int path_format(char ret_path[RUNDIR_PATH_MAX], const char *dir, const char *suffix)
{
    char path[RUNDIR_PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s%s", dir, suffix);

    if (n < 0 || (size_t)n >= sizeof(path))
        return -ENAMETOOLONG;
    snprintf(ret_path, RUNDIR_PATH_MAX, "%s", path);
    return 0;
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

int rundir_open(const char *path)
{
    _cleanup_fd_ int fd = -1;
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return -EPERM;
    return TAKE_FD(fd);
}
