/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm/helper.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/older.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

/* Only async-signal-safe calls: slurmstepd had other threads when it forked. */
__attribute__((noreturn)) static void become(char *const argv[], char *const envp[], int out_fd)
{
    sigset_t none;
    int null_fd = open("/dev/null", O_RDWR);

    for (int s = 1; s <= SIGRTMAX; s++)
        signal(s, SIG_DFL); /* fails for some signals, which no program can change */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid(); /* so that what it starts can be killed with it */
    if (null_fd >= 0 && dup2(null_fd, 0) == 0 && dup2(out_fd, 1) == 1) {
        older_close_range(3, ~0u);
        execve(argv[0], argv, envp);
    }
    _exit(127);
}

static long read_all(int fd, uint64_t deadline_ns, char *buf, size_t size)
{
    size_t got = 0;

    for (;;) {
        uint64_t now = clock_now_ns();
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ssize_t n;

        if (now >= deadline_ns)
            return -ETIMEDOUT;
        n = poll(&ready, 1, (int)((deadline_ns - now) / NS_PER_MS) + 1);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n <= 0)
            continue;
        if (got == size)
            return -EMSGSIZE;
        n = read(fd, buf + got, size - got);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            return (long)got;
        if (n > 0)
            got += (size_t)n;
    }
}

/* While the child is not reaped, its pid is that of its processes' group. */
static void end_all(pid_t child)
{
    kill(-child, SIGKILL);
    kill(child, SIGKILL); /* in case it had no time to begin a session */
}

/* Waits for the end of @child, which is killed when time is up. Returns 0, -ECHILD or -ETIMEDOUT.
 */
static int reap(pid_t child, uint64_t deadline_ns)
{
    bool killed = false;
    int status = 0;

    for (;;) {
        pid_t ended = waitpid(child, &status, killed ? 0 : WNOHANG);

        if (ended == child)
            return killed ? -ETIMEDOUT : status == 0 ? 0 : -ECHILD;
        if (ended < 0 && errno != EINTR)
            return 0; /* SIGCHLD is ignored: what it wrote tells whether it is complete */
        if (killed)
            continue;
        killed = clock_now_ns() >= deadline_ns;
        if (killed)
            end_all(child);
        else
            poll(NULL, 0, 1);
    }
}

long helper_run(char *const argv[], char *const envp[], unsigned timeout_ms, char *buf, size_t size)
{
    uint64_t deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    _cleanup_fd_ int read_fd = -1, write_fd = -1;
    int fds[2], end;
    pid_t child;
    long r;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    read_fd = fds[0];
    write_fd = fds[1];
    child = fork();
    if (child < 0)
        return -errno;
    if (child == 0)
        become(argv, envp, write_fd);
    write_fd = close_fd(write_fd);
    r = read_all(read_fd, deadline_ns, buf, size);
    if (r < 0)
        end_all(child);
    end = reap(child, deadline_ns);
    return r < 0 ? r : end < 0 ? end : r;
}
