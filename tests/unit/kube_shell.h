/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulates the world around the controller's I/O on a clock of its own. The linker finds the event
 * loop, clock_gettime() and libcurl functions below before the real ones. All code above them is
 * real: client, watches, lease, controller, actions.
 *
 * The API server stores any objects as JSON, with versions, watches and bookmarks. It can be gone
 * (it refuses connections) or silent (it answers nothing). Clocks can jump, and the machine can
 * sleep.
 */
#pragma once

#include "base/clock.h"
#include "host/net/transfer.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>

#include <cmocka.h>

#define LATENCY_NS  (5 * NS_PER_MS)
#define BOOKMARK_NS (60 * NS_PER_S)

struct sd_event_source {
    struct sd_event_source *next;
    sd_event_time_handler_t on_time;
    sd_event_io_handler_t on_io;
    void *arg;
    uint64_t due_ns; /* by its own clock */
    clockid_t clock;
    int enabled;
};

/* A request under way; a stream stays. */
struct exchange {
    struct exchange *next;
    transfer_data *data;
    transfer_done *done;
    void *arg;
    char *method, *path, *body;
    char plural[64], space[64], name[64], sub[64];
    int64_t ticket, version; /* of a stream: the last version that it sent */
    uint64_t due_ns, deadline_ns, bookmark_ns;
    unsigned client;
    bool streams, dead;
};

enum shell_server { SERVER_UP, SERVER_GONE, SERVER_SILENT };

static struct {
    uint64_t now_ns, slept_ns; /* CLOCK_MONOTONIC; CLOCK_BOOTTIME is further on */
    int64_t wall_ns;           /* since 1970, at now_ns 0 */
    struct sd_event_source *sources;
    struct exchange *exchanges;
    json_t *objects;            /* array */
    json_t *log;                /* array of {version, type, object} */
    json_t *counts;             /* "PATCH elastictrainingjobs/status" → how many */
    int64_t version, compacted; /* the log is forgotten up to it */
    int64_t tickets, uids;
    unsigned asked; /* requests, answered or not */
    unsigned clients;
    unsigned deaf; /* the watches of this client, from 1, bring nothing; 0: of none */
    enum shell_server server;
    const char *refuses; /* "services": refuses writes of these; NULL: of none */
    bool namespace_ends; /* it is being deleted and takes no new objects */
} shell;

/* ---- clocks ---------------------------------------------------------------------------------- */

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    uint64_t ns = shell.now_ns + (clock == CLOCK_BOOTTIME ? shell.slept_ns : 0);

    if (clock == CLOCK_REALTIME)
        ns += (uint64_t)shell.wall_ns + shell.slept_ns;
    *ret = (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    return 0;
}

static uint64_t time_of(clockid_t clock)
{
    return shell.now_ns + (clock == CLOCK_BOOTTIME ? shell.slept_ns : 0);
}

/* ---- the loop -------------------------------------------------------------------------------- */

sd_event *sd_event_ref(sd_event *e)
{
    return e;
}

sd_event *sd_event_unref(sd_event *e)
{
    (void)e;
    return NULL;
}

static sd_event_source *add_source(sd_event_source **ret)
{
    sd_event_source *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    s->enabled = SD_EVENT_ONESHOT;
    s->next = shell.sources;
    shell.sources = s;
    return *ret = s;
}

int sd_event_add_time(sd_event *e, sd_event_source **s, clockid_t clock, uint64_t usec,
                      uint64_t accuracy, sd_event_time_handler_t handler, void *arg)
{
    sd_event_source *made = add_source(s);

    (void)e, (void)accuracy;
    made->clock = clock;
    made->due_ns = usec * NS_PER_US;
    made->on_time = handler;
    made->arg = arg;
    return 0;
}

int sd_event_add_time_relative(sd_event *e, sd_event_source **s, clockid_t clock, uint64_t usec,
                               uint64_t accuracy, sd_event_time_handler_t handler, void *arg)
{
    return sd_event_add_time(e, s, clock, time_of(clock) / NS_PER_US + usec, accuracy, handler,
                             arg);
}

int sd_event_add_io(sd_event *e, sd_event_source **s, int fd, uint32_t events,
                    sd_event_io_handler_t handler, void *arg)
{
    sd_event_source *made = add_source(s);

    (void)e, (void)fd, (void)events;
    made->on_io = handler;
    made->arg = arg;
    return 0;
}

int sd_event_source_set_time(sd_event_source *s, uint64_t usec)
{
    s->due_ns = usec * NS_PER_US;
    return 0;
}

int sd_event_source_set_time_relative(sd_event_source *s, uint64_t usec)
{
    s->due_ns = time_of(s->clock) + usec * NS_PER_US;
    return 0;
}

int sd_event_source_set_enabled(sd_event_source *s, int enabled)
{
    s->enabled = enabled;
    return 0;
}

sd_event_source *sd_event_source_disable_unref(sd_event_source *s)
{
    struct sd_event_source **at = &shell.sources;

    while (*at && *at != s)
        at = &(*at)->next;
    if (*at)
        *at = s->next;
    free(s);
    return NULL;
}

/* When it is due, on CLOCK_MONOTONIC. */
static uint64_t due_of(const struct sd_event_source *s)
{
    uint64_t ahead = s->clock == CLOCK_BOOTTIME ? shell.slept_ns : 0;

    if (!s->on_time || s->enabled == SD_EVENT_OFF)
        return UINT64_MAX;
    return s->due_ns > ahead ? s->due_ns - ahead : 0;
}

/* ---- the API server's objects ---------------------------------------------------------------- */

static const char *text_at(const json_t *object, const char *outer, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(object, outer), key));

    return text ? text : "";
}

static bool is_in(const json_t *object, const char *plural, const char *space)
{
    return strcmp(text_at(object, "shell", "plural"), plural) == 0 &&
           (!*space || strcmp(text_at(object, "metadata", "namespace"), space) == 0);
}

static json_t *find_object(const char *plural, const char *space, const char *name)
{
    json_t *object;
    size_t i;

    json_array_foreach (shell.objects, i, object)
        if (is_in(object, plural, space) && strcmp(text_at(object, "metadata", "name"), name) == 0)
            return object;
    return NULL;
}

/* Sends the object in its new version to all watches. */
static void changed(json_t *object, const char *type)
{
    char version[24];

    snprintf(version, sizeof(version), "%" JSON_INTEGER_FORMAT, (json_int_t)++shell.version);
    json_object_set_new(json_object_get(object, "metadata"), "resourceVersion",
                        json_string(version));
    json_array_append_new(shell.log,
                          json_pack("{s:I,s:s,s:o}", "version", (json_int_t)shell.version, "type",
                                    type, "object", json_deep_copy(object)));
    for (struct exchange *x = shell.exchanges; x; x = x->next)
        if (x->streams && x->due_ns > shell.now_ns + LATENCY_NS)
            x->due_ns = shell.now_ns + LATENCY_NS;
}

/* Borrowed. */
static json_t *put_object(const char *plural, const char *space, const char *name, json_t *object)
{
    json_t *meta = json_object_get(object, "metadata");
    char uid[24];

    if (!meta) {
        meta = json_object();
        json_object_set_new(object, "metadata", meta);
    }
    snprintf(uid, sizeof(uid), "uid-%d", (int)++shell.uids);
    json_object_set_new(meta, "name", json_string(name));
    if (*space)
        json_object_set_new(meta, "namespace", json_string(space));
    json_object_set_new(meta, "uid", json_string(uid));
    json_object_set_new(meta, "generation", json_integer(1));
    json_object_set_new(meta, "creationTimestamp", json_string("2026-11-22T05:15:19Z"));
    json_object_set_new(object, "shell", json_pack("{s:s}", "plural", plural));
    json_array_append_new(shell.objects, object);
    changed(object, "ADDED");
    return object;
}

/* Merges @with into the object, as another program would. */
static void change_object(json_t *object, json_t *with)
{
    json_t *before = json_deep_copy(object);

    json_object_update_recursive(object, with);
    if (!json_equal(before, object))
        changed(object, "MODIFIED");
    json_decref(before);
    json_decref(with);
}

static void remove_object(json_t *object)
{
    json_t *other;
    size_t i;

    changed(object, "DELETED");
    json_array_foreach (shell.objects, i, other)
        if (other == object)
            json_array_remove(shell.objects, i--);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* "/apis/GROUP/VERSION/namespaces/SPACE/PLURAL/NAME/SUB?…" */
static void split(struct exchange *x)
{
    char path[1024], *rest = path, *word;
    char *to[] = {x->plural, x->name, x->sub};
    unsigned skip = strncmp(x->path, "/apis/", 6) == 0 ? 3 : 2, n = 0;

    snprintf(path, sizeof(path), "%.*s", (int)strcspn(x->path, "?") - 1, x->path + 1);
    while ((word = strsep(&rest, "/"))) {
        if (skip > 0) {
            skip--;
        } else if (n == 0 && !*x->space && strcmp(word, "namespaces") == 0 && rest) {
            snprintf(x->space, sizeof(x->space), "%s", strsep(&rest, "/"));
        } else if (n < 3) {
            snprintf(to[n++], sizeof(x->plural), "%s", word);
        }
    }
}

/* A namespace that is being deleted takes no new object. */
static json_t *namespace_ends(void)
{
    return json_pack("{s:s,s:i,s:s,s:{s:[{s:s}]}}", "kind", "Status", "code", 403, "reason",
                     "Forbidden", "details", "causes", "reason", "NamespaceTerminating");
}

static json_t *refusal(int status, const char *reason)
{
    return json_pack("{s:s,s:i,s:s,s:s}", "kind", "Status", "code", status, "reason", reason,
                     "message", reason);
}

static int list(const struct exchange *x, json_t **ret)
{
    json_t *items = json_array(), *object;
    char version[24];
    size_t i;

    snprintf(version, sizeof(version), "%" JSON_INTEGER_FORMAT, (json_int_t)shell.version);
    json_array_foreach (shell.objects, i, object)
        if (is_in(object, x->plural, x->space))
            json_array_append(items, object);
    *ret = json_pack("{s:{s:s},s:o}", "metadata", "resourceVersion", version, "items", items);
    return 200;
}

/* Returns true when a write names no uid and resourceVersion, or the object's. */
static bool meant(const json_t *body, const json_t *object)
{
    static const char *const keys[] = {"uid", "resourceVersion"};

    for (size_t i = 0; i < 2; i++) {
        const char *own = text_at(body, "metadata", keys[i]);

        if (*own && strcmp(own, text_at(object, "metadata", keys[i])) != 0)
            return false;
    }
    return true;
}

/* "pods/resize" */
static const char *what(const struct exchange *x)
{
    static char text[2 * sizeof(x->plural)];

    snprintf(text, sizeof(text), "%s%s%s", x->plural, *x->sub ? "/" : "", x->sub);
    return text;
}

static int serve(struct exchange *x, json_t **ret)
{
    json_t *object = *x->name ? find_object(x->plural, x->space, x->name) : NULL;
    json_t *body = x->body ? json_loads(x->body, 0, NULL) : NULL;
    int status = 404;

    if (shell.refuses && strcmp(x->method, "GET") != 0 && strcmp(what(x), shell.refuses) == 0) {
        status = 403;
        *ret = refusal(403, "Forbidden");
    } else if (shell.namespace_ends && strcmp(x->method, "POST") == 0) {
        status = 403;
        *ret = namespace_ends();
    } else if (strcmp(x->method, "GET") == 0 && !*x->name && *x->plural) {
        status = list(x, ret);
    } else if (strcmp(x->method, "POST") == 0) {
        char name[64];

        snprintf(name, sizeof(name), "%s", text_at(body, "metadata", "name"));
        object = find_object(x->plural, x->space, name);
        status = object ? 409 : 201;
        *ret = object ? refusal(409, "AlreadyExists")
                      : json_incref(put_object(x->plural, x->space, name, json_incref(body)));
    } else if (strcmp(x->method, "PATCH") == 0 && !object && strstr(x->path, "force=true")) {
        *ret = json_incref(put_object(x->plural, x->space, x->name, json_incref(body)));
        status = 201;
    } else if (object && !meant(body, object)) {
        *ret = refusal(409, "Conflict");
        status = 409;
    } else if (object) {
        if (strcmp(x->method, "PATCH") == 0)
            change_object(object, json_incref(body));
        *ret = json_incref(object);
        if (strcmp(x->method, "DELETE") == 0)
            remove_object(object);
        status = 200;
    }
    if (!*ret)
        *ret = refusal(404, "NotFound");
    json_decref(body);
    return status;
}

static void end_exchange(struct exchange *x, int code, int status, const char *body)
{
    struct transfer_answer answer = {.code = code,
                                     .status = status,
                                     .head = "",
                                     .body = body,
                                     .body_len = strlen(body),
                                     .reason = code ? "the test's server" : ""};

    x->dead = true;
    x->done(x->arg, &answer);
}

static void answer_exchange(struct exchange *x)
{
    char *text, key[200];
    json_t *json = NULL, *n;
    int status = serve(x, &json);

    snprintf(key, sizeof(key), "%s %s", x->method, what(x));
    n = json_object_get(shell.counts, key);
    json_object_set_new(shell.counts, key, json_integer(json_integer_value(n) + 1));
    text = json_dumps(json, 0);
    json_decref(json);
    end_exchange(x, 0, status, text);
    free(text);
}

static void begin_stream(struct exchange *x)
{
    const char *from = strstr(x->path, "resourceVersion=");

    x->version = from ? atoll(from + strlen("resourceVersion=")) : 0;
    if (x->version < shell.compacted) {
        char *text;
        json_t *gone = refusal(410, "Expired");

        text = json_dumps(gone, 0);
        json_decref(gone);
        end_exchange(x, 0, 410, text);
        free(text);
        return;
    }
    x->streams = true;
    x->bookmark_ns = shell.now_ns + BOOKMARK_NS;
    x->due_ns = shell.now_ns + LATENCY_NS;
    x->data(x->arg, "", 0);
}

static void send_line(struct exchange *x, const char *type, const json_t *object)
{
    json_t *event = json_pack("{s:s,s:O}", "type", type, "object", object);
    char *text = json_dumps(event, 0), *line = NULL;

    assert_true(asprintf(&line, "%s\n", text) > 0);
    x->data(x->arg, line, strlen(line));
    free(line);
    free(text);
    json_decref(event);
}

static void go_on_with_stream(struct exchange *x)
{
    json_t *entry;
    size_t i;

    if (shell.deaf == x->client) {
        x->due_ns = shell.now_ns + NS_PER_S;
        return;
    }
    json_array_foreach (shell.log, i, entry) {
        int64_t version = json_integer_value(json_object_get(entry, "version"));
        json_t *object = json_object_get(entry, "object");

        if (x->dead || version <= x->version)
            continue;
        x->version = version;
        if (is_in(object, x->plural, x->space))
            send_line(x, json_string_value(json_object_get(entry, "type")), object);
    }
    if (!x->dead && shell.now_ns >= x->bookmark_ns) {
        char version[24];
        json_t *object;

        snprintf(version, sizeof(version), "%" JSON_INTEGER_FORMAT, (json_int_t)shell.version);
        object = json_pack("{s:{s:s}}", "metadata", "resourceVersion", version);
        send_line(x, "BOOKMARK", object);
        json_decref(object);
        x->bookmark_ns = shell.now_ns + BOOKMARK_NS;
    }
    x->due_ns = x->bookmark_ns;
}

int transfers_new(const struct transfer_server *server, struct transfers **ret)
{
    (void)server;
    *ret = (struct transfers *)(uintptr_t)++shell.clients;
    return 0;
}

struct transfers *transfers_free(struct transfers *set)
{
    (void)set;
    return NULL;
}

int transfers_fd(const struct transfers *set)
{
    (void)set;
    return -1;
}

int64_t transfer_send(struct transfers *set, const struct transfer_request *request)
{
    struct exchange *x = calloc(1, sizeof(*x)), **at = &shell.exchanges;

    assert_non_null(x);
    x->client = (unsigned)(uintptr_t)set;
    x->method = strdup(request->method);
    x->path = strdup(request->path);
    x->body = request->body ? strdup(request->body) : NULL;
    x->data = request->data;
    x->done = request->done;
    x->arg = request->arg;
    x->ticket = ++shell.tickets;
    x->due_ns = shell.now_ns + LATENCY_NS;
    x->deadline_ns =
        request->timeout_ms ? shell.now_ns + request->timeout_ms * NS_PER_MS : UINT64_MAX;
    split(x);
    while (*at)
        at = &(*at)->next;
    *at = x;
    shell.asked++;
    return x->ticket;
}

void transfer_cancel(struct transfers *set, int64_t ticket)
{
    (void)set;
    for (struct exchange *x = shell.exchanges; x; x = x->next)
        x->dead |= x->ticket == ticket;
}

static void advance_exchange(struct exchange *x)
{
    if (shell.server == SERVER_GONE)
        end_exchange(x, x->streams ? -ECONNRESET : -ENOTCONN, 0, "");
    else if (shell.now_ns >= x->deadline_ns)
        end_exchange(x, -ETIMEDOUT, 0, "");
    else if (shell.server == SERVER_SILENT)
        x->due_ns = x->deadline_ns;
    else if (x->streams)
        go_on_with_stream(x);
    else if (x->data)
        begin_stream(x);
    else
        answer_exchange(x);
}

void transfers_dispatch(struct transfers *set)
{
    struct exchange **at = &shell.exchanges;

    (void)set;
    for (struct exchange *x = shell.exchanges; x; x = x->next)
        if (!x->dead && x->due_ns <= shell.now_ns)
            advance_exchange(x);
    while (*at) {
        struct exchange *x = *at;

        if (!x->dead) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        free(x->method);
        free(x->path);
        free(x->body);
        free(x);
    }
}

/* ---- time goes on ---------------------------------------------------------------------------- */

/* Returns the source that is due first, and when. NULL: a request is, or nothing. */
static struct sd_event_source *next_source(uint64_t *ret_ns)
{
    struct sd_event_source *first = NULL;

    *ret_ns = UINT64_MAX;
    for (struct sd_event_source *s = shell.sources; s; s = s->next)
        if (due_of(s) < *ret_ns) {
            *ret_ns = due_of(s);
            first = s;
        }
    for (struct exchange *x = shell.exchanges; x; x = x->next)
        if (!x->dead && x->due_ns < *ret_ns) {
            *ret_ns = x->due_ns;
            first = NULL;
        }
    return first;
}

static void shell_run(uint64_t for_ns)
{
    uint64_t end = shell.now_ns + for_ns, due;
    struct sd_event_source *s;

    for (unsigned steps = 0; (s = next_source(&due)), due <= end; steps++) {
        assert_true(steps < 1000000); /* it turns in circles */
        shell.now_ns = due > shell.now_ns ? due : shell.now_ns;
        if (s) {
            s->enabled = SD_EVENT_OFF;
            s->on_time(s, s->due_ns / NS_PER_US, s->arg);
            continue;
        }
        for (s = shell.sources; s && !s->on_io; s = s->next)
            ;
        assert_non_null(s);
        s->on_io(s, -1, 0, s->arg);
    }
    shell.now_ns = end;
}

static void shell_server(enum shell_server server)
{
    shell.server = server;
    for (struct exchange *x = shell.exchanges; x; x = x->next)
        x->due_ns = server == SERVER_SILENT ? x->deadline_ns : shell.now_ns + LATENCY_NS;
}

static unsigned shell_count(const char *what)
{
    return (unsigned)json_integer_value(json_object_get(shell.counts, what));
}

static void shell_begin(void)
{
    memset(&shell, 0, sizeof(shell));
    shell.now_ns = 1000 * NS_PER_S;
    shell.wall_ns = INT64_C(1795324519) * (int64_t)NS_PER_S;
    shell.objects = json_array();
    shell.log = json_array();
    shell.counts = json_object();
}

static void shell_end(void)
{
    transfers_dispatch(NULL);
    assert_null(shell.exchanges);
    assert_null(shell.sources);
    json_decref(shell.objects);
    json_decref(shell.log);
    json_decref(shell.counts);
}
