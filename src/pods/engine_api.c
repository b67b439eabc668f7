/* SPDX-License-Identifier: Apache-2.0 */
#include "pods/engine_api.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/wholefile.h"
#include "host/net/httpd.h"
#include "pods/log.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#define ERROR_WORD "cannot-listen"

#define BODY_MAX        (16u << 10)
#define CONNECTIONS_MAX 64
#define MANAGER_MAX     (4u << 20) /* bytes of the kubelet's file */

#define PREFIX "v1.41"

/* A request that takes its time: a reader of events, or an update that the runtime carries out. */
struct pending {
    struct pending *next;
    struct engine_api *api;
    struct httpd_request *request;
    bool reads;     /* events */
    bool broken;    /* it has to list anew */
    uint64_t at;    /* the next event for it */
    size_t sent;    /* bytes of that one */
    size_t said;    /* … and of the first byte, with which the answer begins */
    int64_t ticket; /* of the update */
    char id[CONTAINER_KEY_MAX + 1];
    char cpus[CPUSET_TEXT_MAX];
};

struct engine_api {
    struct httpd *http;
    struct pods *pods;
    struct nri *nri;
    struct pending *first;
    const char *manager;
    uint64_t watched_ns; /* a reader of events left last */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* ---- answers ---- */

static void answer_json(struct httpd_request *r, unsigned status, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    json_decref(body);
    httpd_add_header(r, "Api-Version", "1.41");
    httpd_add_header(r, ENGINE_API_HEADER, TIDE_VERSION);
    httpd_answer(r, status, "application/json", text, false);
}

__attribute__((format(printf, 3, 4))) static void refuse(struct httpd_request *r, unsigned status,
                                                         const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    answer_json(r, status, json_pack("{s:s}", "message", text));
}

/* ---- containers as Docker shows them ---- */

/* The kubelet's CPU manager places containers. Without its file, or what we know of it, it does
 * not. */
static bool manager_places(const char *path)
{
    _cleanup_free_ char *text = NULL;
    struct stat status;
    size_t len;
    json_t *state;
    const char *policy;
    bool places;

    if (!path || wholefile_read(path, MANAGER_MAX, &text, &len, &status) < 0)
        return false;
    state = json_loadb(text, len, 0, NULL);
    policy = json_string_value(json_object_get(state, "policyName"));
    places = policy && strcmp(policy, "none") != 0;
    json_decref(state);
    return places;
}

static bool is_fixed(const struct engine_api *e, const struct pod_container *c)
{
    return c->placed || manager_places(e->manager);
}

static const char *state_word(const struct pod_container *c)
{
    return c->state == NRI_RUNNING   ? "running"
           : c->state == NRI_PAUSED  ? "paused"
           : c->state == NRI_CREATED ? "created"
                                     : "exited";
}

static json_t *list_entry(const struct pod_container *c)
{
    return json_pack("{s:s,s:[s],s:s,s:s,s:O?,s:i}", "Id", c->id, "Names", c->name, "Image",
                     c->image, "State", state_word(c), "Labels", c->labels, "Pid", (int)c->pid);
}

static const char *time_text(int64_t ns, char buf[64])
{
    time_t seconds = (time_t)(ns / (int64_t)NS_PER_S);
    struct tm tm;
    size_t n;

    if (ns <= 0)
        return "";
    gmtime_r(&seconds, &tm);
    n = strftime(buf, 64, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf + n, 64 - n, ".%09" PRId64 "Z", ns % (int64_t)NS_PER_S);
    return buf;
}

static json_t *inspection(const struct engine_api *e, const struct pod_container *c)
{
    char started[64];

    return json_pack("{s:s,s:s,s:{s:s,s:O?},s:{s:s,s:i,s:i,s:s},s:{s:b,s:s,s:I,s:I,s:I,s:I}}", "Id",
                     c->id, "Name", c->name, "Config", "Image", c->image, "Labels", c->labels,
                     "State", "Status", state_word(c), "Pid", (int)c->pid, "ExitCode", c->exit_code,
                     "StartedAt", time_text(c->started_ns, started), "HostConfig", "CpusetFixed",
                     is_fixed(e, c), "CpusetCpus", c->limits.cpus, "CpuShares",
                     (json_int_t)c->limits.shares, "CpuQuota", (json_int_t)c->limits.quota_us,
                     "CpuPeriod", (json_int_t)c->limits.period_us, "Memory",
                     (json_int_t)c->limits.memory_bytes);
}

static void list(const struct engine_api *e, struct httpd_request *r)
{
    json_t *all = json_array();

    for (const struct pod_container *c = pods_first(e->pods); c; c = c->next)
        json_array_append_new(all, list_entry(c));
    answer_json(r, 200, all);
}

static void inspect(const struct engine_api *e, struct pod_container *c, struct httpd_request *r)
{
    c->unseen = false;
    answer_json(r, 200, inspection(e, c));
}

/* ---- requests that take their time ---- */

static struct pending *pend(struct engine_api *e, struct httpd_request *r)
{
    struct pending *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    *p = (struct pending){.next = e->first, .api = e, .request = r};
    e->first = p;
    r->context = p;
    return p;
}

static void on_over(void *arg, struct httpd_request *r)
{
    struct engine_api *e = arg;
    struct pending **at = &e->first, *p = r->context;

    if (!p)
        return;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    if (p->reads)
        e->watched_ns = clock_now_ns();
    if (p->ticket > 0)
        nri_forget(e->nri, p->ticket);
    r->context = NULL;
    free(p);
}

static ssize_t read_events(void *arg, char *buf, size_t max)
{
    struct pending *p = arg;
    bool whole;
    size_t len = 0;

    if (p->broken || p->at < pods_oldest(p->api->pods))
        return HTTPD_BROKEN;
    if (p->said == 0) /* an empty line: the answer begins also where no event is known */
        len = httpd_put(buf, max, "\n", &p->said, &whole);
    while (len < max && p->at < pods_next(p->api->pods)) {
        len += httpd_put(buf + len, max - len, pods_event(p->api->pods, p->at), &p->sent, &whole);
        if (!whole)
            break;
        p->at++;
        p->sent = 0;
    }
    return (ssize_t)len;
}

/* Seconds, and nanoseconds behind a point, as tided asks. */
static uint64_t since_ns(const char *text)
{
    uint64_t seconds, ns = 0, unit = NS_PER_S / 10;
    char *end;

    if (!text)
        return UINT64_MAX;
    seconds = strtoull(text, &end, 10);
    if (*end == '.')
        for (end++; *end >= '0' && *end <= '9'; end++, unit /= 10)
            ns += (uint64_t)(*end - '0') * unit;
    return seconds > UINT64_MAX / NS_PER_S - 1 ? UINT64_MAX : seconds * NS_PER_S + ns;
}

static void watch_events(struct engine_api *e, struct httpd_request *r)
{
    struct pending *p = pend(e, r);

    if (!p) {
        refuse(r, 500, "out of memory");
        return;
    }
    p->reads = true;
    p->at = pods_since(e->pods, since_ns(httpd_argument(r, "since")));
    httpd_stream(r, "application/json", read_events, p);
}

/* ---- an update ---- */

static void on_updated(void *arg, const char *reason)
{
    struct pending *p = arg;
    struct pod_container *c = pods_find(p->api->pods, p->id);

    p->ticket = 0;
    if (reason) {
        refuse(p->request, 500, "%s", reason);
    } else if (c && c->placed) { /* … meanwhile, and ours may have come behind: its word counts */
        nri_update(p->api->nri, c->id, c->limits.cpus, NULL, NULL);
        refuse(p->request, 409, "the kubelet has changed container %.12s meanwhile", c->id);
    } else {
        if (c)
            pods_updated(p->api->pods, c, p->cpus);
        answer_json(p->request, 200, json_pack("{s:[]}", "Warnings"));
    }
}

static void send_update(struct engine_api *e, const struct pod_container *c,
                        struct httpd_request *r, const char *cpus)
{
    struct pending *p = pend(e, r);
    int64_t ticket;

    if (!p) {
        refuse(r, 500, "out of memory");
        return;
    }
    snprintf(p->id, sizeof(p->id), "%s", c->id);
    snprintf(p->cpus, sizeof(p->cpus), "%s", cpus);
    ticket = nri_update(e->nri, c->id, cpus, on_updated, p);
    if (ticket > 0)
        p->ticket = ticket;
    else
        refuse(r, 500, "%s", ticket == -ENOTCONN ? nri_problem(e->nri) : strerror((int)-ticket));
}

/* Weight and quota are not written: the kubelet makes them of requests and limits. */
static void update_nothing(struct engine_api *e, struct pod_container *c, struct httpd_request *r)
{
    pods_updated(e->pods, c, NULL);
    answer_json(r, 200, json_pack("{s:[]}", "Warnings"));
}

static void update(struct engine_api *e, struct pod_container *c, struct httpd_request *r)
{
    json_t *body = json_loadb(r->body, r->body_len, 0, NULL);
    const char *cpus = json_string_value(json_object_get(body, "CpusetCpus"));
    struct cpuset set;

    if (!json_is_object(body))
        refuse(r, 400, "the body is no object of JSON");
    else if (!cpus)
        update_nothing(e, c, r);
    else if (cpuset_parse(cpus, &set) < 0 || cpuset_count(&set) == 0)
        refuse(r, 400, "\"CpusetCpus\" is no list of CPUs");
    else if (is_fixed(e, c)) /* the next look says so, and tided asks no more */
        refuse(r, 409, "the kubelet's CPU manager chooses the cores of container %.12s", c->id);
    else if (c->state != NRI_RUNNING && c->state != NRI_CREATED)
        refuse(r, 409, "container %.12s is not running", c->id);
    else if (c->unseen)
        refuse(r, 409, "the kubelet has changed container %.12s meanwhile", c->id);
    else
        send_update(e, c, r, cpus);
    json_decref(body);
}

/* ---- requests ---- */

/* Takes @word, and a "/" behind it, off the path. */
static bool step(const char **path, const char *word)
{
    size_t n = strlen(word);

    if (strncmp(*path, word, n) != 0 || ((*path)[n] && (*path)[n] != '/'))
        return false;
    *path += n + ((*path)[n] == '/');
    return true;
}

static void serve_container(struct engine_api *e, const char *path, struct httpd_request *r)
{
    char id[CONTAINER_KEY_MAX + 1] = "";
    size_t n = strcspn(path, "/");
    struct pod_container *c = NULL;
    bool post = strcmp(r->method, "POST") == 0;

    if (n < sizeof(id)) {
        snprintf(id, sizeof(id), "%.*s", (int)n, path);
        c = pods_find(e->pods, id);
    }
    path += n + (path[n] == '/');
    if (!c)
        refuse(r, 404, "no such container: %s", id);
    else if (!post && strcmp(path, "json") == 0)
        inspect(e, c, r);
    else if (post && strcmp(path, "update") == 0)
        update(e, c, r);
    else
        refuse(r, 501, "containers of pods are the kubelet's: only their CPUs can be changed");
}

static void serve(struct engine_api *e, const char *path, struct httpd_request *r)
{
    bool get = strcmp(r->method, "GET") == 0;

    if (get && strcmp(path, "events") == 0)
        watch_events(e, r);
    else if (get && strcmp(path, "containers/json") == 0)
        list(e, r);
    else if (step(&path, "containers"))
        serve_container(e, path, r);
    else
        refuse(r, 404, "no such page");
}

static void on_request(void *arg, struct httpd_request *r)
{
    struct engine_api *e = arg;
    const char *path = r->path + (*r->path == '/');
    bool get = strcmp(r->method, "GET") == 0;

    r->context = NULL;
    if (!nri_ready(e->nri))
        refuse(r, 503, "%s", nri_problem(e->nri));
    else if (get && step(&path, "_ping"))
        answer_json(r, 200, json_string("OK"));
    else if (step(&path, PREFIX))
        serve(e, path, r);
    else
        refuse(r, 404, "no such page");
}

/* ---- the object ---- */

static int listen_on(const char *path, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask;
    int r;

    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, -ENAMETOOLONG, "the path of a socket has at most %zu bytes: %s",
                         sizeof(address.sun_path) - 1, path);
    strcpy(address.sun_path, path);
    if (fd < 0 || (unlink(path) < 0 && errno != ENOENT))
        return error_set(err, -errno, "cannot listen on %s: %s", path, strerror(errno));
    mask = umask(0177); /* whoever may write to it changes pods' CPUs */
    r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, SOMAXCONN) < 0
            ? -errno
            : 0;
    umask(mask);
    if (r < 0)
        return error_set(err, r, "cannot listen on %s: %s", path, strerror(-r));
    return TAKE_FD(fd);
}

int engine_api_new(sd_event *event, const char *path, const char *manager, struct pods *pods,
                   struct nri *nri, struct engine_api **ret, struct error *err)
{
    struct httpd_options options = {
        .handler = on_request,
        .over = on_over,
        .connections_max = CONNECTIONS_MAX,
        .body_max = BODY_MAX,
    };
    struct engine_api *e = calloc(1, sizeof(*e));
    int r;

    if (!e)
        return error_set(err, -ENOMEM, "out of memory");
    e->pods = pods;
    e->nri = nri;
    e->manager = manager;
    options.arg = e;
    options.fd = r = listen_on(path, err);
    if (r >= 0) {
        snprintf(e->path, sizeof(e->path), "%s", path);
        r = httpd_new(event, &options, &e->http, err);
    }
    if (r < 0) {
        engine_api_free(e);
        return r;
    }
    *ret = e;
    return 0;
}

struct engine_api *engine_api_free(struct engine_api *e)
{
    if (!e)
        return NULL;
    engine_api_away(e);
    httpd_free(e->http);
    if (*e->path)
        unlink(e->path);
    free(e);
    return NULL;
}

void engine_api_news(struct engine_api *e)
{
    for (const struct pending *p = e->first; p; p = p->next)
        if (p->reads)
            httpd_wake(p->request);
}

void engine_api_away(struct engine_api *e)
{
    for (struct pending *p = e->first; p; p = p->next)
        p->broken = true;
    engine_api_news(e);
}

uint64_t engine_api_watched_ns(const struct engine_api *e)
{
    for (const struct pending *p = e->first; p; p = p->next)
        if (p->reads)
            return clock_now_ns();
    return e->watched_ns;
}
