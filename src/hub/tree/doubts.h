/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of a policy that nobody keeps, as a mistyped name makes them: rules of areas where no unit
 * stands, switches that no unit there has. Such a policy is good all the same, since units and
 * relays come later, too. The event loop's thread, or a command's. Used by cmd_policy.c and
 * src/hub/serve.
 */
#pragma once

#include "hub/compile/policy.h"
#include "hub/tree/units.h"

/* @line and @column of the rule. */
typedef void doubts_line(void *arg, uint32_t line, uint32_t column, const char *text);

/*
 * Areas are doubted as far as the policy's `areas` say where units stand; switches where all units
 * of the area are connected now. @units NULL: nobody knows. Returns 0 or -ENOMEM.
 */
int doubts_of(const struct power_policy *policy, const struct units *units, doubts_line *each,
              void *arg);
