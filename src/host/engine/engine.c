/* SPDX-License-Identifier: Apache-2.0 */
#include "host/engine/engine.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fnv.h"
#include "host/engine/engine_state.h"
#include "host/net/http.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#define ERROR_WORD "engine-fault"

#define BACKOFF_MIN_MS 50 /* a restart takes Docker seconds, podman's service less */
#define BACKOFF_MAX_MS 2000
#define RESUME_MS      200 /* an event that the engine has not repeated by then will not come */

/* ---- news ---- */

static void set_timer(struct engine *e, unsigned ms)
{
    struct itimerspec when = {.it_value = {ms / 1000, ms % 1000 * 1000000}};

    timerfd_settime(e->timer_fd, 0, &when, NULL);
}

/* Reports a reason once, not at every attempt. */
static void lose(struct engine *e, const char *reason)
{
    struct engine_news news = {.kind = ENGINE_LOST, .text = e->lost};
    char text[sizeof(e->lost)];

    transfer_cancel(e->http, e->stream);
    e->stream = 0;
    /* Pauses before it asks an engine again that answers but breaks down at once. */
    if (e->phase == LIVE && clock_now_ns() - e->arrived_ns > BACKOFF_MAX_MS * NS_PER_MS)
        e->backoff_ms = BACKOFF_MIN_MS;
    e->phase = AWAY;
    set_timer(e, e->backoff_ms);
    e->backoff_ms = e->backoff_ms * 2 < BACKOFF_MAX_MS ? e->backoff_ms * 2 : BACKOFF_MAX_MS;
    snprintf(text, sizeof(text), "%s: %s", e->path, reason);
    if (strcmp(text, e->lost) == 0)
        return;
    strcpy(e->lost, text);
    e->news(e->arg, &news);
}

static void arrive(struct engine *e, enum engine_news_kind kind)
{
    struct engine_news news = {.kind = kind};

    if (e->phase != LIVE)
        e->arrived_ns = clock_now_ns();
    e->phase = LIVE;
    set_timer(e, 0);
    e->lost[0] = '\0';
    e->news(e->arg, &news);
}

/* Compares container and action; the caller compares the time. */
static uint64_t hash_event(const struct engine_event *event)
{
    return fnv_bytes(fnv_text(FNV_START, event->id), &event->action, sizeof(event->action));
}

/* Remembers the event. False: the event is a repetition. */
static bool is_new(struct engine *e, const struct engine_event *event)
{
    struct engine_seen now = {event->time_ns, hash_event(event)};
    unsigned n = e->n_seen < ENGINE_SEEN_MAX ? e->n_seen : ENGINE_SEEN_MAX;

    for (unsigned i = 0; i < n; i++)
        if (e->seen[i].time_ns == now.time_ns && e->seen[i].hash == now.hash)
            return false;
    e->seen[e->n_seen % ENGINE_SEEN_MAX] = now;
    /* Counts on from ENGINE_SEEN_MAX: neither the count nor the place in the ring is lost. */
    e->n_seen = e->n_seen + 1 < 2 * ENGINE_SEEN_MAX ? e->n_seen + 1 : ENGINE_SEEN_MAX;
    return true;
}

/*
 * We asked for the stream from the last event that we saw. An engine that repeats that event first
 * has lost no later one.
 */
static void take_event(struct engine *e, const struct engine_event *event)
{
    struct engine_news news = {.kind = ENGINE_NEWS, .event = event};
    bool fresh = is_new(e, event);

    if (e->phase == RESUMING)
        arrive(e, !fresh && event->time_ns == e->last_ns ? ENGINE_BACK : ENGINE_RESYNC);
    if (!fresh)
        return;
    if (!e->have_last || event->time_ns > e->last_ns)
        e->last_ns = event->time_ns;
    e->have_last = true;
    e->news(e->arg, &news);
}

static int take_line(struct engine *e, const char *line, size_t len)
{
    struct engine_event_text event;
    int r = engine_parse_event(line, len, &event, &e->broken);

    if (r <= 0)
        return r;
    take_event(e, &event.event);
    engine_event_done(&event);
    return 0;
}

/*
 * An event has all labels of its container and may be long. We skip it and list all containers
 * instead. Uses up the bytes from @bytes on.
 */
static ssize_t skip(struct engine *e, const char *bytes, const char *at, const char *end)
{
    e->skipped += (size_t)(end - at);
    if (e->skipped > ENGINE_SKIP_MAX)
        return error_set(&e->broken, -EMSGSIZE, "an event has more than %d bytes", ENGINE_SKIP_MAX);
    return end - bytes;
}

static ssize_t on_stream(void *arg, const char *bytes, size_t len)
{
    struct engine *e = arg;
    const char *at = bytes, *end = bytes + len, *lf;

    if (e->phase == OPENING) {
        e->phase = RESUMING;
        if (e->have_last)
            set_timer(e, RESUME_MS);
        else
            arrive(e, ENGINE_RESYNC);
    }
    for (; (lf = memchr(at, '\n', (size_t)(end - at))); at = lf + 1) {
        bool too_long = e->skipped || lf - at > ENGINE_EVENT_MAX; /* in one piece or in many */
        int r = too_long || lf == at ? 0 : take_line(e, at, (size_t)(lf - at));

        if (r < 0)
            return r;
        if (too_long)
            arrive(e, ENGINE_RESYNC);
        e->skipped = 0;
    }
    return e->skipped || end - at > ENGINE_EVENT_MAX ? skip(e, bytes, at, end) : at - bytes;
}

static void on_stream_end(void *arg, const struct transfer_answer *answer)
{
    struct engine *e = arg;
    char message[ERROR_TEXT_MAX] = "the stream of events ended";

    e->stream = 0;
    if (e->broken.code < 0)
        snprintf(message, sizeof(message), "its events cannot be read: %.220s", e->broken.text);
    else if (answer->status >= 300)
        engine_parse_failure(answer->body, answer->body_len, message, NULL, 0);
    else if (answer->code < 0)
        snprintf(message, sizeof(message), "%s", answer->reason);
    lose(e, message);
}

/* ---- finding the engine ---- */

static uint64_t real_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/*
 * Gives `since` the first time, too: Docker and podman answer before they listen themselves, and
 * their history tells the events in between.
 */
static int listen_to_events(struct engine *e)
{
    struct transfer_request request = {
        .method = "GET", .data = on_stream, .done = on_stream_end, .arg = e};
    _cleanup_free_ char *path = NULL;
    char filter[1024], since[48];

    if (e->last_ns == 0)
        e->last_ns = real_ns();
    e->dialect->since(e->last_ns, since, sizeof(since));
    if (http_escape(engine_event_filter, filter, sizeof(filter)) < 0 ||
        asprintf(&path, "%s/events?%sfilters=%s&since=%s", e->greeting.prefix,
                 e->dialect->events_query, filter, since) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    e->broken.code = 0;
    e->skipped = 0;
    e->phase = OPENING;
    set_timer(e, ENGINE_TIMEOUT_MS);
    request.path = path;
    e->stream = transfer_send(e->http, &request);
    return e->stream < 0 ? (int)e->stream : 0;
}

static void on_ping(void *arg, const struct transfer_answer *answer)
{
    struct engine *e = arg;
    struct engine_greeting greeting;
    struct error err = {0};
    char message[ERROR_TEXT_MAX];

    e->stream = 0;
    if (answer->code < 0) {
        lose(e, answer->reason);
        return;
    }
    if (answer->status != 200) {
        engine_parse_failure(answer->body, answer->body_len, message, NULL, 0);
        lose(e, message);
        return;
    }
    if (engine_parse_greeting(answer->head, &greeting, &err) < 0) {
        lose(e, err.text);
        return;
    }
    e->greeting = greeting;
    e->dialect = greeting.kind == ENGINE_PODMAN ? &engine_podman : &engine_docker;
    if (listen_to_events(e) < 0)
        lose(e, "out of memory");
}

static void look(struct engine *e)
{
    struct transfer_request request = {.method = "GET",
                                       .path = "/_ping",
                                       .done = on_ping,
                                       .arg = e,
                                       .timeout_ms = ENGINE_TIMEOUT_MS};

    e->phase = ASKING;
    e->stream = transfer_send(e->http, &request);
    if (e->stream < 0)
        lose(e, strerror((int)-e->stream));
}

static void on_timer(struct engine *e)
{
    uint64_t expired;

    if (read(e->timer_fd, &expired, sizeof(expired)) != (ssize_t)sizeof(expired))
        return;
    if (e->phase == AWAY)
        look(e);
    else if (e->phase == OPENING)
        lose(e, "no answer in time");
    else if (e->phase == RESUMING)
        arrive(e, ENGINE_RESYNC);
}

/* ---- the object ---- */

int engine_fd(const struct engine *e)
{
    return e->epoll_fd;
}

bool engine_only_cpus(const struct engine *e)
{
    return e->greeting.kind == ENGINE_PODS;
}

const char *engine_version(const struct engine *e)
{
    return e->greeting.version;
}

void engine_dispatch(struct engine *e)
{
    struct epoll_event events[2];
    int n = epoll_wait(e->epoll_fd, events, 2, 0);

    for (int i = 0; i < n; i++) {
        if (events[i].data.fd == e->timer_fd)
            on_timer(e);
        else
            transfers_dispatch(e->http);
    }
}

static int prepare(struct engine *e)
{
    struct epoll_event timer = {.events = EPOLLIN}, http = {.events = EPOLLIN};
    int r = transfers_new(&e->server, &e->http);

    if (r < 0)
        return r;
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    e->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    timer.data.fd = e->timer_fd;
    http.data.fd = transfers_fd(e->http);
    if (e->epoll_fd < 0 || e->timer_fd < 0 ||
        epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, e->timer_fd, &timer) < 0 ||
        epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, http.data.fd, &http) < 0)
        return -errno;
    set_timer(e, 1); /* looks for the engine, but only after the owner has its pointer */
    return 0;
}

int engine_new(const char *socket_path, engine_news_fn *news, void *arg, struct engine **ret,
               struct error *err)
{
    struct engine *e;
    int r;

    if (strlen(socket_path) >= sizeof(e->path))
        return error_set(err, -ENAMETOOLONG, "the path of a socket has at most %zu bytes: %s",
                         sizeof(e->path) - 1, socket_path);
    e = calloc(1, sizeof(*e));
    if (!e)
        return error_set(err, -ENOMEM, "out of memory");
    strcpy(e->path, socket_path);
    e->news = news;
    e->arg = arg;
    e->epoll_fd = e->timer_fd = -1;
    e->backoff_ms = BACKOFF_MIN_MS;
    e->server.socket_path = e->path;
    r = prepare(e);
    if (r < 0) {
        engine_free(e);
        return error_set(err, r, "no client for %s: %s", socket_path,
                         r == -ELIBACC ? "libcurl.so.4 cannot be loaded (package libcurl4)"
                                       : strerror(-r));
    }
    *ret = e;
    return 0;
}

struct engine *engine_free(struct engine *e)
{
    if (!e)
        return NULL;
    engine_calls_free(e);
    transfers_free(e->http);
    close_fd(e->timer_fd);
    close_fd(e->epoll_fd);
    free(e);
    return NULL;
}
