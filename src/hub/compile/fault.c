/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/compile/fault.h"

#include "edge/zones.h"
#include "hub/compile/amount.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "bad-policy-file"

/* " on 2026-11-23 18:00 Europe/Berlin", where one of both rules has a window. */
static void time_text(const struct rule_set *s, const struct rule_fault *f, char *to, size_t size)
{
    const struct power_rule *r = &s->rule[f->rule], *o = &s->rule[f->other];
    const struct zone *z;
    char at[ZONES_TIME_MAX];

    to[0] = '\0';
    if (r->condition != IF_WINDOW && o->condition != IF_WINDOW)
        return;
    z = s->zone[r->condition == IF_WINDOW ? r->window.zone : o->window.zone];
    zones_text(z, f->at_utc_s, at);
    snprintf(to, size, " on %s %s", at, z->name);
}

int fault_text(const struct rule_set *s, const struct rule_fault *f, struct error *err)
{
    const struct power_rule *r = f->rule < s->count ? &s->rule[f->rule] : NULL;
    const struct power_rule *o = f->other < s->count ? &s->rule[f->other] : NULL;
    char value[AMOUNT_TEXT_MAX], bound[AMOUNT_TEXT_MAX], when[ZONES_TIME_MAX + 80] = "";

    if (!r)
        return error_set(err, -EINVAL, "1:1: more than %d rules or %d time zones", RULES_MAX,
                         RULES_ZONES_MAX);
    if (f->code == RULE_BUDGET_BELOW_FLOOR) {
        amount_budget_text(f->value, value);
        amount_budget_text(f->bound, bound);
    } else {
        amount_power_text(f->value, value);
        amount_power_text(f->bound, bound);
    }
    if (o)
        time_text(s, f, when, sizeof(when));
    switch (f->code) {
    case RULE_FLOOR_ABOVE_CAP:
        return error_set(err, -EINVAL,
                         "%u:%u: the floor of %s, %s, is above the cap of %s in line "
                         "%u%s: a floor cannot be promised there",
                         r->line, r->column, r->area, value, bound, o->line, when);
    case RULE_FLOORS_ABOVE_PARENT:
        return error_set(err, -EINVAL,
                         "%u:%u: the cap of %s, %s, is below the sum of the floors in "
                         "it, %s (one is in line %u)%s",
                         r->line, r->column, r->area, bound, value, o->line, when);
    case RULE_TWICE:
        return error_set(err, -EINVAL,
                         "%u:%u: line %u says the same of %s under the same "
                         "condition: keep one of them",
                         r->line, r->column, o->line, r->area);
    case RULE_BUDGET_BELOW_FLOOR:
        return error_set(err, -EINVAL,
                         "%u:%u: the budget of %s, %s, is below what its floors take "
                         "in a day, %s (one is in line %u)%s",
                         r->line, r->column, r->area, bound, value, o->line, when);
    case RULE_WINDOWS:
        return error_set(err, -EINVAL, "%u:%u: more than %d different windows", r->line, r->column,
                         RULES_WINDOWS_MAX);
    default:
        return error_set(err, -EINVAL, "%u:%u: this rule cannot be", r->line, r->column);
    }
}
