/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a budget that several units share, for the time in which the hub lends them nothing:
 * what the floors of all of them leave of it, in equal parts. Pure but for memory; any thread.
 * Used by policy.c.
 */
#pragma once

#include "hub/compile/policy.h"

/* Fills in `alone` of @rule, which are the rules of @p. Returns 0 or -ENOMEM. */
int share_budgets(const struct power_policy *p, struct power_rule *rule);
