/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/events.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "hub/serve/area_view.h"

#include <stdlib.h>
#include <string.h>

#define POWER_US    500000 /* between two tellings of the power of an area */
#define STATE_US    200000 /* between two tellings of the state of a unit */
#define ACCURACY_US 10000

struct told {
    char path[AREA_PATH_MAX];
    struct power_range power;
    bool known;
};

struct events {
    const struct web_options *hub;
    struct streams *streams;
    sd_event_source *timer, *states;
    bool waits;        /* the timer is on */
    struct told *told; /* what was told of each area last */
    uint32_t count;
    uint32_t next_power, next_state; /* the area whose turn it is */
    bool *due;                       /* units, by number, whose state has not been told yet … */
    size_t due_room;
    uint64_t told_us; /* … and when some were told last */
    bool states_wait; /* the timer of states is on */
};

/* ---- power ---- */

static bool same_power(const struct power_range *a, const struct power_range *b)
{
    return a->basis == b->basis && a->uw == b->uw && a->low_uw == b->low_uw &&
           a->high_uw == b->high_uw;
}

/* Makes e->told a list of these areas; one that stands where it did keeps the power told last. */
static bool make_told(struct events *e, const struct shown_areas *now)
{
    struct told *told = calloc(now->count ? now->count : 1, sizeof(*told));

    for (uint32_t i = 0; told && i < now->count; i++) {
        strcpy(told[i].path, now->area[i].path);
        if (i < e->count && strcmp(e->told[i].path, told[i].path) == 0)
            told[i] = e->told[i];
    }
    if (!told)
        return false;
    free(e->told);
    e->told = told;
    e->count = now->count;
    return true;
}

static void power_later(struct events *e)
{
    if (e->waits)
        return;
    e->waits = true;
    sd_event_source_set_time_relative(e->timer, POWER_US);
    sd_event_source_set_enabled(e->timer, SD_EVENT_ONESHOT);
}

/* Tells what the list holds, if anything; it is empty then. */
static void tell_powers(struct events *e, json_t **powers)
{
    if (json_array_size(*powers) == 0)
        return;
    streams_tell(e->streams, "power", *powers);
    *powers = json_array();
}

static void tell_power(struct events *e)
{
    json_t *powers = json_array();
    struct shown_areas now;
    uint32_t left = (uint32_t)(EVENTS_POWERS * UINT64_C(1) * POWER_US / 1000000);
    bool ok;

    if (area_view_make(e->hub, &now) < 0) {
        json_decref(powers);
        return;
    }
    ok = make_told(e, &now);
    for (uint32_t k = 0, first = e->next_power; ok && k < now.count; k++) {
        uint32_t i = (first + k) % now.count;
        const struct shown_area *area = &now.area[i];

        if (e->told[i].known && same_power(&e->told[i].power, &area->power))
            continue;
        if (left-- == 0) {
            e->next_power = i;
            power_later(e);
            break;
        }
        e->told[i].power = area->power;
        e->told[i].known = true;
        if (json_array_append_new(powers, json_pack("{s:s,s:o}", "area", area->path, "power",
                                                    area_view_power(area))) < 0)
            streams_skip(e->streams); /* no memory */
        if (json_array_size(powers) == EVENTS_POWERS_AT_ONCE)
            tell_powers(e, &powers);
    }
    tell_powers(e, &powers);
    json_decref(powers);
    area_view_done(&now);
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

/* ---- the rest ---- */

static bool is_due(const struct events *e, const struct unit *u)
{
    return u && u->number < e->due_room && e->due[u->number];
}

static void states_later(struct events *e, uint64_t us)
{
    e->states_wait = true;
    sd_event_source_set_time_relative(e->states, us);
    sd_event_source_set_enabled(e->states, SD_EVENT_ONESHOT);
}

/* As many as have their turn; whether that were all. */
static bool tell_states(struct events *e, const struct shown_areas *now)
{
    uint32_t left = (uint32_t)(EVENTS_STATES * STATE_US / 1000000);

    for (uint32_t k = 0, first = e->next_state; k < now->count; k++) {
        uint32_t i = (first + k) % now->count;

        if (!is_due(e, now->area[i].unit))
            continue;
        if (left-- == 0) {
            e->next_state = i;
            return false;
        }
        e->due[now->area[i].unit->number] = false;
        streams_tell(e->streams, "state", area_view_json(e->hub, now, &now->area[i]));
    }
    return true;
}

static int on_states(sd_event_source *source, uint64_t usec, void *arg)
{
    struct events *e = arg;
    struct shown_areas now;
    bool all = true;

    e->states_wait = false;
    e->told_us = clock_now_ns() / 1000;
    if (!streams_open(e->streams) || area_view_make(e->hub, &now) < 0) {
        streams_skip(e->streams);
    } else {
        area_view_with_price(&now);
        all = tell_states(e, &now);
        area_view_done(&now);
    }
    if (all) /* the rest stands in no area */
        memset(e->due, 0, e->due_room);
    else
        states_later(e, STATE_US);
    return 0;
}

static bool make_room(struct events *e, uint32_t number)
{
    size_t room = e->due_room ? e->due_room : 64;
    bool *due;

    if (number < e->due_room)
        return true;
    while (room <= number)
        room *= 2;
    due = realloc(e->due, room);
    if (!due)
        return false;
    memset(due + e->due_room, 0, room - e->due_room);
    e->due = due;
    e->due_room = room;
    return true;
}

static void tell_state(struct events *e, const struct unit *u)
{
    uint64_t since = clock_now_ns() / 1000 - e->told_us;

    /* Thousands of units may come back at once: nobody looks, so nothing is made of it. */
    if (!streams_open(e->streams) || !make_room(e, u->number)) {
        streams_skip(e->streams);
        return;
    }
    e->due[u->number] = true;
    if (!e->states_wait)
        states_later(e, since < STATE_US ? STATE_US - since : 0);
}

static void tell_event(struct events *e, const struct unit *u, const struct payload_event *event)
{
    streams_tell(e->streams, "event",
                 json_pack("{s:I,s:s,s:s,s:o,s:s}", "time_ms", (json_int_t)event->time_ms, "type",
                           event->type, "unit", u->name, "area",
                           *u->area ? json_string(u->area) : json_null(), "text", event->text));
}

/* Tells of a command, by a person or a rule; its outcome goes into the audit log. */
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
        e->hub->say(e->hub->arg, order->unit, error_said(&err));
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
    r = sd_event_add_time_relative(hub->event, &e->timer, CLOCK_MONOTONIC, POWER_US, ACCURACY_US,
                                   on_timer, e);
    if (r >= 0)
        r = sd_event_source_set_enabled(e->timer, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_add_time_relative(hub->event, &e->states, CLOCK_MONOTONIC, STATE_US,
                                       ACCURACY_US, on_states, e);
    if (r >= 0)
        r = sd_event_source_set_enabled(e->states, SD_EVENT_OFF);
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
    sd_event_source_disable_unref(e->states);
    free(e->told);
    free(e->due);
    free(e);
    return NULL;
}
