/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's only thread. It sleeps in ppoll() on the daemon's socket and on one that wakes it
 * (signal handler, API, last worker parked). A few times a second it checks the process's limit,
 * the lease and the watchdogs. The program may close any descriptor at any time: see ownfd.h.
 */
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/process/ownfd.h"

#include "base/clock.h"
#include "base/slice.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define TICK_NS         (100 * NS_PER_MS)
#define LIMIT_PERIOD_NS (250 * NS_PER_MS)
#define RECONNECT_NS    (250 * NS_PER_MS)
#define LEASE_MIN_MS    100
#define LEASE_MAX_MS    60000
#define PATIENCE_NS     (300 * NS_PER_MS) /* then a missing safe point is reported */

static struct control {
    struct ownfd sock;
    bool welcomed;
    uint32_t features; /* enum proto_feature: of the daemon */
    bool leased;
    uint64_t epoch;
    uint64_t generation; /* from the last TARGET in place */
    uint64_t applied;    /* core_generation() of the last change that the backends got */
    uint64_t settled;    /* … and of the last one in place */
    uint64_t lease_ns;
    uint64_t heartbeat_ns;
    uint64_t lease_until_ns;
    uint64_t next_heartbeat_ns;
    uint64_t next_connect_ns;
    uint64_t next_limit_ns;
    uint64_t next_watch_ns;
    bool ack_pending;
    bool ack_told; /* that it waits for a safe point */
    struct proto_ack ack;
    struct proto_backend described[PROTO_BACKENDS_MAX]; /* as last sent */
    int signal;                                         /* its handler is installed; 0: none */
} control = {.sock.fd = -1};

/* The signal handler stores SIGNAL_REQUEST and, in the lower 32 bits, the wanted threads. */
static _Atomic uint64_t signal_request;
#define SIGNAL_REQUEST (1ull << 32)

/* ---- the signal ---- */

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    if (info->si_code != SI_QUEUE || info->si_value.sival_int < 0 ||
        info->si_value.sival_int > PROTO_THREADS_MAX)
        return; /* kill(2) sends no value; sigqueue(3) may send one out of range */
    atomic_store(&signal_request, SIGNAL_REQUEST | (uint32_t)info->si_value.sival_int);
    agent_notify();
}

int control_signal_install(int number)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigaction old;

    if (number == 0 || sigaction(number, NULL, &old) != 0)
        return 0;
    if (old.sa_flags & SA_SIGINFO ? old.sa_sigaction != on_signal : old.sa_handler != SIG_DFL)
        return 0; /* the program handles this signal itself */
    sigfillset(&action.sa_mask);
    return sigaction(number, &action, NULL) == 0 ? number : 0;
}

static void take_signal(void)
{
    uint64_t request = atomic_exchange(&signal_request, 0);

    if (request & SIGNAL_REQUEST)
        core_set_local(PROTO_SOURCE_SIGNAL, (uint32_t)request, 0);
}

/* ---- the daemon ---- */

static void hang_up(uint64_t now_ns)
{
    ownfd_drop(&control.sock);
    control.welcomed = false;
    control.features = 0;
    control.leased = false;
    control.ack_pending = false;
    control.next_connect_ns = now_ns + RECONNECT_NS;
    memset(control.described, 0, sizeof(control.described));
    requests_wanted(0, false);
    core_daemon_gone();
}

static bool send_message(union proto_message *m, uint64_t now_ns)
{
    if (!ownfd_ok(&control.sock))
        return false;
    if (send(control.sock.fd, m, m->h.size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)m->h.size)
        return true;
    if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
        hang_up(now_ns);
    return false;
}

static void read_comm(char comm[PROTO_SHORT_MAX])
{
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, comm, PROTO_SHORT_MAX - 1) : 0;

    if (n > 0 && comm[n - 1] == '\n')
        comm[n - 1] = '\0';
    if (fd >= 0)
        close(fd);
}

static void send_hello(uint64_t now_ns)
{
    union proto_message m;

    proto_init(&m, PROTO_HELLO, 0);
    m.hello.pid = (uint32_t)getpid();
    m.hello.signal = (uint32_t)control.signal;
    m.hello.cpus = agent_config.cpus;
    m.hello.max = agent_config.max;
    memcpy(m.hello.token, agent_config.token, sizeof(m.hello.token));
    memcpy(m.hello.job_id, agent_config.job_id, sizeof(m.hello.job_id));
    memcpy(m.hello.job_name, agent_config.job_name, sizeof(m.hello.job_name));
    read_comm(m.hello.comm);
    snprintf(m.hello.agent_version, sizeof(m.hello.agent_version), "%s", TIDE_VERSION);
    send_message(&m, now_ns);
}

static void connect_daemon(uint64_t now_ns)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    control.next_connect_ns = now_ns + RECONNECT_NS;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", agent_config.socket);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return;
    }
    ownfd_adopt(&control.sock, fd);
    send_hello(now_ns);
}

/* Sends the backends that changed since the last time. */
static void send_backends(uint64_t now_ns)
{
    for (each_backend(b)) {
        size_t i = (size_t)(b - agent_backends);
        union proto_message m;

        proto_init(&m, PROTO_BACKEND, 0);
        m.backend.index = (uint32_t)i;
        if (i >= PROTO_BACKENDS_FIRST && !(control.features & PROTO_FEATURE_RUNTIMES))
            return;
        if (!(*b)->describe(&m.backend) ||
            memcmp(&m.backend, &control.described[i], sizeof(m.backend)) == 0)
            continue;
        if (send_message(&m, now_ns))
            control.described[i] = m.backend;
    }
}

static uint32_t count_active(void)
{
    uint32_t active = 0;

    for (each_backend(b)) {
        struct proto_backend said = {.max_intra = 0};

        if ((*b)->describe(&said) && said.malleable && said.active_intra > active)
            active = said.active_intra;
    }
    return active;
}

static void send_heartbeat(uint64_t now_ns)
{
    union proto_message m;
    struct agent_target target;

    core_target(&target);
    proto_init(&m, PROTO_HEARTBEAT, 0);
    m.heartbeat.epoch = control.epoch;
    m.heartbeat.generation = control.generation;
    m.heartbeat.source = core_source();
    m.heartbeat.target = target.intra ? target.intra : limit_threads(target.allowed_mcpu);
    m.heartbeat.active = count_active();
    m.heartbeat.allowed_mcpu = target.allowed_mcpu;
    for (each_backend(b))
        m.heartbeat.tasks += (*b)->tasks();
    program_progress(&m.heartbeat.progress_done, &m.heartbeat.progress_total, m.heartbeat.unit);
    send_message(&m, now_ns);
    control.next_heartbeat_ns = now_ns + control.heartbeat_ns;
}

/* When requests are to be told; UINT64_MAX: there are none, or the daemon would not understand. */
static uint64_t latency_due_ns(void)
{
    return control.welcomed && (control.features & PROTO_FEATURE_LATENCY) ? requests_due_ns()
                                                                          : UINT64_MAX;
}

static void send_latency(uint64_t now_ns)
{
    union proto_message m;

    proto_init(&m, PROTO_LATENCY, 0);
    requests_read(now_ns, &m.latency);
    requests_told(&m.latency, send_message(&m, now_ns));
}

/* Returns false when the acknowledgement could not be sent; the caller tries again later. */
static bool send_ack(const struct proto_ack *ack, enum proto_ack_status status, uint64_t now_ns)
{
    union proto_message m;
    bool sent;

    proto_init(&m, PROTO_ACK, ack->h.cookie);
    m.ack.epoch = ack->epoch;
    m.ack.generation = ack->generation;
    m.ack.sent_ns = ack->sent_ns;
    m.ack.received_ns = ack->received_ns;
    m.ack.placed_ns = ack->received_ns;
    m.ack.status = status;
    m.ack.active = count_active();
    if (status == PROTO_ACK_DONE) {
        for (each_backend(b))
            (*b)->measure(&m.ack);
        control.generation = ack->generation;
    }
    sent = send_message(&m, now_ns);
    send_backends(now_ns);
    return sent;
}

static bool any_backend(void)
{
    for (each_backend(b)) {
        struct proto_backend said = {.max_intra = 0};

        if ((*b)->describe(&said) && said.malleable)
            return true;
    }
    return false;
}

/* Nothing but the program's way to a safe point keeps the target from being in place. */
static bool awaits_safe_point(void)
{
    bool awaits = false;

    for (each_backend(b)) {
        if ((*b)->settled())
            continue;
        if (!(*b)->needs_safe_point)
            return false;
        awaits = true;
    }
    return awaits;
}

static bool all_settled(void)
{
    for (each_backend(b)) {
        if (!(*b)->settled())
            return false;
    }
    return true;
}

static void acknowledge_if_settled(uint64_t now_ns)
{
    enum proto_ack_status status = PROTO_ACK_DONE;

    if (!control.ack_pending)
        return;
    if (core_frozen() || !any_backend()) {
        status = PROTO_ACK_LATER;
    } else if (!all_settled()) {
        if (!control.ack_told && (control.features & PROTO_FEATURE_RUNTIMES) &&
            now_ns - control.ack.received_ns >= PATIENCE_NS && awaits_safe_point())
            control.ack_told = send_ack(&control.ack, PROTO_ACK_WAITING, now_ns);
        return;
    }
    if (send_ack(&control.ack, status, now_ns))
        control.ack_pending = false;
}

static void apply_change(void)
{
    struct agent_target target;

    if (core_frozen() || !core_take_change())
        return;
    control.applied = core_generation(); /* read first, so the target is never the older one */
    core_target(&target);
    for (each_backend(b))
        (*b)->apply(&target);
    program_changed();
}

static void tell_if_settled(void)
{
    if (control.settled == control.applied || !all_settled())
        return;
    control.settled = control.applied;
    program_settled(control.settled);
}

static void on_target(const struct proto_target *t, uint64_t now_ns)
{
    struct proto_ack ack = {.h.cookie = t->h.cookie,
                            .epoch = t->epoch,
                            .generation = t->generation,
                            .sent_ns = t->sent_ns,
                            .received_ns = now_ns};

    if (core_set_daemon(t->epoch, t->generation, t->intra, t->inter, t->sent_ns) ==
        CORE_ORDER_STALE) {
        send_ack(&ack, PROTO_ACK_STALE, now_ns); /* control.ack may wait for a newer order */
        return;
    }
    control.ack = ack;
    control.ack_pending = true;
    control.ack_told = false;
    apply_change();
    acknowledge_if_settled(now_ns);
}

static uint64_t clamp_ms(uint32_t ms)
{
    return (ms < LEASE_MIN_MS ? LEASE_MIN_MS : ms > LEASE_MAX_MS ? LEASE_MAX_MS : ms) * NS_PER_MS;
}

/* Where requests may come from, for the daemon and for the user, who may have asked for sockets in
 * the place of calls: a bit for each enum proto_requests. */
static uint32_t sources(void)
{
    uint32_t calls = 1u << PROTO_REQUESTS_ONNX;

    if (control.features & PROTO_FEATURE_SOURCES)
        calls |= 1u << PROTO_REQUESTS_PYTORCH | 1u << PROTO_REQUESTS_TENSORFLOW;
    if (agent_config.sockets)
        calls = control.features & PROTO_FEATURE_SOCKETS ? 1u << PROTO_REQUESTS_SOCKETS : 0;
    return calls;
}

static void on_welcome(const struct proto_welcome *w, uint64_t now_ns)
{
    bool again = control.welcomed && w->epoch == control.epoch; /* it knows what it was told */

    control.welcomed = true;
    control.features = w->h.cookie;
    control.epoch = w->epoch;
    control.lease_ns = clamp_ms(w->lease_ms);
    control.heartbeat_ns = clamp_ms(w->heartbeat_ms);
    memcpy(agent_config.job_id, w->job_id, sizeof(agent_config.job_id));
    memcpy(agent_config.job_name, w->job_name, sizeof(agent_config.job_name));
    if (!again) {
        core_local_again();
        requests_untold();
    }
    core_set_moves(control.features & PROTO_FEATURE_MOVES);
    requests_wanted(sources(), control.features & PROTO_FEATURE_CALLS);
    send_backends(now_ns);
    send_heartbeat(now_ns);
}

static void on_message(union proto_message *m, size_t len, uint64_t now_ns)
{
    if (proto_check(m, len, NULL) != 0 ||
        (m->h.type != PROTO_WELCOME &&
         (!control.welcomed || (m->h.type != PROTO_TARGET && m->h.type != PROTO_LEASE)))) {
        hang_up(now_ns);
        return;
    }
    if (m->h.type == PROTO_WELCOME) {
        on_welcome(&m->welcome, now_ns);
        return;
    }
    control.lease_until_ns = now_ns + control.lease_ns;
    if (!control.leased)
        core_daemon_found();
    control.leased = true;
    if (m->h.type == PROTO_TARGET)
        on_target(&m->target, now_ns);
}

static void receive_messages(uint64_t now_ns)
{
    union proto_message m;

    while (ownfd_ok(&control.sock)) {
        ssize_t n = recv(control.sock.fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);

        if (n > 0) {
            on_message(&m, (size_t)n, now_ns);
        } else {
            if (n == 0 || (errno != EAGAIN && errno != EINTR))
                hang_up(now_ns);
            return;
        }
    }
}

static void report_local(uint64_t now_ns)
{
    union proto_message m;
    uint32_t source;
    uint32_t intra;
    uint32_t inter;

    if (!control.welcomed || !core_take_local(&source, &intra, &inter))
        return;
    proto_init(&m, PROTO_LOCAL, 0);
    m.local.source = source;
    m.local.intra = intra;
    m.local.inter = inter;
    if (!send_message(&m, now_ns))
        core_local_unheard();
}

/* ---- the thread ---- */

static void run_timers(uint64_t now_ns)
{
    if (agent_config.socket && !ownfd_ok(&control.sock)) {
        if (control.sock.fd >= 0) /* the program has closed it: ppoll() would return at once */
            hang_up(now_ns);
        if (now_ns >= control.next_connect_ns)
            connect_daemon(now_ns);
    }
    if (control.leased && now_ns >= control.lease_until_ns) {
        control.leased = false;
        core_daemon_lost();
    }
    if (control.welcomed && now_ns >= control.next_heartbeat_ns) {
        send_backends(now_ns);
        send_heartbeat(now_ns);
    }
    if (now_ns >= latency_due_ns())
        send_latency(now_ns);
    if (now_ns >= control.next_limit_ns) {
        core_set_allowed(limit_read_mcpu("/"), now_ns);
        control.next_limit_ns = now_ns + LIMIT_PERIOD_NS;
    }
    if (now_ns >= control.next_watch_ns) {
        for (each_backend(b))
            (*b)->watch(now_ns);
        control.next_watch_ns = now_ns + TICK_NS;
    }
}

static void sleep_until_event(uint64_t now_ns)
{
    struct pollfd fds[2] = {{.fd = wake_fd(), .events = POLLIN},
                            {.fd = control.sock.fd, .events = POLLIN}};
    uint64_t next_ns = control.next_watch_ns;
    uint64_t latency_ns = latency_due_ns();
    struct timespec timeout;

    if (control.welcomed && control.next_heartbeat_ns < next_ns)
        next_ns = control.next_heartbeat_ns;
    if (latency_ns < next_ns)
        next_ns = latency_ns;
    next_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    timeout = (struct timespec){.tv_sec = (time_t)(next_ns / NS_PER_S),
                                .tv_nsec = (long)(next_ns % NS_PER_S)};
    if (wake_may_sleep())
        ppoll(fds, 2, &timeout, NULL);
    wake_slept();
}

static void *control_main(void *arg)
{
    sigset_t set;

    (void)arg;
    prctl(PR_SET_NAME, "tide-agent");
    slice_set(SLICE_SHORT_NS);
    if (control.signal) {
        sigemptyset(&set);
        sigaddset(&set, control.signal);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
    }
    for (;;) {
        uint64_t now_ns = clock_now_ns();

        wake_ensure();
        wake_drain();
        take_signal();
        receive_messages(now_ns);
        run_timers(now_ns);
        apply_change();
        acknowledge_if_settled(now_ns);
        tell_if_settled();
        report_local(now_ns);
        sleep_until_event(clock_now_ns());
    }
    return NULL;
}

bool control_start(void)
{
    typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    /* Before glibc 2.34 the function is in libpthread, which a program with threads has loaded. */
    static create_fn create; /* kept: in the child of a fork nobody waits for the loader's lock */
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    int r;

    if (!create)
        create = (create_fn)dlsym(RTLD_DEFAULT, "pthread_create");
    if (!create)
        return false;
    wake_ensure();
    control.signal = control_signal_install(agent_config.signal);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* the new thread inherits the mask */
    r = create(&thread, NULL, control_main, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return r == 0;
}

void control_after_fork(void)
{
    ownfd_drop(&control.sock);
    control.welcomed = false;
    control.leased = false;
    control.ack_pending = false;
    control.next_connect_ns = 0;
    memset(control.described, 0, sizeof(control.described));
}
