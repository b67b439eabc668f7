/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/compile/explain.h"

#include "hub/compile/when.h"

#include <inttypes.h>
#include <string.h>

#define EFFECT_MAX 192 /* of what a rule does, as text */

static const char *const kinds[] = {"breaker", "budget", "advice"};
static const char *const shapes[] = {"flat", "by tariff", "by carbon intensity"};

const char *explain_kind(uint32_t kind)
{
    return kind < KIND_MAX ? kinds[kind] : "?";
}

static void effect_budget(const struct power_rule *r, char *to, size_t size)
{
    char amount[AMOUNT_TEXT_MAX], part[AMOUNT_TEXT_MAX];

    amount_budget_text(r->amount, amount);
    amount_budget_text(r->alone, part);
    snprintf(to, size, "budget %s, %s%s%s%s", amount, shapes[r->shape],
             r->alone ? ", shared by units (without the hub " : "", r->alone ? part : "",
             r->alone ? " each, above its floor)" : "");
}

/* Writes the effect of a rule, without area and condition. */
static void effect(const struct power_policy *p, const struct power_rule *r, char *to, size_t size)
{
    char amount[AMOUNT_TEXT_MAX];

    switch (r->verb) {
    case RULE_CAP:
        amount_power_text(r->amount, amount);
        snprintf(to, size, "cap %s (%s)", amount, kinds[r->kind]);
        break;
    case RULE_FLOOR:
        amount_power_text(r->amount, amount);
        snprintf(to, size, "floor %s", amount);
        break;
    case RULE_BUDGET:
        effect_budget(r, to, size);
        break;
    case RULE_SCALE:
        amount_share_text(r->amount, amount);
        snprintf(to, size, "scale %s", amount);
        break;
    default:
        snprintf(to, size, "off: %s", r->off);
    }
}

void explain_rule(const struct power_policy *p, uint32_t rule, char ret[RULE_TEXT_MAX])
{
    const struct power_rule *r = &p->set.rule[rule];
    char what[EFFECT_MAX], when[WHEN_TEXT_MAX];

    effect(p, r, what, sizeof(what));
    when_text(r, p->set.zone, p->tariff.currency, when);
    snprintf(ret, RULE_TEXT_MAX, "%s: %s%s%s", r->area, what, *when ? ", " : "", when);
}

/* ---- an area at a time ---- */

struct telling {
    const struct power_policy *policy;
    const char *area;
    struct rule_now now;
    explain_line *each;
    void *arg;
};

static void tell_rule(const struct telling *t, uint32_t rule, const char *what)
{
    char text[RULE_TEXT_MAX];

    if (rule == RULE_NONE)
        return;
    explain_rule(t->policy, rule, text);
    t->each(t->arg, what, t->policy->set.rule[rule].line, text);
}

/* Rules for the area whose condition needs what nobody told: they are not in force. */
static void tell_unknown(const struct telling *t)
{
    for (uint32_t i = 0; i < t->policy->set.count; i++) {
        const struct power_rule *r = &t->policy->set.rule[i];
        bool unknown = (r->condition == IF_CARBON && t->now.carbon == RULE_UNKNOWN) ||
                       (r->condition == IF_PRICE && t->now.price == RULE_UNKNOWN);

        if (unknown && area_below(t->area, r->area))
            tell_rule(t, i, "unknown");
    }
}

static void tell_cap(const struct telling *t, const struct rule_view *v)
{
    char text[80];

    tell_rule(t, v->cap_by, "cap");
    if (v->cap_by == RULE_NONE || v->kind == t->policy->set.rule[v->cap_by].kind)
        return;
    snprintf(text, sizeof(text), "counts as %s, since another cap above it is one", kinds[v->kind]);
    t->each(t->arg, "note", 0, text);
}

static void tell_price(const struct telling *t)
{
    char text[80];

    if (t->now.price == RULE_UNKNOWN)
        return;
    snprintf(text, sizeof(text), "%" PRIu64 ".%03" PRIu64 " %s/kWh", t->now.price / 1000,
             t->now.price % 1000, t->policy->tariff.currency);
    t->each(t->arg, "price", 0, text);
}

int64_t explain_lines(const struct power_policy *p, const char *area, const struct rule_now *now,
                      explain_line *each, void *arg)
{
    struct telling t = {p, area, *now, each, arg};
    struct rule_view v;

    if (t.now.price == RULE_UNKNOWN)
        t.now.price = policy_price(p, t.now.utc_s);
    rules_view(&p->set, area, &t.now, &v);
    tell_cap(&t, &v);
    tell_rule(&t, v.floor_by, "floor");
    tell_rule(&t, v.budget_by, "budget");
    tell_rule(&t, v.scale_by, "scale");
    for (uint32_t i = 0; (i = rules_next(&p->set, area, &t.now, RULE_OFF, i)) != RULE_NONE; i++)
        tell_rule(&t, i, "off");
    if (v.cap_by == RULE_NONE)
        each(arg, "cap", 0, "no cap is in force");
    tell_unknown(&t);
    tell_price(&t);
    return v.next_utc_s;
}

static void print_line(void *arg, const char *what, uint32_t line, const char *text)
{
    if (line)
        fprintf(arg, "  %-9s line %-4u %s\n", what, line, text);
    else if (strcmp(what, "price") == 0)
        fprintf(arg, "  price     %s\n", text);
    else
        fprintf(arg, "%s%s\n", strcmp(what, "note") == 0 ? "            " : "  ", text);
}

void explain_area(const struct power_policy *p, const char *area, const struct zone *zone,
                  const struct rule_now *now, FILE *out)
{
    char at[ZONES_TIME_MAX];
    int64_t next;

    zones_text(zone, now->utc_s, at);
    fprintf(out, "%s on %s %s\n", area, at, zone ? zone->name : "UTC");
    next = explain_lines(p, area, now, print_line, out);
    if (next != INT64_MAX) {
        zones_text(zone, next, at);
        fprintf(out, "  a window opens or closes next on %s\n", at);
    }
}

/* ---- two policies ---- */

/* The same subject, verb and condition: only the amount may differ. Numbers of zones are
 * each policy's own, so texts are compared. */
static bool same_place(const struct power_policy *a, uint32_t i, const struct power_policy *b,
                       uint32_t k)
{
    const struct power_rule *r = &a->set.rule[i], *o = &b->set.rule[k];
    char when[2][WHEN_TEXT_MAX];

    if (r->verb != o->verb || strcmp(r->area, o->area) != 0 || r->condition != o->condition)
        return false;
    if ((r->verb == RULE_OFF && strcmp(r->off, o->off) != 0) ||
        (r->verb == RULE_CAP && r->kind != o->kind))
        return false;
    when_text(r, a->set.zone, a->tariff.currency, when[0]);
    when_text(o, b->set.zone, b->tariff.currency, when[1]);
    return strcmp(when[0], when[1]) == 0;
}

static uint32_t find_same(const struct power_policy *in, const struct power_policy *of, uint32_t i)
{
    for (uint32_t k = 0; k < in->set.count; k++)
        if (same_place(of, i, in, k))
            return k;
    return RULE_NONE;
}

static void area_text(const struct policy_area *a, char *ret, size_t size)
{
    snprintf(ret, size, "area %s%s%s%s%s%s", a->area, *a->unit ? ": unit " : "", a->unit,
             *a->name ? ", \"" : "", a->name, *a->name ? "\"" : "");
}

static uint32_t diff_areas(const struct power_policy *before, const struct power_policy *after,
                           FILE *out)
{
    char text[RULE_TEXT_MAX], was[RULE_TEXT_MAX];
    uint32_t n = 0;

    for (uint32_t i = 0; i < before->area_count; i++)
        if (!policy_area(after, before->areas[i].area)) {
            area_text(&before->areas[i], text, sizeof(text));
            fprintf(out, "- %s\n", text);
            n++;
        }
    for (uint32_t i = 0; i < after->area_count; i++) {
        const struct policy_area *old = policy_area(before, after->areas[i].area);

        area_text(&after->areas[i], text, sizeof(text));
        if (old)
            area_text(old, was, sizeof(was));
        if (old && strcmp(text, was) == 0)
            continue;
        if (old)
            fprintf(out, "~ %s; was: %s\n", text, was);
        else
            fprintf(out, "+ %s\n", text);
        n++;
    }
    return n;
}

uint32_t explain_diff(const struct power_policy *before, const struct power_policy *after,
                      FILE *out)
{
    char text[RULE_TEXT_MAX], what[EFFECT_MAX];
    uint32_t n = diff_areas(before, after, out);

    for (uint32_t i = 0; i < before->set.count; i++)
        if (find_same(after, before, i) == RULE_NONE) {
            explain_rule(before, i, text);
            fprintf(out, "- %s\n", text);
            n++;
        }
    for (uint32_t i = 0; i < after->set.count; i++) {
        uint32_t k = find_same(before, after, i);

        explain_rule(after, i, text);
        if (k == RULE_NONE) {
            fprintf(out, "+ %s\n", text);
            n++;
        } else if (after->set.rule[i].amount != before->set.rule[k].amount ||
                   after->set.rule[i].shape != before->set.rule[k].shape) {
            effect(before, &before->set.rule[k], what, sizeof(what));
            fprintf(out, "~ %s; was: %s\n", text, what);
            n++;
        }
    }
    return n;
}
