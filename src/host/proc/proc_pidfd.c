/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/proc.h"

#include "base/clock.h"
#include "host/proc/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 50 /* between two looks at a directory */

/*
 * The kernel ties an open directory of /proc to the process, not to its number: once that process
 * has ended, nothing can be opened in there, whoever has its number by then.
 */
static int open_directory(pid_t pid)
{
    char path[32];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : errno == ENOENT ? -ESRCH : -errno;
}

int proc_pidfd_open(pid_t pid)
{
    long fd = syscall(SYS_pidfd_open, pid, 0); /* the kernel makes it CLOEXEC */

    if (fd >= 0)
        return (int)fd;
    /* Filters of containers answer EPERM to calls that they do not know, which the call never does.
     */
    return errno == ENOSYS || errno == EPERM ? open_directory(pid) : -errno;
}

bool proc_pidfd_wakes(int pidfd)
{
    struct stat st;

    return fstat(pidfd, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* Reads who the directory is of, or returns -ESRCH. */
static int read_directory(int pidfd, struct proc_stat *ret)
{
    char text[1024];
    int r = file_read(pidfd, "stat", text, sizeof(text));

    if (r < 0)
        return r == -ENOENT ? -ESRCH : r;
    return proc_parse_stat(text, (size_t)r, ret);
}

bool proc_pidfd_ended(int pidfd)
{
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    struct proc_stat stat;
    int r;

    if (poll(&end, 1, 0) == 0)
        return false;
    if (proc_pidfd_wakes(pidfd))
        return true;
    r = read_directory(pidfd, &stat); /* a directory always seems to be readable */
    return r == -ESRCH || (r == 0 && (stat.state == 'Z' || stat.state == 'X'));
}

bool proc_pidfd_wait(int pidfd, int ms)
{
    uint64_t end_ns = clock_now_ns() + (uint64_t)ms * NS_PER_MS;
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};

    if (pidfd < 0 || proc_pidfd_wakes(pidfd))
        return poll(&ended, 1, ms) > 0;
    while (!proc_pidfd_ended(pidfd)) {
        uint64_t now_ns = clock_now_ns();

        if (now_ns >= end_ns)
            return false;
        poll(NULL, 0,
             end_ns - now_ns < LOOK_MS * NS_PER_MS ? (int)((end_ns - now_ns) / NS_PER_MS) + 1
                                                   : LOOK_MS);
    }
    return true;
}

/*
 * Returns the pid of the directory's process, which is still there, for a call by number; Linux 5.1
 * and 5.2 take a directory of /proc themselves. @error: what the newer call has said; -errno.
 */
static pid_t number_of(int pidfd, int error)
{
    struct proc_stat stat;
    int r = (error == ENOSYS || error == EPERM) && !proc_pidfd_wakes(pidfd)
                ? read_directory(pidfd, &stat)
                : -error;

    return r == 0 ? stat.pid : r;
}

int proc_pidfd_signal(int pidfd, int signal)
{
    pid_t pid;

    if (syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) == 0)
        return 0;
    pid = number_of(pidfd, errno);
    return pid < 0 ? pid : kill(pid, signal) < 0 ? -errno : 0;
}

int proc_pidfd_queue(int pidfd, int signal, int value)
{
    siginfo_t info = {.si_signo = signal, .si_code = SI_QUEUE};
    union sigval with = {.sival_int = value};
    pid_t pid;

    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value = with;
    if (syscall(SYS_pidfd_send_signal, pidfd, signal, &info, 0) == 0)
        return 0;
    pid = number_of(pidfd, errno);
    return pid < 0 ? pid : sigqueue(pid, signal, with) < 0 ? -errno : 0;
}
