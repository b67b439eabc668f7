/* SPDX-License-Identifier: Apache-2.0 */
#include "tfnode/disconnect.h"

#include "base/cleanup.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define SOCKETS_MAX 256 /* TensorFlow has fewer to one machine; a second order ends any others */
#define ROW_MAX     256

struct sockets {
    unsigned long inode[SOCKETS_MAX];
    size_t n;
};

/* Writes the address as the kernel's tables do, in words of the machine's order. An IPv4 address is
 * also written as IPv6, because an IPv6 socket may be connected to it. */
static int write_peer(const char *host, char four[9], char six[33])
{
    struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    uint32_t word;

    four[0] = '\0';
    if (inet_pton(AF_INET, host, &word) == 1) {
        snprintf(four, 9, "%08X", word);
        memcpy(&address.s6_addr[12], &word, sizeof(word));
    } else if (inet_pton(AF_INET6, host, &address) != 1) {
        return -EINVAL;
    }
    for (size_t i = 0; i < 4; i++) {
        memcpy(&word, &address.s6_addr[4 * i], sizeof(word));
        snprintf(six + 8 * i, 9, "%08X", word);
    }
    return 0;
}

/* Reads the kernel's table, because getpeername() fails for a connection that is not established
 * yet, and such a one waits longest. */
static void find_sockets(const char *table, const char *peer, uint32_t port, struct sockets *ret)
{
    _cleanup_file_ FILE *f = fopen(table, "re");
    char line[ROW_MAX], address[33];
    unsigned long inode;
    unsigned at;

    while (f && fgets(line, sizeof(line), f) && ret->n < SOCKETS_MAX) {
        if (sscanf(line, "%*d: %*[0-9A-F]:%*x %32[0-9A-F]:%x %*x %*s %*s %*s %*s %*s %lu", address,
                   &at, &inode) == 3 &&
            at == port && strcmp(address, peer) == 0 && inode > 0)
            ret->inode[ret->n++] = inode;
    }
}

static bool is_one_of(const struct sockets *sockets, int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode))
        return false;
    for (size_t i = 0; i < sockets->n; i++) {
        if (sockets->inode[i] == st.st_ino)
            return true;
    }
    return false;
}

static int end_sockets(const struct sockets *sockets)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    int ended = 0;

    while (dir && (entry = readdir(dir))) {
        /* Needs a duplicate: TensorFlow may close this descriptor and open another at any time. */
        _cleanup_fd_ int fd = entry->d_name[0] != '.' ? dup(atoi(entry->d_name)) : -1;

        if (fd >= 0 && is_one_of(sockets, fd) && shutdown(fd, SHUT_RDWR) == 0)
            ended++;
    }
    if (dir)
        closedir(dir);
    return ended;
}

int disconnect(const char *host, uint32_t port)
{
    struct sockets sockets = {.n = 0};
    char four[9], six[33];
    int r = write_peer(host, four, six);

    if (r < 0)
        return r;
    find_sockets("/proc/self/net/tcp", four, port, &sockets);
    find_sockets("/proc/self/net/tcp6", six, port, &sockets);
    return sockets.n > 0 ? end_sockets(&sockets) : 0;
}
