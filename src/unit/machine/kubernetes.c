/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/machine/kubernetes.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/wholefile.h"
#include "host/net/transfer.h"
#include "unit/log.h"

#define ERROR_WORD "cluster-refused"

#define STEP_MCPU   100 /* the annotation is a multiple of it */
#define GROWTH_MCPU 250
#define GROWTH_NS   (10 * NS_PER_S)
#define TIMEOUT_MS  10000
#define AGAIN_MIN_S 2 /* after a failure; doubles … */
#define AGAIN_MAX_S 60
#define FILE_MAX    (1 << 20)

struct kubernetes {
    const struct kubernetes_config *config;
    char node[KUBERNETES_NODE_MAX];
    char url[CONFIG_PATH_MAX];
    char *ca, *token; /* the pod's files, read before each request: both are replaced at times */
    struct transfer_server server;
    struct transfers *http;
    sd_event_source *io;
    bool asking;
    int64_t asked_mcpu;
    struct kubernetes_told told;
    uint64_t again_ns; /* not before */
    unsigned again_s;
    char problem[256]; /* last said */
};

/* ---- when ------------------------------------------------------------------------------------ */

bool kubernetes_due(const struct kubernetes_told *told, int64_t mcpu, uint64_t now_ns,
                    uint32_t valid_s)
{
    uint64_t age_ns = now_ns - told->at_ns;

    if (told->mcpu == KUBERNETES_UNTOLD)
        return true;
    if (mcpu == KUBERNETES_NO_CAP || told->mcpu == KUBERNETES_NO_CAP)
        return mcpu != told->mcpu;
    return mcpu < told->mcpu || age_ns >= valid_s * (NS_PER_S / 2) ||
           (mcpu >= told->mcpu + GROWTH_MCPU && age_ns >= GROWTH_NS);
}

/* ---- the request ----------------------------------------------------------------------------- */

static void complain(struct kubernetes *k, const char *text)
{
    if (strcmp(k->problem, text) == 0)
        return;
    if (text[0])
        unit_err("kubernetes: %s; the node's annotations end by themselves", text);
    else
        unit_log("kubernetes: annotating node %s works again", k->node);
    snprintf(k->problem, sizeof(k->problem), "%s", text);
}

static void wait_longer(struct kubernetes *k, const char *problem)
{
    complain(k, problem);
    k->again_s = k->again_s ? k->again_s * 2 : AGAIN_MIN_S;
    if (k->again_s > AGAIN_MAX_S)
        k->again_s = AGAIN_MAX_S;
    k->again_ns = clock_now_ns() + k->again_s * NS_PER_S;
}

static void on_answer(void *arg, const struct transfer_answer *answer)
{
    struct kubernetes *k = arg;
    char text[sizeof(k->problem)];
    const char *message;
    json_t *body;

    k->asking = false;
    if (answer->code == 0 && answer->status >= 200 && answer->status < 300) {
        if (k->told.mcpu == KUBERNETES_UNTOLD && !k->problem[0])
            unit_log("kubernetes: node %s is annotated", k->node);
        k->told = (struct kubernetes_told){k->asked_mcpu, clock_now_ns()};
        k->again_s = 0;
        complain(k, "");
        return;
    }
    if (answer->code < 0) {
        snprintf(text, sizeof(text), "%.120s: %.120s", k->url, answer->reason);
        wait_longer(k, text);
        return;
    }
    body = json_loadb(answer->body, answer->body_len, 0, NULL);
    message = json_string_value(json_object_get(body, "message"));
    snprintf(text, sizeof(text), "node %.64s cannot be annotated: %d %.150s", k->node,
             answer->status, message ? message : "");
    json_decref(body);
    wait_longer(k, text);
}

static int read_file(const struct kubernetes *k, const char *name, char **text, struct error *err)
{
    _cleanup_free_ char *path = NULL, *now = NULL, *real = NULL;
    struct stat status;
    size_t len;
    int r;

    if (asprintf(&path, "%s/%s", k->config->credentials, name) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    real = realpath(path, NULL); /* kubelet replaces them by links */
    r = real ? wholefile_read(real, FILE_MAX, &now, &len, &status) : -errno;
    if (r < 0)
        return error_set(err, r, "cannot read %s: %s", path, strerror(-r));
    while (len && (now[len - 1] == '\n' || now[len - 1] == ' '))
        now[--len] = '\0';
    free(*text);
    *text = TAKE_PTR(now);
    return 0;
}

/* In tenths of a watt. */
static void note_watts(json_t *notes, const char *name, uint64_t uw)
{
    if (uw)
        json_object_set_new(notes, name,
                            json_sprintf("%llu.%llu", (unsigned long long)(uw / 1000000),
                                         (unsigned long long)(uw % 1000000 / 100000)));
}

/* Server-side apply: what the text no longer names goes, if it was ours. */
static char *body_of(const struct kubernetes *k, const struct kubernetes_news *news)
{
    char cpu[32], until[32];
    time_t end = (time_t)(clock_real_ms() / 1000 + k->config->valid_s);
    json_t *notes, *whole;
    struct tm tm;
    char *text;

    gmtime_r(&end, &tm);
    strftime(until, sizeof(until), "%FT%TZ", &tm);
    snprintf(cpu, sizeof(cpu), "%lldm", (long long)news->mcpu);
    notes = news->mcpu == KUBERNETES_NO_CAP
                ? json_object()
                : json_pack("{s:s,s:s}", KUBERNETES_CPU, cpu, KUBERNETES_UNTIL, until);
    if (news->mcpu != KUBERNETES_NO_CAP) {
        note_watts(notes, KUBERNETES_CAP, news->cap_uw);
        note_watts(notes, KUBERNETES_DRAW, news->draw_uw);
    }
    whole = json_pack("{s:s,s:s,s:{s:s,s:o}}", "apiVersion", "v1", "kind", "Node", "metadata",
                      "name", k->node, "annotations", notes);
    text = json_dumps(whole, JSON_COMPACT);
    json_decref(whole);
    return text;
}

static void apply(struct kubernetes *k, const struct kubernetes_news *news)
{
    char path[KUBERNETES_NODE_MAX + 64];
    _cleanup_free_ char *body = body_of(k, news);
    struct transfer_request request = {
        .method = "PATCH",
        .path = path,
        .body = body,
        .type = "application/apply-patch+yaml",
        .done = on_answer,
        .arg = k,
        .timeout_ms = TIMEOUT_MS,
    };
    struct error err = {0};

    if (!body || read_file(k, "token", &k->token, &err) < 0 ||
        read_file(k, "ca.crt", &k->ca, &err) < 0) {
        wait_longer(k, body ? err.text : "out of memory");
        return;
    }
    k->server.ca = k->ca;
    request.bearer = k->token;
    snprintf(path, sizeof(path), "/api/v1/nodes/%s?fieldManager=tide-power&force=true", k->node);
    if (transfer_send(k->http, &request) < 0) {
        wait_longer(k, "out of memory");
        return;
    }
    k->asking = true;
    k->asked_mcpu = news->mcpu;
}

void kubernetes_tell(struct kubernetes *k, const struct kubernetes_news *news)
{
    struct kubernetes_news rounded = *news;
    uint64_t now = clock_now_ns();

    if (news->mcpu != KUBERNETES_NO_CAP)
        rounded.mcpu -= news->mcpu % STEP_MCPU;
    if (!k->asking && now >= k->again_ns &&
        kubernetes_due(&k->told, rounded.mcpu, now, k->config->valid_s))
        apply(k, &rounded);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int on_io(sd_event_source *source, int fd, uint32_t events, void *arg)
{
    struct kubernetes *k = arg;

    transfers_dispatch(k->http);
    return 0;
}

static int resolve(struct kubernetes *k, struct error *err)
{
    const char *node = k->config->node[0] ? k->config->node : getenv(KUBERNETES_NODE_ENV);
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    bool brackets = host && strchr(host, ':') && host[0] != '[';
    int n;

    if (!node || !kubernetes_node_valid(node))
        return error_set(err, -EINVAL,
                         "[kubernetes] needs node=, or the node's name in %s (of the downward API)",
                         KUBERNETES_NODE_ENV);
    snprintf(k->node, sizeof(k->node), "%s", node);
    if (k->config->server[0]) {
        snprintf(k->url, sizeof(k->url), "%s", k->config->server);
        return 0;
    }
    if (!host || !port)
        return error_set(err, -EINVAL,
                         "[kubernetes] needs server= outside of a pod: KUBERNETES_SERVICE_HOST and "
                         "KUBERNETES_SERVICE_PORT are not set");
    n = snprintf(k->url, sizeof(k->url), "https://%s%s%s:%s", brackets ? "[" : "", host,
                 brackets ? "]" : "", port);
    return n < (int)sizeof(k->url)
               ? 0
               : error_set(err, -ENAMETOOLONG, "KUBERNETES_SERVICE_HOST is too long");
}

int kubernetes_new(sd_event *event, const struct kubernetes_config *config, struct kubernetes **ret,
                   struct error *err)
{
    struct kubernetes *k = calloc(1, sizeof(*k));
    int r;

    if (!k)
        return error_set(err, -ENOMEM, "out of memory: nothing is reported to [kubernetes]");
    k->config = config;
    k->told.mcpu = KUBERNETES_UNTOLD;
    r = resolve(k, err);
    if (r < 0) {
        free(k);
        return r;
    }
    k->server.url = k->url;
    r = transfers_new(&k->server, &k->http);
    if (r == 0)
        r = sd_event_add_io(event, &k->io, transfers_fd(k->http), EPOLLIN, on_io, k);
    if (r < 0) {
        kubernetes_free(k);
        return error_set(err, r, "[kubernetes]: %s", strerror(-r));
    }
    *ret = k;
    return 0;
}

struct kubernetes *kubernetes_free(struct kubernetes *k)
{
    if (!k)
        return NULL;
    sd_event_source_disable_unref(k->io);
    transfers_free(k->http);
    free(k->ca);
    free(k->token);
    free(k);
    return NULL;
}
