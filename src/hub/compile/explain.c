/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/compile/explain.h"

#include "hub/compile/when.h"

#include <inttypes.h>
#include <string.h>

static const char *const kinds[] = {"breaker", "budget", "advice"};
static const char *const shapes[] = {"flat", "by tariff", "by carbon intensity"};

static const char *class_name(const struct power_policy *p, int32_t class)
{
    for (uint32_t i = 0; i < p->class_count; i++)
        if (p->classes[i].number == class)
            return p->classes[i].name;
    return "?";
}

/* What it says, without area and condition. */
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
        amount_budget_text(r->amount, amount);
        snprintf(to, size, "budget %s, %s", amount, shapes[r->shape]);
        break;
    case RULE_SCALE:
    case RULE_MIN:
        amount_share_text(r->amount, amount);
        snprintf(to, size, "%s %s", r->verb == RULE_MIN ? "min" : "scale", amount);
        break;
    case RULE_PRIORITY:
        snprintf(to, size, "priority %" PRId64, (int64_t)r->amount - RULE_PRIORITY_ZERO);
        break;
    default:
        snprintf(to, size, "off: %s", r->off);
    }
}

static void subject(const struct power_policy *p, const struct power_rule *r, char *to, size_t size)
{
    if (r->class < 0)
        snprintf(to, size, "%s", r->area);
    else
        snprintf(to, size, "%s, class %s", r->area, class_name(p, r->class));
}

void explain_rule(const struct power_policy *p, uint32_t rule, char ret[RULE_TEXT_MAX])
{
    const struct power_rule *r = &p->set.rule[rule];
    char what[128], who[AREA_PATH_MAX + 48], when[WHEN_TEXT_MAX];

    effect(p, r, what, sizeof(what));
    subject(p, r, who, sizeof(who));
    when_text(r, p->set.zone, p->tariff.currency, when);
    snprintf(ret, RULE_TEXT_MAX, "%s: %s%s%s", who, what, *when ? ", " : "", when);
}

/* ---- an area at a time ---- */

static void tell_rule(const struct power_policy *p, uint32_t rule, const char *name, FILE *out)
{
    char text[RULE_TEXT_MAX];

    if (rule == RULE_NONE)
        return;
    explain_rule(p, rule, text);
    fprintf(out, "  %-9s line %-4u %s\n", name, p->set.rule[rule].line, text);
}

static void tell_class(const struct power_policy *p, const char *area, int32_t class,
                       const struct rule_now *now, FILE *out)
{
    struct rule_view all, own;

    rules_view(&p->set, area, -1, now, &all);
    rules_view(&p->set, area, class, now, &own);
    if (own.priority_by != all.priority_by)
        tell_rule(p, own.priority_by, "priority", out);
    if (own.min_by != all.min_by)
        tell_rule(p, own.min_by, "min", out);
    if (own.scale_by != all.scale_by)
        tell_rule(p, own.scale_by, "scale", out);
}

/* Rules for the area whose condition needs what nobody told: they are not in force. */
static void tell_unknown(const struct power_policy *p, const char *area, const struct rule_now *now,
                         FILE *out)
{
    for (uint32_t i = 0; i < p->set.count; i++) {
        const struct power_rule *r = &p->set.rule[i];
        bool unknown = (r->condition == IF_CARBON && now->carbon == RULE_UNKNOWN) ||
                       (r->condition == IF_PRICE && now->price == RULE_UNKNOWN);

        if (unknown && area_below(area, r->area))
            tell_rule(p, i, "unknown", out);
    }
}

void explain_area(const struct power_policy *p, const char *area, const struct zone *zone,
                  const struct rule_now *now, FILE *out)
{
    struct rule_now known = *now;
    struct rule_view v;
    char at[ZONES_TIME_MAX];

    if (known.price == RULE_UNKNOWN)
        known.price = policy_price(p, known.utc_s);
    rules_view(&p->set, area, -1, &known, &v);
    zones_text(zone, known.utc_s, at);
    fprintf(out, "%s on %s %s\n", area, at, zone ? zone->name : "UTC");
    tell_rule(p, v.cap_by, "cap", out);
    if (v.cap_by != RULE_NONE && v.kind != p->set.rule[v.cap_by].kind)
        fprintf(out, "            of kind %s, for another cap above it is\n", kinds[v.kind]);
    tell_rule(p, v.floor_by, "floor", out);
    tell_rule(p, v.budget_by, "budget", out);
    tell_rule(p, v.priority_by, "priority", out);
    tell_rule(p, v.min_by, "min", out);
    tell_rule(p, v.scale_by, "scale", out);
    for (uint32_t i = 0; i < p->class_count; i++)
        tell_class(p, area, p->classes[i].number, &known, out);
    for (uint32_t i = 0; (i = rules_next(&p->set, area, &known, RULE_OFF, i)) != RULE_NONE; i++)
        tell_rule(p, i, "off", out);
    if (v.cap_by == RULE_NONE)
        fprintf(out, "  no cap is in force\n");
    tell_unknown(p, area, &known, out);
    if (known.price != RULE_UNKNOWN)
        fprintf(out, "  price     %" PRIu64 ".%03" PRIu64 " %s/kWh\n", known.price / 1000,
                known.price % 1000, p->tariff.currency);
    if (v.next_utc_s != INT64_MAX) {
        zones_text(zone, v.next_utc_s, at);
        fprintf(out, "  a window opens or closes next on %s\n", at);
    }
}

/* ---- two policies ---- */

/* The same subject, verb and condition: only the amount may differ. Numbers of zones and classes
 * are each policy's own, so texts are compared. */
static bool same_place(const struct power_policy *a, uint32_t i, const struct power_policy *b,
                       uint32_t k)
{
    const struct power_rule *r = &a->set.rule[i], *o = &b->set.rule[k];
    char who[2][AREA_PATH_MAX + 48], when[2][WHEN_TEXT_MAX];

    if (r->verb != o->verb || strcmp(r->area, o->area) != 0 || r->condition != o->condition)
        return false;
    if ((r->verb == RULE_OFF && strcmp(r->off, o->off) != 0) ||
        (r->verb == RULE_CAP && r->kind != o->kind))
        return false;
    subject(a, r, who[0], sizeof(who[0]));
    subject(b, o, who[1], sizeof(who[1]));
    when_text(r, a->set.zone, a->tariff.currency, when[0]);
    when_text(o, b->set.zone, b->tariff.currency, when[1]);
    return strcmp(who[0], who[1]) == 0 && strcmp(when[0], when[1]) == 0;
}

static uint32_t find_same(const struct power_policy *in, const struct power_policy *of, uint32_t i)
{
    for (uint32_t k = 0; k < in->set.count; k++)
        if (same_place(of, i, in, k))
            return k;
    return RULE_NONE;
}

uint32_t explain_diff(const struct power_policy *before, const struct power_policy *after,
                      FILE *out)
{
    char text[RULE_TEXT_MAX], what[128];
    uint32_t n = 0;

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
