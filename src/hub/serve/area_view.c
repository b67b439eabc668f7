/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/area_view.h"

#include "base/cleanup.h"
#include "base/wallclock.h"
#include "hub/compile/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* ---- which there are ---- */

/* Without a policy nobody knows where units stand: each is an area by its own name. */
static void take_units(const struct units *units, struct shown_areas *ret)
{
    for (uint32_t i = 0; i < ret->count; i++) {
        struct shown_area *a = &ret->area[i];

        a->unit = units_at(units, i);
        a->unit_name = a->unit->name;
        snprintf(a->path, sizeof(a->path), "%s", a->unit_name);
        a->parent = NONE;
        a->end = i + 1;
    }
}

static void take_areas(const struct areas *areas, const struct units *units,
                       struct shown_areas *ret)
{
    for (uint32_t i = 0; i < ret->count; i++) {
        const struct policy_area *entry = areas->area[i].entry;
        struct shown_area *a = &ret->area[i];

        strcpy(a->path, areas->area[i].path);
        a->parent = areas->area[i].parent;
        a->end = areas->area[i].end;
        a->name = entry && *entry->name ? entry->name : NULL;
        a->unit_name = entry && *entry->unit ? entry->unit : NULL;
        a->unit = a->unit_name ? units_find(units, a->unit_name) : NULL;
    }
}

/* ---- what they draw ---- */

static void add_power(struct power_range *sum, const struct power_range *more)
{
    if (more->basis == POWER_UNKNOWN)
        return;
    sum->uw += more->uw;
    sum->low_uw += more->low_uw;
    sum->high_uw += more->high_uw;
    sum->basis = sum->basis == POWER_UNKNOWN || more->basis < sum->basis ? more->basis : sum->basis;
}

/* From the last one on: what lies below an area is summed up before it is. */
static void sum_up(struct shown_areas *a, int64_t now_ms)
{
    for (uint32_t i = a->count; i-- > 0;) {
        struct shown_area *area = &a->area[i];

        if (area->unit_name) { /* its meters see what lies below it, too */
            area->power = area->unit ? unit_draw(area->unit, now_ms) : (struct power_range){0};
            area->units = 1;
            area->silent = area->power.basis == POWER_UNKNOWN;
        }
        if (area->parent != NONE && !a->area[area->parent].unit_name) {
            struct shown_area *above = &a->area[area->parent];

            add_power(&above->power, &area->power);
            above->units += area->units;
            above->silent += area->silent;
        }
    }
}

int area_view_make(const struct web_options *hub, struct shown_areas *ret)
{
    const struct units *units = tree_units(hub->tree);
    const struct in_force *policy = tree_policy(hub->tree);

    *ret = (struct shown_areas){.policy = policy};
    ret->count = policy ? policy->areas.count : (uint32_t)units_count(units);
    ret->area = calloc(ret->count ? ret->count : 1, sizeof(*ret->area));
    if (!ret->area)
        return -ENOMEM;
    if (policy)
        take_areas(&policy->areas, units, ret);
    else
        take_units(units, ret);
    sum_up(ret, (int64_t)wallclock_ms());
    return 0;
}

void area_view_done(struct shown_areas *a)
{
    free(a->area);
    json_decref(a->price);
}

const struct shown_area *area_view_find(const struct shown_areas *a, const char *path)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (strcmp(a->area[i].path, path) == 0)
            return &a->area[i];
    return NULL;
}

/* ---- for people ---- */

json_t *area_view_power(const struct shown_area *area)
{
    const struct power_range *p = &area->power;

    if (p->basis == POWER_UNKNOWN)
        return json_null();
    return json_pack("{s:I,s:I,s:I,s:s,s:i,s:i}", "low_uw", (json_int_t)p->low_uw, "mid_uw",
                     (json_int_t)p->uw, "high_uw", (json_int_t)p->high_uw, "basis",
                     power_basis_name(p->basis), "units", (int)area->units, "silent",
                     (int)area->silent);
}

const char *area_view_state(const struct shown_area *area)
{
    if (!area->unit || !area->unit->heard)
        return "never";
    return area->unit->state.online ? "connected" : "lost";
}

static json_t *number_or_null(uint64_t value)
{
    return value == PAYLOAD_UNTOLD ? json_null() : json_integer((json_int_t)value);
}

static json_t *view_switches(const struct unit *u)
{
    json_t *list = json_array();

    for (uint32_t i = 0; u && i < u->state.switches; i++) {
        const struct payload_switch *s = &u->state.item[i];

        json_array_append_new(list, json_pack("{s:s,s:b,s:b,s:b,s:b}", "name", s->name, "on", s->on,
                                              "known", s->known, "always_on", s->always_on, "may",
                                              s->command && !s->always_on));
    }
    return list;
}

/* ---- who was shrunk ---- */

#define SHRUNK_ROWS 256

static void add_shrunk(json_t *list, const char *node, uint64_t jobs, uint64_t cores)
{
    json_array_append_new(list, json_pack("{s:s,s:I,s:I}", "node", node, "jobs", (json_int_t)jobs,
                                          "cores", (json_int_t)cores));
}

/*
 * Machines of the area's own unit, and one row for each unit below, the sum of its machines: meters
 * see what lies below, but each unit tells of its own machines alone.
 */
static json_t *view_shrunk(const struct shown_areas *a, const struct shown_area *area,
                           int64_t now_ms)
{
    uint32_t first = (uint32_t)(area - a->area);
    json_t *list = json_array();

    for (uint32_t i = first; i < area->end && json_array_size(list) < SHRUNK_ROWS; i++) {
        const struct unit *u = a->area[i].unit;
        const struct payload_shrunk *s = u ? unit_shrunk(u, now_ms) : NULL;
        uint64_t jobs = 0, cores = 0;

        for (uint32_t k = 0; s && k < s->nodes; k++) {
            jobs += s->node[k].jobs;
            cores += s->node[k].cores;
            if (i == first)
                add_shrunk(list, s->node[k].name, s->node[k].jobs, s->node[k].cores);
        }
        if (s && i != first)
            add_shrunk(list, u->name, jobs, cores);
    }
    return list;
}

/* ---- the policy's ---- */

struct rule_now area_view_now(const struct web_options *hub, const struct shown_area *area,
                              int64_t utc_s)
{
    bool told =
        area->unit && area->unit->state.online && area->unit->state.absent_s != PAYLOAD_UNTOLD;
    struct rule_now now = tree_now(hub->tree);

    now.utc_s = utc_s;
    now.price = RULE_UNKNOWN; /* the tariff says it for that time */
    now.absent_s = told ? area->unit->state.absent_s : 0;
    return now;
}

json_t *area_view_by(const struct power_policy *rules, uint32_t rule)
{
    char text[RULE_TEXT_MAX], by[RULE_TEXT_MAX + 40];

    if (rule == RULE_NONE)
        return json_null();
    explain_rule(rules, rule, text);
    snprintf(by, sizeof(by), "policy.yaml:%u: %s", (unsigned)rules->set.rule[rule].line, text);
    return json_string(by);
}

/* As the unit tells it; what a machine used, or several units together, as the hub counts it. */
static json_t *used_today(const struct web_options *hub, const struct shown_areas *a,
                          const struct shown_area *area, const struct payload_state *s)
{
    uint64_t used = s ? s->budget_used_uj : PAYLOAD_UNTOLD;

    if (used == PAYLOAD_UNTOLD)
        tree_used_today(hub->tree, (uint32_t)(area - a->area), &used);
    return number_or_null(used);
}

static void add_rules(json_t *view, const struct web_options *hub, const struct shown_areas *a,
                      const struct shown_area *area, const struct payload_state *s)
{
    const struct power_policy *rules = &a->policy->rules;
    struct rule_now now = area_view_now(hub, area, (int64_t)(wallclock_ms() / 1000));
    struct rule_view v;

    now.price = tree_now(hub->tree).price;

    rules_view(&rules->set, area->path, &now, &v);
    if (v.cap_by != RULE_NONE) {
        json_object_set_new(view, "cap_uw", json_integer((json_int_t)v.cap_uw));
        json_object_set_new(view, "cap_by", area_view_by(rules, v.cap_by));
        json_object_set_new(view, "kind", json_string(explain_kind(v.kind)));
    }
    json_object_set_new(view, "floor_uw", json_integer((json_int_t)v.floor_uw));
    if (v.next_utc_s != INT64_MAX)
        json_object_set_new(view, "next_ms", json_integer(v.next_utc_s * 1000));
    /* One of an area above is shown there: it is not given to each area below once more. */
    if (v.budget_by != RULE_NONE && strcmp(rules->set.rule[v.budget_by].area, area->path) == 0)
        json_object_set_new(view, "budget",
                            json_pack("{s:I,s:o}", "day_uj", (json_int_t)v.budget_uj, "used_uj",
                                      used_today(hub, a, area, s)));
    if (now.carbon != RULE_UNKNOWN)
        json_object_set_new(view, "carbon_g", json_integer((json_int_t)now.carbon));
    json_object_set_new(view, "price", a->price ? json_incref(a->price) : json_null());
}

/* The price now, and until when: the tariff is looked at in quarters of an hour, a day ahead. */
static json_t *view_price(const struct power_policy *rules)
{
    int64_t now = (int64_t)(wallclock_ms() / 1000), until = now / 900 * 900 + 900;
    uint64_t milli = policy_price(rules, now);
    char unit[CURRENCY_MAX + 8];

    if (milli == RULE_UNKNOWN)
        return NULL;
    while (until < now + 86400 && policy_price(rules, until) == milli)
        until += 900;
    snprintf(unit, sizeof(unit), "%s/kWh", rules->tariff.currency);
    return json_pack("{s:f,s:s,s:o}", "amount", (double)milli / 1000, "unit", unit, "until_ms",
                     until < now + 86400 ? json_integer(until * 1000) : json_null());
}

void area_view_with_price(struct shown_areas *a)
{
    if (a->policy)
        a->price = view_price(&a->policy->rules);
}

json_t *area_view_json(const struct web_options *hub, const struct shown_areas *a,
                       const struct shown_area *area)
{
    const struct unit *u = area->unit && area->unit->heard ? area->unit : NULL;
    const struct payload_state *s = u && u->state.online ? &u->state : NULL;
    json_t *view = json_pack(
        "{s:s,s:s,s:o,s:o,s:s,s:o,s:o}", "area", area->path, "name",
        area->name ? area->name : area->path, "parent",
        area->parent == NONE ? json_null() : json_string(a->area[area->parent].path), "unit",
        area->unit_name ? json_string(area->unit_name) : json_null(), "state",
        area_view_state(area), "since_ms",
        u && u->since_ms ? json_integer(u->since_ms) : json_null(), "power", area_view_power(area));
    static const char *const unknown[] = {"cap_by", "kind",  "floor_uw", "next_ms",
                                          "budget", "price", "carbon_g"};

    json_object_set_new(view, "cap_uw", s ? number_or_null(s->cap_uw) : json_null());
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++)
        json_object_set_new(view, unknown[i], json_null());
    if (a->policy)
        add_rules(view, hub, a, area, s);
    json_object_set_new(view, "lease_uw",
                        u && u->lease_uw != RULE_UNLIMITED ? json_integer((json_int_t)u->lease_uw)
                                                           : json_null());
    json_object_set_new(view, "absent_s", s ? number_or_null(s->absent_s) : json_null());
    json_object_set_new(view, "switches", view_switches(s ? u : NULL));
    json_object_set_new(view, "shrunk", view_shrunk(a, area, (int64_t)wallclock_ms()));
    return view;
}
