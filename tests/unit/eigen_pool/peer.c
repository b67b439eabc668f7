/* SPDX-License-Identifier: Apache-2.0 */
#include "eigen_pool/peer.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define GUARD_S      30
#define LEASE_MS     60000 /* the longest: a test commands and then looks, as long as it takes */
#define HEARTBEAT_MS 250

static void fail(const char *what)
{
    fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
    abort();
}

static void guard(int fd)
{
    struct timeval limit = {.tv_sec = GUARD_S};

    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0)
        fail("SO_RCVTIMEO");
}

void peer_open(struct peer *peer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memset(peer, 0, sizeof(*peer));
    peer->conn = -1;
    peer->epoch = 1;
    snprintf(peer->directory, sizeof(peer->directory), "/tmp/tide-peer-XXXXXX");
    if (!mkdtemp(peer->directory))
        fail("mkdtemp");
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/agent.sock", peer->directory);
    peer->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (peer->listener < 0 ||
        bind(peer->listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(peer->listener, 8) != 0)
        fail("listen");
    guard(peer->listener);
    setenv("TIDE_SOCKET", address.sun_path, 1);
}

void peer_close(struct peer *peer)
{
    char path[80];

    snprintf(path, sizeof(path), "%s/agent.sock", peer->directory);
    if (peer->conn >= 0)
        close(peer->conn);
    close(peer->listener);
    unlink(path);
    rmdir(peer->directory);
}

static void send_message(struct peer *peer, union proto_message *m)
{
    if (send(peer->conn, m, m->h.size, MSG_NOSIGNAL) != (ssize_t)m->h.size)
        fail("send");
}

/* One message, taken note of; answers a HELLO. */
static void receive(struct peer *peer, union proto_message *m)
{
    union proto_message welcome;
    ssize_t n = recv(peer->conn, m, sizeof(*m), 0);

    if (n <= 0)
        fail(n == 0 ? "the agent hung up" : "no message");
    if (proto_check(m, (size_t)n, NULL) != 0)
        fail("malformed message");
    if (m->h.type == PROTO_BACKEND && m->backend.index == 0)
        peer->backend = m->backend;
    if (m->h.type != PROTO_HELLO)
        return;
    proto_init(&welcome, PROTO_WELCOME, 0);
    welcome.welcome.epoch = peer->epoch;
    welcome.welcome.lease_ms = LEASE_MS;
    welcome.welcome.heartbeat_ms = HEARTBEAT_MS;
    send_message(peer, &welcome);
}

void peer_wait_agent(struct peer *peer)
{
    union proto_message m;

    if (peer->conn < 0) {
        peer->conn = accept(peer->listener, NULL, NULL);
        if (peer->conn < 0)
            fail("no agent");
        guard(peer->conn);
    }
    while (peer->backend.max_intra == 0)
        receive(peer, &m);
}

uint32_t peer_set(struct peer *peer, uint32_t intra, uint32_t inter, struct proto_ack *ret_ack)
{
    union proto_message m;

    proto_init(&m, PROTO_TARGET, 0);
    m.target.epoch = peer->epoch;
    m.target.generation = ++peer->generation;
    m.target.intra = intra;
    m.target.inter = inter;
    m.target.sent_ns = clock_now_ns();
    send_message(peer, &m);
    do
        receive(peer, &m);
    while (m.h.type != PROTO_ACK || m.ack.generation != peer->generation);
    if (ret_ack)
        *ret_ack = m.ack;
    return m.ack.status;
}
