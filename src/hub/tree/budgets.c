/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Today's use of budgets that several units share (power/calendar/budget.h). The store has the
 * energy that units have sent. For the time since its last record, a unit counts as drawing what it
 * was lent or told last: a unit that is late, or cut off, has its part of the budget kept. A record
 * that comes replaces this assumption by the measured energy.
 */
#include "hub/tree/tree_state.h"

#include "base/muldiv.h"
#include "base/wallclock.h"

#include <string.h>

#define LATE_MS 180000 /* a unit that is silent for longer is late */
#define MS_S    1000

/* ---- what the store knows ---- */

static bool take_total(void *arg, const struct store_total *total)
{
    const struct tree *t = arg;
    const struct unit *u = units_find(t->units, total->key);

    if (u)
        units_change(t->units, u->number)->today_uj =
            add_sat(mul_div(total->mid.j, 1000000, 1), total->mid.uj);
    return true;
}

/* Asked once: later on, incoming records tell it. */
static bool take_end(void *arg, const struct store_point *p)
{
    const struct tree *t = arg;
    const struct unit *u = units_find(t->units, p->unit);
    int64_t now_ms = (int64_t)wallclock_ms(); /* a unit's clock may be ahead */
    int64_t end_ms = p->last_ms < now_ms ? p->last_ms : now_ms;

    if (u && end_ms > u->stored_ms)
        units_change(t->units, u->number)->stored_ms = end_ms;
    return true;
}

/* The day of the store's sums. */
static void turn_day(struct tree *t, int64_t now_s)
{
    const struct zone *zone = policy_day_zone(&t->policy.rules);
    int64_t begin_s = now_s - now_s % 86400, end_s = begin_s + 86400;

    if (zone)
        zone_day(zone, now_s, &begin_s, &end_s);
    if (t->day.begin_s == begin_s)
        return;
    for (size_t i = 0; i < units_count(t->units); i++)
        units_change(t->units, i)->today_uj = 0;
    t->day.known &= t->day.begin_s != 0 && begin_s == t->day.end_s; /* a day that begins is empty */
    t->day.begin_s = begin_s;
    t->day.end_s = end_s;
}

static void ask_store(struct tree *t)
{
    struct store *store = t->options.store;
    const int64_t from_ms = t->day.begin_s * MS_S;
    const struct store_question q = {.by = STORE_BY_UNIT, .from_ms = from_ms, .to_ms = from_ms + 1};
    struct store_span span;
    struct error err; /* the store says its troubles where records come in */

    if (!t->day.ends_known)
        t->day.ends_known = store_points(store, take_end, t, &err) == 0;
    if (t->day.ends_known && store_totals(store, &q, &span, take_total, t, &err) == 0)
        t->day.known |= !span.filling && span.from_ms == from_ms;
}

/* ---- what nobody has told yet ---- */

static uint64_t last_rate_uw(const struct tree *t, const struct unit *u, int64_t now_ms)
{
    uint64_t lent = 0;
    /* A lease without a bound says nothing. */
    bool bound = lending_unheard(t->lending, u->name, &lent) && lent < DEMAND_MAX;
    struct power_range draw = bound ? unit_draw(u, now_ms) : u->demand.draw;

    if (draw.basis == POWER_UNKNOWN)
        draw.uw = 0;
    return bound && lent > draw.uw ? lent : draw.uw;
}

/* Since when nobody knows what it used today. A unit that never told begins when it connects. */
static int64_t silent_ms(const struct tree *t, const struct unit *u, int64_t now_ms)
{
    int64_t begin_ms = t->day.begin_s * MS_S;
    int64_t since_ms = u->stored_ms ? u->stored_ms : u->state.online ? u->since_ms : now_ms;

    since_ms = since_ms > begin_ms ? since_ms : begin_ms;
    return now_ms > since_ms ? now_ms - since_ms : 0;
}

/*
 * A unit that is late goes on borrowing: each time since the last look counts at its own rate. For
 * a unit that is not late, the newest rate stands for all of the short time.
 */
static void look_at_unit(const struct tree *t, struct unit *u, int64_t now_ms)
{
    int64_t silent = silent_ms(t, u, now_ms), from_ms = now_ms - silent;
    int64_t step = now_ms > u->looked_ms ? now_ms - u->looked_ms : 0;

    u->rate_uw = last_rate_uw(t, u, now_ms);
    if (silent < LATE_MS || from_ms != u->unseen_from_ms) /* also: a record came, a day began */
        u->unseen_uj = mul_div(u->rate_uw, (uint64_t)silent, MS_S);
    else
        u->unseen_uj = add_sat(u->unseen_uj, mul_div(u->rate_uw, (uint64_t)step, MS_S));
    u->unseen_from_ms = from_ms;
    u->looked_ms = now_ms;
}

/* ---- for caps.c ---- */

int64_t budgets_look(struct tree *t, int64_t now_s)
{
    turn_day(t, now_s);
    ask_store(t);
    for (size_t i = 0; i < units_count(t->units); i++)
        look_at_unit(t, units_change(t->units, i), now_s * MS_S);
    return t->day.end_s;
}

bool tree_used_today(const struct tree *t, uint32_t area, uint64_t *ret_uj)
{
    const struct areas *a = &t->policy.areas;
    uint64_t sum = 0;

    if (!t->day.known)
        return false;
    for (uint32_t i = area; i < a->area[area].end;) {
        const struct policy_area *entry = a->area[i].entry;
        const struct unit *u = entry && *entry->unit ? units_find(t->units, entry->unit) : NULL;

        if (u)
            sum = add_sat(sum, add_sat(u->today_uj, u->unseen_uj));
        i = u ? a->area[i].end : i + 1; /* a unit's meters see what lies below it, too */
    }
    *ret_uj = sum;
    return true;
}

uint64_t budgets_cap_uw(const struct tree *t, const struct bundle *prices, uint32_t area,
                        const struct rule_view *v, const struct rule_now *now)
{
    struct budget b = {.day_uj = v->budget_uj,
                       .floor_uw = v->floor_uw,
                       .begin_utc_s = t->day.begin_s,
                       .end_utc_s = t->day.end_s};

    if (!now->synchronised)
        return budget_flat_uw(b.day_uj, b.floor_uw);
    if (!tree_used_today(t, area, &b.used_uj)) /* all of it may be used up */
        return b.floor_uw;
    bundle_weigh(prices, v->shape, &b);
    return budget_cap_uw(&b, now->utc_s);
}
