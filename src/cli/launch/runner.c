/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/launch/runner.h"

#include "base/clock.h"
#include "proto/proto.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ERROR_WORD "job-refused"

#define START_NS  NS_PER_S         /* time in which a stopped daemon may be started again */
#define RETRY_NS  (50 * NS_PER_MS) /* between the first attempts; later ones are rarer */
#define STEADY_NS (5 * NS_PER_S)   /* a connection that lasted so long ended the earlier outage */

static volatile sig_atomic_t cancelled;

static void on_term(int number)
{
    cancelled = number;
}

void runner_begin(struct runner *r)
{
    struct sigaction action = {.sa_handler = on_term};
    sigset_t term;

    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &r->mask);
    sigaction(SIGTERM, &action, &r->action);
}

void runner_end(struct runner *r)
{
    sigaction(SIGTERM, &r->action, NULL);
    sigprocmask(SIG_SETMASK, &r->mask, NULL);
}

/* Waits for @fd (-1: none) or @timeout_ns (0: no limit). SIGTERM arrives only here. */
static int sleep_on(const struct runner *r, int fd, uint64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                               .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    sigset_t mask = r->mask;

    sigdelset(&mask, SIGTERM);
    if (ppoll(&ready, 1, timeout_ns ? &timeout : NULL, &mask) < 0 && errno != EINTR)
        return -errno;
    return cancelled ? -ECANCELED : 0;
}

/* ---- asking a daemon ---- */

static int connect_to(const char *path, struct error *err)
{
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (fd < 0)
        return error_set(err, -errno, "cannot make a socket: %s", strerror(errno));
    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, -ENAMETOOLONG, "%s is too long for a socket", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return error_word(err,
                          error_set(err, -errno, "no daemon runs (%s: %s)", path, strerror(errno)),
                          "no-daemon");
    return TAKE_FD(fd);
}

/*
 * The runner names its job by its own pid. A daemon that forgot the job may have given its id to
 * another one, and "the job that I belong to" could be that of a shell around us.
 */
static int ask(int fd, struct error *err)
{
    union proto_message m;

    proto_init(&m, PROTO_CONTROL, 1);
    m.control.verb = PROTO_VERB_BEGIN;
    snprintf(m.control.job, sizeof(m.control.job), "%d", (int)getpid());
    if (send(fd, &m, m.h.size, MSG_NOSIGNAL) < 0)
        return error_set(err, -ECONNRESET, "the daemon closed the connection");
    return 0;
}

/*
 * Reads the daemon's word: 0, -ECANCELED (SIGTERM), -ESRCH (the daemon does not know this job), or
 * another -errno. A daemon that calls the job cancelled is itself ending: users cancel by SIGTERM.
 */
static int hear(const struct runner *r, int fd, struct error *err)
{
    union proto_message m;
    ssize_t n;
    int e;

    for (;;) {
        e = sleep_on(r, fd, 0);
        if (e < 0)
            return error_set(err, e, "%s", strerror(-e));
        n = recv(fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return error_set(err, -ECONNRESET, "the daemon closed the connection");
        e = proto_check(&m, (size_t)n, err);
        if (e < 0)
            return e;
        if (m.h.type != PROTO_RESULT)
            return error_set(err, -EBADMSG, "the daemon's answer has an unexpected type, %u",
                             m.h.type);
        if (m.result.status == -ECANCELED)
            return error_set(err, -ECONNRESET, "the daemon ended");
        if (m.result.status < 0)
            return error_set(err, m.result.status, "%s", m.result.text);
        return 0;
    }
}

static int wait_at(const struct runner *r, int fd, struct error *err)
{
    int e = ask(fd, err);

    return e < 0 ? e : hear(r, fd, err);
}

/* ---- without a daemon ---- */

/* `tide` starts the user's own daemon, but not the machine's. */
static bool own_daemon(const char *socket_path)
{
    char dir[RUNDIR_PATH_MAX];
    size_t len = rundir_user(dir) == 0 ? strlen(dir) : 0;

    return len && strncmp(socket_path, dir, len) == 0 &&
           strcmp(socket_path + len, "/" RUNDIR_AGENT_SOCKET) == 0;
}

/* A daemon that lost its records puts the job at the end of its queue. 0 or -errno. */
static int register_anew(struct runner *r, struct error *err)
{
    _cleanup_answer_ struct api_answer answer = {0};
    struct launch *l = r->launch;
    int e = launch_register(l, &answer, err);

    if (e < 0)
        return e;
    if (answer.status == 409 && l->name && l->name != r->name) { /* name taken: adds the pid */
        snprintf(r->name, sizeof(r->name), "%.*s-%d", PROTO_NAME_MAX - 16, l->name, (int)getpid());
        l->name = r->name;
        return error_word(err, error_set(err, -EAGAIN, "another job has that name"), "name-taken");
    }
    if (answer.status == 507) /* the daemon's disk is full: it has a queue, but no room in it */
        return error_set(err, -ENOSPC, "the daemon refuses the job: %s",
                         member_text(json_object_get(answer.body, "error"), "message"));
    if (answer.status >= 400)
        return error_set(err, -EPROTO, "the daemon refuses the job: %s",
                         member_text(json_object_get(answer.body, "error"), "message"));
    cli_note(l->cmd,
             "the new daemon does not know job %s (%s): it is now %s (%s), at the end of the queue",
             member_text(r->job.body, "id"), member_text(r->job.body, "name"),
             member_text(answer.body, "id"), member_text(answer.body, "name"));
    api_answer_done(&r->job);
    r->job = answer;
    answer.body = NULL;
    return 0;
}

struct outage {
    uint64_t since_ns; /* 0: none */
    bool registered;   /* registers once: each further registration would make a job */
};

/* Makes one attempt. -EAGAIN: the next may succeed; *err says why this one failed. */
static int attempt(struct runner *r, struct outage *outage, struct error *err)
{
    const char *path = member_text(r->job.body, "socket");
    _cleanup_fd_ int fd = connect_to(path, err);
    uint64_t now = clock_now_ns();
    int e;

    if (fd < 0) {
        if (outage->since_ns && now - outage->since_ns > START_NS && own_daemon(path))
            launch_start_daemon(NULL, err);
        return -EAGAIN;
    }
    e = wait_at(r, fd, err);
    if (e == 0 || e == -ECANCELED)
        return e;
    if (clock_now_ns() - now > STEADY_NS)
        *outage = (struct outage){0};
    if (e == -ESRCH && !outage->registered) {
        e = register_anew(r, err);
        outage->registered = e == 0;
        if (e == -ENOSPC) /* the patience is for times without a daemon */
            outage->since_ns = clock_now_ns() - NS_PER_S;
    }
    return -EAGAIN;
}

int runner_wait(struct runner *r, struct error *err)
{
    struct outage outage = {0};
    uint64_t age_ns;
    int e;

    for (;;) {
        e = attempt(r, &outage, err);
        if (e != -EAGAIN)
            return e;
        if (!outage.since_ns)
            outage.since_ns = clock_now_ns();
        age_ns = clock_now_ns() - outage.since_ns;
        if (age_ns > r->patience_ms * NS_PER_MS)
            return -ECONNREFUSED;
        e = sleep_on(r, -1, age_ns < NS_PER_S ? RETRY_NS : NS_PER_S);
        if (e < 0)
            return e;
    }
}
