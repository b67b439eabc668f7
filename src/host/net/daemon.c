/* SPDX-License-Identifier: Apache-2.0 */
#include "host/net/daemon.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/older.h"
#include "base/rundir.h"
#include "host/net/http.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define ERROR_WORD "daemon-not-started"

#define POLL_MS 2 /* between attempts at the socket: part of the first job's start-up */

extern char **environ;

int daemon_find_program(char *ret_path, size_t size, struct error *err)
{
    const char *given = getenv("TIDE_DAEMON");
    char self[FILE_PATH_MAX];
    ssize_t n;
    int r;

    if (given && *given) {
        r = file_path(ret_path, size, "%s", given);
    } else {
        n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        if (n < 0)
            return error_set(err, -errno, "/proc/self/exe: %s", strerror(errno));
        self[n] = '\0';
        r = file_path(ret_path, size, "%.*s/tided", (int)(strrchr(self, '/') - self), self);
    }
    if (r < 0)
        return error_set(err, r, "the path of tided is too long");
    if (access(ret_path, X_OK) == 0)
        return 0;
    return error_word(err,
                      error_set(err, -errno, "%s %s: %s",
                                given && *given ? "TIDE_DAEMON names" : "there is no", ret_path,
                                strerror(errno)),
                      "no-daemon-program");
}

/* ---- the daemon's side of the fork: only async-signal-safe calls ---- */

/* The child's data, made ready before the fork. */
struct launch {
    char *const *argv;
    char *const *envp;
    int log_fd;
    int null_fd;
    int report_fd; /* the child reports its pid, or -errno, to the starter here */
};

static void reset_signals(void)
{
    sigset_t none;

    for (int s = 1; s <= SIGRTMAX; s++)
        signal(s, SIG_DFL); /* fails for some signals, which no program can change */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The starter of the first job may be pinned (taskset), but the daemon serves other jobs too. */
static void reset_affinity(void)
{
    cpu_set_t all;

    memset(&all, 0xff, sizeof(all));
    sched_setaffinity(0, sizeof(all), &all);
}

static void report(int fd, int value)
{
    ssize_t n = write(fd, &value, sizeof(value));

    (void)n; /* no process is left to tell */
}

__attribute__((noreturn)) static void run_daemon(const struct launch *launch)
{
    int report_fd = launch->report_fd;

    reset_signals();
    reset_affinity();
    umask(077);
    /* Moves the report's descriptor to 3, above the three that every program has. */
    if (chdir("/") < 0 || dup2(launch->null_fd, 0) < 0 || dup2(launch->null_fd, 1) < 0 ||
        dup2(launch->log_fd, 2) < 0 || dup2(report_fd, 3) < 0 ||
        fcntl(3, F_SETFD, FD_CLOEXEC) < 0) {
        report(report_fd, -errno);
        _exit(127);
    }
    older_close_range(4, ~0u);
    report(3, getpid());
    execve(launch->argv[0], launch->argv, launch->envp);
    report(3, -errno);
    _exit(127);
}

/* ---- the starter's side ---- */

/*
 * Drops the caller's per-job variables. LD_* would put the agent or a tracer into the daemon, and
 * NOTIFY_SOCKET would report on the caller's service.
 */
static bool unwanted(const char *entry)
{
    static const char *const names[] = {
        "LD_PRELOAD=",  "LD_AUDIT=",      "TIDE_TOKEN=",  "TIDE_SOCKET=",
        "TIDE_JOB_ID=", "TIDE_JOB_NAME=", "TIDE_MAX=",    "TIDE_DISABLE=",
        "TIDE_SIGNAL=", "NOTIFY_SOCKET=", "TIDE_STARTUP="};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strncmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

/* Pointers into the environment; the caller frees the array. */
static char **daemon_environment(void)
{
    size_t n = 0, kept = 0;
    char **envp;

    while (environ && environ[n])
        n++;
    envp = calloc(n + 1, sizeof(*envp));
    for (size_t i = 0; envp && i < n; i++) {
        if (!unwanted(environ[i]))
            envp[kept++] = environ[i];
    }
    return envp;
}

/* Returns a descriptor above 0 … 9, so that dup2 onto 0 … 3 never hits it. */
static int lift(int fd)
{
    int high = fd < 0 ? -errno : fcntl(fd, F_DUPFD_CLOEXEC, 10);

    if (fd >= 0) {
        if (high < 0)
            high = -errno;
        close_fd(fd);
    }
    return high;
}

/* Forks twice, so that init is the daemon's parent. *ret_pid: the daemon's pid. */
static int launch_daemon(struct launch *launch, pid_t *ret_pid, struct error *err)
{
    _cleanup_fd_ int read_fd = -1, write_fd = -1;
    int fds[2], value[2] = {0};
    pid_t child;
    ssize_t n;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return error_set(err, -errno, "pipe: %s", strerror(errno));
    read_fd = fds[0];
    write_fd = lift(fds[1]);
    if (write_fd < 0)
        return error_set(err, write_fd, "pipe: %s", strerror(-write_fd));
    launch->report_fd = write_fd;
    child = fork();
    if (child < 0)
        return error_set(err, -errno, "fork: %s", strerror(errno));
    if (child == 0) {
        child = setsid() < 0 ? -1 : fork();
        if (child == 0)
            run_daemon(launch);
        if (child < 0)
            report(write_fd, -errno);
        _exit(0);
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    write_fd = close_fd(write_fd);
    /* The child sends its pid first; then nothing (exec closed the pipe), or why exec failed. */
    for (size_t got = 0; got < sizeof(value); got += (size_t)n) {
        do
            n = read(read_fd, (char *)value + got, sizeof(value) - got);
        while (n < 0 && errno == EINTR);
        if (n <= 0)
            break;
    }
    if (value[0] <= 0 || value[1] < 0) {
        int r = value[0] < 0 ? value[0] : value[1] < 0 ? value[1] : -ECHILD;

        return error_set(err, r, "cannot start %s: %s", launch->argv[0], strerror(-r));
    }
    *ret_pid = value[0];
    return 0;
}

static bool is_listening(const char *socket_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || strlen(socket_path) >= sizeof(address.sun_path))
        return false;
    strcpy(address.sun_path, socket_path);
    return connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN;
}

static unsigned left_ms(uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();

    return deadline_ns > now ? (unsigned)((deadline_ns - now) / NS_PER_MS) : 0;
}

/* Waits for the lock that admits one starter at a time. */
static int lock_starters(int dir_fd, uint64_t deadline_ns, struct error *err, int *ret_fd)
{
    _cleanup_fd_ int fd =
        openat(dir_fd, DAEMON_START_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return error_set(err, -errno, "%s: %s", DAEMON_START_LOCK, strerror(errno));
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return error_set(err, -errno, "%s: %s", DAEMON_START_LOCK, strerror(errno));
        if (left_ms(deadline_ns) == 0)
            return error_set(err, -ETIMEDOUT, "another tide takes too long to start the daemon");
        poll(NULL, 0, POLL_MS);
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* Reads the last line of the log, which says why a daemon did not come up. */
static void last_log_line(int dir_fd, char *buf, size_t size)
{
    _cleanup_fd_ int fd = openat(dir_fd, RUNDIR_LOG, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    off_t from = end > (off_t)size - 1 ? end - ((off_t)size - 1) : 0;
    ssize_t n = end > 0 ? pread(fd, buf, size - 1, from) : 0;
    char *newline;

    if (n < 0)
        n = 0;
    while (n > 0 && buf[n - 1] == '\n')
        n--;
    buf[n] = '\0';
    newline = strrchr(buf, '\n');
    if (newline)
        memmove(buf, newline + 1, strlen(newline));
}

/* Waits until the daemon answers a request, has ended, or time is up. */
static int wait_until_up(int dir_fd, const char *socket_path, pid_t pid, uint64_t deadline_ns,
                         struct error *err)
{
    _cleanup_fd_ int pidfd = proc_pidfd_open(pid);
    bool dead = pidfd == -ESRCH;

    for (;;) {
        if (is_listening(socket_path)) {
            _cleanup_free_ char *body = NULL;
            int status, r;

            r = http_request(socket_path, "GET", "/v1/machine", NULL, left_ms(deadline_ns), &status,
                             &body, err);
            if (r == 0 || r == -ETIMEDOUT)
                return r;
        }
        if (dead) {
            char line[ERROR_TEXT_MAX / 2];

            last_log_line(dir_fd, line, sizeof(line));
            return error_word(err,
                              error_set(err, -ECHILD, "the daemon ended at once: %s",
                                        *line ? line : "its log is empty"),
                              "daemon-ended");
        }
        if (left_ms(deadline_ns) == 0)
            return error_word(err,
                              error_set(err, -ETIMEDOUT,
                                        "the daemon was started but does not answer on %s",
                                        socket_path),
                              "daemon-silent");
        dead = proc_pidfd_wait(pidfd, POLL_MS) || (pidfd < 0 && kill(pid, 0) < 0);
    }
}

static int start_locked(int dir_fd, const char *rundir, const char *tided_path, const char *cpus,
                        const char *socket_path, uint64_t deadline_ns, struct error *err)
{
    const char *argv[] = {tided_path, "--auto-exit", "--dir", rundir, cpus ? "--cpus" : NULL,
                          cpus,       NULL};
    _cleanup_free_ char **envp = daemon_environment();
    _cleanup_fd_ int null_fd = lift(open("/dev/null", O_RDWR | O_CLOEXEC));
    _cleanup_fd_ int log_fd = lift(
        openat(dir_fd, RUNDIR_LOG, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
    struct launch launch = {
        .argv = (char *const *)argv, .envp = envp, .log_fd = log_fd, .null_fd = null_fd};
    pid_t pid = 0;
    int r;

    if (!envp)
        return error_set(err, -ENOMEM, "out of memory");
    if (null_fd < 0)
        return error_set(err, null_fd, "/dev/null: %s", strerror(-null_fd));
    if (log_fd < 0)
        return error_set(err, log_fd, "%s/" RUNDIR_LOG ": %s", rundir, strerror(-log_fd));
    r = launch_daemon(&launch, &pid, err);
    return r < 0 ? r : wait_until_up(dir_fd, socket_path, pid, deadline_ns, err);
}

int daemon_start(const char *rundir, const char *tided_path, const char *cpus, unsigned timeout_ms,
                 struct error *err)
{
    uint64_t deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    char socket_path[FILE_PATH_MAX];
    _cleanup_fd_ int dir_fd = -1, lock_fd = -1;
    int r = file_path(socket_path, sizeof(socket_path), "%s/" RUNDIR_API_SOCKET, rundir);

    if (r < 0)
        return error_set(err, r,
                         "the run directory's path is too long: set TIDE_DIR to a shorter one");
    if (is_listening(socket_path))
        return 1;
    dir_fd = rundir_open(rundir, err);
    if (dir_fd < 0)
        return dir_fd;
    r = lock_starters(dir_fd, deadline_ns, err, &lock_fd);
    if (r < 0)
        return r;
    if (is_listening(socket_path)) /* the previous holder of the lock has started it */
        return 1;
    return start_locked(dir_fd, rundir, tided_path, cpus, socket_path, deadline_ns, err);
}
