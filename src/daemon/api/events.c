/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api/events.h"

#include "base/clock.h"
#include "daemon/api/api.h"
#include "daemon/daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct event {
    char *text; /* in its final form */
    uint64_t time_ms;
};

struct events {
    struct daemon *daemon;
    struct event kept[EVENTS_KEPT]; /* event K at [K % EVENTS_KEPT] */
    uint64_t next;                  /* number of the next event; the first is 1 */
    struct stream *streams;
    sd_event_source *timer;
};

struct stream {
    struct stream *next;
    struct events *events;
    struct httpd_request *http;
    uid_t uid;
    uint64_t at;   /* number of the next event to send */
    size_t offset; /* bytes of it already sent */
    size_t said;   /* bytes of the comment already sent */
    bool ended;
    bool ends;        /* the stream ends once all is sent */
    char comment[80]; /* goes before the next event */
};

/* ---- keeping ---- */

static struct event *event_at(struct events *e, uint64_t number)
{
    return &e->kept[number % EVENTS_KEPT];
}

static uint64_t oldest(const struct events *e)
{
    return e->next > EVENTS_KEPT ? e->next - EVENTS_KEPT : 1;
}

void events_tell(struct events *e, const char *type, json_t *data)
{
    uint64_t now_ms = clock_real_ms();
    char *json = NULL, *text = NULL;
    int len = -1;

    if (data && json_object_set_new(data, "time", json_real((double)now_ms / 1000)) == 0)
        json = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(data);
    if (e && json)
        len = asprintf(&text, "id: %" PRIu64 ".%" PRIu64 "\nevent: %s\ndata: %s\n\n",
                       e->daemon->epoch, e->next, type, json);
    free(json);
    if (len < 0 || len > EVENTS_TEXT_MAX) {
        if (len >= 0)
            free(text);
        return;
    }
    free(event_at(e, e->next)->text);
    *event_at(e, e->next++) = (struct event){text, now_ms};
    for (struct stream *s = e->streams; s; s = s->next)
        httpd_wake(s->http);
}

/* ---- sending ---- */

ssize_t stream_read(void *arg, char *buf, size_t max)
{
    struct stream *s = arg;
    struct events *e = s->events;
    size_t len = 0;
    bool whole = true;

    if (s->ended || s->at < oldest(e))
        return HTTPD_BROKEN;
    /* Only between two events. */
    if (s->comment[0] && s->offset == 0) {
        len = httpd_put(buf, max, s->comment, &s->said, &whole);
        if (whole)
            s->comment[0] = '\0';
    }
    while (whole && len < max && s->at < e->next) {
        len += httpd_put(buf + len, max - len, event_at(e, s->at)->text, &s->offset, &whole);
        if (whole) {
            s->at++;
            s->offset = 0;
        }
    }
    return len == 0 && s->ends ? HTTPD_END : (ssize_t)len;
}

static void comment(struct stream *s, const char *text)
{
    snprintf(s->comment, sizeof(s->comment), "%s", text);
    s->said = 0;
}

struct stream *stream_free(struct stream *s)
{
    struct stream **at = s ? &s->events->streams : NULL;

    while (s && *at != s)
        at = &(*at)->next;
    if (s)
        *at = s->next;
    free(s);
    return NULL;
}

/* Sends a comment in silent times: proxies would close a connection without traffic. */
static int on_beat(sd_event_source *source, uint64_t usec, void *arg)
{
    struct events *e = arg;

    for (struct stream *s = e->streams; s; s = s->next) {
        if (!s->comment[0])
            comment(s, ":\n\n");
        httpd_wake(s->http);
    }
    if (!e->streams)
        return 0;
    sd_event_source_set_time_relative(source, EVENTS_BEAT_S * 1000000ull);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* ---- streams ---- */

/* The number of the event after @last; 0: another daemon's, or an event no longer kept. */
static uint64_t behind(const struct events *e, const char *last)
{
    uint64_t epoch, number;
    char end;

    if (sscanf(last, "%" SCNu64 ".%" SCNu64 "%c", &epoch, &number, &end) != 2 ||
        epoch != e->daemon->epoch || number >= e->next || number + 1 < oldest(e))
        return 0;
    return number + 1;
}

/* Returns 0 if events were missed: the stream then starts with the oldest one kept. */
static uint64_t first_of(struct events *e, const struct events_from *from)
{
    uint64_t at = oldest(e);

    if (from->last)
        return behind(e, from->last);
    if (from->since_ms == 0)
        return e->next;
    if (at > 1 && event_at(e, at)->time_ms >= from->since_ms)
        return 0;
    while (at < e->next && event_at(e, at)->time_ms < from->since_ms)
        at++;
    return at;
}

static void begin_at(struct stream *s, const struct events_from *from)
{
    s->at = first_of(s->events, from);
    comment(s, s->at ? "retry: 1000\n\n" : "retry: 1000\nevent: missed\ndata: {}\n\n");
    if (s->at == 0)
        s->at = oldest(s->events);
    s->ends = from->ends;
}

int events_open(struct events *e, struct request *r, const struct events_from *from,
                struct stream **ret)
{
    const struct daemon *d = e->daemon;
    unsigned all = 0, of_user = 0;
    struct stream *s;

    for (s = e->streams; s; s = s->next) {
        all++;
        of_user += s->uid == r->who.uid;
    }
    if (all >= EVENTS_STREAMS_MAX ||
        (r->who.uid != 0 && r->who.uid != d->uid && of_user >= EVENTS_STREAMS_UID))
        return -EAGAIN;
    s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->events = e;
    s->http = r->http;
    s->uid = r->who.uid;
    begin_at(s, from);
    s->next = e->streams;
    e->streams = s;
    if (all == 0) {
        sd_event_source_set_time_relative(e->timer, EVENTS_BEAT_S * 1000000ull);
        sd_event_source_set_enabled(e->timer, SD_EVENT_ONESHOT);
    }
    *ret = s;
    return 0;
}

void events_end_streams(struct events *e)
{
    for (struct stream *s = e ? e->streams : NULL; s; s = s->next) {
        s->ended = true;
        httpd_wake(s->http);
    }
}

int events_new(struct daemon *d, struct events **ret)
{
    struct events *e = calloc(1, sizeof(*e));
    int r;

    if (!e)
        return -ENOMEM;
    e->daemon = d;
    e->next = 1;
    r = sd_event_add_time(d->event, &e->timer, CLOCK_MONOTONIC, 0, 100000, on_beat, e);
    if (r >= 0)
        r = sd_event_source_set_enabled(e->timer, SD_EVENT_OFF);
    if (r < 0) {
        events_free(e);
        return r;
    }
    *ret = e;
    return 0;
}

struct events *events_free(struct events *e)
{
    if (!e)
        return NULL;
    for (unsigned i = 0; i < EVENTS_KEPT; i++)
        free(e->kept[i].text);
    sd_event_source_disable_unref(e->timer);
    free(e);
    return NULL;
}
