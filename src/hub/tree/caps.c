/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caps that several units share: areas of the policy with a cap or a budget and at least two units
 * in them become groups of the lending engine (edge/lending.h), their units borrow. The rest of a
 * budget is one more cap (budgets.c). A cap or budget of one unit alone needs no lease: the unit
 * reads it in its policy. It needs one if it is a machine, which reads no policy; while another
 * unit's lease still counts there; and a last one that leaves it free, where it shared a cap
 * before.
 */
#include "hub/tree/tree_state.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/minmax.h"
#include "base/muldiv.h"
#include "base/wallclock.h"
#include "power/cap/caps.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "hub-state"

#define LOOK_MS 60000 /* so often at least the caps are looked at again … */
#define UNKNOWN_MS                                                                                 \
    5000 /* … and so often while the store does not say what was used today, or a unit           \
            counts where a policy took it from */
#define LEFT_NS (31 * NS_PER_S) /* a lease has ended, by the hub's clock and by the unit's */
#define BOOK    "leases"

/* ---- which areas are groups ---- */

struct plan {
    uint32_t *units; /* of each area: those in it and below */
    uint8_t *shared; /* of each area: a bit of CAPPED, BUDGETED for a rule of it */
    uint32_t *group; /* of each area: its group's index, or that of the nearest above */
    struct divide_group *groups;
    struct lending_child *child;
    uint64_t *left_uw; /* of each area: what units draw that a policy took from it a moment ago */
    uint32_t group_count, child_count;
    int64_t next_s; /* when a window changes any of it */
    bool left;      /* some area has left_uw */
    bool budgets;   /* some area has one that the hub lends, or the hub above says one */
};

#define CAPPED   1
#define BUDGETED 2

/* The rules in force for an area; p->next_s becomes the earliest change of all areas. */
static struct rule_view look(const struct tree *t, struct plan *p, const char *area,
                             const struct rule_now *now)
{
    struct rule_view v;

    rules_view(&t->policy.rules.set, area, now, &v);
    if (v.next_utc_s < p->next_s)
        p->next_s = v.next_utc_s;
    return v;
}

static void plan_done(struct plan *p)
{
    free(p->units);
    free(p->shared);
    free(p->left_uw);
    free(p->group);
    free(p->groups);
    free(p->child);
}

static int plan_new(uint32_t areas, uint32_t units, struct plan *ret)
{
    struct plan p = {.next_s = INT64_MAX / 1000};

    p.units = calloc(areas, sizeof(*p.units));
    p.shared = calloc(areas, sizeof(*p.shared));
    p.group = calloc(areas, sizeof(*p.group));
    p.left_uw = calloc(areas, sizeof(*p.left_uw));
    p.groups = calloc(areas + 1, sizeof(*p.groups));
    p.child = calloc(units + 1, sizeof(*p.child));
    if (!p.units || !p.shared || !p.group || !p.left_uw || !p.groups || !p.child) {
        plan_done(&p);
        return -ENOMEM;
    }
    *ret = p;
    return 0;
}

/*
 * Whether an area's one unit keeps nothing but leases, since it is a machine. Before it has told
 * its role, since this hub began, its earlier lease says so: no cap is taken back meanwhile.
 */
static bool reads_no_policy(const struct tree *t, uint32_t area)
{
    const struct areas *a = &t->policy.areas;
    const struct unit *u;

    while (!areas_have_unit(a, area))
        area++;
    u = units_find(t->units, a->area[area].entry->unit);
    return u && u->heard ? u->machine : lending_binds(t->lending, a->area[area].entry->unit);
}

/* A unit that left an area shares its cap, not its budget, while it counts there. */
static bool needs_leases(const struct tree *t, const struct plan *p, uint32_t area, uint8_t what)
{
    return p->units[area] > 1 || (p->units[area] == 1 && ((what == CAPPED && p->left_uw[area]) ||
                                                          reads_no_policy(t, area)));
}

static void mark_shared(const struct tree *t, struct plan *p)
{
    const struct in_force *policy = &t->policy;

    for (uint32_t i = 0; i < policy->rules.set.count; i++) {
        const struct power_rule *r = &policy->rules.set.rule[i];
        uint8_t what = r->verb == RULE_CAP ? CAPPED : r->verb == RULE_BUDGET ? BUDGETED : 0;
        uint32_t area = what ? areas_find(&policy->areas, r->area) : AREA_NONE;

        if (area == AREA_NONE || !needs_leases(t, p, area, what))
            continue;
        p->shared[area] |= what;
        p->budgets |= what == BUDGETED;
    }
}

static uint64_t bounded(uint64_t uw)
{
    return uw < DEMAND_MAX ? uw : DEMAND_MAX;
}

/* The unit that stands for an area; NULL: none does. */
static const struct unit *unit_of(const struct tree *t, uint32_t area)
{
    const struct policy_area *entry = t->policy.areas.area[area].entry;

    return entry && *entry->unit ? units_find(t->units, entry->unit) : NULL;
}

/* The watts that the units in an area may always draw. */
static uint64_t floors_in(const struct tree *t, struct plan *p, uint32_t area,
                          const struct rule_now *now)
{
    const struct areas *a = &t->policy.areas;
    uint64_t sum = 0;

    for (uint32_t i = area; i < a->area[area].end; i++)
        if (a->area[i].entry && *a->area[i].entry->unit)
            sum = add_sat(sum, look(t, p, a->area[i].path, now).floor_uw);
    return sum;
}

/*
 * The draw of an area's units that have no lease in force, beyond what they count as in the sums of
 * the leases: those that are cut off go on by their last ones. Others may have none of it.
 */
static uint64_t unlent_in(const struct tree *t, uint32_t area)
{
    const struct areas *a = &t->policy.areas;
    uint64_t sum = 0;

    for (uint32_t i = area, end; i < a->area[area].end; i = end) {
        const struct unit *u = unit_of(t, i);
        uint64_t uw, counted = 0;
        bool kept;

        end = i + 1;
        if (!u || lending_told(t->lending, u->name, &uw, &kept))
            continue;
        for (end = i; end < a->area[i].end; end++) /* its meters see what lies below it, too */
            if (unit_of(t, end))
                counted = add_sat(counted, lending_counts(t->lending, unit_of(t, end)->name));
        sum = add_sat(sum, sub_sat(u->rate_uw, counted));
    }
    return sum;
}

/* The watts that a budget leaves to be lent: at least the floor, at most the cap. */
static uint64_t lendable_uw(const struct tree *t, const struct bundle *prices, uint32_t area,
                            const struct rule_view *v, const struct rule_now *now, uint64_t cap_uw)
{
    uint64_t uw = sub_sat(budgets_cap_uw(t, prices, area, v, now), unlent_in(t, area));

    uw = uw > v->floor_uw ? uw : v->floor_uw;
    return uw < cap_uw ? uw : cap_uw;
}

static uint64_t cap_of(const struct tree *t, struct plan *p, uint32_t area,
                       const struct rule_now *now, struct rule_view v)
{
    uint64_t floors;

    if (!(p->shared[area] & BUDGETED) || v.budget_by == RULE_NONE)
        return v.cap_uw;
    floors = floors_in(t, p, area, now);
    v.floor_uw = v.floor_uw > floors ? v.floor_uw : floors;
    return lendable_uw(t, t->bundle, area, &v, now, v.cap_uw);
}

/* ---- units that stood elsewhere a moment ago ---- */

/* A lease without a bound was given where no cap held: nothing is kept there by less for others. */
void caps_left(struct tree *t, struct unit *u, const char *area)
{
    uint64_t uw = lending_counts(t->lending, u->name);

    strcpy(u->left_area, area);
    u->left_uw = uw;
    u->left_until_ns = uw && uw < DEMAND_MAX ? clock_boot_ns() + LEFT_NS : 0;
}

/* Counts the unit in each area above the place that it left, but those in which it stands still. */
static void count_left(const struct tree *t, struct plan *p, const struct unit *u)
{
    char path[AREA_PATH_MAX], *slash;

    strcpy(path, u->left_area);
    do {
        uint32_t area = areas_find(&t->policy.areas, path);

        if (area != AREA_NONE && !(*u->area && area_below(u->area, path)))
            p->left_uw[area] = add_sat(p->left_uw[area], u->left_uw);
        slash = strrchr(path, '/');
        if (slash)
            *slash = '\0';
    } while (slash);
    p->left = true;
}

static void count_all_left(const struct tree *t, struct plan *p)
{
    uint64_t now_ns = clock_boot_ns();

    for (size_t i = 0; i < units_count(t->units); i++)
        if (now_ns < units_at(t->units, i)->left_until_ns)
            count_left(t, p, units_at(t->units, i));
}

/* The rest of a cap beside what units that left the area draw; floors are kept. */
static uint64_t beside_left(const struct tree *t, struct plan *p, uint32_t area,
                            const struct rule_now *now, const struct rule_view *v, uint64_t cap_uw)
{
    uint64_t rest, floors;

    if (!p->left_uw[area] || cap_uw >= DEMAND_MAX)
        return cap_uw;
    rest = sub_sat(cap_uw, p->left_uw[area]);
    floors = floors_in(t, p, area, now);
    floors = floors > v->floor_uw ? floors : v->floor_uw;
    floors = floors < cap_uw ? floors : cap_uw;
    return rest > floors ? rest : floors;
}

/* Group 0 holds all, and has the cap of this hub's own parent. */
static void make_groups(const struct tree *t, const struct rule_now *now, struct plan *p)
{
    const struct areas *a = &t->policy.areas;
    uint64_t cap = t->parent_cap_uw;
    struct rule_view outer;

    if (above_budget(t, now, &outer))
        cap = lendable_uw(t, above_policy(t), 0, &outer, now, cap);
    p->groups[0] = (struct divide_group){DIVIDE_NO_GROUP, bounded(cap), 0};
    p->group_count = 1;
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t above = a->area[i].parent == AREA_NONE ? 0 : p->group[a->area[i].parent];
        struct rule_view v;
        uint64_t uw;

        p->group[i] = above;
        if (!p->shared[i])
            continue;
        v = look(t, p, a->area[i].path, now);
        uw = beside_left(t, p, i, now, &v, bounded(cap_of(t, p, i, now, v)));
        p->group[i] = p->group_count;
        p->groups[p->group_count++] = (struct divide_group){above, uw, v.floor_uw};
    }
}

/* A unit below no shared cap borrows nothing: one that did is told that it is free. */
static void list_children(const struct tree *t, const struct rule_now *now, struct plan *p)
{
    const struct areas *a = &t->policy.areas;

    for (uint32_t i = 0; i < a->count; i++) {
        const struct policy_area *entry = a->area[i].entry;
        struct lending_child *c = &p->child[p->child_count];
        bool apart = p->group[i] == 0 && !t->has_parent;
        struct rule_view v;

        if (!entry || !*entry->unit || (apart && !lending_binds(t->lending, entry->unit)))
            continue;
        v = look(t, p, a->area[i].path, now);
        *c = (struct lending_child){.floor_uw = v.floor_uw,
                                    .most_uw =
                                        p->units[i] == 1 && v.cap_uw < DEMAND_MAX ? v.cap_uw : 0,
                                    .kind = v.kind,
                                    .group = p->group[i]};
        if (t->has_parent && t->parent_kind < c->kind)
            c->kind = t->parent_kind;
        if (v.budget_by != RULE_NONE && c->kind > CAP_BUDGET)
            c->kind = CAP_BUDGET;
        if (apart) {
            const struct unit *u = unit_of(t, i);

            c->kind = CAP_ADVICE;
            if (u && clock_boot_ns() < u->left_until_ns) /* as it counts where it was */
                c->most_uw = larger_u64(u->left_uw, v.floor_uw);
        }
        strcpy(c->name, entry->unit);
        p->child_count++;
    }
}

/* ---- for tree.c ---- */

void caps_look(struct tree *t)
{
    const struct in_force *policy = &t->policy;
    struct rule_now now = tree_now(t);
    struct rule_view above;
    int64_t day_end_s;
    struct plan p;
    int r;

    t->caps_due_ms = (int64_t)wallclock_ms() + LOOK_MS;
    if (!policy->number)
        return;
    r = plan_new(policy->areas.count, policy->rules.area_count, &p);
    if (r == 0) {
        areas_count_units(&policy->areas, p.units);
        count_all_left(t, &p);
        mark_shared(t, &p);
        p.budgets |= above_budget(t, &now, &above);
        t->day.known &= p.budgets;
        day_end_s = p.budgets ? budgets_look(t, now.utc_s) : INT64_MAX;
        p.next_s = day_end_s < p.next_s ? day_end_s : p.next_s;
        make_groups(t, &now, &p);
        list_children(t, &now, &p);
        r = lending_set(t->lending, p.groups, p.group_count, p.child, p.child_count);
        if (p.left || (p.budgets && !t->day.known))
            t->caps_due_ms += UNKNOWN_MS - LOOK_MS;
        if (p.next_s * 1000 < t->caps_due_ms)
            t->caps_due_ms = p.next_s * 1000;
        t->lends = p.child_count > 0;
        plan_done(&p);
    }
    if (r < 0)
        tree_say(t, NULL,
                 "out of memory: new caps are not in force, the earlier ones stay (tide why "
                 "out-of-memory)");
    t->news = true;
}

/* A window opens or closes; or somebody set the clock. */
static bool due(const struct tree *t)
{
    int64_t now = (int64_t)wallclock_ms();

    return now >= t->caps_due_ms || now < t->caps_due_ms - LOOK_MS;
}

void caps_tick(struct tree *t)
{
    if (t->policy.number && due(t))
        caps_look(t);
    if (t->lends || t->news) {
        lending_tick(t->lending);
        t->news = false;
    }
}

static void note_lease(struct tree *t, struct unit *u)
{
    uint64_t uw = RULE_UNLIMITED;
    bool kept = false;

    lending_told(t->lending, u->name, &uw, &kept);
    if (uw >= DEMAND_MAX) /* a lease that leaves it free */
        uw = RULE_UNLIMITED;
    if (uw == u->lease_uw && kept == u->lease_kept)
        return;
    u->lease_uw = uw;
    u->lease_kept = kept;
    tree_changed(t, u, TREE_LEASE, NULL);
}

void caps_got(struct tree *t, struct unit *u, enum topic_leaf leaf, const void *bytes, size_t len)
{
    bool borrows = lending_got(t->lending, u->name, leaf, bytes, len);

    t->news |= borrows && leaf != TOPIC_DEMAND;
    note_lease(t, u); /* also of one that borrows no more: its last lease ends */
}

static int send_lease(void *arg, const char *child, const char *text)
{
    struct tree *t = arg;
    struct unit *u = units_make(t->units, child);
    char topic[TOPIC_MAX];
    int id, r = mqtt_publish(t->mqtt, topic_make(child, TOPIC_LEASE, topic), text, strlen(text), 1,
                             false, LENDING_LEASE_S, &id);

    if (r == 0 && u)
        note_lease(t, u);
    return r;
}

static void on_say(void *arg, const char *child, const char *text)
{
    tree_say(arg, child, "%s", text);
}

int caps_begin(struct tree *t, struct error *err)
{
    char path[PATH_MAX];
    const struct lending_options options = {path, send_lease, on_say, t};
    int n = snprintf(path, sizeof(path), "%s/" BOOK, t->options.state);

    t->parent_cap_uw = DEMAND_MAX;
    if (n < 0 || (size_t)n >= sizeof(path) || lending_new(&options, &t->lending) < 0)
        return error_set(err, -ENOMEM, "out of memory, or the state's path is too long: no leases");
    return 0;
}

void caps_end(struct tree *t)
{
    lending_free(t->lending);
}
