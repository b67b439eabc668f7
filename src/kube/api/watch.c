/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/watch.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "cluster-refused"

#define STREAM_S      300 /* the server is asked to end it by then, and up to as much later */
#define GARBAGE_LISTS 3   /* so many unreadable streams in a row: what was missed is not known */
#define STEADY_S      5   /* a stream that lived for so long was a good one */

enum phase { RESTING, LISTING, WATCHING };

struct watch {
    struct client *client;
    struct watch_delta *known;
    watch_fn *fn;
    void *arg;
    char *path, *query;
    char *next; /* token of the next page, escaped; NULL: the first */
    sd_event_source *timer;
    int64_t call;
    uint64_t lists, resumes, begun_ns;
    unsigned backoff_ms, page, garbage, seed;
    enum phase phase;
    bool synced, must_list, lost;
    struct error trouble;
};

static void begin(struct watch *w);

/* ---- time ---- */

static void wake_in(struct watch *w, uint64_t ms)
{
    sd_event_source_set_time_relative(w->timer, ms * 1000);
    sd_event_source_set_enabled(w->timer, SD_EVENT_ONESHOT);
}

/* Between half of @ms and @ms, so that watches that failed together do not return together. */
static unsigned jittered(struct watch *w, unsigned ms)
{
    return ms / 2 + (unsigned)rand_r(&w->seed) % (ms / 2 + 1);
}

static void rest(struct watch *w)
{
    w->phase = RESTING;
    wake_in(w, jittered(w, w->backoff_ms));
    w->backoff_ms = w->backoff_ms * 2 < WATCH_PAUSE_MS ? w->backoff_ms * 2 : WATCH_PAUSE_MS;
}

/* Reports only a failure that lasts: streams that are cut and go on at once are normal. */
static void failed(struct watch *w, int code, const char *why)
{
    bool first = w->backoff_ms == WATCH_BACKOFF_MS;

    error_set(&w->trouble, code, "%s", why);
    rest(w);
    if (!w->lost && !first) {
        w->lost = true;
        w->fn(w->arg, WATCH_LOST, NULL);
    }
}

/* Reports that the server answers again. Keeps the backoff, in case it soon stops answering. */
static void answers(struct watch *w)
{
    if (!w->lost)
        return;
    w->lost = false;
    w->fn(w->arg, WATCH_BACK, NULL);
}

static void good(struct watch *w)
{
    w->backoff_ms = WATCH_BACKOFF_MS;
    w->garbage = 0;
    answers(w);
}

/* ---- the stream ---- */

static void list_anew(struct watch *w)
{
    w->must_list = true;
    free(w->next);
    w->next = NULL;
}

static void on_end(void *arg, const struct client_answer *answer)
{
    struct watch *w = arg;
    uint64_t lived = clock_now_ns() - w->begun_ns;
    const char *why = w->trouble.code < 0 ? w->trouble.text : answer->text;

    w->call = 0;
    if (lived >= STEADY_S * NS_PER_S)
        w->backoff_ms = WATCH_BACKOFF_MS;
    if (answer->code == -ESTALE || w->trouble.code == -ESTALE)
        list_anew(w);
    if (answer->code == -EINVAL) /* a version that this server cannot know */
        list_anew(w);
    if (answer->code == -EMSGSIZE || (w->trouble.code == -EBADMSG && ++w->garbage >= GARBAGE_LISTS))
        list_anew(w);
    if (answer->code == 0 && lived >= STEADY_S * NS_PER_S) {
        begin(w);
        return;
    }
    failed(w, answer->code < 0 ? answer->code : -ECONNRESET, *why ? why : "the stream ended early");
}

static ssize_t on_stream(void *arg, const char *bytes, size_t len)
{
    struct watch *w = arg;
    size_t used = 0;
    const char *end;

    wake_in(w, WATCH_IDLE_S * 1000);
    if (len == 0)
        answers(w);
    while (used < len && (end = memchr(bytes + used, '\n', len - used))) {
        size_t line = (size_t)(end - (bytes + used));
        int r = line == 0 ? 0 : watch_delta_event(w->known, bytes + used, line, &w->trouble);

        if (r < 0)
            return r;
        used += line + 1;
        good(w);
    }
    return len - used > WATCH_DELTA_LINE_MAX ? -EMSGSIZE : (ssize_t)used;
}

static int64_t send_watch(struct watch *w)
{
    _cleanup_free_ char *path = NULL;
    char version[256];
    struct client_request request = {
        .verb = CLIENT_GET, .data = on_stream, .done = on_end, .arg = w};

    if (client_escape(watch_delta_version(w->known), version, sizeof(version)) < 0)
        return -EBADMSG;
    if (asprintf(&path,
                 "%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=%u&resourceVersion=%s%s%s",
                 w->path, STREAM_S + (unsigned)rand_r(&w->seed) % STREAM_S, version,
                 w->query ? "&" : "", w->query ? w->query : "") < 0) {
        path = NULL;
        return -ENOMEM;
    }
    request.path = path;
    w->phase = WATCHING;
    w->trouble = (struct error){0};
    w->resumes++;
    wake_in(w, WATCH_IDLE_S * 1000);
    return client_send(w->client, &request);
}

/* ---- the list ---- */

static void list_failed(struct watch *w, const struct client_answer *answer)
{
    if (answer->code == -EMSGSIZE && w->page > 1) {
        w->page = w->page > 8 ? w->page / 8 : 1;
        list_anew(w);
        begin(w);
        return;
    }
    /* The next page was refused: the list has grown too old while we read it. */
    if (answer->code == -ESTALE || answer->code == -EINVAL)
        list_anew(w);
    failed(w, answer->code, answer->text);
}

static void on_page(void *arg, const struct client_answer *answer)
{
    struct watch *w = arg;
    const char *next = "";
    struct error err = {0};
    int r;

    w->call = 0;
    if (answer->code < 0) {
        list_failed(w, answer);
        return;
    }
    r = watch_delta_list_page(w->known, answer->body, &next, &err);
    if (r < 0) {
        list_anew(w);
        failed(w, r, err.text);
        return;
    }
    free(w->next);
    w->next = *next ? malloc(strlen(next) * 3 + 2) : NULL;
    if (w->next && client_escape(next, w->next, strlen(next) * 3 + 2) == 0) {
        begin(w);
        return;
    }
    if (*next) {
        list_anew(w);
        failed(w, -ENOMEM, "out of memory");
        return;
    }
    w->must_list = false;
    w->synced = true;
    answers(w);
    watch_delta_list_end(w->known);
    begin(w);
}

static int64_t send_list(struct watch *w)
{
    _cleanup_free_ char *path = NULL;
    struct client_request request = {.verb = CLIENT_GET, .done = on_page, .arg = w};

    if (asprintf(&path, "%s?limit=%u%s%s%s%s", w->path, w->page, w->query ? "&" : "",
                 w->query ? w->query : "", w->next ? "&continue=" : "",
                 w->next ? w->next : "") < 0) {
        path = NULL;
        return -ENOMEM;
    }
    if (!w->next) {
        watch_delta_list_begin(w->known);
        w->lists++;
    }
    request.path = path;
    request.timeout_ms = 3 * CLIENT_TIMEOUT_MS;
    w->phase = LISTING;
    sd_event_source_set_enabled(w->timer, SD_EVENT_OFF);
    return client_send(w->client, &request);
}

static void begin(struct watch *w)
{
    int64_t r = w->must_list ? send_list(w) : send_watch(w);

    w->begun_ns = clock_now_ns();
    if (r < 0)
        failed(w, (int)r, strerror((int)-r));
    else
        w->call = r;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    struct watch *w = arg;

    if (w->phase == WATCHING) { /* silent for too long */
        client_cancel(w->client, w->call);
        w->call = 0;
        failed(w, -ETIMEDOUT, "the stream has been silent for too long");
    } else {
        begin(w);
    }
    return 0;
}

/* ---- the watch ---- */

int watch_new(struct client *client, sd_event *event, const char *path, const char *query,
              watch_fn *fn, void *arg, struct watch **ret)
{
    struct watch *w = calloc(1, sizeof(*w));
    int r;

    if (!w)
        return -ENOMEM;
    w->client = client;
    w->fn = fn;
    w->arg = arg;
    w->backoff_ms = WATCH_BACKOFF_MS;
    w->page = WATCH_PAGE;
    w->seed = (unsigned)(clock_now_ns() ^ (uintptr_t)w);
    w->must_list = true;
    w->path = strdup(path);
    w->query = query ? strdup(query) : NULL;
    w->known = watch_delta_new(fn, arg);
    r = w->path && w->known && (!query || w->query) ? 0 : -ENOMEM;
    if (r == 0)
        r = sd_event_add_time_relative(event, &w->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, w);
    if (r < 0) {
        watch_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

struct watch *watch_free(struct watch *w)
{
    if (!w)
        return NULL;
    client_cancel(w->client, w->call);
    sd_event_source_disable_unref(w->timer);
    watch_delta_free(w->known);
    free(w->path);
    free(w->query);
    free(w->next);
    free(w);
    return NULL;
}

void watch_renew(struct watch *w)
{
    client_cancel(w->client, w->call);
    w->call = 0;
    w->synced = false;
    list_anew(w);
    begin(w);
}

bool watch_synced(const struct watch *w)
{
    return w->synced;
}

const char *watch_trouble(const struct watch *w)
{
    return w->lost ? w->trouble.text : "";
}

uint64_t watch_lists(const struct watch *w)
{
    return w->lists;
}

uint64_t watch_resumes(const struct watch *w)
{
    return w->resumes;
}

void watch_learn(struct watch *w, json_t *object)
{
    watch_delta_learn(w->known, object);
}
