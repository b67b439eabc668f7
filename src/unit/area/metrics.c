/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prometheus.h"
#include "host/net/httpd.h"
#include "unit/log.h"

#define ERROR_WORD "cannot-listen"

#define CONNECTIONS 16
#define IDLE_S      60

struct metrics {
    struct httpd *server;
    metrics_ask ask;
    void *arg;
};

static double watts(uint64_t uw)
{
    return (double)uw / 1e6;
}

static void write_switches(FILE *f, const struct payload_state *s)
{
    if (!s->switches)
        return;
    prometheus_family(f, "tide_unit_switch_on", "gauge",
                      "Whether the relay is on; no figure: it does not say");
    for (uint32_t i = 0; i < s->switches; i++) {
        if (!s->item[i].known)
            continue;
        fputs("tide_unit_switch_on{switch=\"", f);
        prometheus_label(f, s->item[i].name);
        fprintf(f, "\"} %d\n", s->item[i].on);
    }
}

static char *text_of(const struct metrics_now *now)
{
    const struct payload_state *s = &now->state;
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    prometheus_one(f, "tide_unit_joules_total", "counter", "Energy that the area's meters counted",
                   watts(now->total_uj));
    if (now->draw.basis != POWER_UNKNOWN) {
        prometheus_one(f, "tide_unit_watts", "gauge", "Power of the area", watts(now->draw.uw));
        prometheus_one(f, "tide_unit_watts_low", "gauge", "Lower bound of the area's power",
                       watts(now->draw.low_uw));
        prometheus_one(f, "tide_unit_watts_high", "gauge", "Upper bound of the area's power",
                       watts(now->draw.high_uw));
    }
    if (s->cap_uw != PAYLOAD_UNTOLD)
        prometheus_one(f, "tide_unit_cap_watts", "gauge", "Cap of the area in force",
                       watts(s->cap_uw));
    if (s->budget_uj != PAYLOAD_UNTOLD) {
        prometheus_one(f, "tide_unit_budget_joules", "gauge", "Today's budget",
                       watts(s->budget_uj));
        prometheus_one(f, "tide_unit_budget_used_joules", "gauge",
                       "Part of today's budget that is used", watts(s->budget_used_uj));
    }
    prometheus_one(f, "tide_unit_policy_number", "gauge", "Number of the policy in force; 0: none",
                   (double)s->policy);
    prometheus_one(f, "tide_unit_parent_connected", "gauge", "Whether the parent's broker is there",
                   now->connected);
    write_switches(f, s);
    prometheus_process(f, "tide-power");
    return prometheus_end(f, &text);
}

static void on_request(void *arg, struct httpd_request *r)
{
    struct metrics_now *now;
    struct metrics *m = arg;

    if (strcmp(r->method, "GET") != 0) {
        httpd_answer(r, 405, "text/plain", strdup("only GET\n"), false);
        return;
    }
    if (strcmp(r->path, "/metrics") != 0) {
        httpd_answer(r, 404, "text/plain", strdup("there is only /metrics\n"), false);
        return;
    }
    now = calloc(1, sizeof(*now));
    if (now)
        m->ask(m->arg, now);
    httpd_answer(r, 200, PROMETHEUS_TYPE, now ? text_of(now) : NULL, false);
    free(now);
}

int metrics_new(sd_event *event, const struct unit_config *config, metrics_ask ask, void *arg,
                struct metrics **ret, struct error *err)
{
    struct metrics *m = calloc(1, sizeof(*m));
    char address[32];
    struct httpd_options options = {.address = address,
                                    .handler = on_request,
                                    .arg = m,
                                    .connections_max = CONNECTIONS,
                                    .idle_s = IDLE_S};
    int r;

    if (!m)
        return error_set(err, -ENOMEM, "out of memory: no metrics");
    snprintf(address, sizeof(address), "127.0.0.1:%u", config->metrics_port);
    r = httpd_new(event, &options, &m->server, err);
    if (r < 0) {
        metrics_free(m);
        return r;
    }
    m->ask = ask;
    m->arg = arg;
    unit_log("metrics: http://127.0.0.1:%u/metrics", httpd_port(m->server));
    *ret = m;
    return 0;
}

struct metrics *metrics_free(struct metrics *m)
{
    if (m)
        httpd_free(m->server);
    free(m);
    return NULL;
}
