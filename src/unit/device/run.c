/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/device/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "host/proc/exit_watch.h"
#include "host/proc/proc.h"

struct run {
    run_done *done;
    void *arg;
    pid_t pid; /* 0: it has ended */
    bool late; /* its time was over, and it was killed */
    int pidfd, fd;
    sd_event_source *exit, *limit, *output;
    size_t len;
    char text[RUN_BYTES_MAX];
};

static void read_output(struct run *r)
{
    char rest[4096];
    ssize_t n;

    do {
        size_t room = sizeof(r->text) - 1 - r->len;

        n = read(r->fd, room ? r->text + r->len : rest, room ? room : sizeof(rest));
        if (n > 0 && room)
            r->len += (size_t)n;
    } while (n > 0);
    if (n == 0 || errno != EAGAIN)
        sd_event_source_set_enabled(r->output, SD_EVENT_OFF);
}

static int on_output(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
    read_output(arg);
    return 0;
}

static void finish(struct run *r, int status)
{
    read_output(r);
    r->text[r->len] = '\0';
    r->done(r->arg, status, r->text);
    run_free(r);
}

static int on_exit_(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
    struct run *r = arg;
    int status = 0;
    pid_t ended = !exit_watch_ended(fd, r->pidfd) ? 0 : waitpid(r->pid, &status, WNOHANG);

    if (ended == 0)
        return 0;
    if (ended == r->pid)
        kill(-r->pid, SIGKILL); /* what it has left behind */
    r->pid = 0;
    finish(r, r->late             ? -ETIMEDOUT
              : WIFEXITED(status) ? WEXITSTATUS(status)
                                  : 128 + WTERMSIG(status));
    return 0;
}

/*
 * One that hangs in the kernel, as ipmitool does when the controller's driver does, ends whenever
 * it ends: nobody waits for it.
 */
static void kill_program(const struct run *r)
{
    if (r->pid)
        kill(-r->pid, SIGKILL);
}

static int on_limit(sd_event_source *source, uint64_t usec, void *arg)
{
    struct run *r = arg;

    kill_program(r);
    r->late = true; /* on_exit_() tells it */
    return 0;
}

bool run_late(const struct run *r)
{
    return r->late;
}

/* Nothing is read from, both outputs go to @out, no signal is blocked or ignored. */
static int spawn(char *const argv[], int out, pid_t *ret)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, defaults;
    int r;

    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                       POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &defaults);
    r = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    r = r ? r : posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    r = r ? r : posix_spawn_file_actions_adddup2(&files, out, STDERR_FILENO);
    r = r ? r : posix_spawnp(ret, argv[0], &files, &how, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    return -r;
}

int run_start(sd_event *event, char *const argv[], unsigned timeout_ms, run_done *done, void *arg,
              struct run **ret)
{
    struct run *r = calloc(1, sizeof(*r));
    _cleanup_fd_ int out = -1;
    int ends[2], e;

    if (!r)
        return -ENOMEM;
    signal(SIGCHLD, SIG_DFL); /* if ignored, the kernel would forget the program as it ends */
    r->done = done;
    r->arg = arg;
    r->pidfd = r->fd = -1;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        free(r);
        return -errno;
    }
    r->fd = ends[0];
    out = ends[1];
    e = fcntl(r->fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : spawn(argv, out, &r->pid);
    if (e < 0)
        r->pid = 0;
    if (e == 0 && (r->pidfd = proc_pidfd_open(r->pid)) < 0)
        e = r->pidfd;
    if (e == 0)
        e = sd_event_add_io(event, &r->output, r->fd, EPOLLIN, on_output, r);
    if (e >= 0)
        e = exit_watch_add(event, &r->exit, r->pidfd, on_exit_, r);
    if (e >= 0)
        e = sd_event_add_time_relative(event, &r->limit, CLOCK_MONOTONIC,
                                       (uint64_t)timeout_ms * 1000, 10000, on_limit, r);
    if (e < 0 && r->pid) {
        kill_program(r);
        waitpid(r->pid, NULL, 0); /* it has just begun */
        r->pid = 0;
    }
    if (e < 0) {
        run_free(r);
        return e;
    }
    *ret = r;
    return 0;
}

struct run *run_free(struct run *r)
{
    if (!r)
        return NULL;
    kill_program(r);
    if (r->pid)
        waitpid(r->pid, NULL, WNOHANG); /* at the end of this process it is another one's */
    sd_event_source_disable_unref(r->output);
    sd_event_source_disable_unref(r->exit);
    sd_event_source_disable_unref(r->limit);
    close_fd(r->fd);
    close_fd(r->pidfd);
    free(r);
    return NULL;
}
