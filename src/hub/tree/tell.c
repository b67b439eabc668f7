/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all parts of the tree: logging, notice of changes, and the values that rules'
 * conditions are compared with. */
#include "hub/tree/tree_state.h"

#include "base/wallclock.h"

#include <stdarg.h>
#include <stdio.h>

void tree_say(const struct tree *t, const char *who, const char *fmt, ...)
{
    char text[2 * ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    t->options.say(t->options.arg, who, text);
}

void tree_changed(const struct tree *t, const struct unit *u, enum tree_what what,
                  const struct payload_event *event)
{
    if (t->options.changed)
        t->options.changed(t->options.arg, u, what, event);
}

struct rule_now tree_now(const struct tree *t)
{
    int64_t ms = (int64_t)wallclock_ms();

    return (struct rule_now){.utc_s = ms / 1000,
                             .synchronised = wallclock_synced(),
                             .carbon = carbon_at(&t->carbon, ms),
                             .price = t->policy.number ? policy_price(&t->policy.rules, ms / 1000)
                                                       : RULE_UNKNOWN};
}
