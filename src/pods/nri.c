/* SPDX-License-Identifier: Apache-2.0 */
#include "pods/nri.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/preload.h"
#include "pods/adjust.h"
#include "pods/frames.h"
#include "pods/log.h"
#include "runc/control_dir.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ERROR_WORD "no-nri"

#define NAME "threadtide"

#define READ_BYTES (64 << 10)
#define SEND_MAX   (16u << 20) /* bytes that the runtime has not taken yet */

#define CREATE_ADJUST 1 /* field of the answer */

enum phase { AWAY, TOLD, READY };

struct call {
    struct call *next;
    nri_done_fn *done;
    void *arg;
    uint32_t stream;
};

struct nri {
    struct nri_options options;
    sd_event *event;
    sd_event_source *io, *retry;
    struct pods *pods;
    nri_state_fn *state;
    void *arg;
    struct call *calls;
    struct frames in;
    struct buffer out;
    uint32_t streams; /* number of our last call */
    unsigned n_calls, pause_ms;
    enum phase phase;
    bool listing; /* a list of containers has begun */
    char problem[ERROR_TEXT_MAX];
};

static void lose(struct nri *n, const char *why);

/* ---- sending ---- */

static void flush(struct nri *n)
{
    int fd = n->io ? sd_event_source_get_io_fd(n->io) : -1;
    ssize_t sent = 0;

    while (fd >= 0 && n->out.len > 0 && sent >= 0) {
        sent = send(fd, n->out.bytes, n->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
            buffer_drop(&n->out, (size_t)sent);
    }
    if (n->out.failed || n->out.len > SEND_MAX)
        lose(n, "it takes no answers");
    else if (sent < 0 && errno != EAGAIN && errno != EINTR)
        lose(n, strerror(errno));
    else if (n->io)
        sd_event_source_set_io_events(n->io, EPOLLIN | (n->out.len ? EPOLLOUT : 0));
}

static int64_t call(struct nri *n, const char *method, struct buffer *payload, nri_done_fn *done,
                    void *arg)
{
    struct call *c;

    if (n->phase == AWAY)
        return -ENOTCONN;
    if (n->n_calls >= NRI_CALLS_MAX)
        return -EBUSY;
    c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    n->streams += n->streams ? 2 : 1; /* the caller's are odd */
    *c = (struct call){n->calls, done, arg, n->streams};
    n->calls = c;
    n->n_calls++;
    frames_call(&n->out, c->stream, NRI_RUNTIME, method, payload);
    return c->stream;
}

static struct call *take_call(struct nri *n, int64_t stream)
{
    struct call **at = &n->calls, *c;

    while (*at && (*at)->stream != stream)
        at = &(*at)->next;
    c = *at;
    if (c) {
        *at = c->next;
        n->n_calls--;
    }
    return c;
}

/* ---- a container that is being made ---- */

/* The control directory lies in tided's: without it the agent follows the container's limits alone.
 * False: none. */
static bool make_control_dir(const char *id, const struct startup *size, char *path, size_t room)
{
    char run[RUNDIR_PATH_MAX];
    _cleanup_fd_ int containers = control_dir_open(true, run);
    int r = containers < 0 ? containers : control_dir_make(containers, id);

    if (r == 0 && size)
        control_dir_write(containers, id, size);
    if (r < 0)
        pods_err("container %.12s: no control directory: %s", id, strerror(-r));
    return r == 0 && (size_t)snprintf(path, room, "%s/" CONTAINER_RUN_DIR "/%s", run, id) < room;
}

/* The agent may have gone since we started, and a mount without a source keeps a container from
 * starting. */
static bool agent_is_there(const struct nri *n)
{
    char path[PATH_MAX];

    if (!n->options.agent_dir)
        return false;
    snprintf(path, sizeof(path), "%s/lib64/" PRELOAD_FILE, n->options.agent_dir);
    return access(path, R_OK) == 0;
}

static void adjust(const struct nri *n, const struct nri_pod *pod, const struct nri_container *c,
                   const struct chosen *chosen, struct buffer *answer)
{
    char control_dir[PATH_MAX];
    struct startup size = {0};
    struct adjust_how how = {
        .agent_dir = n->options.agent_dir,
        .request = choose_number(pod, "request"),
        .min = choose_number(pod, "min"),
        .max = choose_number(pod, "max"),
        .cores = n->options.cores,
        .sizes = n->options.sizes,
    };

    if (!chosen->inject || !agent_is_there(n))
        return;
    if (chosen->job && make_control_dir(c->id, NULL, control_dir, sizeof(control_dir)))
        how.control_dir = control_dir;
    if (adjust_put(answer, &how, c, &size) && how.control_dir)
        make_control_dir(c->id, &size, control_dir, sizeof(control_dir));
}

/* ---- the runtime's calls ---- */

/* Reads pod and container from fields of a message. */
static int read_both(struct span message, unsigned first, struct nri_pod *pod,
                     struct nri_container *c)
{
    int r = protobuf_check(message);

    if (r == 0)
        r = nri_read_pod(protobuf_bytes(message, first), pod);
    if (r == 0)
        r = nri_read_container(protobuf_bytes(message, first + 1), c);
    return r;
}

static void resize(const struct nri *n, struct pod_container *c, struct span resources)
{
    struct nri_limits named = {0}, all = c->limits;

    if (nri_read_limits(resources, &named) < 0 || nri_read_limits(resources, &all) < 0)
        return;
    c->placed |= *named.cpus != '\0';
    pods_resize(n->pods, c, &all);
}

static void on_event(struct nri *n, enum nri_event event, struct span message, unsigned first,
                     struct buffer *answer)
{
    struct nri_pod pod;
    struct nri_container said;
    struct chosen chosen;
    struct pod_container *c;

    if (read_both(message, first, &pod, &said) < 0) {
        pods_err("the runtime tells of a container in a way that cannot be read");
        return;
    }
    c = pods_find(n->pods, said.id);
    switch (event) {
    case NRI_CREATE:
        c = pods_learn(n->pods, &pod, &said, &chosen);
        if (c) {
            c->state = NRI_CREATED;
            c->placed = *said.limits.cpus != '\0';
            adjust(n, &pod, &said, &chosen, answer);
        }
        break;
    case NRI_POST_START:
        c = pods_learn(n->pods, &pod, &said, NULL);
        if (c)
            pods_started(n->pods, c);
        break;
    case NRI_UPDATE: /* what it will have; told before it has it, so that tided sees it in time */
        if (c)
            resize(n, c, protobuf_bytes(message, first + 2));
        break;
    case NRI_STOP:
        if (c)
            pods_stopped(n->pods, c, said.exit_code);
        break;
    case NRI_REMOVE:
        if (c)
            pods_removed(n->pods, c);
        break;
    }
}

/* The runtime lists its containers, perhaps in several messages; each names its pod by id. */
static void synchronize(struct nri *n, struct span message, struct buffer *answer)
{
    struct span rest = message, one, pods;
    bool more = protobuf_value(message, 3) != 0;
    struct nri_container c;
    struct nri_pod pod;

    if (!n->listing)
        pods_list_begins(n->pods);
    n->listing = true;
    while (nri_next(&rest, 2, &one)) {
        if (nri_read_container(one, &c) < 0)
            continue;
        pod = (struct nri_pod){0};
        pods = message;
        for (struct span p; pod.id.len == 0 && nri_next(&pods, 1, &p);)
            if (nri_read_pod(p, &pod) < 0 || pod.id.len != c.pod.len ||
                memcmp(pod.id.at, c.pod.at, c.pod.len) != 0)
                pod = (struct nri_pod){0};
        if (pod.id.len > 0)
            pods_learn(n->pods, &pod, &c, NULL);
    }
    if (more) {
        protobuf_put_value(answer, 2, 1);
        return;
    }
    pods_list_ends(n->pods);
    n->listing = false;
    if (n->phase == READY)
        return;
    n->phase = READY;
    n->pause_ms = NRI_RETRY_MIN_MS;
    *n->problem = '\0';
    n->state(n->arg, true);
}

static const struct {
    const char *method;
    enum nri_event event;
} methods[] = {
    {"CreateContainer", NRI_CREATE}, {"PostStartContainer", NRI_POST_START},
    {"UpdateContainer", NRI_UPDATE}, {"StopContainer", NRI_STOP},
    {"RemoveContainer", NRI_REMOVE},
};

static void configure(const struct nri *n, struct span message, struct buffer *answer)
{
    char name[64], version[64];

    pods_log("%s: %s %s", n->options.socket,
             span_text(protobuf_bytes(message, 2), name, sizeof(name)),
             span_text(protobuf_bytes(message, 3), version, sizeof(version)));
    nri_put_events(answer);
}

/* Returns false for a method that we do not have. */
static bool serve(struct nri *n, const struct frames_message *m, struct buffer *answer)
{
    struct span p = m->payload;

    if (!span_is(m->service, NRI_PLUGIN))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (!span_is(m->method, methods[i].method))
            continue;
        on_event(n, methods[i].event, p, 1, answer);
        return true;
    }
    if (span_is(m->method, "Configure"))
        configure(n, p, answer);
    else if (span_is(m->method, "Synchronize"))
        synchronize(n, p, answer);
    else if (span_is(m->method, "StateChange"))
        on_event(n, (enum nri_event)protobuf_value(p, 1), p, 2, answer);
    else
        return span_is(m->method, "Shutdown");
    return true;
}

static void on_message(struct nri *n, const struct frames_message *m)
{
    struct buffer answer = {0};
    struct call *c;

    if (m->is_call) {
        if (serve(n, m, &answer))
            frames_answer(&n->out, m->stream, 0, NULL, &answer);
        else
            frames_answer(&n->out, m->stream, NRI_UNIMPLEMENTED, "there is no such method", NULL);
        buffer_done(&answer);
        return;
    }
    c = take_call(n, m->stream);
    if (!c)
        return;
    if (c->done)
        c->done(c->arg, m->code                         ? m->text
                        : nri_update_failed(m->payload) ? "the runtime could not change it"
                                                        : NULL);
    free(c);
}

/* ---- the connection ---- */

static void pause_then_retry(struct nri *n)
{
    sd_event_source_set_time_relative(n->retry, n->pause_ms * 1000ull);
    sd_event_source_set_enabled(n->retry, SD_EVENT_ONESHOT);
    n->pause_ms = n->pause_ms * 2 < NRI_RETRY_MAX_MS ? n->pause_ms * 2 : NRI_RETRY_MAX_MS;
}

static void lose(struct nri *n, const char *why)
{
    char problem[sizeof(n->problem)];
    bool was_ready = n->phase == READY;

    n->io = sd_event_source_disable_unref(n->io);
    frames_done(&n->in);
    buffer_done(&n->out);
    n->in = (struct frames){0};
    n->phase = AWAY;
    n->listing = false;
    snprintf(problem, sizeof(problem), "no runtime speaks NRI on %.100s: %.120s", n->options.socket,
             why);
    if (strcmp(problem, n->problem) != 0)
        pods_err("%s", problem);
    memcpy(n->problem, problem, sizeof(problem));
    pause_then_retry(n);
    for (struct call *c = n->calls, *next; c; c = next) {
        next = c->next;
        n->calls = next;
        n->n_calls--;
        if (c->done)
            c->done(c->arg, "the runtime has hung up");
        free(c);
    }
    if (was_ready)
        n->state(n->arg, false);
}

static int receive(struct nri *n, int fd)
{
    static unsigned char bytes[READ_BYTES];
    struct frames_message message;
    ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    int r;

    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (got == 0)
        return -ECONNRESET;
    buffer_add(&n->in.trunk, bytes, (size_t)got);
    if (n->in.trunk.failed)
        return -ENOMEM;
    while ((r = frames_next(&n->in, &message)) > 0) {
        on_message(n, &message);
        if (n->phase == AWAY)
            return 0; /* lost meanwhile */
    }
    return r;
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct nri *n = arg;
    int r = events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? receive(n, fd) : 0;

    if (r < 0)
        lose(n, r == -ECONNRESET ? "it has hung up"
                : r == -EBADMSG  ? "what it says cannot be read"
                                 : strerror(-r));
    else
        flush(n);
    return 0;
}

static int reach(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static int on_retry(sd_event_source *s, uint64_t usec, void *arg)
{
    struct nri *n = arg;
    struct buffer registration = {0};
    int fd = reach(n->options.socket), r;

    if (fd < 0) {
        lose(n, strerror(-fd));
        return 0;
    }
    r = sd_event_add_io(n->event, &n->io, fd, EPOLLIN, on_io, n);
    if (r < 0) {
        close_fd(fd);
        lose(n, strerror(-r));
        return 0;
    }
    sd_event_source_set_io_fd_own(n->io, true);
    n->phase = TOLD;
    n->streams = 0;
    nri_put_registration(&registration, NAME, n->options.index);
    r = registration.failed ? -ENOMEM : (int)call(n, "RegisterPlugin", &registration, NULL, NULL);
    buffer_done(&registration);
    if (r < 0)
        lose(n, strerror(-r));
    else
        flush(n);
    return 0;
}

/* ---- the object ---- */

int nri_new(sd_event *event, const struct nri_options *options, struct pods *pods,
            nri_state_fn *state, void *arg, struct nri **ret, struct error *err)
{
    struct nri *n;
    int r;

    if (strlen(options->socket) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return error_set(err, -ENAMETOOLONG, "the path of a socket has at most %zu bytes: %s",
                         sizeof(((struct sockaddr_un *)0)->sun_path) - 1, options->socket);
    n = calloc(1, sizeof(*n));
    if (!n)
        return error_set(err, -ENOMEM, "out of memory");
    n->options = *options;
    n->event = event;
    n->pods = pods;
    n->state = state;
    n->arg = arg;
    n->pause_ms = NRI_RETRY_MIN_MS;
    snprintf(n->problem, sizeof(n->problem), "the runtime has not told of its containers yet");
    r = sd_event_add_time_relative(event, &n->retry, CLOCK_MONOTONIC, 0, 1000, on_retry, n);
    if (r < 0) {
        nri_free(n);
        return error_set(err, r, "no timer: %s", strerror(-r));
    }
    *ret = n;
    return 0;
}

struct nri *nri_free(struct nri *n)
{
    if (!n)
        return NULL;
    sd_event_source_disable_unref(n->io);
    sd_event_source_disable_unref(n->retry);
    for (struct call *c = n->calls, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    frames_done(&n->in);
    buffer_done(&n->out);
    free(n);
    return NULL;
}

bool nri_ready(const struct nri *n)
{
    return n->phase == READY;
}

const char *nri_problem(const struct nri *n)
{
    return n->problem;
}

int64_t nri_update(struct nri *n, const char *id, const char *cpus, nri_done_fn *done, void *arg)
{
    struct buffer update = {0};
    int64_t ticket;

    nri_put_update(&update, id, cpus);
    ticket = update.failed       ? -ENOMEM
             : n->phase != READY ? -ENOTCONN
                                 : call(n, "UpdateContainers", &update, done, arg);
    buffer_done(&update);
    if (ticket > 0) /* it is sent from the loop: a failure calls @done */
        sd_event_source_set_io_events(n->io, EPOLLIN | EPOLLOUT);
    return ticket;
}

void nri_forget(struct nri *n, int64_t ticket)
{
    for (struct call *c = n->calls; c; c = c->next)
        if (c->stream == ticket)
            c->done = NULL;
}
