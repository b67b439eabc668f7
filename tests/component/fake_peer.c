/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that talks to tided as an agent does, without threads of its own: tests decide what it
 * answers, when, and whether. Started by the component tests and by bench.
 *
 *   fake_peer [--max N] [--inter N] [--beat MS] [--no-ack] [--ack-after MS] [--later] [--rigid]
 *             [--no-backend] [--quiet] [--retry MS] [--pool] [--page FILE]
 *
 * --pool: N threads that run as long as they are among the active ones. --page: whoever maps FILE
 * finds there, at any moment, the numbers of active threads and of its target.
 *
 * Waits for "go TOKEN ID NAME" on stdin ("-" for an empty word), then says hello on $TIDE_SOCKET.
 * Further lines: "local INTRA INTER", "progress DONE TOTAL UNIT", "requests COUNT MS FLIGHT" (so
 * many ended, each after MS; so many are in flight), "ack" (acknowledge from now on), "wait" (say
 * that it waits for a safe point), "mute" (do not), "fork" (a child does the same), "spin CPU" (a
 * child uses all that it gets of that processor), "max N" (report new pools), "bye" (close, do not
 * return), "end". Prints "welcome EPOCH JOB", "target INTRA INTER EPOCH GENERATION", "lapsed",
 * "closed".
 */
#include "base/clock.h"
#include "proto/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define RETRY_MS 100

/* Also seen by the threads of --pool. */
struct page {
    atomic_uint active, target;
};

struct peer {
    struct page *page;
    int fd; /* -1: not connected */
    bool no_ack, later, rigid, no_backend, quiet, bye;
    uint32_t max, inter, beat_ms, ack_after_ms, retry_ms;
    char token[PROTO_TOKEN_MAX], id[PROTO_ID_MAX], name[PROTO_NAME_MAX];
    uint64_t epoch, generation, lease_ns, lease_until_ns;
    uint32_t target, active, source;
    uint64_t tasks, done, total;
    uint64_t ended; /* requests */
    uint32_t bucket[LATENCY_BUCKETS];
    char unit[PROTO_SHORT_MAX];
    struct proto_target pending; /* to be acknowledged … */
    uint64_t ack_at_ns;          /* … then; 0: nothing */
    uint64_t beat_at_ns, retry_at_ns;
};

static void say(const struct peer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#include <stdarg.h>
static void say(const struct peer *p, const char *fmt, ...)
{
    va_list ap;

    if (p->quiet)
        return;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

static uint32_t cpus_allowed(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static void hang_up(struct peer *p)
{
    if (p->fd < 0)
        return;
    close(p->fd);
    p->fd = -1;
    p->retry_at_ns = clock_now_ns() + p->retry_ms * NS_PER_MS;
    p->ack_at_ns = 0;
    p->source = PROTO_SOURCE_LIMIT;
    p->target = p->active = cpus_allowed();
    say(p, "closed");
}

static void transmit(struct peer *p, const union proto_message *m)
{
    if (p->fd >= 0 && send(p->fd, m, m->h.size, MSG_NOSIGNAL) < 0)
        hang_up(p);
}

static void send_backend(struct peer *p)
{
    union proto_message m;

    if (p->no_backend)
        return;
    proto_init(&m, PROTO_BACKEND, 0);
    m.backend.malleable = !p->rigid;
    m.backend.max_intra = p->max;
    m.backend.max_inter = p->inter;
    m.backend.active_intra = p->active;
    snprintf(m.backend.name, sizeof(m.backend.name), "fake");
    snprintf(m.backend.version, sizeof(m.backend.version), "1.0");
    snprintf(m.backend.note, sizeof(m.backend.note), "%s", p->rigid ? "unknown version" : "");
    transmit(p, &m);
}

static void say_hello(struct peer *p)
{
    union proto_message m;

    proto_init(&m, PROTO_HELLO, 0);
    m.hello.pid = (uint32_t)getpid();
    m.hello.cpus = cpus_allowed();
    m.hello.max = p->max;
    memcpy(m.hello.token, p->token, sizeof(m.hello.token));
    memcpy(m.hello.job_id, p->id, sizeof(m.hello.job_id));
    memcpy(m.hello.job_name, p->name, sizeof(m.hello.job_name));
    snprintf(m.hello.comm, sizeof(m.hello.comm), "fake_peer");
    transmit(p, &m);
    send_backend(p);
}

static void try_connect(struct peer *p)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const char *path = getenv("TIDE_SOCKET");

    p->retry_at_ns = clock_now_ns() + p->retry_ms * NS_PER_MS;
    if (!path)
        exit(2);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    p->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (p->fd >= 0 && connect(p->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        close(p->fd);
        p->fd = -1;
    }
    if (p->fd < 0)
        return;
    p->lease_until_ns = UINT64_MAX;
    p->beat_at_ns = clock_now_ns();
    say_hello(p);
}

static void show(const struct peer *p);

static void acknowledge(struct peer *p, bool waits)
{
    union proto_message m;

    p->ack_at_ns = 0;
    if (!waits)
        p->active = p->pending.intra && p->pending.intra < p->max ? p->pending.intra : p->max;
    show(p); /* parked before it says so */
    proto_init(&m, PROTO_ACK, p->pending.h.cookie);
    m.ack.epoch = p->pending.epoch;
    m.ack.generation = p->pending.generation;
    m.ack.status = waits ? PROTO_ACK_WAITING : p->later ? PROTO_ACK_LATER : PROTO_ACK_DONE;
    m.ack.active = p->active;
    m.ack.sent_ns = p->pending.sent_ns;
    m.ack.received_ns = m.ack.placed_ns = clock_now_ns();
    transmit(p, &m);
}

static void on_target(struct peer *p, const struct proto_target *t)
{
    p->pending = *t;
    p->epoch = t->epoch;
    p->generation = t->generation;
    p->target = t->intra ? t->intra : cpus_allowed();
    p->source = t->intra ? PROTO_SOURCE_DAEMON : PROTO_SOURCE_LIMIT;
    p->lease_until_ns = t->intra ? clock_now_ns() + p->lease_ns : UINT64_MAX;
    say(p, "target %u %u %" PRIu64 " %" PRIu64, t->intra, t->inter, t->epoch, t->generation);
    p->ack_at_ns = clock_now_ns() + p->ack_after_ms * NS_PER_MS;
}

static void on_message(struct peer *p)
{
    union proto_message m;
    ssize_t len = recv(p->fd, &m, sizeof(m), 0);

    if (len <= 0 || proto_check(&m, (size_t)len, NULL) < 0) {
        hang_up(p);
        return;
    }
    switch (m.h.type) {
    case PROTO_WELCOME:
        p->epoch = m.welcome.epoch;
        p->lease_ns = m.welcome.lease_ms * NS_PER_MS;
        if (p->beat_ms == 0)
            p->beat_ms = m.welcome.heartbeat_ms;
        say(p, "welcome %" PRIu64 " %s", m.welcome.epoch, m.welcome.job_id);
        break;
    case PROTO_TARGET:
        on_target(p, &m.target);
        break;
    case PROTO_LEASE:
        p->lease_until_ns = clock_now_ns() + p->lease_ns;
        break;
    default:
        break;
    }
}

static void beat(struct peer *p, uint64_t now)
{
    union proto_message m;

    p->beat_at_ns = now + (p->beat_ms ? p->beat_ms : 250) * NS_PER_MS;
    p->tasks += 10 * p->active;
    proto_init(&m, PROTO_HEARTBEAT, 0);
    m.heartbeat.epoch = p->epoch;
    m.heartbeat.generation = p->generation;
    m.heartbeat.source = p->source;
    m.heartbeat.target = p->target;
    m.heartbeat.active = p->active;
    m.heartbeat.allowed_mcpu = 1000 * cpus_allowed();
    m.heartbeat.tasks = p->tasks;
    m.heartbeat.progress_done = p->done;
    m.heartbeat.progress_total = p->total;
    memcpy(m.heartbeat.unit, p->unit, sizeof(m.heartbeat.unit));
    transmit(p, &m);
}

static void tell_requests(struct peer *p, uint32_t count, uint32_t ms, uint32_t in_flight)
{
    union proto_message m;

    p->ended += count;
    p->bucket[latency_bucket(ms * NS_PER_MS)] += count;
    proto_init(&m, PROTO_LATENCY, 0);
    m.latency.now_ns = clock_now_ns();
    m.latency.begun = p->ended + in_flight;
    m.latency.ended = p->ended;
    m.latency.most_in_flight = in_flight;
    memcpy(m.latency.bucket, p->bucket, sizeof(m.latency.bucket));
    transmit(p, &m);
}

static void set_local(struct peer *p, uint32_t intra, uint32_t inter)
{
    union proto_message m;

    p->source = intra ? PROTO_SOURCE_API : PROTO_SOURCE_LIMIT;
    p->target = p->active = intra ? intra : cpus_allowed();
    proto_init(&m, PROTO_LOCAL, 0);
    m.local.source = PROTO_SOURCE_API;
    m.local.intra = intra;
    m.local.inter = inter;
    transmit(p, &m);
}

static void fork_peer(struct peer *p)
{
    if (fork() != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(p->fd);
    p->fd = -1;
    p->page = calloc(1, sizeof(*p->page)); /* the other one is its parent's */
    p->quiet = true;
    p->retry_at_ns = 0;
    if (!freopen("/dev/null", "r", stdin))
        exit(2);
    setbuf(stdin, NULL);
}

static void spin(unsigned cpu)
{
    cpu_set_t set;

    if (fork() != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) < 0)
        exit(2);
    for (;;)
        __asm__ volatile("");
}

static void on_command(struct peer *p, const char *line)
{
    unsigned a, b, c;

    if (sscanf(line, "requests %u %u %u", &a, &b, &c) == 3)
        tell_requests(p, a, b, c);
    else if (sscanf(line, "local %u %u", &a, &b) == 2)
        set_local(p, a, b);
    else if (sscanf(line, "progress %" SCNu64 " %" SCNu64 " %31s", &p->done, &p->total, p->unit) ==
             3)
        beat(p, clock_now_ns());
    else if (strncmp(line, "ack", 3) == 0) {
        p->no_ack = false;
        if (p->pending.h.size)
            acknowledge(p, false);
    } else if (strncmp(line, "wait", 4) == 0)
        acknowledge(p, true);
    else if (strncmp(line, "mute", 4) == 0)
        p->no_ack = true;
    else if (strncmp(line, "fork", 4) == 0)
        fork_peer(p);
    else if (sscanf(line, "spin %u", &a) == 1)
        spin(a);
    else if (sscanf(line, "max %u", &p->max) == 1)
        send_backend(p);
    else if (strncmp(line, "bye", 3) == 0) {
        p->bye = true;
        hang_up(p);
    } else if (strncmp(line, "end", 3) == 0)
        exit(0);
}

/* Commands come rarely and whole; a closed stdin leaves the peer running. */
static bool read_commands(struct peer *p)
{
    char buf[512];
    ssize_t len = read(STDIN_FILENO, buf, sizeof(buf) - 1);

    if (len <= 0)
        return false;
    buf[len] = '\0';
    for (char *save, *line = strtok_r(buf, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        on_command(p, line);
    return true;
}

static uint64_t earliest(const struct peer *p)
{
    uint64_t at = p->fd >= 0 ? p->beat_at_ns : p->bye ? UINT64_MAX : p->retry_at_ns;

    if (p->fd >= 0 && p->ack_at_ns && !p->no_ack && p->ack_at_ns < at)
        at = p->ack_at_ns;
    return at;
}

static void do_due(struct peer *p)
{
    uint64_t now = clock_now_ns();

    if (p->fd < 0) {
        if (!p->bye && now >= p->retry_at_ns)
            try_connect(p);
        return;
    }
    if (p->ack_at_ns && !p->no_ack && now >= p->ack_at_ns)
        acknowledge(p, false);
    if (now >= p->lease_until_ns) {
        p->lease_until_ns = UINT64_MAX;
        p->source = PROTO_SOURCE_LIMIT;
        p->target = p->active = cpus_allowed();
        say(p, "lapsed");
    }
    if (now >= p->beat_at_ns)
        beat(p, now);
}

static void serve(struct peer *p)
{
    bool commands = true;

    for (;;) {
        struct pollfd fds[2] = {{p->fd, POLLIN, 0}, {commands ? STDIN_FILENO : -1, POLLIN, 0}};
        uint64_t now = clock_now_ns(), at = earliest(p);
        int timeout = at == UINT64_MAX ? -1 : at <= now ? 0 : (int)((at - now) / NS_PER_MS) + 1;

        if (poll(fds, 2, timeout) < 0 && errno != EINTR)
            exit(1);
        if (fds[0].revents && fds[0].fd == p->fd)
            on_message(p);
        if (fds[1].revents)
            commands = read_commands(p);
        do_due(p);
        show(p);
    }
}

/* ---- seen from outside ---- */

static void show(const struct peer *p)
{
    atomic_store(&p->page->active, p->active);
    atomic_store(&p->page->target, p->target);
}

static void make_page(struct peer *p, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, sizeof(*p->page)) < 0)
        exit(2);
    p->page = mmap(NULL, sizeof(*p->page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p->page == MAP_FAILED)
        exit(2);
}

static struct page *pool_page;

/* In short pieces, as pools work; no load that keeps those from running who are tested. */
static void *pool_thread(void *number)
{
    for (;;) {
        uint64_t until = clock_now_ns() + 100000;

        while (atomic_load(&pool_page->active) > (uintptr_t)number && clock_now_ns() < until)
            ;
        usleep(2000);
    }
    return NULL;
}

static void make_load(struct peer *p)
{
    pthread_t thread;

    pool_page = p->page;
    if (nice(19) == -1)
        exit(2);
    for (uintptr_t i = 0; i < p->max; i++)
        if (pthread_create(&thread, NULL, pool_thread, (void *)i) != 0)
            exit(2);
}

static void wait_for_go(struct peer *p)
{
    char line[256], token[64], id[64], name[128];

    setbuf(stdin, NULL);
    if (!fgets(line, sizeof(line), stdin) ||
        sscanf(line, "go %63s %63s %127s", token, id, name) != 3)
        exit(2);
    if (strcmp(token, "-") != 0)
        snprintf(p->token, sizeof(p->token), "%.*s", PROTO_TOKEN_MAX - 1, token);
    if (strcmp(id, "-") != 0)
        snprintf(p->id, sizeof(p->id), "%.*s", PROTO_ID_MAX - 1, id);
    if (strcmp(name, "-") != 0)
        snprintf(p->name, sizeof(p->name), "%.*s", PROTO_NAME_MAX - 1, name);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"max", required_argument, NULL, 'm'},
                                            {"inter", required_argument, NULL, 'i'},
                                            {"beat", required_argument, NULL, 'b'},
                                            {"no-ack", no_argument, NULL, 'n'},
                                            {"ack-after", required_argument, NULL, 'a'},
                                            {"later", no_argument, NULL, 'l'},
                                            {"rigid", no_argument, NULL, 'r'},
                                            {"no-backend", no_argument, NULL, 'x'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"retry", required_argument, NULL, 't'},
                                            {"pool", no_argument, NULL, 's'},
                                            {"page", required_argument, NULL, 'p'},
                                            {NULL, 0, NULL, 0}};
    struct page here = {0};
    struct peer p = {.page = &here, .fd = -1, .max = 8, .retry_ms = RETRY_MS};
    bool load = false;

    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) >= 0;)
        switch (c) {
        case 'm':
            p.max = (uint32_t)atoi(optarg);
            break;
        case 'i':
            p.inter = (uint32_t)atoi(optarg);
            break;
        case 'b':
            p.beat_ms = (uint32_t)atoi(optarg);
            break;
        case 'a':
            p.ack_after_ms = (uint32_t)atoi(optarg);
            break;
        case 'n':
            p.no_ack = true;
            break;
        case 'l':
            p.later = true;
            break;
        case 'r':
            p.rigid = true;
            break;
        case 'x':
            p.no_backend = true;
            break;
        case 'q':
            p.quiet = true;
            break;
        case 't':
            p.retry_ms = (uint32_t)atoi(optarg);
            break;
        case 's':
            load = true;
            break;
        case 'p':
            make_page(&p, optarg);
            break;
        default:
            return 2;
        }
    p.target = p.active = cpus_allowed();
    show(&p);
    if (load)
        make_load(&p);
    wait_for_go(&p);
    serve(&p);
}
