/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a contradiction that rules_check() found. Any thread, pure. Used by policy.c. */
#pragma once

#include "base/error.h"
#include "power/rules/rules_check.h"

/* Sets *err to "line:column: what contradicts what, and when"; returns -EINVAL. */
int fault_text(const struct rule_set *s, const struct rule_fault *f, struct error *err);
