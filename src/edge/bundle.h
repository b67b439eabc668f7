/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bundle: one unit's part of a hub's power policy, as the JSON of down/policy carries it below
 * its seal (sealed.h), and as the unit keeps it on its disk: the rules that touch the unit's area,
 * the zones and classes that they name, the tariff and the grid's carbon intensity. Writer and
 * reader. Any thread; used by src/hub (writes) and src/unit (reads). tests/energy/golden holds one.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "edge/zones.h"
#include "power/calendar/budget.h"
#include "power/calendar/tariff.h"
#include "power/rules/rules.h"

#define BUNDLE_BYTES_MAX  (255 * 1024) /* fits into SEALED_BYTES_MAX */
#define BUNDLE_CARBON_MAX 200          /* hours of a week, and some */

/* The grid's intensity from then until the next one; the last one is known for an hour. */
struct carbon_hour {
    uint64_t from_ms, g; /* g/kWh */
};

struct bundle {
    uint64_t number;                  /* not 0; a unit takes a larger one than it has, or none */
    uint64_t made_ms, valid_until_ms; /* since 1970 */
    char area[AREA_PATH_MAX];         /* the unit's */
    struct rule_set set;
    struct policy_tariff tariff;
    struct carbon_hour carbon[BUNDLE_CARBON_MAX]; /* by rising from_ms */
    uint32_t carbons;
    struct power_rule *rule; /* the reader's, which set refers to; a writer leaves both 0 */
    struct zones zones;
};

/* Whether the rule touches the area: it names the area, one above it, or one below it. */
bool bundle_concerns(const struct power_rule *rule, const char *area);

/*
 * The text; it holds those rules of @b->set that touch @b->area. The caller frees it. NULL: no
 * memory, or a text in it is no UTF-8.
 */
char *bundle_text(const struct bundle *b);

/*
 * Reads a text, loads its zones from @zoneinfo (NULL: the machine's; borrowed) and checks that the
 * rules can be kept together in the year after made_ms (rules_check()). Zones that cannot be read
 * are unknown (rules.h says what then holds). Unknown members are ignored. Returns 0; -EINVAL, or
 * another -errno, with the reason in @err.
 */
int bundle_read(const void *bytes, size_t len, const char *zoneinfo, struct bundle **ret,
                struct error *err);
struct bundle *bundle_free(struct bundle *b); /* of bundle_read(); takes NULL */

/*
 * Reads again what could not be read. Returns 0: all zones are known; or the -errno of the first
 * that is not, with the reason in @err.
 */
int bundle_zones(struct bundle *b, struct error *err);

/* g/kWh at that time; RULE_UNKNOWN: not told. */
uint64_t bundle_carbon(const struct bundle *b, uint64_t utc_ms);

/* Fills in the weights of the day that begins at @budget->begin_utc_s, by prices or the grid. */
void bundle_weigh(const struct bundle *b, uint32_t shape, struct budget *budget);
