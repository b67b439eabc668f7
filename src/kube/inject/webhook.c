/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/inject/webhook.h"

#include "base/cleanup.h"
#include "base/prometheus.h"
#include "host/net/httpd.h"
#include "host/trust/identity.h"
#include "kube/inject/patch.h"
#include "kube/inject/review.h"
#include "kube/inject/spread.h"
#include "kube/inject/token.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <inttypes.h>
#include <string.h>

#define ERROR_WORD "cannot-listen"

#define JSON "application/json"

struct webhook {
    const struct webhook_options *options;
    sd_event *event;
    struct spread *spread;
    struct httpd *server, *health, *metrics; /* the first: NULL without a certificate */
    uint64_t patched, left, refused;
    int64_t authority_s;
    bool leaves;
    char path[sizeof(WEBHOOK_PATH) + TOKEN_MAX]; /* "": not known yet */
};

/* A question whose namespace is about to get the agent. */
struct question {
    struct webhook *webhook;
    struct httpd_request *request;
    struct spread_wait *wait;
    struct review review;
};

/* ---- questions ---- */

static void answer(struct webhook *w, struct httpd_request *r, const struct review *review,
                   json_t *patch, bool injected)
{
    w->patched += injected;
    w->left += !injected;
    httpd_answer(r, 200, JSON, review_answer(review, patch), w->leaves);
}

/* With @problem the pod stays as it is, and says so. */
static void conclude(struct webhook *w, struct httpd_request *r, const struct review *review,
                     const char *problem)
{
    json_t *patch = inject_patch(review->pod, w->options->sizes, problem);

    answer(w, r, review, patch, !problem && json_array_size(patch) > 1);
}

static void forget(struct question *q)
{
    q->request->context = NULL;
    review_done(&q->review);
    free(q);
}

static void on_spread(void *arg, const char *problem)
{
    struct question *q = arg;

    if (problem)
        problem = "the agent could not be put into the namespace";
    conclude(q->webhook, q->request, &q->review, problem);
    forget(q);
}

/* Answers now, or later with @review, which is taken over then. */
static void spread_first(struct webhook *w, struct httpd_request *r, struct review *review)
{
    struct question *q = calloc(1, sizeof(*q));
    struct error err = {0};
    int there =
        q ? spread_to(w->spread, review->name_space, on_spread, q, &q->wait, &err) : -ENOMEM;

    if (there > 0) {
        q->webhook = w;
        q->request = r;
        q->review = *review;
        *review = (struct review){0};
        r->context = q;
        return;
    }
    free(q);
    conclude(w, r, review, there < 0 ? "the agent could not be put into the namespace" : NULL);
}

static bool is_ours(const struct webhook *w, const char *name_space)
{
    return strcmp(name_space, "kube-system") == 0 ||
           (w->options->own && strcmp(name_space, w->options->own) == 0);
}

static void judge(struct webhook *w, struct httpd_request *r, struct review *review)
{
    json_t *patch;

    if (!review->pod || is_ours(w, review->name_space)) {
        answer(w, r, review, NULL, false);
        return;
    }
    /* Most of what can speak against it is in the pod: nothing is written for such a one. */
    patch = inject_patch(review->pod, w->options->sizes, NULL);
    if (review->dry_run || json_array_size(patch) < 2) {
        bool injected = json_array_size(patch) > 1;

        answer(w, r, review, patch, injected);
        return;
    }
    json_decref(patch);
    spread_first(w, r, review);
}

/* How long it takes does not say how much of @path is right. */
static bool is_right(const struct webhook *w, const char *path)
{
    size_t n = strlen(w->path);

    return n > 0 && strlen(path) == n && gnutls_memcmp(path, w->path, n) == 0;
}

static void on_question(void *arg, struct httpd_request *r)
{
    struct webhook *w = arg;
    struct review review;
    struct error err = {0};

    if (!is_right(w, r->path) || strcmp(r->method, "POST") != 0) {
        w->refused++;
        httpd_answer(r, 404, "text/plain", strdup("there is nothing here\n"), false);
        return;
    }
    if (r->cut || review_read(r->body, r->body_len, &review, &err) < 0) {
        w->refused++;
        httpd_answer(
            r, r->cut ? 503 : 400, "text/plain",
            strdup(r->cut ? "too many large questions: try again\n" : "no AdmissionReview\n"),
            false);
        return;
    }
    judge(w, r, &review);
    review_done(&review);
}

static void on_over(void *arg, struct httpd_request *r)
{
    struct question *q = r->context;

    if (!q)
        return;
    spread_cancel(q->wait);
    forget(q);
}

/* ---- numbers ---- */

static char *numbers(const struct webhook *w)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    prometheus_family(f, "tide_inject_pods_total", "counter", "Questions about pods.");
    fprintf(f, "tide_inject_pods_total{result=\"injected\"} %" PRIu64 "\n", w->patched);
    fprintf(f, "tide_inject_pods_total{result=\"left\"} %" PRIu64 "\n", w->left);
    fprintf(f, "tide_inject_pods_total{result=\"refused\"} %" PRIu64 "\n", w->refused);
    prometheus_one(f, "tide_inject_namespaces", "gauge", "Namespaces that have the agent.",
                   spread_spaces(w->spread));
    prometheus_one(f, "tide_inject_failures_total", "counter",
                   "Times that the agent could not be put into a namespace.",
                   (double)spread_failures(w->spread));
    if (w->authority_s > 0)
        prometheus_one(f, "tide_inject_authority_end_timestamp_seconds", "gauge",
                       "When the authority that the API server trusts ends.",
                       (double)w->authority_s);
    prometheus_process(f, "tide-kube");
    return prometheus_end(f, &text);
}

static void on_metrics(void *arg, struct httpd_request *r)
{
    if (strcmp(r->method, "GET") != 0)
        httpd_answer(r, 405, "text/plain", strdup("only GET\n"), false);
    else if (strcmp(r->path, "/metrics") == 0)
        httpd_answer(r, 200, PROMETHEUS_TYPE, numbers(arg), false);
    else
        httpd_answer(r, 404, "text/plain", strdup("/metrics\n"), false);
}

/* ---- probes ---- */

static void on_probe(void *arg, struct httpd_request *r)
{
    struct webhook *w = arg;
    bool ready = w->server && *w->path && !w->leaves;

    if (strcmp(r->method, "GET") != 0)
        httpd_answer(r, 405, "text/plain", strdup("only GET\n"), false);
    else if (strcmp(r->path, "/healthz") == 0)
        httpd_answer(r, 200, "text/plain", strdup("ok\n"), false);
    else if (strcmp(r->path, "/readyz") == 0)
        httpd_answer(r, ready ? 200 : 503, "text/plain",
                     strdup(ready       ? "ok\n"
                            : w->leaves ? "tide-kube inject is ending\n"
                                        : "there is no certificate or no path yet\n"),
                     false);
    else
        httpd_answer(r, 404, "text/plain", strdup("/healthz or /readyz\n"), false);
}

/* ---- the webhook ---- */

int webhook_new(sd_event *event, const struct webhook_options *options, struct spread *spread,
                struct webhook **ret, struct error *err)
{
    struct webhook *w = calloc(1, sizeof(*w));
    struct httpd_options health = {.address = options->health,
                                   .handler = on_probe,
                                   .arg = w,
                                   .connections_max = 64,
                                   .idle_s = WEBHOOK_IDLE_S};
    struct httpd_options metrics = health;
    int r;

    if (!w)
        return error_set(err, -ENOMEM, "out of memory");
    w->options = options;
    w->event = event;
    w->spread = spread;
    metrics.address = options->metrics;
    metrics.handler = on_metrics;
    r = httpd_new(event, &health, &w->health, err);
    if (r == 0)
        r = httpd_new(event, &metrics, &w->metrics, err);
    if (r < 0) {
        webhook_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

int webhook_serve(struct webhook *w, int64_t authority_s, struct error *err)
{
    struct httpd_options options = {.address = w->options->listen,
                                    .handler = on_question,
                                    .over = on_over,
                                    .arg = w,
                                    .idle_s = WEBHOOK_IDLE_S,
                                    .connections_max = WEBHOOK_CONNECTIONS_MAX,
                                    .per_address_max = WEBHOOK_ADDRESS_MAX,
                                    .body_max = REVIEW_MAX,
                                    .bodies_max = WEBHOOK_BODIES_MAX,
                                    .ignore_max = REVIEW_MAX,
                                    .certificate = identity_callback()};

    w->authority_s = authority_s;
    return w->server ? 0 : httpd_new(w->event, &options, &w->server, err);
}

void webhook_name(struct webhook *w, const char *token)
{
    snprintf(w->path, sizeof(w->path), WEBHOOK_PATH "%s", token);
}

void webhook_leave(struct webhook *w)
{
    w->leaves = true;
}

struct webhook *webhook_free(struct webhook *w)
{
    if (!w)
        return NULL;
    httpd_free(w->server); /* calls on_over() for what waits */
    httpd_free(w->health);
    httpd_free(w->metrics);
    free(w);
    return NULL;
}
