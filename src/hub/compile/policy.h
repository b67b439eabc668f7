/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles the power policy of an organization: YAML text -> rules, checked for contradictions
 * over the year to come. The file's format: tide-policy-file(5). Any thread, no state. Used by
 * cmd_policy.c.
 */
#pragma once

#include "base/error.h"
#include "hub/compile/amount.h"
#include "hub/compile/zones.h"

#include <stddef.h>
#include <stdint.h>

#define POLICY_ORG_MAX      64
#define POLICY_CLASSES_MAX  64
#define POLICY_TARIFFS_MAX  32
#define POLICY_CLASS_MAX    1000 /* the largest number of a class, as in tide-set(1) */
#define POLICY_PRIORITY_MAX 1000

struct policy_class {
    char name[32];
    int32_t number;
};

/* The price of a kWh: of the first window that is open, else of every other time. */
struct policy_tariff {
    char currency[CURRENCY_MAX]; /* "": none */
    uint64_t milli;              /* thousandths per kWh outside of all windows */
    struct {
        struct window window;
        uint64_t milli;
    } window[POLICY_TARIFFS_MAX];
    uint32_t count;
};

struct power_policy {
    char org[POLICY_ORG_MAX];
    char zone[sizeof(((struct zone *)NULL)->name)]; /* of windows that name none; "": none */
    struct rule_set set;
    struct zones zones;
    struct policy_class classes[POLICY_CLASSES_MAX];
    uint32_t class_count;
    struct policy_tariff tariff;
};

/*
 * @now_s: the beginning of the year that is checked. @zoneinfo: NULL for the machine's. Returns 0;
 * or -EINVAL with "line:column: what is wrong" in *err, or -E2BIG, -ENOMEM.
 */
int policy_compile(const char *text, size_t len, const char *zoneinfo, int64_t now_s,
                   struct power_policy *ret, struct error *err);
void policy_done(struct power_policy *p);

/* The number of the class of that name; -1: there is none. */
int32_t policy_class_number(const struct power_policy *p, const char *name);

/* The price of a kWh in thousandths at that time; RULE_UNKNOWN without a tariff. */
uint64_t policy_price(const struct power_policy *p, int64_t utc_s);
