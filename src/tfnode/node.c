/* SPDX-License-Identifier: Apache-2.0 */
#include "tfnode/node.h"

#include "tfnode/bind.h"
#include "tfnode/control.h"
#include "tfnode/disconnect.h"
#include "tfnode/options.h"
#include "tfnode/server.h"
#include "tfnode/threads.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#define ERROR_WORD "replica-not-started"

#define THREADS_DEADLINE_NS (2 * NS_PER_S) /* for an acknowledgement; then the answer is 202 */
#define SETTLE_LOOK_NS      (NS_PER_MS)    /* between two looks while a change is under way */

enum node_state { NODE_STARTING, NODE_READY, NODE_DRAINING, NODE_STATE_MAX };

static const char *const state_names[] = {
    [NODE_STARTING] = "starting",
    [NODE_READY] = "ready",
    [NODE_DRAINING] = "draining",
};
static_assert(ARRAY_LEN(state_names) == NODE_STATE_MAX, "a name for each state");

/* The descriptors that poll() watches besides the control port's. */
enum node_fd { FD_SIGNAL, FD_SERVER, FD_THREADS, FD_LIFELINE, FD_MAX };

struct node {
    const struct options *options;
    struct control *control;
    struct threads threads;
    struct threads_count count;
    struct server server;
    uint64_t began_ns;
    uint64_t drained_ns; /* when draining ends */
    uint64_t settle_ns;  /* until when the loop looks at the agent often */
    uint32_t control_port;
    enum node_state state;
    int signal_fd;
    bool listening; /* TensorFlow's server */
    bool over;      /* the chief released it, or a second signal came */
    char line[CONTROL_LINE_MAX];
};

__attribute__((format(printf, 2, 3))) static void say(const struct node *n, const char *fmt, ...)
{
    va_list args;

    printf("tide-tfnode: %s %u of %s: ", n->options->role, n->options->index, n->options->job);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

/* ---- the state, for the chief ---- */

static void publish(struct node *n)
{
    const struct options *o = n->options;
    char line[sizeof(n->line)];

    threads_count(&n->threads, n->listening, &n->count);
    snprintf(line, sizeof(line),
             "{\"job\":\"%s\",\"role\":\"%s\",\"index\":%u,\"state\":\"%s\",\"threads\":%u,"
             "\"max\":%u,\"port\":%u,\"tensorflow\":\"%s\"}\n",
             o->job, o->role, o->index, state_names[n->state], n->count.active, n->count.max,
             n->listening ? n->server.port : o->port, n->listening ? n->server.version : "");
    if (strcmp(line, n->line) == 0)
        return;
    strcpy(n->line, line);
    control_publish(n->control, line);
}

static void begin_to_drain(struct node *n, const char *why)
{
    if (n->state == NODE_DRAINING) {
        n->over = true;
        return;
    }
    n->state = NODE_DRAINING;
    n->drained_ns = clock_now_ns() + n->options->grace_s * NS_PER_S;
    if (control_watchers(n->control) > 0)
        say(n, "%s; serves on until its chief releases it, for at most %u s", why,
            n->options->grace_s);
    else
        say(n, "%s; ends now, because no chief is connected", why);
    publish(n);
}

/* ---- requests ---- */

static void answer_error(struct conn *conn, int status, const char *text)
{
    char body[CONTROL_LINE_MAX];

    snprintf(body, sizeof(body), "{\"error\":\"%s\"}\n", text);
    control_answer(conn, status, body);
}

static void answer_health(struct node *n, struct conn *conn, const struct request *request)
{
    control_answer(conn, 200, "{\"healthy\":true}\n");
}

static void answer_ready(struct node *n, struct conn *conn, const struct request *request)
{
    char body[CONTROL_LINE_MAX];

    snprintf(body, sizeof(body), "{\"state\":\"%s\"}\n", state_names[n->state]);
    control_answer(conn, n->state == NODE_READY ? 200 : 503, body);
}

static void answer_watch(struct node *n, struct conn *conn, const struct request *request)
{
    if (request->http_1_0)
        answer_error(conn, 505, "the answer to a watch is chunked: use HTTP/1.1");
    else if (!control_watch(conn))
        answer_error(conn, 503, "too many clients watch already");
}

static void answer_threads(struct node *n, struct conn *conn, const struct request *request)
{
    uint64_t generation;
    uint32_t threads;
    int r = request_threads(request->body, request->body_len, &threads);

    if (r < 0) {
        answer_error(conn, 400, "send {\\\"threads\\\": N} with N from 0 to 4096");
        return;
    }
    r = threads_set(&n->threads, threads, &generation);
    if (r < 0) {
        answer_error(conn, 501, "the number of threads is fixed, because no agent is loaded");
        return;
    }
    n->settle_ns = clock_now_ns() + THREADS_DEADLINE_NS;
    control_wait(conn, generation, n->settle_ns);
}

/* A machine that is gone does not end its connections. The chief notices and sends this order. */
static void answer_disconnect(struct node *n, struct conn *conn, const struct request *request)
{
    char host[REQUEST_HOST_MAX], body[CONTROL_LINE_MAX];
    uint32_t port;
    int r = request_address(request->body, request->body_len, host, &port);

    if (r == 0)
        r = disconnect(host, port);
    if (r < 0) {
        answer_error(conn, 400, "send {\\\"host\\\": ADDRESS, \\\"port\\\": N}");
        return;
    }
    snprintf(body, sizeof(body), "{\"ended\":%d}\n", r);
    control_answer(conn, 200, body);
    if (r > 0)
        say(n, "its chief says that machine %s is gone; ended %d connections to it", host, r);
}

static void answer_release(struct node *n, struct conn *conn, const struct request *request)
{
    control_answer(conn, 200, "{\"released\":true}\n");
    say(n, "ends: its chief has released it");
    n->over = true;
}

static void on_request(void *arg, struct conn *conn, const struct request *request)
{
    static const struct {
        const char *path;
        enum request_method method;
        void (*answer)(struct node *, struct conn *, const struct request *);
    } routes[] = {
        {"/healthz", REQUEST_GET, answer_health},
        {"/readyz", REQUEST_GET, answer_ready},
        {"/v1/watch", REQUEST_GET, answer_watch},
        {"/v1/threads", REQUEST_POST, answer_threads},
        {"/v1/disconnect", REQUEST_POST, answer_disconnect},
        {"/v1/release", REQUEST_POST, answer_release},
    };

    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (strcmp(request->path, routes[i].path) != 0)
            continue;
        if (request->method == routes[i].method)
            routes[i].answer(arg, conn, request);
        else
            answer_error(conn, 405, routes[i].method == REQUEST_GET ? "use GET" : "use POST");
        return;
    }
    answer_error(conn, 404, "there is no such path");
}

/* Answers clients whose threads are in place or who have waited long enough. */
static void answer_waiting(struct node *n, uint64_t now_ns)
{
    struct conn *conn = NULL;

    while ((conn = control_waiting(n->control, conn))) {
        bool reached = n->count.generation >= conn_ticket(conn);
        char body[CONTROL_LINE_MAX];

        if (!reached && now_ns < conn_deadline(conn))
            continue;
        snprintf(body, sizeof(body), "{\"threads\":%u}\n", n->count.active);
        control_answer(conn, reached ? 200 : 202, body);
    }
}

/* ---- events ---- */

static int on_server(struct node *n, struct error *err)
{
    uint64_t now_ns = clock_now_ns();
    eventfd_t value;

    if (eventfd_read(n->server.event_fd, &value) < 0)
        return 0;
    if (n->server.err.code < 0) {
        *err = n->server.err;
        return err->code;
    }
    n->listening = true;
    n->settle_ns = now_ns + THREADS_DEADLINE_NS;
    if (n->state == NODE_STARTING)
        n->state = NODE_READY;
    say(n, "TensorFlow %s listens on port %u after %.2f s", n->server.version, n->server.port,
        (double)(now_ns - n->began_ns) / (double)NS_PER_S);
    publish(n);
    return 0;
}

static void on_signal(struct node *n)
{
    struct signalfd_siginfo info;

    while (read(n->signal_fd, &info, sizeof(info)) == sizeof(info))
        begin_to_drain(n, info.ssi_signo == SIGINT ? "got SIGINT" : "got SIGTERM");
}

static void on_lifeline(struct node *n)
{
    char buf[256];
    ssize_t r = read(STDIN_FILENO, buf, sizeof(buf));

    if (r == 0 || (r < 0 && errno != EAGAIN && errno != EINTR)) {
        say(n, "ends: its standard input has ended (--lifeline)");
        n->over = true;
    }
}

static void wait_for_event(struct node *n, struct pollfd *fds, size_t count, uint64_t until_ns)
{
    uint64_t now_ns = clock_now_ns(), left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left_ns / NS_PER_S),
                               .tv_nsec = (long)(left_ns % NS_PER_S)};

    /* After an interruption or failure revents are not valid. */
    if (ppoll(fds, count, until_ns == UINT64_MAX ? NULL : &timeout, NULL) <= 0) {
        for (size_t i = 0; i < count; i++)
            fds[i].revents = 0;
    }
}

/* Whether the process may end. A chief that hangs up has released the node, too. */
static bool is_over(const struct node *n, uint64_t now_ns)
{
    return n->over || (n->state == NODE_DRAINING &&
                       (now_ns >= n->drained_ns || control_watchers(n->control) == 0));
}

static int loop(struct node *n, struct error *err)
{
    struct pollfd fds[FD_MAX + CONTROL_POLL_MAX] = {
        [FD_SIGNAL] = {.fd = n->signal_fd, .events = POLLIN},
        [FD_SERVER] = {.fd = n->server.event_fd, .events = POLLIN},
        [FD_THREADS] = {.fd = n->threads.event_fd, .events = POLLIN},
        [FD_LIFELINE] = {.fd = n->options->lifeline ? STDIN_FILENO : -1, .events = POLLIN},
    };
    uint64_t until_ns = 0;

    for (;;) {
        size_t clients = control_poll(n->control, fds + FD_MAX);
        uint64_t now_ns;
        eventfd_t value;
        int r;

        wait_for_event(n, fds, FD_MAX + clients, until_ns);
        now_ns = clock_now_ns();
        if (fds[FD_SIGNAL].revents)
            on_signal(n);
        if (fds[FD_LIFELINE].revents)
            on_lifeline(n);
        r = on_server(n, err);
        if (r < 0)
            return r;
        if (eventfd_read(n->threads.event_fd, &value) == 0)
            n->settle_ns = now_ns + THREADS_DEADLINE_NS;
        until_ns = control_serve(n->control, fds + FD_MAX, clients, now_ns);
        publish(n);
        answer_waiting(n, now_ns);
        if (is_over(n, now_ns))
            return 0;
        if (n->state == NODE_DRAINING && n->drained_ns < until_ns)
            until_ns = n->drained_ns;
        if (!n->count.settled && now_ns < n->settle_ns && now_ns + SETTLE_LOOK_NS < until_ns)
            until_ns = now_ns + SETTLE_LOOK_NS;
    }
}

/* Blocks the signals in every thread, because they inherit the mask: only the loop gets them. */
static int open_signals(struct error *err)
{
    sigset_t set;
    int fd;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN); /* the reader of our output may go away */
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd >= 0 ? fd : error_set(err, -errno, "signalfd: %s", strerror(errno));
}

int node_run(const struct options *options, const char *library, struct error *err)
{
    static struct node n; /* static, because threads of TensorFlow and of the agent point to it */
    struct error reason = {0};
    int r;

    n = (struct node){.options = options, .began_ns = clock_now_ns()};
    bind_only_at(&options->bind);
    n.signal_fd = r = open_signals(err);
    if (r >= 0)
        r = control_open(options->control_port, on_request, &n, &n.control, &n.control_port, err);
    if (r < 0)
        return r;
    say(&n, "control port %u", n.control_port);
    r = threads_init(&n.threads, options->threads, &reason);
    if (r < 0) {
        *err = reason;
        return r;
    }
    if (r > 0)
        say(&n, "without the agent, its threads are fixed: %s (tide why no-agent)", reason.text);
    publish(&n);
    /* With the agent, an order limits the pools; a limit in the ServerDef would keep them small. */
    r = server_start(library, options, n.threads.api ? 0 : options->threads, &n.server, err);
    return r < 0 ? r : loop(&n, err);
}
