/* SPDX-License-Identifier: Apache-2.0 */
/* Rules as tests write them, and zones from the machine's own files. */
#pragma once

#include "power/rules/rules_check.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define W(n)   ((uint64_t)(n)*1000000)
#define KWH(n) ((uint64_t)(n)*3600000000000)

/* 2026-11-23 00:00 UTC, a Monday; a date in it as days, hours, minutes later. */
#define MONDAY          INT64_C(1795392000)
#define AT(day, h, min) (MONDAY + (day)*86400 + (h)*3600 + (min)*60)

static struct zone zones[2];
static const struct zone *const zone_table[2] = {&zones[0], &zones[1]};

static inline void read_zone(struct zone *z, const char *name)
{
    static char bytes[ZONE_BYTES_MAX];
    char path[256];
    FILE *f;
    size_t len;

    snprintf(path, sizeof(path), "/usr/share/zoneinfo/%s", name);
    f = fopen(path, "re");
    assert_non_null(f);
    len = fread(bytes, 1, sizeof(bytes), f);
    fclose(f);
    assert_int_equal(zone_parse(bytes, len, z), 0);
}

static inline struct power_rule rule(uint32_t verb, const char *area, uint64_t amount)
{
    struct power_rule r = {.verb = verb, .amount = amount};

    snprintf(r.area, sizeof(r.area), "%s", area);
    return r;
}

/* Days: bit 0 is Monday. */
static inline struct power_rule in_window(struct power_rule r, unsigned days, unsigned from,
                                          unsigned to, uint32_t zone)
{
    r.condition = IF_WINDOW;
    r.window = (struct window){(uint8_t)days, (uint16_t)from, (uint16_t)to, zone};
    return r;
}

static inline struct rule_set set_of(const struct power_rule *rules, uint32_t count)
{
    return (struct rule_set){rules, count, zone_table, 2};
}

static inline struct rule_now at(int64_t utc_s)
{
    return (struct rule_now){utc_s, true, RULE_UNKNOWN, RULE_UNKNOWN, 0};
}
