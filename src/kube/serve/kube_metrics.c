/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/serve/kube_metrics.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/prometheus.h"
#include "host/net/httpd.h"
#include "kube/serve/chiefs_channel.h"
#include "kube/shell/act.h"
#include "kube/shell/controller.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ERROR_WORD "cannot-listen"

struct metrics {
    struct httpd *server;
    const struct metrics_source *source;
    bool numbers;
};

/* ---- text ---- */

static void put_controller(FILE *f, const struct controller *c)
{
    static const char *const kinds[] = {"node", "pod", "elastictrainingjob", "resourcequota",
                                        "poddisruptionbudget"};
    struct controller_counts n;

    controller_count(c, &n);
    prometheus_one(f, "tide_kube_synced", "gauge", "1 when every cache is complete.",
                   controller_synced(c));
    prometheus_family(f, "tide_kube_objects", "gauge", "Objects in the caches.");
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        fprintf(f, "tide_kube_objects{kind=\"%s\"} %zu\n", kinds[i], n.objects[i]);
    prometheus_family(f, "tide_kube_trainings", "gauge", "ElasticTrainingJobs by phase.");
    for (enum kube_phase p = 0; p < KUBE_PHASE_MAX; p++)
        fprintf(f, "tide_kube_trainings{phase=\"%s\"} %zu\n", kube_phase_name(p), n.phases[p]);
    prometheus_one(f, "tide_kube_lists_total", "counter", "Lists that watches have begun.",
                   (double)n.lists);
    prometheus_one(f, "tide_kube_watches_total", "counter", "Streams that watches have begun.",
                   (double)n.resumes);
    prometheus_one(f, "tide_kube_unreadable_total", "counter", "Objects that could not be read.",
                   (double)n.unreadable);
    prometheus_one(f, "tide_kube_reconciles_total", "counter", "Looks at the whole cluster.",
                   (double)n.looks);
    prometheus_one(f, "tide_kube_reconcile_seconds_total", "counter",
                   "Time that looks at the whole cluster took.", (double)n.look_ns / NS_PER_S);
    prometheus_one(f, "tide_kube_reconcile_seconds_max", "gauge",
                   "Time that the longest look at the whole cluster took.",
                   (double)n.look_max_ns / NS_PER_S);
    prometheus_family(f, "tide_kube_actions_total", "counter", "Actions that were carried out.");
    for (enum kube_action_kind k = 0; k < KUBE_ACTION_MAX; k++)
        fprintf(f, "tide_kube_actions_total{action=\"%s\"} %" PRIu64 "\n", kube_action_name(k),
                actor_done(n.actor, k));
    prometheus_one(f, "tide_kube_actions_failed_total", "counter", "Actions that failed.",
                   (double)actor_failed(n.actor));
    prometheus_one(f, "tide_kube_trainings_busy", "gauge", "Trainings that are acted on.",
                   actor_busy(n.actor));
}

static void put_channel(FILE *f, const struct channel *c)
{
    prometheus_family(f, "tide_kube_reports_total", "counter", "Reports of chiefs.");
    fprintf(f, "tide_kube_reports_total{result=\"accepted\"} %" PRIu64 "\n", channel_reports(c));
    fprintf(f, "tide_kube_reports_total{result=\"refused\"} %" PRIu64 "\n", channel_refused(c));
    prometheus_one(f, "tide_kube_token_reviews_total", "counter",
                   "Questions to the API server about tokens.", (double)channel_reviews(c));
}

static char *metrics_text(const struct metrics_source *s)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    prometheus_family(f, "tide_kube_build_info", "gauge", "1, with the version of tide-kube.");
    fputs("tide_kube_build_info{version=\"" TIDE_VERSION "\"} 1\n", f);
    prometheus_family(f, "tide_kube_policy_info", "gauge",
                      "1, with the policy of trainings that name none.");
    fprintf(f, "tide_kube_policy_info{policy=\"%s\"} 1\n", s->policy);
    prometheus_one(f, "tide_kube_leading", "gauge", "1 while this replica holds the lease.",
                   s->leading);
    if (s->client) {
        prometheus_one(f, "tide_kube_requests_total", "counter", "Requests to the API server.",
                       (double)client_sent(s->client));
        prometheus_one(f, "tide_kube_requests_waiting", "gauge",
                       "Requests to the API server that wait for their turn.",
                       client_waiting(s->client));
    }
    if (s->controller)
        put_controller(f, s->controller);
    if (s->channel)
        put_channel(f, s->channel);
    prometheus_process(f, "tide-kube");
    return prometheus_end(f, &text);
}

/* ---- requests ---- */

static char *unready(const struct metrics_source *s)
{
    if (s->unready)
        return strdup(s->unready);
    if (!s->channel)
        return strdup("there is no certificate yet");
    if (!s->controller || !controller_synced(s->controller))
        return strdup("the caches are not complete yet");
    return NULL;
}

static void on_request(void *arg, struct httpd_request *r)
{
    struct metrics *m = arg;
    char *why;

    if (strcmp(r->method, "GET") != 0) {
        httpd_answer(r, 405, "text/plain", strdup("only GET\n"), false);
    } else if (m->numbers && strcmp(r->path, "/metrics") == 0) {
        httpd_answer(r, 200, PROMETHEUS_TYPE, metrics_text(m->source), false);
    } else if (strcmp(r->path, "/healthz") == 0) {
        httpd_answer(r, 200, "text/plain", strdup("ok\n"), false);
    } else if (strcmp(r->path, "/readyz") == 0) {
        why = unready(m->source);
        httpd_answer(r, why ? 503 : 200, "text/plain", why ? why : strdup("ok\n"), false);
    } else {
        httpd_answer(
            r, 404, "text/plain",
            strdup(m->numbers ? "/metrics, /healthz or /readyz\n" : "/healthz or /readyz\n"),
            false);
    }
}

int metrics_new(sd_event *event, const char *address, bool numbers,
                const struct metrics_source *source, struct metrics **ret, struct error *err)
{
    struct metrics *m = calloc(1, sizeof(*m));
    struct httpd_options options = {.address = address,
                                    .handler = on_request,
                                    .arg = m,
                                    .connections_max = 64,
                                    .idle_s = CHANNEL_IDLE_S};
    int r;

    if (!m)
        return error_set(err, -ENOMEM, "out of memory");
    m->source = source;
    m->numbers = numbers;
    r = httpd_new(event, &options, &m->server, err);
    if (r < 0) {
        free(m);
        return r;
    }
    *ret = m;
    return 0;
}

struct metrics *metrics_free(struct metrics *m)
{
    if (!m)
        return NULL;
    httpd_free(m->server);
    free(m);
    return NULL;
}
