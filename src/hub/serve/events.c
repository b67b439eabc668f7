/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/events.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "hub/serve/area_view.h"

#include <string.h>

#define POWER_US 1000000 /* between two tellings of the power of an area */

struct told {
    char path[AREA_PATH_MAX];
    struct power_range power;
};

struct events {
    const struct web_options *hub;
    struct streams *streams;
    sd_event_source *timer;
    bool waits;        /* the timer is on */
    struct told *told; /* what was told of each area last */
    uint32_t count;
};

/* ---- power ---- */

static bool same_power(const struct power_range *a, const struct power_range *b)
{
    return a->basis == b->basis && a->uw == b->uw && a->low_uw == b->low_uw &&
           a->high_uw == b->high_uw;
}

static int tell_power(struct events *e)
{
    struct shown_areas now;
    struct told *told;
    int r = area_view_make(e->hub, &now);

    if (r < 0)
        return r;
    told = calloc(now.count ? now.count : 1, sizeof(*told));
    for (uint32_t i = 0; told && i < now.count; i++) {
        const struct shown_area *area = &now.area[i];
        const struct told *before = i < e->count ? &e->told[i] : NULL;

        strcpy(told[i].path, area->path);
        told[i].power = area->power;
        if (before && strcmp(before->path, area->path) == 0 &&
            same_power(&before->power, &area->power))
            continue;
        streams_tell(e->streams, "power",
                     json_pack("{s:s,s:o}", "area", area->path, "power", area_view_power(area)));
    }
    if (told) {
        free(e->told);
        e->told = told;
        e->count = now.count;
    }
    area_view_done(&now);
    return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *arg)
{
    struct events *e = arg;

    if (streams_open(e->streams)) {
        e->waits = false;
        tell_power(e);
        return 0;
    }
    /* Whoever comes back gets what differs from what was told last. */
    sd_event_source_set_time_relative(source, POWER_US);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void power_later(struct events *e)
{
    if (e->waits)
        return;
    e->waits = true;
    sd_event_source_set_time_relative(e->timer, POWER_US);
    sd_event_source_set_enabled(e->timer, SD_EVENT_ONESHOT);
}

/* ---- the rest ---- */

static void tell_state(struct events *e, const struct unit *u)
{
    struct shown_areas now;

    /* Thousands of units may come back at once: nobody looks, so nothing is made of it. */
    if (!streams_open(e->streams) || area_view_make(e->hub, &now) < 0) {
        streams_skip(e->streams);
        return;
    }
    area_view_with_price(&now);
    for (uint32_t i = 0; i < now.count; i++)
        if (now.area[i].unit == u)
            streams_tell(e->streams, "state", area_view_json(e->hub, &now, &now.area[i]));
    area_view_done(&now);
}

static void tell_event(struct events *e, const struct unit *u, const struct payload_event *event)
{
    streams_tell(e->streams, "event",
                 json_pack("{s:I,s:s,s:s,s:o,s:s}", "time_ms", (json_int_t)event->time_ms, "type",
                           event->type, "unit", u->name, "area",
                           *u->area ? json_string(u->area) : json_null(), "text", event->text));
}

/* What came of an order that somebody gave, or a rule: the log says who, and what came of it. */
void events_ordered(struct events *e, const struct tree_order *order)
{
    const struct unit *u = units_find(tree_units(e->hub->tree), order->unit);
    struct audit_row row = {.from = "hub"};
    struct error err = {0};

    streams_tell(e->streams, "switch",
                 json_pack("{s:s,s:s,s:s,s:s,s:b,s:s,s:s,s:s}", "id", order->id, "area",
                           u && *u->area ? u->area : order->unit, "unit", order->unit, "name",
                           order->name, "on", order->on, "state", order->state, "by", order->by,
                           "text", order->text));
    if (strcmp(order->state, "ordered") == 0)
        return;
    snprintf(row.user, sizeof(row.user), "%s", order->by);
    snprintf(row.what, sizeof(row.what), "switch.%s", order->on ? "on" : "off");
    snprintf(row.target, sizeof(row.target), "%.60s %.60s", order->unit, order->name);
    snprintf(row.outcome, sizeof(row.outcome), "%.20s: %.100s", order->state, order->text);
    if (audit_append(e->hub->people, &row, &err) < 0)
        e->hub->say(e->hub->arg, order->unit, err.text);
}

void events_ruled(struct events *e, const struct in_force *policy)
{
    streams_tell(e->streams, "policy", json_pack("{s:I}", "number", (json_int_t)policy->number));
}

void events_changed(struct events *e, const struct unit *u, enum tree_what what,
                    const struct payload_event *event)
{
    switch (what) {
    case TREE_STATE:
    case TREE_LEASE:
        tell_state(e, u);
        power_later(e);
        break;
    case TREE_POWER:
        power_later(e);
        break;
    case TREE_EVENT:
        tell_event(e, u, event);
        break;
    case TREE_WHAT_MAX:
        break;
    }
}

int events_new(const struct web_options *hub, struct streams *streams, struct events **ret)
{
    struct events *e = calloc(1, sizeof(*e));
    int r;

    if (!e)
        return -ENOMEM;
    e->hub = hub;
    e->streams = streams;
    r = sd_event_add_time_relative(hub->event, &e->timer, CLOCK_MONOTONIC, POWER_US, 0, on_timer,
                                   e);
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
    sd_event_source_disable_unref(e->timer);
    free(e->told);
    free(e);
    return NULL;
}
