/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles the power policy of an organization: YAML text -> rules, checked for contradictions
 * over the year to come. The file's format: tide-policy-file(5). Any thread, no state. Used by
 * cmd_policy.c, src/hub/tree and src/hub/serve.
 */
#pragma once

#include "base/error.h"
#include "edge/bundle.h"
#include "edge/topic.h"
#include "edge/zones.h"
#include "hub/compile/amount.h"

#include <stddef.h>
#include <stdint.h>

#define POLICY_ORG_MAX     64
#define POLICY_AREAS_MAX   16384
#define POLICY_NAME_MAX    96          /* bytes of an area's name for people, with the NUL */
#define POLICY_VALID_S     (7 * 86400) /* unless the file says it */
#define POLICY_VALID_MIN_S (2 * 86400) /* it is made anew each day */
#define POLICY_VALID_MAX_S (90 * 86400)

/* Where a unit stands, and what people call the area. */
struct policy_area {
    char area[AREA_PATH_MAX];
    char unit[EDGE_NAME_MAX];   /* "": the area has none, it only has a name */
    char name[POLICY_NAME_MAX]; /* "": none */
    uint32_t line, column;      /* of the source */
};

struct power_policy {
    char org[POLICY_ORG_MAX];
    char zone[sizeof(((struct zone *)NULL)->name)]; /* of windows that name none; "": none */
    struct rule_set set;
    struct zones zones;
    struct policy_tariff tariff;
    struct policy_area *areas; /* by rising path */
    uint32_t area_count;
    int64_t valid_s; /* how long a unit obeys it without news of the hub */
};

/*
 * @now_s: the beginning of the year that is checked. @zoneinfo: NULL for the machine's. Returns 0;
 * or -EINVAL with "line:column: what is wrong" in *err, or -E2BIG, -ENOMEM.
 */
int policy_compile(const char *text, size_t len, const char *zoneinfo, int64_t now_s,
                   struct power_policy *ret, struct error *err);
void policy_done(struct power_policy *p);

/* The entry of that area or of that unit; NULL: there is none. */
const struct policy_area *policy_area(const struct power_policy *p, const char *area);
const struct policy_area *policy_unit(const struct power_policy *p, const char *unit);

/*
 * The zone whose midnights begin the days of budgets and sums, for hub and units: `zone`, else the
 * first that the policy names. NULL: UTC.
 */
const struct zone *policy_day_zone(const struct power_policy *p);

/* The price of a kWh in thousandths at that time; RULE_UNKNOWN without a tariff. */
uint64_t policy_price(const struct power_policy *p, int64_t utc_s);
