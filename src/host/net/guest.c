/* SPDX-License-Identifier: Apache-2.0 */
#include "host/net/guest.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define TCP_ESTABLISHED_STATE 1 /* of net/tcp; a socket that waits to be forgotten is nobody's */

int guest_secret(char ret[GUEST_SECRET_LEN + 1])
{
    unsigned char bytes[GUEST_SECRET_LEN / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return errno ? -errno : -EIO;
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

bool guest_knows(const char *text, const char *secret)
{
    unsigned char other = 0;

    if (!text || strlen(text) != GUEST_SECRET_LEN)
        return false;
    for (size_t i = 0; i < GUEST_SECRET_LEN; i++)
        other |= (unsigned char)(text[i] ^ secret[i]);
    return other == 0;
}

bool guest_cookie(const char *cookies, const char *name, char *ret, size_t size)
{
    size_t len = strlen(name);

    for (const char *at = cookies; at && *at; at = strchr(at, ';'), at = at ? at + 1 : NULL) {
        at += strspn(at, " ");
        if (strncmp(at, name, len) == 0 && at[len] == '=') {
            size_t n = strcspn(at + len + 1, "; ");

            if (n >= size)
                return false;
            memcpy(ret, at + len + 1, n);
            ret[n] = '\0';
            return true;
        }
    }
    return false;
}

/* ":8080", or nothing. */
static bool is_port(const char *text)
{
    if (*text == '\0')
        return true;
    if (*text != ':' || text[1] == '\0' || strlen(text) > 6)
        return false;
    return text[1 + strspn(text + 1, "0123456789")] == '\0';
}

bool guest_host(const char *host)
{
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};

    for (size_t i = 0; host && i < ARRAY_LEN(names); i++) {
        size_t len = strlen(names[i]);

        /* The port is the browser's: it differs when ssh -L forwards the page. */
        if (strncasecmp(host, names[i], len) == 0 && is_port(host + len))
            return true;
    }
    return false;
}

bool guest_origin(const char *origin, const char *host)
{
    static const char scheme[] = "http://";

    return origin && host && strncmp(origin, scheme, sizeof(scheme) - 1) == 0 &&
           strcasecmp(origin + sizeof(scheme) - 1, host) == 0;
}

/* ---- whose socket it is ---- */

/* The ports of a connection in the client's view, in the byte order of the machine. */
struct ends {
    unsigned local, remote;
};

/*
 * "  0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000 0 12345 …",
 * and the same with addresses of 32 digits. 0, -ENOENT (another's), with the user in *ret.
 */
static int read_line(const char *line, const struct ends *ends, uid_t *ret)
{
    static const char loopback[] = "0100007F", mapped[] = "0000000000000000FFFF00000100007F";
    char local[33], remote[33];
    unsigned local_port, remote_port, state;
    unsigned long uid, inode;

    if (sscanf(line, " %*u: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %*s %*s %*s %lu %*s %lu", local,
               &local_port, remote, &remote_port, &state, &uid, &inode) != 7)
        return -ENOENT;
    if (local_port != ends->local || remote_port != ends->remote ||
        state != TCP_ESTABLISHED_STATE || inode == 0)
        return -ENOENT;
    if ((strcmp(local, loopback) != 0 && strcmp(local, mapped) != 0) ||
        (strcmp(remote, loopback) != 0 && strcmp(remote, mapped) != 0))
        return -ENOENT;
    *ret = (uid_t)uid;
    return 0;
}

static int find_in(int proc, const char *path, const struct ends *ends, uid_t *ret)
{
    _cleanup_fd_ int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    _cleanup_file_ FILE *file = fd < 0 ? NULL : fdopen(fd, "re");
    char line[512];

    if (!file)
        return -errno;
    fd = -1; /* the stream's */
    while (fgets(line, sizeof(line), file))
        if (read_line(line, ends, ret) == 0)
            return 0;
    return -ENOENT;
}

int guest_uid(int proc, int fd, uid_t *ret)
{
    struct sockaddr_in here, there;
    socklen_t here_len = sizeof(here), there_len = sizeof(there);
    struct ends ends;
    int r;

    if (getsockname(fd, (struct sockaddr *)&here, &here_len) < 0 ||
        getpeername(fd, (struct sockaddr *)&there, &there_len) < 0)
        return -errno;
    if (here.sin_family != AF_INET || there.sin_family != AF_INET ||
        here.sin_addr.s_addr != htonl(INADDR_LOOPBACK) ||
        there.sin_addr.s_addr != htonl(INADDR_LOOPBACK))
        return -EAFNOSUPPORT;
    ends = (struct ends){.local = ntohs(there.sin_port), .remote = ntohs(here.sin_port)};
    r = find_in(proc, "net/tcp", &ends, ret);
    return r == -ENOENT ? find_in(proc, "net/tcp6", &ends, ret) : r;
}
