/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/compile/share.h"

#include "base/cleanup.h"
#include "base/muldiv.h"

#include <errno.h>
#include <stdlib.h>

#define DAY_S (25 * 3600) /* the longest ordinary one: floors fit in it on every day */

/* The highest floor that each entry of `areas` ever has. */
static void find_floors(const struct power_policy *p, uint64_t *ret_uw)
{
    for (uint32_t i = 0; i < p->set.count; i++) {
        const struct power_rule *r = &p->set.rule[i];
        const struct policy_area *a = r->verb == RULE_FLOOR ? policy_area(p, r->area) : NULL;

        if (a && r->amount > ret_uw[a - p->areas])
            ret_uw[a - p->areas] = r->amount;
    }
}

static uint64_t part_of(const struct power_policy *p, const struct power_rule *r,
                        const uint64_t *floor_uw)
{
    uint64_t units = 0, floors_uj = 0, part;

    for (uint32_t i = 0; i < p->area_count; i++)
        if (*p->areas[i].unit && area_below(p->areas[i].area, r->area)) {
            units++;
            floors_uj = add_sat(floors_uj, mul_div(floor_uw[i], DAY_S, 1));
        }
    if (units < 2)
        return 0;
    part = sub_sat(r->amount, floors_uj) / units;
    return part ? part : 1; /* 0 says that nobody shares it */
}

int share_budgets(const struct power_policy *p, struct power_rule *rule)
{
    _cleanup_free_ uint64_t *floor_uw = calloc(p->area_count + 1, sizeof(*floor_uw));

    if (!floor_uw)
        return -ENOMEM;
    find_floors(p, floor_uw);
    for (uint32_t i = 0; i < p->set.count; i++)
        if (rule[i].verb == RULE_BUDGET)
            rule[i].alone = part_of(p, &rule[i], floor_uw);
    return 0;
}
