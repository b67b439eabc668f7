/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiled policy as text: each rule, the rules in force for an area at a time and their lines,
 * and the differences between two policies. Any thread. Used by cmd_policy.c
 * and src/hub/serve.
 */
#pragma once

#include "hub/compile/policy.h"

#include <stdio.h>

#define RULE_TEXT_MAX 512

/* Writes a rule as one line:
 * "unlp/lab3: cap 800 W (breaker), Mon-Fri 18:00-23:00 America/Argentina/Buenos_Aires". */
void explain_rule(const struct power_policy *p, uint32_t rule, char ret[RULE_TEXT_MAX]);

/* Returns "breaker", "budget" or "advice". */
const char *explain_kind(uint32_t kind);

/*
 * Calls @each for each thing in force: @what is "cap", "floor", "budget", "scale", "off",
 * "unknown", "price", or "note" for a remark about the one before; @line that of the policy which
 * says so, 0 for none. Returns when a window opens or closes next (INT64_MAX: none does).
 */
typedef void explain_line(void *arg, const char *what, uint32_t line, const char *text);
int64_t explain_lines(const struct power_policy *p, const char *area, const struct rule_now *now,
                      explain_line *each, void *arg);

/*
 * The same as text. @zone: on whose clock times are written (NULL: UTC). Prices come from the
 * policy's tariff where @now has none.
 */
void explain_area(const struct power_policy *p, const char *area, const struct zone *zone,
                  const struct rule_now *now, FILE *out);

/* "+ …", "- …", "~ … was …", one a line. Returns the number of differences. */
uint32_t explain_diff(const struct power_policy *before, const struct power_policy *after,
                      FILE *out);
