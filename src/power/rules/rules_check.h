/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a set of rules can be kept: well formed, without contradictions at any time of a year
 * from a given moment on. The hub checks what it compiles, a unit what it is sent. Pure; any
 * thread; about 300 KiB of stack.
 *
 * Windows change in a week's rhythm, except when a zone changes its offset. So a week (and a day)
 * is looked at for each combination of offsets that occurs in the year, at each instant at which
 * a window opens or closes. Caps and floors on carbon, price or absence count as in force always,
 * those in windows of an unknown zone as never: with what they would meet, nobody knows.
 */
#pragma once

#include "power/rules/rules.h"

enum rule_fault_code {
    RULE_FLOOR_ABOVE_CAP,     /* @rule the floor, @value; @other the cap, @bound */
    RULE_FLOORS_ABOVE_PARENT, /* @rule the cap, @bound; @other one of the floors, sum @value */
    RULE_TWICE,               /* @rule says of the same what @other says */
    RULE_BUDGET_BELOW_FLOOR,  /* @rule the budget, @bound; @other a floor, @value uJ of floors in
                                 one day, which begins at midnight in the first zone */
    RULE_NO_AREA,             /* @rule's area is no path */
    RULE_MALFORMED,           /* a number of @rule is none that exists */
    RULE_WINDOWS,             /* @rule has one window more than RULES_WINDOWS_MAX, or more zones */
    RULE_FAULT_MAX
};

struct rule_fault {
    uint32_t code, rule, other; /* enum rule_fault_code; indices, or RULE_NONE */
    uint64_t value, bound;
    int64_t at_utc_s; /* an instant at which it is so, where a time matters */
};

/* Returns 0; or -EINVAL with the first fault found. @utc_s: the beginning of the year. */
int rules_check(const struct rule_set *s, int64_t utc_s, struct rule_fault *ret);
