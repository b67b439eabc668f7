/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/channel.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rundir.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define ERROR_WORD "daemon-silent"

#define RETRY_NS (2 * NS_PER_MS) /* poll() cannot wait for room in an accept queue */

static int path_copy(char *ret_path, size_t size, const char *dir, const char *name,
                     struct error *err)
{
    int n = snprintf(NULL, 0, "%s%s%s", dir, *name ? "/" : "", name);

    if (n < 0 || (size_t)n >= size)
        return error_set(err, -ENAMETOOLONG, "%.100s… is too long for a socket's path", dir);
    snprintf(ret_path, size, "%s%s%s", dir, *name ? "/" : "", name);
    return 0;
}

int channel_init(struct channel *c, const char *path, struct error *err)
{
    c->fd = -1;
    c->pid = 0;
    c->given[0] = '\0';
    return path && *path ? path_copy(c->given, sizeof(c->given), path, "", err) : 0;
}

void channel_hang_up(struct channel *c)
{
    c->fd = close_fd(c->fd);
}

/*
 * Finds the address. *ret_trusted: the caller or the environment named it. Otherwise it may lie in
 * a directory that any user can create, so the caller must check the owner.
 */
static int locate(const struct channel *c, struct sockaddr_un *ret_address, bool *ret_trusted,
                  struct error *err)
{
    const char *dir = getenv("TIDE_DIR");
    const char *job_socket = getenv("TIDE_SOCKET");
    const char *place = c->given;
    char found[RUNDIR_PATH_MAX];
    struct stat st;
    int r;

    if (!*place && !(dir && *dir) && job_socket)
        place = job_socket;
    *ret_trusted = *place || (dir && *dir);
    if (!*place) {
        r = rundir_find(found);
        if (r < 0)
            return error_set(err, r, "$TIDE_DIR or $XDG_RUNTIME_DIR is too long for a socket");
        place = found;
    }
    memset(ret_address, 0, sizeof(*ret_address));
    ret_address->sun_family = AF_UNIX;
    return path_copy(ret_address->sun_path, sizeof(ret_address->sun_path), place,
                     stat(place, &st) == 0 && S_ISDIR(st.st_mode) ? RUNDIR_AGENT_SOCKET : "", err);
}

/* Waits for @events on c->fd. Returns 0, or -EAGAIN / -ETIMEDOUT. */
static int wait_for(const struct channel *c, short events, uint64_t deadline_ns)
{
    struct pollfd p = {.fd = c->fd, .events = events};

    for (;;) {
        uint64_t now = clock_now_ns();
        struct timespec left = {0};
        int r;

        if (deadline_ns == 0)
            return -EAGAIN;
        if (now >= deadline_ns)
            return -ETIMEDOUT;
        left.tv_sec = (time_t)((deadline_ns - now) / NS_PER_S);
        left.tv_nsec = (long)((deadline_ns - now) % NS_PER_S);
        r = ppoll(&p, 1, &left, NULL);
        if (r > 0)
            return 0;
        if (r < 0 && errno != EINTR)
            return -errno;
    }
}

static int connect_error(int code, const char *path, struct error *err)
{
    switch (code) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:
        return error_set(err, -ECONNREFUSED, "no daemon listens at %.100s: `tide run` starts one",
                         path);
    case EACCES:
    case EPERM:
        return error_set(err, -EACCES, "no permission to connect to %.100s", path);
    default:
        return error_set(err, -code, "cannot connect to %.100s: %s", path, strerror(code));
    }
}

static int check_owner(int fd, const char *path, struct error *err)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return error_set(err, -errno, "cannot tell who listens at %.100s: %s", path,
                         strerror(errno));
    if (peer.uid == 0 || peer.uid == geteuid())
        return 0;
    return error_set(err, -EACCES, "the daemon at %.100s is uid %u's, neither yours nor root's",
                     path, peer.uid);
}

int channel_connect(struct channel *c, uint64_t deadline_ns, struct error *err)
{
    _cleanup_fd_ int fd = -1;
    struct sockaddr_un address;
    bool trusted;
    int r;

    if (c->fd >= 0 && c->pid == getpid())
        return 0;
    channel_hang_up(c);
    r = locate(c, &address, &trusted, err);
    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, -errno, "cannot make a socket: %s", strerror(errno));
    while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        const struct timespec pause = {.tv_nsec = RETRY_NS};

        if (errno != EAGAIN && errno != EINTR)
            return connect_error(errno, address.sun_path, err);
        if (deadline_ns == 0 || clock_now_ns() >= deadline_ns)
            return error_set(err, deadline_ns ? -ETIMEDOUT : -EAGAIN,
                             "the daemon at %.100s is too busy to answer", address.sun_path);
        nanosleep(&pause, NULL);
    }
    if (!trusted) {
        r = check_owner(fd, address.sun_path, err);
        if (r < 0)
            return r;
    }
    c->fd = TAKE_FD(fd);
    c->pid = getpid();
    return 0;
}

int channel_send(struct channel *c, const union proto_message *m, uint64_t deadline_ns)
{
    for (;;) {
        int r;

        if (send(c->fd, m->bytes, m->h.size, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return 0;
        if (errno == EINTR)
            continue;
        /* The kernel gives ECONNRESET when the daemon was killed before it read earlier packets. */
        if (errno == ECONNRESET || errno == ENOTCONN)
            return -EPIPE;
        if (errno != EAGAIN)
            return -errno;
        r = wait_for(c, POLLOUT, deadline_ns);
        if (r < 0)
            return r;
    }
}

int channel_receive(struct channel *c, union proto_message *ret_m, uint64_t deadline_ns,
                    struct error *err)
{
    union proto_message m;

    for (;;) {
        /* MSG_TRUNC returns the true length, so that no longer packet passes for a message. */
        ssize_t n = recv(c->fd, m.bytes, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);
        int r;

        if (n > 0) {
            r = proto_check(&m, (size_t)n, err);
            if (r == 0)
                *ret_m = m;
            return r == -ERANGE ? -EBADMSG : r;
        }
        if (n == 0 || errno == ECONNRESET)
            return error_set(err, -ECONNRESET, "the daemon ended before it answered");
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return error_set(err, -errno, "cannot read the daemon's answer: %s", strerror(errno));
        r = wait_for(c, POLLIN, deadline_ns);
        if (r == -ETIMEDOUT)
            return error_set(err, r, "the daemon did not answer by the deadline");
        if (r < 0)
            return r;
    }
}
