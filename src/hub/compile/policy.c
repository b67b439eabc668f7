/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/compile/policy.h"

#include "base/cleanup.h"
#include "base/moment.h"
#include "base/suggest.h"
#include "hub/compile/amount.h"
#include "hub/compile/fault.h"
#include "hub/compile/share.h"
#include "hub/compile/when.h"
#include "hub/compile/yaml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "bad-policy-file"

struct compiler {
    struct yamldoc doc;
    struct power_policy *policy;
    struct power_rule *rule;
    uint32_t count;
    struct error *err;
};

/* An item of `rules`: indices of its nodes, YAML_NONE for a key that is missing. */
struct item {
    uint32_t node, area, room, cap, floor, kind, budget, shape, scale, when, off;
};

__attribute__((format(printf, 3, 4))) static int wrong(struct compiler *c, uint32_t node,
                                                       const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return error_set(c->err, -EINVAL, "%u:%u: %s", c->doc.node[node].line, c->doc.node[node].column,
                     text);
}

/* Puts the place before what a function below said. */
static int placed(struct compiler *c, uint32_t node, int r, const struct error *err)
{
    if (r < 0)
        wrong(c, node, "%s", err->text);
    return r;
}

static const char *text_of(const struct compiler *c, uint32_t node)
{
    return node == YAML_NONE ? NULL : c->doc.node[node].text;
}

static const char *kind_name(const struct compiler *c, uint32_t node)
{
    static const char *const names[] = {"a text", "a list", "a mapping"};

    return names[c->doc.node[node].kind];
}

static int want(struct compiler *c, uint32_t node, uint32_t kind, const char *example)
{
    if (c->doc.node[node].kind == kind)
        return 0;
    return wrong(c, node, "%s, where it has to be as in '%s'", kind_name(c, node), example);
}

/* ---- keys ---- */

struct key {
    const char *name;
    uint32_t *node;
};

/* Finds the entries of a map; one that is not in the table is refused. */
static int take_keys(struct compiler *c, uint32_t map, const struct key *keys, size_t n)
{
    const char *names[16];

    for (size_t k = 0; k < n; k++) {
        *keys[k].node = YAML_NONE;
        names[k] = keys[k].name;
    }
    for (uint32_t i = c->doc.node[map].first; i != YAML_NONE; i = c->doc.node[i].next) {
        const char *name = c->doc.node[i].key, *near;
        size_t k = 0;

        while (k < n && strcmp(name, keys[k].name) != 0)
            k++;
        if (k < n) {
            *keys[k].node = i;
            continue;
        }
        near = suggest_nearest(name, names, n);
        return near ? wrong(c, i, "'%.40s' is unknown here: did you mean '%s'?", name, near)
                    : wrong(c, i, "'%.40s' is unknown here: see tide-policy-file(5)", name);
    }
    return 0;
}

/* ---- the head ---- */

static int take_org(struct compiler *c, uint32_t node)
{
    const char *org = text_of(c, node);

    if (node == YAML_NONE)
        return wrong(c, c->doc.root, "'org: NAME' is missing: the area above all others");
    if (!org || strlen(org) >= POLICY_ORG_MAX || strchr(org, '/') || !area_valid(org))
        return wrong(c, node,
                     "the organization's name is of small letters, digits, '.', '_' and '-'");
    strcpy(c->policy->org, org);
    return 0;
}

static int take_zone(struct compiler *c, uint32_t node)
{
    struct error err = {0};
    uint32_t number;
    int r;

    if (node == YAML_NONE)
        return 0;
    r = want(c, node, YAMLDOC_TEXT, "zone: Europe/Berlin");
    if (r < 0)
        return r;
    r = placed(c, node, zones_find(&c->policy->zones, text_of(c, node), &number, &err), &err);
    if (r >= 0)
        strcpy(c->policy->zone, c->policy->zones.zone[number]->name);
    return r;
}

static struct when_context context(struct compiler *c)
{
    return (struct when_context){&c->policy->zones, *c->policy->zone ? c->policy->zone : NULL,
                                 *c->policy->tariff.currency ? c->policy->tariff.currency : NULL};
}

static int take_price(struct compiler *c, uint32_t map, uint32_t node, uint64_t *ret)
{
    const char *currency = c->policy->tariff.currency;

    if (node == YAML_NONE)
        return wrong(c, map, "'price' is missing, as in 'price: 0.25 %s/kWh'", currency);
    if (!text_of(c, node) || amount_price(text_of(c, node), currency, ret) < 0)
        return wrong(c, node, "no price: use one as 0.25 %s/kWh", currency);
    return 0;
}

static int take_tariff_window(struct compiler *c, uint32_t item)
{
    struct policy_tariff *t = &c->policy->tariff;
    struct when_context with = context(c);
    struct power_rule rule = {0};
    struct error err = {0};
    uint32_t when, price;
    const struct key keys[] = {{"when", &when}, {"price", &price}};
    int r = want(c, item, YAMLDOC_MAP, "- {when: 18:00-23:00, price: 0.30 EUR/kWh}");

    if (r >= 0)
        r = take_keys(c, item, keys, 2);
    if (r < 0)
        return r;
    if (t->count == POLICY_TARIFFS_MAX)
        return wrong(c, item, "more than %d windows in a tariff", POLICY_TARIFFS_MAX);
    if (!text_of(c, when))
        return wrong(c, item, "'when' is missing, as in 'when: 18:00-23:00 Europe/Berlin'");
    r = placed(c, when, when_parse(text_of(c, when), &with, &rule, &err), &err);
    if (r < 0)
        return r;
    if (rule.condition != IF_WINDOW)
        return wrong(c, when, "a tariff has windows of time alone");
    t->window[t->count].window = rule.window;
    return take_price(c, item, price, &t->window[t->count++].milli);
}

static int take_tariff(struct compiler *c, uint32_t node)
{
    struct policy_tariff *t = &c->policy->tariff;
    uint32_t unit, price, windows;
    const struct key keys[] = {{"unit", &unit}, {"price", &price}, {"windows", &windows}};
    int r;

    if (node == YAML_NONE)
        return 0;
    r = want(c, node, YAMLDOC_MAP, "tariff: {unit: EUR, price: 0.12 EUR/kWh, windows: […]}");
    if (r >= 0)
        r = take_keys(c, node, keys, 3);
    if (r < 0)
        return r;
    if (!text_of(c, unit) || !*text_of(c, unit) || strlen(text_of(c, unit)) >= CURRENCY_MAX)
        return wrong(c, node, "'unit' is missing or too long, as in 'unit: EUR'");
    strcpy(t->currency, text_of(c, unit));
    r = take_price(c, node, price, &t->milli);
    if (r < 0 || windows == YAML_NONE)
        return r;
    r = want(c, windows, YAMLDOC_LIST, "windows: [{when: …, price: …}]");
    for (uint32_t i = c->doc.node[windows].first; r >= 0 && i != YAML_NONE; i = c->doc.node[i].next)
        r = take_tariff_window(c, i);
    return r;
}

/* ---- areas ---- */

/* For people, on pages and terminals. */
static int take_area_name(struct compiler *c, uint32_t node, struct policy_area *a)
{
    const char *name = text_of(c, node);

    if (node == YAML_NONE)
        return 0;
    if (!name || !*name || strlen(name) >= sizeof(a->name))
        return wrong(c, node, "an area's name has 1 to %zu bytes", sizeof(a->name) - 1);
    for (const char *b = name; *b; b++)
        if ((unsigned char)*b < ' ' || *b == 0x7f)
            return wrong(c, node, "a control character in an area's name");
    strcpy(a->name, name);
    return 0;
}

static int check_path(struct compiler *c, uint32_t node)
{
    const char *area = text_of(c, node);

    if (!area || strlen(area) >= AREA_PATH_MAX || !area_valid(area))
        return wrong(c, node,
                     "an area is a path as %s/lab3, of small letters, digits, '.', '_', '-'",
                     c->policy->org);
    if (!area_below(area, c->policy->org))
        return wrong(c, node, "'%s' does not lie in the organization: its areas begin with '%s'",
                     area, c->policy->org);
    return 0;
}

static int take_area_entry(struct compiler *c, uint32_t item)
{
    struct power_policy *p = c->policy;
    struct policy_area *a = &p->areas[p->area_count];
    uint32_t area, unit, name;
    const struct key keys[] = {{"area", &area}, {"unit", &unit}, {"name", &name}};
    int r = want(c, item, YAMLDOC_MAP, "- {area: unlp/lab3, unit: lab3, name: Laboratory 3}");

    if (r >= 0)
        r = take_keys(c, item, keys, ARRAY_LEN(keys));
    if (r >= 0 && area == YAML_NONE)
        r = wrong(c, item, "'area' is missing, as in '{area: %s/lab3, unit: lab3}'", p->org);
    if (r >= 0)
        r = check_path(c, area);
    if (r < 0)
        return r;
    if (unit == YAML_NONE && name == YAML_NONE)
        return wrong(c, item, "an area has a 'unit', a 'name' or both");
    if (unit != YAML_NONE && (!text_of(c, unit) || !edge_name_valid(text_of(c, unit))))
        return wrong(c, unit,
                     "'%.70s' is no name of a unit: use 1 to 63 of a-z, 0-9 and '-' between them",
                     text_of(c, unit) ? text_of(c, unit) : kind_name(c, unit));
    strcpy(a->area, text_of(c, area));
    strcpy(a->unit, unit == YAML_NONE ? "" : text_of(c, unit));
    a->line = c->doc.node[item].line;
    a->column = c->doc.node[item].column;
    p->area_count++;
    return take_area_name(c, name, a);
}

static int by_line(const struct policy_area *x, const struct policy_area *y)
{
    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

static int by_area(const void *a, const void *b)
{
    const struct policy_area *x = a, *y = b;
    int order = strcmp(x->area, y->area);

    return order ? order : by_line(x, y);
}

static int by_unit(const void *a, const void *b)
{
    const struct policy_area *x = a, *y = b;
    int order = strcmp(x->unit, y->unit);

    return order ? order : by_line(x, y);
}

/* The entries are sorted by unit, then by area, and stay so. */
static int check_twice(struct compiler *c)
{
    struct power_policy *p = c->policy;
    struct policy_area *a = p->areas;

    qsort(a, p->area_count, sizeof(*a), by_unit);
    for (uint32_t i = 1; i < p->area_count; i++)
        if (*a[i].unit && strcmp(a[i].unit, a[i - 1].unit) == 0)
            return error_set(c->err, -EINVAL, "%u:%u: unit %s stands in %s already (line %u)",
                             a[i].line, a[i].column, a[i].unit, a[i - 1].area, a[i - 1].line);
    qsort(a, p->area_count, sizeof(*a), by_area);
    for (uint32_t i = 1; i < p->area_count; i++)
        if (strcmp(a[i].area, a[i - 1].area) == 0)
            return error_set(c->err, -EINVAL, "%u:%u: area %s has an entry already (line %u)",
                             a[i].line, a[i].column, a[i].area, a[i - 1].line);
    return 0;
}

static int take_areas(struct compiler *c, uint32_t node)
{
    uint32_t count;
    int r;

    if (node == YAML_NONE)
        return 0;
    r = want(c, node, YAMLDOC_LIST, "areas: [{area: unlp/lab3, unit: lab3}]");
    count = c->doc.node[node].count;
    if (r < 0 || count == 0)
        return r;
    if (count > POLICY_AREAS_MAX)
        return wrong(c, node, "more than %d areas", POLICY_AREAS_MAX);
    c->policy->areas = calloc(count, sizeof(*c->policy->areas));
    if (!c->policy->areas)
        return error_set(c->err, -ENOMEM, "out of memory");
    for (uint32_t i = c->doc.node[node].first; r >= 0 && i != YAML_NONE; i = c->doc.node[i].next)
        r = take_area_entry(c, i);
    return r < 0 ? r : check_twice(c);
}

static int take_valid(struct compiler *c, uint32_t node)
{
    uint64_t ms;

    c->policy->valid_s = POLICY_VALID_S;
    if (node == YAML_NONE)
        return 0;
    if (!text_of(c, node) || moment_duration(text_of(c, node), &ms) < 0 ||
        ms < POLICY_VALID_MIN_S * UINT64_C(1000) || ms > POLICY_VALID_MAX_S * UINT64_C(1000))
        return wrong(c, node, "'valid' is a time from 2d to 90d, as 7d");
    c->policy->valid_s = (int64_t)(ms / 1000);
    return 0;
}

/* ---- rules ---- */

static int add_rule(struct compiler *c, const struct power_rule *base, uint32_t node, uint32_t verb,
                    uint64_t amount)
{
    struct power_rule *r = &c->rule[c->count];

    if (c->count == RULES_MAX)
        return wrong(c, node, "more than %d rules", RULES_MAX);
    *r = *base;
    r->verb = verb;
    r->amount = amount;
    r->line = c->doc.node[node].line;
    r->column = c->doc.node[node].column;
    c->count++;
    return 0;
}

typedef int amount_fn(const char *text, uint64_t *ret);

static int take_amount(struct compiler *c, const struct power_rule *base, uint32_t node,
                       uint32_t verb, amount_fn *read, const char *example)
{
    uint64_t amount;

    if (node == YAML_NONE)
        return 0;
    if (!text_of(c, node) || read(text_of(c, node), &amount) < 0)
        return wrong(c, node, "'%.40s' is no amount for '%s': use one as %s",
                     text_of(c, node) ? text_of(c, node) : kind_name(c, node),
                     c->doc.node[node].key, example);
    return add_rule(c, base, node, verb, amount);
}

/* One of some words; YAML_NONE: the first. */
static int take_word(struct compiler *c, uint32_t node, const char *const words[3], uint32_t *ret)
{
    const char *text = text_of(c, node);

    *ret = 0;
    if (node == YAML_NONE)
        return 0;
    for (; text && *ret < 3; ++*ret)
        if (strcmp(text, words[*ret]) == 0)
            return 0;
    return wrong(c, node, "'%s' is %s, %s or %s", c->doc.node[node].key, words[0], words[1],
                 words[2]);
}

/* A switch, or a list of them: "ac lights" comes out. */
static int take_off(struct compiler *c, struct power_rule *base, uint32_t node)
{
    uint32_t one = node;
    size_t len = 0;

    if (node == YAML_NONE)
        return 0;
    if (c->doc.node[node].kind == YAMLDOC_LIST)
        one = c->doc.node[node].first;
    if (one == YAML_NONE)
        return wrong(c, node, "'off' names no switch");
    for (; one != YAML_NONE; one = one == node ? YAML_NONE : c->doc.node[one].next) {
        const char *name = text_of(c, one);

        if (!name || !area_valid(name) || strchr(name, '/'))
            return wrong(c, one,
                         "the name of a switch is of small letters, digits, '.', '_' and '-'");
        if (len + strlen(name) + 2 > sizeof(base->off))
            return wrong(c, node, "the names of these switches are longer than %d bytes",
                         RULE_OFF_MAX - 2);
        len += (size_t)snprintf(base->off + len, sizeof(base->off) - len, "%s%s", len ? " " : "",
                                name);
    }
    return add_rule(c, base, node, RULE_OFF, 0);
}

static int take_area(struct compiler *c, const struct item *i, struct power_rule *base)
{
    uint32_t node = i->area != YAML_NONE ? i->area : i->room;
    const char *area = text_of(c, node);

    if (i->area != YAML_NONE && i->room != YAML_NONE)
        return wrong(c, i->room, "'area' and 'room' mean the same here: use one of them");
    if (node == YAML_NONE)
        return wrong(c, i->node, "a rule names an 'area' or a 'room'");
    if (check_path(c, node) < 0)
        return -EINVAL;
    strcpy(base->area, area);
    return 0;
}

static int take_when(struct compiler *c, uint32_t node, struct power_rule *base)
{
    struct when_context with = context(c);
    struct error err = {0};

    if (node == YAML_NONE)
        return 0;
    if (!text_of(c, node))
        return wrong(c, node, "'when' is a text, as in 'when: Mon-Fri 18:00-23:00 Europe/Berlin'");
    return placed(c, node, when_parse(text_of(c, node), &with, base, &err), &err);
}

/* Refuses a key that makes sense only beside another one which is missing. */
static int check_item(struct compiler *c, const struct item *i, const struct power_rule *base)
{
    if (i->kind != YAML_NONE && i->cap == YAML_NONE)
        return wrong(c, i->kind, "'kind' belongs to a cap, and there is none in this rule");
    if (i->shape != YAML_NONE && i->budget == YAML_NONE)
        return wrong(c, i->shape, "'shape' belongs to a budget, and there is none in this rule");
    if (base->shape == SHAPE_TARIFF && !*c->policy->tariff.currency)
        return wrong(c, i->shape, "'shape: tariff' needs 'tariff: {unit: EUR, …}'");
    return 0;
}

static int take_item(struct compiler *c, uint32_t node)
{
    static const char *const kinds[] = {"breaker", "budget", "advice"};
    static const char *const shapes[] = {"flat", "tariff", "carbon"};
    struct item i = {.node = node};
    const struct key keys[] = {{"area", &i.area},   {"room", &i.room},   {"cap", &i.cap},
                               {"floor", &i.floor}, {"kind", &i.kind},   {"budget", &i.budget},
                               {"shape", &i.shape}, {"scale", &i.scale}, {"when", &i.when},
                               {"off", &i.off}};
    struct power_rule base = {0};
    uint32_t before = c->count;
    int r = want(c, node, YAMLDOC_MAP, "- {area: unlp/lab3, cap: 1200 W}");

    if (r >= 0)
        r = take_keys(c, node, keys, ARRAY_LEN(keys));
    if (r >= 0)
        r = take_area(c, &i, &base);
    if (r >= 0)
        r = take_when(c, i.when, &base);
    if (r >= 0)
        r = take_word(c, i.kind, kinds, &base.kind);
    if (r >= 0)
        r = take_word(c, i.shape, shapes, &base.shape);
    if (r >= 0)
        r = check_item(c, &i, &base);
    if (r >= 0)
        r = take_amount(c, &base, i.cap, RULE_CAP, amount_power, "1200 W or 1.2 kW");
    if (r >= 0)
        r = take_amount(c, &base, i.floor, RULE_FLOOR, amount_power, "300 W");
    if (r >= 0)
        r = take_amount(c, &base, i.budget, RULE_BUDGET, amount_budget, "90 kWh/day");
    if (r >= 0)
        r = take_amount(c, &base, i.scale, RULE_SCALE, amount_share, "50 %");
    if (r >= 0)
        r = take_off(c, &base, i.off);
    if (r >= 0 && c->count == before)
        return wrong(c, node, "the rule says nothing: it lacks cap, floor, budget, scale or off");
    return r;
}

static int take_rules(struct compiler *c, uint32_t node)
{
    int r;

    if (node == YAML_NONE)
        return wrong(c, c->doc.root, "'rules:' is missing, a list as in tide-policy-file(5)");
    r = want(c, node, YAMLDOC_LIST, "rules: [{area: unlp/lab3, cap: 1200 W}]");
    for (uint32_t i = c->doc.node[node].first; r >= 0 && i != YAML_NONE; i = c->doc.node[i].next)
        r = take_item(c, i);
    return r;
}

/* ---- the whole ---- */

static int take_document(struct compiler *c)
{
    uint32_t version, org, zone, valid, areas, tariff, rules;
    const struct key keys[] = {{"version", &version}, {"org", &org},     {"zone", &zone},
                               {"valid", &valid},     {"areas", &areas}, {"tariff", &tariff},
                               {"rules", &rules}};
    int r = want(c, c->doc.root, YAMLDOC_MAP, "version: 1");

    if (r >= 0)
        r = take_keys(c, c->doc.root, keys, ARRAY_LEN(keys));
    if (r < 0)
        return r;
    if (!text_of(c, version) || strcmp(text_of(c, version), "1") != 0)
        return wrong(c, version == YAML_NONE ? c->doc.root : version,
                     "'version: 1' is wanted: this program knows no other format");
    r = take_org(c, org);
    if (r >= 0)
        r = take_zone(c, zone);
    if (r >= 0)
        r = take_valid(c, valid);
    if (r >= 0)
        r = take_areas(c, areas);
    if (r >= 0)
        r = take_tariff(c, tariff);
    return r < 0 ? r : take_rules(c, rules);
}

static int check_rules(struct compiler *c, int64_t now_s)
{
    struct power_policy *p = c->policy;
    struct rule_fault fault;

    p->set = (struct rule_set){c->rule, c->count, (const struct zone *const *)p->zones.zone,
                               p->zones.count};
    if (rules_check(&p->set, now_s, &fault) < 0)
        return fault_text(&p->set, &fault, c->err);
    return share_budgets(p, c->rule) < 0 ? error_set(c->err, -ENOMEM, "out of memory") : 0;
}

int policy_compile(const char *text, size_t len, const char *zoneinfo, int64_t now_s,
                   struct power_policy *ret, struct error *err)
{
    struct power_policy p = {.zones.root = zoneinfo};
    struct compiler c = {.policy = &p, .err = err};
    int r = yamldoc_parse(text, len, &c.doc, err);

    if (r < 0)
        return r;
    c.rule = calloc(RULES_MAX, sizeof(*c.rule));
    r = c.rule ? take_document(&c) : error_set(err, -ENOMEM, "out of memory");
    if (r >= 0)
        r = check_rules(&c, now_s);
    yamldoc_done(&c.doc);
    if (r < 0) {
        free(c.rule);
        free(p.areas);
        zones_done(&p.zones);
        return r;
    }
    *ret = p;
    ret->set.zone = (const struct zone *const *)ret->zones.zone;
    return 0;
}

void policy_done(struct power_policy *p)
{
    free((void *)p->set.rule);
    free(p->areas);
    zones_done(&p->zones);
    *p = (struct power_policy){0};
}

const struct policy_area *policy_area(const struct power_policy *p, const char *area)
{
    for (uint32_t low = 0, high = p->area_count; low < high;) {
        uint32_t mid = low + (high - low) / 2;
        int order = strcmp(p->areas[mid].area, area);

        if (order == 0)
            return &p->areas[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const struct policy_area *policy_unit(const struct power_policy *p, const char *unit)
{
    for (uint32_t i = 0; i < p->area_count; i++)
        if (*p->areas[i].unit && strcmp(p->areas[i].unit, unit) == 0)
            return &p->areas[i];
    return NULL;
}

const struct zone *policy_day_zone(const struct power_policy *p)
{
    return p->zones.count ? p->zones.zone[0] : NULL; /* `zone` is read first */
}

uint64_t policy_price(const struct power_policy *p, int64_t utc_s)
{
    return tariff_price(&p->tariff, p->set.zone, utc_s);
}
