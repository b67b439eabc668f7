/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote/dial.h"

#include "base/cleanup.h"
#include "base/visible.h"
#include "cli/cli.h"
#include "cli/remote/gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ERROR_WORD "host-unreachable"

#define END_STEP_US   5000
#define SAID_MAX      65536 /* bytes of the child's words that are kept; the other end sends them */
#define SSH_FAILED    255   /* ssh's own status */
#define NO_PROGRAM    127
#define TLS           "tide-tls"
#define CONNECT_LIMIT "ConnectTimeout=10"

extern char **environ;

static void add(struct dial_words *w, const char *word)
{
    w->word[w->n++] = word;
}

static void option(struct dial_words *w, const char *value)
{
    add(w, "-o");
    add(w, value);
}

void dial_words(const struct address *a, bool alone, const char *command, struct dial_words *w)
{
    add(w, "ssh");
    add(w, "-T");
    add(w, "-a");
    add(w, "-x");
    option(w, CONNECT_LIMIT);
    option(w, "ClearAllForwardings=yes");
    option(w, "ServerAliveInterval=15");
    if (alone)
        option(w, "BatchMode=yes");
    if (*a->port) {
        add(w, "-p");
        add(w, a->port);
    }
    if (*a->user) {
        add(w, "-l");
        add(w, a->user);
    }
    add(w, a->host);
    add(w, command);
}

int dial_signals(posix_spawnattr_t *attributes)
{
    sigset_t none;
    int r = posix_spawnattr_init(attributes);

    if (r != 0)
        return r;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK);
    return 0;
}

static int start(const struct dial_words *w, int end, int said, pid_t *ret)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int r = dial_signals(&attributes);

    if (r != 0)
        return -r;
    r = posix_spawn_file_actions_init(&actions);
    if (r != 0) {
        posix_spawnattr_destroy(&attributes);
        return -r;
    }
    r = posix_spawn_file_actions_adddup2(&actions, end, STDIN_FILENO);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, end, STDOUT_FILENO);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, said, STDERR_FILENO);
    if (r == 0)
        r = posix_spawnp(ret, w->word[0], &actions, &attributes, (char *const *)w->word, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return -r;
}

/* A file that does not grow: what is written behind its end is lost, and ssh goes on. */
static int open_said(void)
{
    _cleanup_fd_ int fd = memfd_create("tide-dial", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, SAID_MAX) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static int open_child(const struct dial_words *w, struct dial *ret, struct error *err)
{
    struct dial d = DIAL_NONE;
    int end[2], r;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) < 0)
        return error_set(err, -errno, "cannot make a socket: %s", strerror(errno));
    d.fd = end[0];
    d.said = open_said();
    r = d.said < 0 ? d.said : fcntl(d.fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
    if (r == 0)
        r = start(w, end[1], d.said, &d.pid);
    close(end[1]);
    if (r < 0) {
        dial_close(&d);
        return error_set(err, r, "cannot start %s: %s", w->word[0], strerror(-r));
    }
    *ret = d;
    return 0;
}

/* Through tide-tls, which lies beside this program: what speaks TLS has twenty libraries. */
static int open_gateway(const struct address *a, struct dial *ret, struct error *err)
{
    char program[PATH_MAX + sizeof(TLS) + 1];
    struct dial_words w = {0};
    struct gateway g;
    int r = gateway_find(a, &g, err);

    if (r < 0)
        return r;
    r = cli_folder(program);
    if (r < 0)
        return error_set(err, r, "cannot find " TLS ": /proc/self/exe: %s", strerror(-r));
    strcat(program, "/" TLS);
    add(&w, program);
    add(&w, a->host);
    add(&w, a->port);
    add(&w, g.ca);
    add(&w, g.cert);
    add(&w, g.key);
    return open_child(&w, ret, err);
}

int dial_open(const struct address *a, bool alone, struct dial *ret, struct error *err)
{
    char command[sizeof(a->program) + 8];
    struct dial_words w = {0};

    if (a->gateway)
        return open_gateway(a, ret, err);
    snprintf(command, sizeof(command), "%s dial", *a->program ? a->program : "tide");
    dial_words(a, alone, command, &w);
    return open_child(&w, ret, err);
}

bool dial_is_stale(const struct dial *d, uint64_t used_ns)
{
    struct pollfd p = {.fd = d->fd, .events = POLLIN};

    return clock_now_ns() - used_ns > DIAL_KEPT_NS || poll(&p, 1, 0) != 0;
}

void dial_close(struct dial *d)
{
    d->fd = close_fd(d->fd);
    if (d->pid > 0) {
        kill(d->pid, SIGTERM);
        while (waitpid(d->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    d->pid = 0;
    d->said = close_fd(d->said);
}

/* ---- failures ---- */

/*
 * The child's words, made fit for a terminal; "" if it said nothing. The last line counts, as ssh
 * says at its end why it failed. A message of `tide dial` there has two or three lines, of which
 * the first says what is wrong.
 */
static void what_it_said(int fd, char *ret, size_t size)
{
    static const char mark[] = "tide: dial: ";
    char text[SAID_MAX + 1], *line, *end;
    ssize_t n = pread(fd, text, SAID_MAX, 0);
    size_t len;

    while (n > 0 && strchr("\r\n ", text[n - 1])) /* … or the NULs of what was not written */
        n--;
    text[n > 0 ? n : 0] = '\0';
    line = strstr(text, mark);
    if (line)
        line += strlen(mark);
    else
        line = (end = strrchr(text, '\n')) ? end + 1 : text;
    len = strcspn(line, "\r\n");
    if (len >= size)
        len = size - 1;
    memcpy(ret, line, len);
    ret[len] = '\0';
    visible(ret);
}

/* Waits for its end. Returns its exit status, or -1: it goes on, or nobody knows. */
static int status_of(struct dial *d, unsigned wait_ms)
{
    int status;

    for (unsigned waited = 0; waited <= wait_ms * 1000; waited += END_STEP_US) {
        pid_t pid = waitpid(d->pid, &status, WNOHANG);

        if (pid == d->pid) {
            d->pid = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        }
        if (pid < 0 && errno != EINTR) {
            d->pid = 0; /* it is no child any more */
            return -1;
        }
        usleep(END_STEP_US);
    }
    return -1;
}

static int explain(const struct address *a, int status, const char *said, int r, struct error *err)
{
    if (status == NO_PROGRAM && !a->gateway)
        return error_set(err, -EHOSTUNREACH,
                         "%.100s has no program '%s' for this user: name it, as in "
                         "ssh://%.60s/usr/local/bin/tide",
                         a->host, *a->program ? a->program : "tide", a->host);
    if (status == SSH_FAILED && *said && !a->gateway)
        return error_set(err, -EHOSTUNREACH, "ssh does not reach %.80s: %s", a->host, said);
    if (*said)
        return error_set(err, -EHOSTUNREACH, "%.80s: %s", a->host, said);
    if (r == -EBADMSG && status <= 0 && !a->gateway)
        return error_set(err, -EHOSTUNREACH,
                         "%.100s sent something that is no answer of a daemon: does a start file "
                         "of the shell there print something?",
                         a->host);
    return error_set(err, -EHOSTUNREACH, "%.100s: the connection broke: %s", a->host,
                     status > 0 ? "the other end failed without a word" : strerror(-r));
}

int dial_failed(struct dial *d, const struct address *a, int r, unsigned timeout_ms,
                unsigned wait_ms, struct error *err)
{
    char said[160] = "";
    int status = -1;

    if (r == -ETIMEDOUT) {
        what_it_said(d->said, said, sizeof(said));
        dial_close(d);
        return error_set(err, r, "%.100s did not answer within %.3g s%s%s", a->host,
                         timeout_ms / 1000.0, *said ? ": " : "", said);
    }
    if (r == -EMSGSIZE || r == -EINVAL || r == -ENOMEM) {
        dial_close(d);
        return error_set(err, r, "%.100s: %s", a->host, strerror(-r));
    }
    if (d->pid > 0)
        status = status_of(d, wait_ms);
    what_it_said(d->said, said, sizeof(said));
    dial_close(d);
    r = explain(a, status, said, r, err);
    return error_word(err, r, "host-unreachable");
}
