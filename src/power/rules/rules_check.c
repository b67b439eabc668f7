/* SPDX-License-Identifier: Apache-2.0 */
#include "power/rules/rules_check.h"

#include "base/fnv.h"

#include <errno.h>
#include <string.h>

#define MINUTE_S     60
#define DAY_S        86400
#define WEEK_MINUTES (8 * 1440) /* a day more, so that each weekday is there as a whole */
#define YEAR_DAYS    366
#define SEGMENTS_MAX 256
#define SLOTS        (2 * RULES_MAX)

/* The areas that the rules name, each once; parents stand before their children. */
struct areas {
    uint32_t count;
    uint16_t of_rule[RULES_MAX];
    uint16_t first[RULES_MAX];  /* a rule that names it */
    uint16_t parent[RULES_MAX]; /* the nearest area above that is named, or NO_AREA */
    uint16_t cap_by[RULES_MAX], floor_by[RULES_MAX], sum_by[RULES_MAX];
    uint64_t cap[RULES_MAX], floor[RULES_MAX], sum[RULES_MAX], day_uj[RULES_MAX];
};
#define NO_AREA UINT16_MAX

struct windows {
    uint32_t count;
    uint16_t of_rule[RULES_MAX]; /* or NO_WINDOW */
    uint16_t first[RULES_WINDOWS_MAX];
    bool open[RULES_WINDOWS_MAX];
};
#define NO_WINDOW UINT16_MAX

struct check {
    const struct rule_set *set;
    struct rule_fault *ret;
    struct areas areas;
    struct windows windows;
    uint64_t marks[WEEK_MINUTES / 64];
    bool budgets;
};

static int fault(struct rule_fault *ret, uint32_t code, uint32_t rule, uint32_t other)
{
    *ret = (struct rule_fault){.code = code, .rule = rule, .other = other};
    return -EINVAL;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    return b && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

/* ---- each rule by itself ---- */

static bool amount_good(const struct power_rule *r)
{
    switch (r->verb) {
    case RULE_SCALE:
        return r->amount <= 1000;
    default:
        return r->amount <= RULE_AMOUNT_MAX;
    }
}

static bool ends(const char *text, size_t max)
{
    for (size_t i = 0; i < max; i++)
        if (!text[i])
            return true;
    return false;
}

static bool well_formed(const struct power_rule *r, uint32_t zones)
{
    if (r->verb >= RULE_VERB_MAX || r->condition >= IF_MAX || r->kind >= KIND_MAX ||
        r->shape >= SHAPE_MAX || !amount_good(r) || !ends(r->off, RULE_OFF_MAX))
        return false;
    if (r->condition == IF_WINDOW && window_check(&r->window, zones) < 0)
        return false;
    return r->verb != RULE_OFF || r->off[0];
}

static bool same_window(const struct window *a, const struct window *b)
{
    return a->days == b->days && a->from_min == b->from_min && a->to_min == b->to_min &&
           a->zone == b->zone;
}

static bool same_text(const char *a, const char *b, size_t max)
{
    for (size_t i = 0; i < max; i++) {
        if (a[i] != b[i])
            return false;
        if (!a[i])
            break;
    }
    return true;
}

static bool same_condition(const struct power_rule *a, const struct power_rule *b)
{
    if (a->condition != b->condition)
        return false;
    switch (a->condition) {
    case IF_WINDOW:
        return same_window(&a->window, &b->window);
    case IF_CARBON:
    case IF_PRICE:
        return a->above == b->above;
    case IF_ABSENT:
        return a->absent_s == b->absent_s;
    default:
        return true;
    }
}

/* Two caps of different kinds may hold at the same time, two of one kind say it twice. */
static bool same_rule(const struct power_rule *a, const struct power_rule *b)
{
    return a->verb == b->verb && (a->verb != RULE_CAP || a->kind == b->kind) &&
           same_condition(a, b) && same_text(a->area, b->area, AREA_PATH_MAX) &&
           (a->verb != RULE_OFF || same_text(a->off, b->off, RULE_OFF_MAX));
}

static uint64_t area_hash(const char *area)
{
    return fnv_text(FNV_START, area);
}

static int check_each(const struct rule_set *s, struct rule_fault *ret)
{
    uint16_t slots[SLOTS] = {0}; /* index + 1 */

    for (uint32_t i = 0; i < s->count; i++) {
        const struct power_rule *r = &s->rule[i];
        uint64_t key[3] = {r->verb, r->condition, 0};
        uint64_t at;

        if (!area_valid(r->area))
            return fault(ret, RULE_NO_AREA, i, RULE_NONE);
        if (!well_formed(r, s->zone_count))
            return fault(ret, RULE_MALFORMED, i, RULE_NONE);
        if (r->condition == IF_WINDOW)
            key[2] = (uint64_t)r->window.days << 32 | (uint32_t)r->window.from_min << 16 |
                     r->window.to_min;
        at = fnv_bytes(area_hash(r->area), key, sizeof(key));
        for (; slots[at % SLOTS]; at++)
            if (same_rule(r, &s->rule[slots[at % SLOTS] - 1]))
                return fault(ret, RULE_TWICE, i, slots[at % SLOTS] - 1u);
        slots[at % SLOTS] = (uint16_t)(i + 1);
    }
    return 0;
}

/* ---- areas and windows, each once ---- */

static uint32_t depth(const char *area)
{
    uint32_t n = 0;

    for (; *area; area++)
        n += *area == '/';
    return n;
}

/* The first rule of each area has its number in @slots; others find it there. */
static uint32_t area_slot(const struct check *c, const uint16_t *slots, const char *area,
                          size_t len)
{
    uint64_t at = fnv_bytes(FNV_START, area, len);

    for (; slots[at % SLOTS]; at++) {
        const char *other = c->set->rule[c->areas.first[slots[at % SLOTS] - 1]].area;

        if (memcmp(other, area, len) == 0 && other[len] == '\0')
            break;
    }
    return at % SLOTS;
}

static uint16_t find_parent(const struct check *c, const uint16_t *slots, const char *area)
{
    for (size_t len = area_length(area); len-- > 0;)
        if (area[len] == '/') {
            uint32_t slot = area_slot(c, slots, area, len);

            if (slots[slot])
                return (uint16_t)(slots[slot] - 1);
        }
    return NO_AREA;
}

static void collect_areas(struct check *c)
{
    struct areas *a = &c->areas;
    uint16_t slots[SLOTS] = {0};

    a->count = 0;
    for (uint32_t d = 0; d < AREA_DEPTH_MAX; d++)
        for (uint32_t i = 0; i < c->set->count; i++) {
            const char *area = c->set->rule[i].area;
            uint32_t slot;

            if (depth(area) != d)
                continue;
            slot = area_slot(c, slots, area, area_length(area));
            if (!slots[slot]) {
                a->first[a->count] = (uint16_t)i;
                slots[slot] = (uint16_t)++a->count;
                a->parent[a->count - 1] = find_parent(c, slots, area);
            }
            a->of_rule[i] = (uint16_t)(slots[slot] - 1);
        }
}

static int collect_windows(struct check *c)
{
    struct windows *w = &c->windows;

    w->count = 0;
    for (uint32_t i = 0; i < c->set->count; i++) {
        const struct power_rule *r = &c->set->rule[i];
        uint32_t k = 0;

        w->of_rule[i] = NO_WINDOW;
        if (r->condition != IF_WINDOW)
            continue;
        while (k < w->count && !same_window(&r->window, &c->set->rule[w->first[k]].window))
            k++;
        if (k == RULES_WINDOWS_MAX)
            return fault(c->ret, RULE_WINDOWS, i, RULE_NONE);
        if (k == w->count)
            w->first[w->count++] = (uint16_t)i;
        w->of_rule[i] = (uint16_t)k;
    }
    return 0;
}

/* ---- one instant ---- */

static void look_at_windows(struct check *c, int64_t utc_s)
{
    for (uint32_t k = 0; k < c->windows.count; k++) {
        const struct window *w = &c->set->rule[c->windows.first[k]].window;
        const struct zone *z = c->set->zone[w->zone];

        c->windows.open[k] = zone_known(z) && window_open(w, z, utc_s);
    }
}

static void gather(struct check *c)
{
    struct areas *a = &c->areas;

    for (uint32_t k = 0; k < a->count; k++) {
        a->cap[k] = RULE_UNLIMITED;
        a->floor[k] = a->sum[k] = 0;
        a->cap_by[k] = a->floor_by[k] = a->sum_by[k] = 0;
    }
    for (uint32_t i = 0; i < c->set->count; i++) {
        const struct power_rule *r = &c->set->rule[i];
        uint32_t k = a->of_rule[i], w = c->windows.of_rule[i];

        if (w != NO_WINDOW && !c->windows.open[w])
            continue;
        if (r->verb == RULE_CAP && r->amount < a->cap[k]) {
            a->cap[k] = r->amount;
            a->cap_by[k] = (uint16_t)i;
        } else if (r->verb == RULE_FLOOR && r->amount > a->floor[k]) {
            a->floor[k] = r->amount;
            a->floor_by[k] = (uint16_t)i;
        }
    }
    for (uint32_t k = 0; k < a->count; k++) {
        uint32_t p = a->parent[k];

        if (p != NO_AREA && a->cap[p] < a->cap[k]) {
            a->cap[k] = a->cap[p];
            a->cap_by[k] = a->cap_by[p];
        }
    }
}

static int too_much(struct check *c, uint32_t code, uint32_t rule, uint32_t other, uint64_t value,
                    uint64_t bound, int64_t utc_s)
{
    *c->ret = (struct rule_fault){code, rule, other, value, bound, utc_s};
    return -EINVAL;
}

/* Children before parents: what an area needs is its own floor or its children's, if that is more.
 */
static int look_at(struct check *c, int64_t utc_s)
{
    struct areas *a = &c->areas;

    look_at_windows(c, utc_s);
    gather(c);
    for (uint32_t k = a->count; k-- > 0;) {
        uint32_t p = a->parent[k];

        if (a->floor[k] > a->cap[k])
            return too_much(c, RULE_FLOOR_ABOVE_CAP, a->floor_by[k], a->cap_by[k], a->floor[k],
                            a->cap[k], utc_s);
        if (a->sum[k] > a->cap[k])
            return too_much(c, RULE_FLOORS_ABOVE_PARENT, a->cap_by[k], a->sum_by[k], a->sum[k],
                            a->cap[k], utc_s);
        if (a->sum[k] > a->floor[k]) {
            a->floor[k] = a->sum[k];
            a->floor_by[k] = a->sum_by[k];
        }
        if (p != NO_AREA && a->floor[k]) {
            a->sum[p] = add(a->sum[p], a->floor[k]);
            a->sum_by[p] = a->floor_by[k];
        }
    }
    return 0;
}

/* ---- a week, a year ---- */

static bool same_offsets(const struct rule_set *s, int64_t a, int64_t b)
{
    for (uint32_t z = 0; z < s->zone_count; z++)
        if (zone_offset_s(s->zone[z], a) != zone_offset_s(s->zone[z], b))
            return false;
    return true;
}

static void mark(struct check *c, int64_t minute)
{
    if (minute >= 0 && minute < WEEK_MINUTES)
        c->marks[minute / 64] |= UINT64_C(1) << (minute % 64);
}

static bool marked(const struct check *c, int64_t minute)
{
    return c->marks[minute / 64] >> (minute % 64) & 1;
}

static void mark_edges(struct check *c, int64_t from_s, int64_t to_s)
{
    memset(c->marks, 0, sizeof(c->marks));
    mark(c, 0);
    for (uint32_t k = 0; k < c->windows.count; k++) {
        const struct window *w = &c->set->rule[c->windows.first[k]].window;
        int64_t at = from_s, next;

        for (; at < to_s; at = next) {
            mark(c, (at - from_s) / MINUTE_S);
            next = window_edge(w, c->set->zone[w->zone], at);
            if (next <= at)
                break;
        }
    }
}

/* How long after @utc_s it is midnight in the first zone. */
static int64_t to_midnight(const struct rule_set *s, int64_t utc_s)
{
    int64_t local = utc_s + (s->zone_count ? zone_offset_s(s->zone[0], utc_s) : 0);
    int64_t since = local % DAY_S;

    return since < 0 ? -since : since ? DAY_S - since : 0;
}

static int check_day(struct check *c, int64_t utc_s)
{
    struct areas *a = &c->areas;

    for (uint32_t i = 0; i < c->set->count; i++) {
        const struct power_rule *r = &c->set->rule[i];
        uint32_t k = a->of_rule[i];

        if (r->verb == RULE_BUDGET && a->day_uj[k] > r->amount)
            return too_much(c, RULE_BUDGET_BELOW_FLOOR, i, a->floor_by[k], a->day_uj[k], r->amount,
                            utc_s);
    }
    memset(a->day_uj, 0, a->count * sizeof(a->day_uj[0]));
    return 0;
}

static void spend(struct check *c, int64_t minutes)
{
    struct areas *a = &c->areas;

    for (uint32_t k = 0; k < a->count; k++)
        a->day_uj[k] = add(a->day_uj[k], times(a->floor[k], (uint64_t)minutes * MINUTE_S));
}

/* From one mark to the next; floors stay the same between. */
static int check_week(struct check *c, int64_t from_s, int64_t to_s)
{
    int64_t minutes = (to_s - from_s) / MINUTE_S, midnight = to_midnight(c->set, from_s) / MINUTE_S;
    int64_t last = 0;
    int r;

    if (minutes > WEEK_MINUTES)
        minutes = WEEK_MINUTES;
    mark_edges(c, from_s, from_s + minutes * MINUTE_S);
    for (int64_t m = midnight; c->budgets && m < minutes; m += 1440)
        mark(c, m);
    memset(c->areas.day_uj, 0, sizeof(c->areas.day_uj));
    for (int64_t m = 0; m < minutes; m++) {
        bool day_ends = m >= midnight && (m - midnight) % 1440 == 0;

        if (!marked(c, m))
            continue;
        if (c->budgets && m > last && last >= midnight)
            spend(c, m - last);
        if (c->budgets && day_ends && m > midnight) {
            r = check_day(c, from_s + (m - 1440) * MINUTE_S);
            if (r < 0)
                return r;
        }
        r = look_at(c, from_s + m * MINUTE_S);
        if (r < 0)
            return r;
        last = m;
    }
    return 0;
}

/* When a zone has another offset next. */
static int64_t next_change(const struct rule_set *s, int64_t utc_s)
{
    int64_t next = INT64_MAX;

    for (uint32_t z = 0; z < s->zone_count; z++) {
        int64_t change = zone_next_change_s(s->zone[z], utc_s);

        if (change < next)
            next = change;
    }
    return next;
}

static bool seen(const struct rule_set *s, const int64_t *segment, uint32_t n, int64_t utc_s)
{
    for (uint32_t i = 0; i < n; i++)
        if (same_offsets(s, segment[i], utc_s))
            return true;
    return false;
}

static int check_year(struct check *c, int64_t utc_s)
{
    const struct rule_set *s = c->set;
    int64_t segment[SEGMENTS_MAX], at = utc_s - utc_s % MINUTE_S, end = at + YEAR_DAYS * DAY_S;
    uint32_t n = 0;

    while (at < end) {
        int64_t next = next_change(s, at);

        if (next > end)
            next = end;
        if (!seen(s, segment, n, at)) {
            int r = check_week(c, at, next);

            if (r < 0)
                return r;
            if (n < SEGMENTS_MAX)
                segment[n++] = at;
        }
        at = next;
    }
    return 0;
}

int rules_check(const struct rule_set *s, int64_t utc_s, struct rule_fault *ret)
{
    struct rule_fault found;
    struct check c;
    int r;

    if (s->count > RULES_MAX)
        return fault(ret, RULE_MALFORMED, RULES_MAX, RULE_NONE);
    if (s->zone_count > RULES_ZONES_MAX)
        return fault(ret, RULE_WINDOWS, RULE_NONE, RULE_NONE);
    r = check_each(s, ret);
    if (r < 0)
        return r;
    c.set = s;
    c.ret = &found;
    c.budgets = false;
    for (uint32_t i = 0; i < s->count; i++)
        c.budgets |= s->rule[i].verb == RULE_BUDGET;
    collect_areas(&c);
    r = collect_windows(&c);
    if (r >= 0)
        r = check_year(&c, utc_s);
    if (r < 0)
        *ret = found;
    return r;
}
