/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/launch/slurm_folders.h"

#include "base/cleanup.h"
#include "base/rundir.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define OLD_S (24 * 3600)
#define DEPTH 2 /* jobs/ID.json and claims are the deepest */

static DIR *open_list(int fd)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = own < 0 ? NULL : fdopendir(own);

    if (!dir)
        close_fd(own);
    return dir;
}

static void empty(int fd, unsigned depth)
{
    DIR *dir = open_list(fd);
    const struct dirent *e;

    while (dir && (e = readdir(dir))) {
        int below;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            unlinkat(fd, e->d_name, 0) == 0 || depth == 0)
            continue;
        below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0)
            continue;
        empty(below, depth - 1);
        close_fd(below);
        unlinkat(fd, e->d_name, AT_REMOVEDIR);
    }
    if (dir)
        closedir(dir);
}

/* The lock is held until the caller closes it, so that no daemon starts there meanwhile. */
static bool is_left(int folder_fd, int *ret_lock)
{
    int lock = openat(folder_fd, RUNDIR_LOCK, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (lock < 0)
        return false;
    *ret_lock = lock;
    return fstat(lock, &st) == 0 && time(NULL) - st.st_mtime > OLD_S &&
           flock(lock, LOCK_EX | LOCK_NB) == 0;
}

void slurm_folders_remove_old(int parent_fd)
{
    DIR *dir = open_list(parent_fd);
    const struct dirent *e;

    while (dir && (e = readdir(dir))) {
        _cleanup_fd_ int fd = -1, lock = -1;

        if (strncmp(e->d_name, SLURM_FOLDER, strlen(SLURM_FOLDER)) != 0)
            continue;
        fd = openat(parent_fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || !is_left(fd, &lock))
            continue;
        empty(fd, DEPTH - 1);
        unlinkat(parent_fd, e->d_name, AT_REMOVEDIR);
    }
    if (dir)
        closedir(dir);
}
