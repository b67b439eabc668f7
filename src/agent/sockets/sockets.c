/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of a server that tells none and calls no runtime whose calls are read: from the bytes on
 * the connections that it accepts, where the user has asked for that (TIDE_REQUESTS=sockets).
 *
 *   an object is loaded -> its slots of accept(), read(), send(), ... lead to the stubs here
 *   accept() -> a connection of this descriptor      read(), send() -> http_requests.c ->
 * requests.c
 *
 * Each stub calls the program's own function first, and returns what that has returned. What a
 * program does without these functions (system calls of its own, as Go; FILE * on a socket) is not
 * seen. The program's threads; no lock is waited for.
 */
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/objects.h"
#include "agent/sockets/http_requests.h"

#include "base/cleanup.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define DESCRIPTORS (1 << 16)
#define PEERS_MAX   4096  /* descriptors whose connections are read */
#define LOCK_YIELDS 10000 /* some ten milliseconds at least, while its owner waits for a core */

/* A descriptor's connection. It stays with the descriptor's number for good. */
struct peer {
    _Atomic uintptr_t owner; /* the thread that looks at it; 0: none */
    _Atomic bool lost;       /* bytes went by that were not read */
    _Atomic bool live;
    struct http_connection http;
};

static struct {
    struct peer *_Atomic of[DESCRIPTORS];
    _Atomic unsigned count, end; /* peers that were made; all descriptors with one are below */
    _Atomic pid_t pid;           /* the process whose connections these are */
} peers;

static const struct http_events events = {
    .begin = requests_socket_begin, .end = requests_call_answered, .drop = requests_call_failed};

/* ---- connections ---- */

/* A handler of a signal may have interrupted the owner: then it is not waited for. */
static bool lock(struct peer *p)
{
    static __thread char me __attribute__((tls_model("initial-exec"))); /* its address is unique */

    for (unsigned i = 0; i < LOCK_YIELDS; i++) {
        uintptr_t owner = 0;

        if (atomic_compare_exchange_strong_explicit(&p->owner, &owner, (uintptr_t)&me,
                                                    memory_order_acquire, memory_order_relaxed))
            return true;
        if (owner == (uintptr_t)&me)
            break;
        sched_yield();
    }
    atomic_store(&p->lost, true);
    return false;
}

static void unlock(struct peer *p)
{
    atomic_store_explicit(&p->owner, 0, memory_order_release);
}

static struct peer *peer_of(int fd)
{
    return fd >= 0 && fd < DESCRIPTORS ? atomic_load_explicit(&peers.of[fd], memory_order_relaxed)
                                       : NULL;
}

static struct peer *make_peer(int fd)
{
    struct peer *p = NULL, *none = NULL;
    unsigned end = atomic_load(&peers.end);

    if (fd >= DESCRIPTORS || atomic_fetch_add(&peers.count, 1) >= PEERS_MAX)
        return NULL;
    p = calloc(1, sizeof(*p));
    if (p && !atomic_compare_exchange_strong(&peers.of[fd], &none, p)) {
        free(p);
        p = none;
    }
    while (end <= (unsigned)fd && !atomic_compare_exchange_weak(&peers.end, &end, (unsigned)fd + 1))
        ;
    return p;
}

static void forget(struct peer *p, bool seen)
{
    (seen ? http_closed : http_given_up)(&p->http, &events);
    memset(&p->http, 0, sizeof(p->http));
    p->live = false;
    atomic_store(&p->lost, false);
}

/* A connection was accepted; one of this descriptor of before was closed where nobody saw it. */
static void opened(int fd)
{
    int saved = errno, cancel;
    struct peer *p = NULL;

    if (fd < 0)
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* the caller has @fd in any case */
    if (agent_start())
        p = peer_of(fd) ? peer_of(fd) : make_peer(fd);
    if (p && lock(p)) {
        forget(p, false);
        p->live = true;
        atomic_store(&peers.pid, getpid());
        unlock(p);
    }
    pthread_setcancelstate(cancel, NULL);
    errno = saved;
}

/* The child of a vfork() closes its own descriptors, and shares this memory with its parent. */
static void closes(int fd)
{
    struct peer *p = peer_of(fd);

    if (!p || !p->live || getpid() != atomic_load(&peers.pid) || !lock(p))
        return;
    forget(p, true);
    unlock(p);
}

/* ---- bytes ---- */

enum direction { RECEIVED, SENT };

static void moved(struct peer *p, enum direction direction, const void *data, size_t len)
{
    if (direction == RECEIVED)
        http_received(&p->http, &events, data, len);
    else if (data)
        http_sent(&p->http, &events, data, len);
    else
        http_sent_unseen(&p->http, &events, len);
}

/* Whether the call says that the other end is gone. */
static bool is_gone(enum direction direction, ssize_t n)
{
    return n == 0 ? direction == RECEIVED
                  : n < 0 && (errno == ECONNRESET || errno == EPIPE || errno == ETIMEDOUT);
}

/*
 * A call has returned @n: so many bytes of the parts have been moved. A part without an address was
 * not seen.
 */
static void look(int fd, enum direction direction, const struct iovec *parts, size_t count,
                 ssize_t n)
{
    struct peer *p = n > 0 || is_gone(direction, n) ? peer_of(fd) : NULL;
    int saved = errno, cancel;

    if (!p || !p->live)
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (lock(p)) {
        if (n <= 0 || atomic_load(&p->lost))
            http_given_up(&p->http, &events);
        for (size_t i = 0; p->live && i < count && n > 0; i++) {
            size_t len = parts[i].iov_len < (size_t)n ? parts[i].iov_len : (size_t)n;

            moved(p, direction, parts[i].iov_base, len);
            n -= (ssize_t)len;
        }
        unlock(p);
    }
    pthread_setcancelstate(cancel, NULL);
    errno = saved;
}

static void look_at(int fd, enum direction direction, const void *data, size_t len, ssize_t n)
{
    struct iovec part = {.iov_base = (void *)data, .iov_len = len};

    if (len > 0)
        look(fd, direction, &part, 1, n);
}

/* The bytes stay where they are, are thrown away, or are others than those of the stream. */
static void look_at_received(int fd, const void *data, size_t len, int flags, ssize_t n)
{
    struct peer *p;

    if (flags & MSG_TRUNC) {
        p = n > 0 ? peer_of(fd) : NULL;
        if (p)
            atomic_store(&p->lost, true);
    } else if (!(flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE))) {
        look_at(fd, RECEIVED, data, len, n);
    }
}

/* ---- the stubs ---- */

static struct {
    int (*accept)(int, struct sockaddr *, socklen_t *);
    int (*accept4)(int, struct sockaddr *, socklen_t *, int);
    int (*close)(int);
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*read_chk)(int, void *, size_t, size_t);
    ssize_t (*readv)(int, const struct iovec *, int);
    ssize_t (*recv)(int, void *, size_t, int);
    ssize_t (*recv_chk)(int, void *, size_t, size_t, int);
    ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
    ssize_t (*recvfrom_chk)(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
    ssize_t (*recvmsg)(int, struct msghdr *, int);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*writev)(int, const struct iovec *, int);
    ssize_t (*send)(int, const void *, size_t, int);
    ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    ssize_t (*sendmsg)(int, const struct msghdr *, int);
    ssize_t (*sendfile)(int, int, off_t *, size_t);
} real;

static int our_accept(int fd, struct sockaddr *from, socklen_t *len)
{
    int r = real.accept(fd, from, len);

    opened(r);
    return r;
}

static int our_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    int r = real.accept4(fd, from, len, flags);

    opened(r);
    return r;
}

/* Before it is closed, as another thread may get the number at once. */
static int our_close(int fd)
{
    closes(fd);
    return real.close(fd);
}

static ssize_t our_read(int fd, void *data, size_t len)
{
    ssize_t n = real.read(fd, data, len);

    look_at(fd, RECEIVED, data, len, n);
    return n;
}

static ssize_t our_read_chk(int fd, void *data, size_t len, size_t room)
{
    ssize_t n = real.read_chk(fd, data, len, room);

    look_at(fd, RECEIVED, data, len, n);
    return n;
}

static ssize_t our_readv(int fd, const struct iovec *parts, int count)
{
    ssize_t n = real.readv(fd, parts, count);

    look(fd, RECEIVED, parts, count > 0 ? (size_t)count : 0, n);
    return n;
}

static ssize_t our_recv(int fd, void *data, size_t len, int flags)
{
    ssize_t n = real.recv(fd, data, len, flags);

    look_at_received(fd, data, len, flags, n);
    return n;
}

static ssize_t our_recv_chk(int fd, void *data, size_t len, size_t room, int flags)
{
    ssize_t n = real.recv_chk(fd, data, len, room, flags);

    look_at_received(fd, data, len, flags, n);
    return n;
}

static ssize_t our_recvfrom(int fd, void *data, size_t len, int flags, struct sockaddr *from,
                            socklen_t *from_len)
{
    ssize_t n = real.recvfrom(fd, data, len, flags, from, from_len);

    look_at_received(fd, data, len, flags, n);
    return n;
}

static ssize_t our_recvfrom_chk(int fd, void *data, size_t len, size_t room, int flags,
                                struct sockaddr *from, socklen_t *from_len)
{
    ssize_t n = real.recvfrom_chk(fd, data, len, room, flags, from, from_len);

    look_at_received(fd, data, len, flags, n);
    return n;
}

static ssize_t our_recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t n = real.recvmsg(fd, message, flags);

    if (flags & MSG_TRUNC)
        look_at_received(fd, NULL, 0, flags, n);
    else if (!(flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE)))
        look(fd, RECEIVED, message->msg_iov, message->msg_iovlen, n);
    return n;
}

static ssize_t our_write(int fd, const void *data, size_t len)
{
    ssize_t n = real.write(fd, data, len);

    look_at(fd, SENT, data, len, n);
    return n;
}

static ssize_t our_writev(int fd, const struct iovec *parts, int count)
{
    ssize_t n = real.writev(fd, parts, count);

    look(fd, SENT, parts, count > 0 ? (size_t)count : 0, n);
    return n;
}

static ssize_t our_send(int fd, const void *data, size_t len, int flags)
{
    ssize_t n = real.send(fd, data, len, flags);

    look_at(fd, SENT, data, flags & MSG_OOB ? 0 : len, n);
    return n;
}

static ssize_t our_sendto(int fd, const void *data, size_t len, int flags,
                          const struct sockaddr *to, socklen_t to_len)
{
    ssize_t n = real.sendto(fd, data, len, flags, to, to_len);

    look_at(fd, SENT, data, flags & MSG_OOB ? 0 : len, n);
    return n;
}

static ssize_t our_sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t n = real.sendmsg(fd, message, flags);

    if (!(flags & MSG_OOB))
        look(fd, SENT, message->msg_iov, message->msg_iovlen, n);
    return n;
}

static ssize_t our_sendfile(int fd, int from, off_t *offset, size_t len)
{
    ssize_t n = real.sendfile(fd, from, offset, len);

    look_at(fd, SENT, NULL, len, n);
    return n;
}

/* sendfile64() is sendfile() where off_t has 64 bits, as on each processor that the agent knows. */
/* clang-format off */
#define HOOK(name) {#name, (const void *)our_##name, (void **)&real.name}
/* clang-format on */
static const struct {
    const char *name;
    const void *stub;
    void **real;
} hooks[] = {
    HOOK(accept),
    HOOK(accept4),
    HOOK(close),
    HOOK(read),
    {"__read_chk", (const void *)our_read_chk, (void **)&real.read_chk},
    HOOK(readv),
    HOOK(recv),
    {"__recv_chk", (const void *)our_recv_chk, (void **)&real.recv_chk},
    HOOK(recvfrom),
    {"__recvfrom_chk", (const void *)our_recvfrom_chk, (void **)&real.recvfrom_chk},
    HOOK(recvmsg),
    HOOK(write),
    HOOK(writev),
    HOOK(send),
    HOOK(sendto),
    HOOK(sendmsg),
    HOOK(sendfile),
    {"sendfile64", (const void *)our_sendfile, (void **)&real.sendfile},
};

/* ---- an object is loaded ---- */

static void find_real(void)
{
    static _Atomic bool found;

    if (atomic_exchange(&found, true))
        return;
    for (size_t i = 0; i < ARRAY_LEN(hooks); i++)
        *hooks[i].real = resolve_next(hooks[i].name, NULL, NULL);
}

static bool is_system(const struct object *o)
{
    static const char *const names[] = {"ld-", "libc.so", "libpthread", "libtide"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strncmp(object_file(o), names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static void sockets_loaded(const struct object *o)
{
    if (!agent_config.sockets || is_system(o))
        return;
    find_real();
    for (size_t i = 0; i < ARRAY_LEN(hooks); i++)
        slots_take(o, hooks[i].name, *hooks[i].real, hooks[i].stub);
}

/* Nobody else in the child uses them; its connections begin with the next ones that it accepts. */
static void sockets_after_fork(void)
{
    for (unsigned fd = 0; fd < atomic_load(&peers.end); fd++) {
        struct peer *p = atomic_load(&peers.of[fd]);

        if (p && (p->live || atomic_load(&p->owner)))
            memset(p, 0, sizeof(*p));
    }
}

/* ---- it governs no threads ---- */

static bool nothing_to_apply(const struct agent_target *target)
{
    (void)target;
    return true;
}

static bool settled(void)
{
    return true;
}

static void nothing_to_measure(struct proto_ack *ack)
{
    (void)ack;
}

static bool is_no_runtime(struct proto_backend *ret_backend)
{
    (void)ret_backend;
    return false;
}

static void nothing_to_watch(uint64_t now_ns)
{
    (void)now_ns;
}

static uint64_t no_tasks(void)
{
    return 0;
}

const struct agent_backend sockets_backend = {
    .name = "sockets",
    .apply = nothing_to_apply,
    .settled = settled,
    .measure = nothing_to_measure,
    .describe = is_no_runtime,
    .watch = nothing_to_watch,
    .tasks = no_tasks,
    .loaded = sockets_loaded,
    .after_fork = sockets_after_fork,
};
