/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/doubts.h"

#include "base/cleanup.h"
#include "hub/tree/areas.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (AREA_PATH_MAX + RULE_OFF_MAX + 80)

static bool has_switch(const struct unit *u, const char *name)
{
    for (uint32_t i = 0; i < u->state.switches; i++)
        if (strcmp(u->state.item[i].name, name) == 0)
            return true;
    return false;
}

/* Whether all units of the area are connected, and none has the switch. */
static bool lacks_switch(const struct areas *a, uint32_t area, const struct units *units,
                         const char *name)
{
    for (uint32_t i = area; i < a->area[area].end; i++) {
        const struct unit *u =
            areas_have_unit(a, i) ? units_find(units, a->area[i].entry->unit) : NULL;

        if (areas_have_unit(a, i) && (!u || !u->state.online || has_switch(u, name)))
            return false;
    }
    return true;
}

static void doubt_switches(const struct power_rule *r, const struct areas *a, uint32_t area,
                           const struct units *units, doubts_line *each, void *arg)
{
    char names[RULE_OFF_MAX], text[TEXT_MAX], *rest;

    strcpy(names, r->off);
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        if (lacks_switch(a, area, units, name)) {
            snprintf(text, sizeof(text), "no unit in %s or below it has a switch '%s'", r->area,
                     name);
            each(arg, r->line, r->column, text);
        }
}

int doubts_of(const struct power_policy *policy, const struct units *units, doubts_line *each,
              void *arg)
{
    _cleanup_free_ uint32_t *count = NULL;
    _cleanup_free_ bool *said = NULL;
    struct areas a;
    char text[TEXT_MAX];
    int r = areas_make(policy, &a);

    if (r < 0)
        return r;
    count = calloc(a.count, sizeof(*count));
    said = calloc(a.count, sizeof(*said));
    if (count && said)
        areas_count_units(&a, count);
    for (uint32_t i = 0; count && said && count[0] && i < policy->set.count; i++) {
        const struct power_rule *rule = &policy->set.rule[i];
        uint32_t area = areas_find(&a, rule->area);

        if (count[area] && units && rule->verb == RULE_OFF) {
            doubt_switches(rule, &a, area, units, each, arg);
        } else if (!count[area] && !said[area]) {
            said[area] = true;
            snprintf(text, sizeof(text), "no unit stands in %s or below it: nobody keeps this rule",
                     rule->area);
            each(arg, rule->line, rule->column, text);
        }
    }
    r = count && said ? 0 : -ENOMEM;
    areas_done(&a);
    return r;
}
