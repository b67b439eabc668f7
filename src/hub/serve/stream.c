/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/stream.h"

#include "base/cleanup.h"

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#define MISSED "event: missed\ndata: {}\n\n"

struct streams {
    struct people *people;
    uint32_t epoch;          /* another one after each start of the hub */
    char *text[STREAM_KEPT]; /* event K at [K % STREAM_KEPT] */
    uint64_t first_kept;     /* number of the oldest one */
    uint64_t next;           /* number of the next event; the first is 1 */
    size_t bytes;            /* of all that are kept */
    uint64_t skipped;        /* events before this number are not all that happened */
    struct stream *first;
    sd_event_source *timer;
};

struct stream {
    struct stream *next;
    struct streams *streams;
    struct httpd_request *http;
    struct who who;
    uint64_t at; /* number of the next event to send */
    char *rest;  /* of an event that has been begun … */
    size_t sent; /* … and the bytes of it already sent; NULL: none */
    size_t said; /* bytes of the comment already sent */
    bool ended;
    char comment[80]; /* goes before the next event */
};

/* ---- keeping ---- */

static char **text_at(struct streams *s, uint64_t number)
{
    return &s->text[number % STREAM_KEPT];
}

/* Keeps the text, which is not NULL, as the next event. */
static void keep(struct streams *s, char *text)
{
    *text_at(s, s->next++) = text;
    s->bytes += strlen(text);
}

/* Makes room for an event of @len bytes. */
static void drop_old(struct streams *s, size_t len)
{
    while (s->first_kept < s->next &&
           (s->next - s->first_kept >= STREAM_KEPT || s->bytes + len > STREAM_KEPT_BYTES)) {
        char **old = text_at(s, s->first_kept++);

        s->bytes -= strlen(*old);
        free(*old);
        *old = NULL;
    }
}

bool streams_open(const struct streams *s)
{
    return s->first;
}

void streams_skip(struct streams *s)
{
    s->skipped = s->next;
}

void streams_tell(struct streams *s, const char *type, json_t *data)
{
    _cleanup_free_ char *json =
        data ? json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    char *text = NULL;
    int len = -1;

    json_decref(data);
    if (json && strlen(json) > STREAM_TEXT_MAX)
        len = asprintf(&text, "id: %" PRIu32 ".%" PRIu64 "\n" MISSED, s->epoch, s->next);
    else if (json)
        len = asprintf(&text, "id: %" PRIu32 ".%" PRIu64 "\nevent: %s\ndata: %s\n\n", s->epoch,
                       s->next, type, json);
    if (len < 0) {
        streams_skip(s);
        return;
    }
    drop_old(s, (size_t)len);
    keep(s, text);
    for (struct stream *one = s->first; one; one = one->next)
        httpd_wake(one->http);
}

/* ---- sending ---- */

static void comment(struct stream *one, const char *text)
{
    snprintf(one->comment, sizeof(one->comment), "%s", text);
    one->said = 0;
}

/* The rest of an event that has been begun, then what goes between two events. */
static size_t put_begun(struct stream *one, char *buf, size_t max, bool *ret_whole)
{
    size_t len = 0;

    *ret_whole = true;
    if (one->rest) {
        len = httpd_put(buf, max, one->rest, &one->sent, ret_whole);
        if (*ret_whole) {
            free(one->rest);
            one->rest = NULL;
        }
    }
    if (*ret_whole && one->at < one->streams->first_kept && one->said == 0) {
        comment(one, MISSED);
        one->at = one->streams->next;
    }
    if (*ret_whole && one->comment[0] && len < max) {
        len += httpd_put(buf + len, max - len, one->comment, &one->said, ret_whole);
        if (*ret_whole)
            comment(one, "");
    }
    return len;
}

static ssize_t on_room(void *arg, char *buf, size_t max)
{
    struct stream *one = arg;
    struct streams *s = one->streams;
    bool whole;
    size_t len;

    if (one->ended)
        return HTTPD_BROKEN;
    len = put_begun(one, buf, max, &whole);
    while (whole && len < max && one->at >= s->first_kept && one->at < s->next) {
        const char *text = *text_at(s, one->at++);

        one->sent = 0;
        len += httpd_put(buf + len, max - len, text, &one->sent, &whole);
        if (whole)
            continue;
        one->rest = strdup(text); /* it may be overwritten before there is room again */
        if (!one->rest)
            return HTTPD_BROKEN;
    }
    return (ssize_t)len;
}

void streams_review(struct streams *s, bool all)
{
    for (struct stream *one = s->first; one; one = one->next)
        if (!one->ended && (all || !people_still(s->people, &one->who))) {
            one->ended = true;
            httpd_wake(one->http);
        }
}

/* A comment in silent times: proxies would close a connection without traffic. */
static int on_beat(sd_event_source *source, uint64_t usec, void *arg)
{
    struct streams *s = arg;

    streams_review(s, false);
    for (struct stream *one = s->first; one; one = one->next) {
        if (!one->comment[0])
            comment(one, ":\n\n");
        httpd_wake(one->http);
    }
    sd_event_source_set_time_relative(source, STREAM_BEAT_S * 1000000ull);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* ---- streams ---- */

/* The number of the event behind @last; 0: some were missed. */
static uint64_t behind(const struct streams *s, const char *last)
{
    uint32_t epoch;
    uint64_t number;
    char end;

    if (sscanf(last, "%" SCNu32 ".%" SCNu64 "%c", &epoch, &number, &end) != 2 ||
        epoch != s->epoch || number >= s->next || number + 1 < s->first_kept ||
        number + 1 < s->skipped)
        return 0;
    return number + 1;
}

int stream_begin(struct streams *s, struct httpd_request *http, const struct who *who,
                 const char *last, unsigned most, unsigned most_of_user, struct stream **ret)
{
    unsigned all = 0, of_user = 0;
    struct stream *one;

    for (one = s->first; one; one = one->next) {
        all++;
        of_user += strcmp(one->who.name, who->name) == 0;
    }
    if (all >= most || of_user >= most_of_user)
        return -EAGAIN;
    one = calloc(1, sizeof(*one));
    if (!one)
        return -ENOMEM;
    one->streams = s;
    one->http = http;
    one->who = *who;
    one->at = last ? behind(s, last) : s->next;
    comment(one, one->at ? "retry: 1000\n\n" : "retry: 1000\n" MISSED);
    if (one->at == 0)
        one->at = s->next;
    one->next = s->first;
    s->first = one;
    *ret = one;
    httpd_stream(http, "text/event-stream", on_room, one);
    return 0;
}

struct stream *stream_free(struct stream *one)
{
    struct stream **at = one ? &one->streams->first : NULL;

    while (one && *at != one)
        at = &(*at)->next;
    if (one) {
        *at = one->next;
        free(one->rest);
    }
    free(one);
    return NULL;
}

int streams_new(sd_event *event, struct people *people, struct streams **ret)
{
    struct streams *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return -ENOMEM;
    s->people = people;
    s->first_kept = s->next = 1;
    r = getrandom(&s->epoch, sizeof(s->epoch), 0) < 0 ? -errno : 0;
    if (r >= 0)
        r = sd_event_add_time_relative(event, &s->timer, CLOCK_MONOTONIC,
                                       STREAM_BEAT_S * 1000000ull, 100000, on_beat, s);
    if (r < 0) {
        streams_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

struct streams *streams_free(struct streams *s)
{
    if (!s)
        return NULL;
    for (unsigned i = 0; i < STREAM_KEPT; i++)
        free(s->text[i]);
    sd_event_source_disable_unref(s->timer);
    free(s);
    return NULL;
}
