/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a compiled policy says, as text: each rule, what is in force for an area at a time and
 * which line says so, and what differs between two policies. Any thread; writes to a stream. Used
 * by cmd_policy.c.
 */
#pragma once

#include "hub/compile/policy.h"

#include <stdio.h>

#define RULE_TEXT_MAX 512

/* "unlp/lab3: cap 800 W (breaker), Mon-Fri 18:00-23:00 America/Argentina/Buenos_Aires" */
void explain_rule(const struct power_policy *p, uint32_t rule, char ret[RULE_TEXT_MAX]);

/*
 * What is in force. @zone: on whose clock times are written (NULL: UTC). Prices come from the
 * policy's tariff where @now has none.
 */
void explain_area(const struct power_policy *p, const char *area, const struct zone *zone,
                  const struct rule_now *now, FILE *out);

/* "+ …", "- …", "~ … was …", one a line. Returns the number of differences. */
uint32_t explain_diff(const struct power_policy *before, const struct power_policy *after,
                      FILE *out);
