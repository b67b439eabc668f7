/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conditions of a power policy as people write them, and written again:
 *
 *     Mon-Fri 18:00-23:00 America/Argentina/Buenos_Aires     (no days: each day; no zone: @zone)
 *     carbon > 400 g/kWh
 *     price > 0.25 EUR/kWh
 *     absent 15 min
 *
 * Any thread, no state. Used by policy.c and explain.c.
 */
#pragma once

#include "edge/zones.h"

#define WHEN_TEXT_MAX 128

struct when_context {
    struct zones *zones;
    const char *zone;     /* where a window names none; NULL: it has to */
    const char *currency; /* of prices; NULL: the policy has no tariff */
};

/* Fills in condition, window, above, absent_s of @rule. Returns 0, or -errno with *err. */
int when_parse(const char *text, const struct when_context *c, struct power_rule *rule,
               struct error *err);

/* "" for a rule that holds always. */
void when_text(const struct power_rule *rule, const struct zone *const *zone, const char *currency,
               char ret[WHEN_TEXT_MAX]);
