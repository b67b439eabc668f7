/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide dial`: the far end of `tide --host ssh://…`. It may be the only command that a key may run:
 * command="tide dial",restrict in authorized_keys.
 */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/rundir.h"
#include "host/net/http.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "run-directory"

#define CONNECT_MS 2000
#define ROOM       65536

/* Bytes on the way from one descriptor to the other. */
struct way {
    int from, to;
    char bytes[ROOM];
    size_t first, end;
    bool over; /* @from has come to its end */
};

static bool is_empty(const struct way *w)
{
    return w->first == w->end;
}

static int fill(struct way *w)
{
    ssize_t n = read(w->from, w->bytes, sizeof(w->bytes));

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    w->first = 0;
    w->end = (size_t)n;
    w->over = n == 0;
    return 0;
}

/* A daemon may refuse early and read no further: its answer counts. */
static int drain(struct way *w)
{
    ssize_t n = write(w->to, w->bytes + w->first, w->end - w->first);

    if (n < 0 && errno == EPIPE && w->to != STDOUT_FILENO)
        n = (ssize_t)(w->end - w->first);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    w->first += (size_t)n;
    return 0;
}

/*
 * Until the daemon has closed and its last byte is through, or the caller is gone: ssh tells that
 * by the end of standard input.
 */
static int relay(struct way *there, struct way *back)
{
    struct way *const ways[] = {there, back};

    while (!there->over && !(back->over && is_empty(back))) {
        struct pollfd p[4] = {{.fd = -1}, {.fd = -1}, {.fd = -1}, {.fd = -1}};

        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
            if (is_empty(ways[i]) && !ways[i]->over)
                p[2 * i] = (struct pollfd){.fd = ways[i]->from, .events = POLLIN};
            if (!is_empty(ways[i]))
                p[2 * i + 1] = (struct pollfd){.fd = ways[i]->to, .events = POLLOUT};
        }
        if (poll(p, ARRAY_LEN(p), -1) < 0 && errno != EINTR)
            return -errno;
        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
            int r = 0;

            if (p[2 * i].revents)
                r = fill(ways[i]);
            if (r == 0 && p[2 * i + 1].revents)
                r = drain(ways[i]);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int connect_in(const char *dir, int *ret_fd, struct error *err)
{
    char path[RUNDIR_PATH_MAX + sizeof(RUNDIR_API_SOCKET) + 1];
    int r;

    snprintf(path, sizeof(path), "%s/" RUNDIR_API_SOCKET, dir);
    r = http_connect(path, CONNECT_MS, ret_fd, err);
    if (r == -ENOENT || r == -ECONNREFUSED)
        return error_set(err, -ENOENT, "no daemon runs there (no process listens on %s)", path);
    return r;
}

/* The system's daemon, or the user's own when that one does not run, as for other commands. */
static int connect_it(int *ret_fd, struct error *err)
{
    char dir[RUNDIR_PATH_MAX], own[RUNDIR_PATH_MAX];
    int r = rundir_find(dir);

    if (r < 0)
        return error_set(err, r, "TIDE_DIR or XDG_RUNTIME_DIR is too long for a socket");
    r = connect_in(dir, ret_fd, err);
    if ((r == -ENOENT || r == -EACCES) && rundir_user(own) == 0 && strcmp(own, dir) != 0)
        r = connect_in(own, ret_fd, err);
    return r;
}

static int dial_run(int argc, char **argv)
{
    static struct way there, back;
    struct error err = {0};
    int fd, r;

    option_none(&command_dial, argc, argv, 0, 0);
    r = connect_it(&fd, &err);
    if (r < 0)
        return cli_error_as(&command_dial,
                            r == -EACCES || r == -EPERM ? CLI_DENIED : CLI_UNREACHABLE,
                            error_why(&err), NULL, "%s", err.text);
    signal(SIGPIPE, SIG_IGN);
    there = (struct way){.from = STDIN_FILENO, .to = fd};
    back = (struct way){.from = fd, .to = STDOUT_FILENO};
    relay(&there, &back); /* whoever has left needs no message */
    close(fd);
    return CLI_OK;
}

const struct command command_dial = {
    .name = "dial",
    .usage = "",
    .brief = "connect standard input and output to the daemon, for another machine",
    .help = "'tide --host ssh://HOST ...' runs this there, through ssh. A key that shall do no\n"
            "more than that has a line in ~/.ssh/authorized_keys that begins with\n"
            "  command=\"tide dial\",restrict\n"
            "\n"
            "Examples:\n"
            "  ssh lab1 tide dial < /dev/null && echo its daemon can be reached\n",
    .run = dial_run,
};
