/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/proc.h"

#include "host/proc/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* linux/pidfd.h has these since Linux 6.15. */
struct exit_info {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t status;
};

#define INFO_EXIT 8
#define GET_INFO  _IOWR(0xFF, 11, struct exit_info)

static int as_shells_have_it(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static bool is_zombie(const struct proc_stat *stat, uint64_t start)
{
    return stat->start == start && stat->state == 'Z';
}

/*
 * The last number of a zombie's stat is its status, for readers who may trace the process. To
 * others, say after a setuid program, the kernel shows 0. A tracer sees that no program runs.
 */
static int read_zombie(int root, pid_t pid, uint64_t start, int *ret)
{
    struct proc_stat stat;
    char path[32], text[1024];
    const char *last;
    int r;

    snprintf(path, sizeof(path), "proc/%d/stat", (int)pid);
    r = file_read(root, path, text, sizeof(text) - 1);
    if (r < 0 || proc_parse_stat(text, (size_t)r, &stat) < 0 || !is_zombie(&stat, start))
        return -ESRCH;
    text[r] = '\0';
    last = strrchr(text, ' ');
    if (!last || (atoi(last + 1) == 0 && !proc_is_kernel(root, pid)))
        return -EACCES;
    /* One that was reaped meanwhile has no program either. */
    if (atoi(last + 1) == 0 && (proc_read_stat(root, pid, &stat) < 0 || !is_zombie(&stat, start)))
        return -ESRCH;
    *ret = as_shells_have_it(atoi(last + 1));
    return 0;
}

int proc_exit_status(int root, int pidfd, pid_t pid, uint64_t start, int *ret_status)
{
    struct exit_info info = {.mask = INFO_EXIT};

    if (read_zombie(root, pid, start, ret_status) == 0)
        return 0;
    if (ioctl(pidfd, GET_INFO, &info) < 0 || !(info.mask & INFO_EXIT))
        return -ENODATA;
    *ret_status = as_shells_have_it(info.status);
    return 0;
}

bool proc_is_kernel(int root, pid_t pid)
{
    char path[32], target[1];

    snprintf(path, sizeof(path), "proc/%d/exe", (int)pid);
    return readlinkat(root, path, target, sizeof(target)) < 0 && errno == ENOENT;
}
