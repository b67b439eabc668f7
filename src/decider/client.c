/* SPDX-License-Identifier: Apache-2.0 */
#include "decider/client.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ERROR_WORD "decider-fault"

static void hang_up(struct decider_client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

int decider_open(const char *path, uint64_t deadline_ns, struct decider_client *ret_client,
                 struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct decider_client c = {.deadline_ns = deadline_ns};
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, -ENAMETOOLONG, "%.60s… is too long for a socket", path);
    strcpy(address.sun_path, path);
    c.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c.fd < 0 || connect(c.fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        int r = -errno;

        hang_up(&c);
        return error_set(err, r, "no decider at %s: %s", path, strerror(-r));
    }
    if (getsockopt(c.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
        (peer.uid != 0 && peer.uid != geteuid())) {
        hang_up(&c);
        return error_set(err, -EPERM, "the decider at %s is another user's", path);
    }
    *ret_client = c;
    return 0;
}

void decider_close(struct decider_client *c)
{
    hang_up(c);
    free(c->line);
    c->line = NULL;
}

/* Waits for the events or until @end_ns. */
static int wait_for(const struct decider_client *c, short events, uint64_t end_ns)
{
    struct pollfd poll_fd = {.fd = c->fd, .events = events};
    uint64_t now = clock_now_ns();
    int ms = now < end_ns ? (int)((end_ns - now + 999999) / 1000000) : 0;
    int r = poll(&poll_fd, 1, ms);

    if (r < 0)
        return errno == EINTR ? 0 : -errno;
    return r == 0 && clock_now_ns() >= end_ns ? -ETIMEDOUT : 0;
}

static int send_all(const struct decider_client *c, const char *text, uint64_t end_ns)
{
    size_t left = strlen(text);

    while (left > 0) {
        ssize_t n = send(c->fd, text, left, MSG_NOSIGNAL);
        int r;

        if (n >= 0) {
            text += n;
            left -= (size_t)n;
            continue;
        }
        r = errno == EAGAIN || errno == EINTR ? wait_for(c, POLLOUT, end_ns) : -errno;
        if (r < 0)
            return r;
    }
    return 0;
}

/* Receives one line. What follows it unasked ends the connection. */
static int receive_line(struct decider_client *c, uint64_t end_ns, size_t *ret_size)
{
    size_t used = 0;

    for (;;) {
        int r = decider_make_room(&c->line, &c->room, used);
        const char *newline;
        ssize_t n;

        if (r < 0)
            return r;
        n = recv(c->fd, c->line + used, c->room - used, 0);
        if (n == 0)
            return -ECONNRESET;
        if (n < 0) {
            r = errno == EAGAIN || errno == EINTR ? wait_for(c, POLLIN, end_ns) : -errno;
            if (r < 0)
                return r;
            continue;
        }
        newline = memchr(c->line + used, '\n', (size_t)n);
        used += (size_t)n;
        if (newline && newline + 1 != c->line + used)
            return -EBADMSG;
        if (newline) {
            *ret_size = used - 1;
            return 0;
        }
        if (clock_now_ns() >= end_ns) /* one that drips byte by byte is late, too */
            return -ETIMEDOUT;
    }
}

static const char *fault_text(int r)
{
    return r == -ETIMEDOUT    ? "no answer before the deadline"
           : r == -EMSGSIZE   ? "its answer is longer than 4 MiB"
           : r == -ECONNRESET ? "it closed the connection"
           : r == -EBADMSG    ? "it sent more than one line for a question"
                              : strerror(-r);
}

/* Fills in *ret_cores from the decider; else says why not. */
static int ask(struct decider_client *c, const struct policy_snapshot *s,
               const struct policy_plan *equal, int64_t *ret_cores, struct error *err)
{
    uint64_t end_ns = clock_now_ns() + c->deadline_ns;
    _cleanup_free_ char *question = decider_question(s, equal);
    size_t size = 0;
    int r = question ? send_all(c, question, end_ns) : -ENOMEM;

    if (r == 0)
        r = receive_line(c, end_ns, &size);
    if (r < 0) {
        hang_up(c);
        return error_set(err, r, "%s", fault_text(r));
    }
    return decider_read(c->line, size, s, ret_cores, err);
}

int decider_decide(struct decider_client *c, const struct policy_snapshot *s,
                   struct policy_plan *plan)
{
    _cleanup_free_ int64_t *cores = calloc(s->job_count + 1, sizeof(*cores));
    struct error err = {.text = "it was given up"};
    int r = cores ? 0 : -ENOMEM, asked = -ENOTCONN;

    if (r < 0)
        return r;
    c->asked++;
    r = decider_apply(s, NULL, plan, &err);
    if (r == 0 && c->fd >= 0)
        asked = ask(c, s, plan, cores, &err);
    if (asked == 0)
        r = decider_apply(s, cores, plan, &err);
    if (r == 0 && asked == 0)
        c->answered++;
    else if (!c->first_fault[0])
        memcpy(c->first_fault, err.text, sizeof(c->first_fault));
    return r == -EBADMSG ? 0 : r;
}
