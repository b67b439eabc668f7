/* SPDX-License-Identifier: Apache-2.0 */
/* The hub's metrics, for Prometheus. */
#include "hub/serve/call.h"

#include "base/clock.h"
#include "base/prometheus.h"
#include "base/wallclock.h"
#include "hub/serve/area_view.h"

#include <inttypes.h>
#include <stdlib.h>

static void areas_power(FILE *f, const struct shown_areas *areas)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } bounds[] = {
        {"tide_hub_area_watts", "Power of an area, as far as it is known.",
         offsetof(struct power_range, uw)},
        {"tide_hub_area_low_watts", "The least that an area draws.",
         offsetof(struct power_range, low_uw)},
        {"tide_hub_area_high_watts", "The most that an area's known units draw.",
         offsetof(struct power_range, high_uw)},
    };

    for (size_t b = 0; b < sizeof(bounds) / sizeof(bounds[0]); b++) {
        prometheus_family(f, bounds[b].name, "gauge", bounds[b].help);
        for (uint32_t i = 0; i < areas->count; i++) {
            const struct shown_area *area = &areas->area[i];
            const char *at = (const char *)&area->power + bounds[b].offset;

            if (area->power.basis == POWER_UNKNOWN)
                continue;
            fprintf(f, "%s{area=\"", bounds[b].name);
            prometheus_label(f, area->path);
            fprintf(f, "\"} %.6f\n", (double)*(const uint64_t *)(const void *)at / 1e6);
        }
    }
}

static void units_state(FILE *f, const struct web_options *hub)
{
    const struct units *units = tree_units(hub->tree);
    unsigned online = 0, lost = 0;

    for (size_t i = 0; i < units_count(units); i++) {
        const struct unit *u = units_at(units, i);

        online += u->heard && u->state.online;
        lost += u->heard && !u->state.online;
    }
    prometheus_family(f, "tide_hub_units", "gauge", "Units that were heard since the start.");
    fprintf(f, "tide_hub_units{state=\"connected\"} %u\ntide_hub_units{state=\"lost\"} %u\n",
            online, lost);
}

void route_metrics(struct call *c)
{
    const struct ingest_counts counts = tree_counts(c->hub->tree);
    int64_t now_ms = (int64_t)wallclock_ms();
    struct shown_areas areas;
    char *text = NULL;
    size_t len;
    FILE *f;

    if (area_view_make(c->hub, &areas) < 0) {
        call_fail(c, HTTP_FAILED, "", "out of memory");
        return;
    }
    f = open_memstream(&text, &len);
    if (f) {
        prometheus_one(f, "tide_hub_broker_connected", "gauge", "1: connected to the broker.",
                       tree_connected(c->hub->tree));
        units_state(f, c->hub);
        areas_power(f, &areas);
        prometheus_one(f, "tide_hub_messages_total", "counter", "Messages of energy.",
                       (double)counts.messages);
        prometheus_one(f, "tide_hub_unreadable_total", "counter",
                       "Messages that could not be read.", (double)counts.unreadable);
        prometheus_family(f, "tide_hub_records_total", "counter", "Records of energy.");
        fprintf(f,
                "tide_hub_records_total{result=\"stored\"} %" PRIu64
                "\ntide_hub_records_total{result=\"known\"} %" PRIu64
                "\ntide_hub_records_total{result=\"refused\"} %" PRIu64 "\n",
                counts.stored, counts.known, counts.refused);
        prometheus_one(f, "tide_hub_users", "gauge", "People who may log in.",
                       people_count(c->hub->people));
        prometheus_one(f, "tide_hub_retention_behind_seconds", "gauge",
                       "How far the time by which old records go is behind the clock.",
                       (double)(now_ms - retention_ms(c->hub->retention, now_ms)) / 1e3);
        prometheus_process(f, "tide-hub");
    }
    area_view_done(&areas);
    call_text(c, PROMETHEUS_TYPE, f ? prometheus_end(f, &text) : NULL);
}
