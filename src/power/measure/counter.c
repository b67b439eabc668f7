/* SPDX-License-Identifier: Apache-2.0 */
#include "power/measure/counter.h"

#include "base/muldiv.h"
#include "power/measure/range.h"

#include <stdbool.h>

#define NS_PER_SECOND UINT64_C(1000000000)

static uint64_t most(const struct counter *c)
{
    return c->most_uw ? c->most_uw : POWER_UW_MAX;
}

/* Rounded up: a source at exactly the most it can draw is honest. */
static bool possible(const struct counter *c, uint64_t uj, uint64_t ns)
{
    return uj <= mul_div_up(most(c), add_sat(ns, c->late_ns), NS_PER_SECOND);
}

static enum counter_news gap(struct counter *c, uint64_t ns, enum counter_news news)
{
    c->gap_ns = add_sat(c->gap_ns, ns);
    c->gaps++;
    return news;
}

uint64_t counter_pause_ns(const struct counter *c)
{
    return c->wrap_uj ? mul_div(c->wrap_uj, NS_PER_SECOND, most(c)) / 2 : UINT64_MAX;
}

/* The energy between two readings; each case but OK and WRAPPED leaves *uj at 0. */
static enum counter_news judge(struct counter *c, uint64_t now_ns, uint64_t raw_uj, uint64_t *uj)
{
    uint64_t pause = now_ns - c->time_ns, still = now_ns - c->changed_ns, more;

    if (pause > counter_pause_ns(c))
        return gap(c, pause, COUNTER_GAP);
    if (c->wrap_uj && raw_uj >= c->wrap_uj)
        return gap(c, pause, COUNTER_LIE);
    if (raw_uj >= c->raw_uj) {
        more = raw_uj - c->raw_uj;
        if (!possible(c, more, still))
            return gap(c, pause, COUNTER_LIE);
        *uj = more;
        return COUNTER_OK;
    }
    if (c->wrap_uj && c->raw_uj < c->wrap_uj) {
        more = c->wrap_uj - c->raw_uj + raw_uj;
        if (possible(c, more, still)) {
            *uj = more;
            return COUNTER_WRAPPED;
        }
    }
    return gap(c, pause, COUNTER_RESET);
}

enum counter_news counter_read(struct counter *c, uint64_t now_ns, uint64_t raw_uj,
                               uint64_t *ret_uj)
{
    enum counter_news news = COUNTER_FIRST;
    uint64_t uj = 0;

    *ret_uj = 0;
    if (c->time_ns && now_ns <= c->time_ns)
        return COUNTER_OK;
    if (c->time_ns)
        news = judge(c, now_ns, raw_uj, &uj);
    if (news == COUNTER_FIRST || raw_uj != c->raw_uj)
        c->changed_ns = now_ns;
    c->raw_uj = raw_uj;
    c->time_ns = now_ns;
    c->total_uj = add_sat(c->total_uj, uj);
    *ret_uj = uj;
    return news;
}

enum counter_news counter_watts(struct counter *c, uint64_t now_ns, uint64_t uw, uint64_t before_uw,
                                uint64_t max_age_ns, uint64_t *ret_uj)
{
    uint64_t before = c->time_ns, pause = now_ns - before, uj;

    *ret_uj = 0;
    if (before && now_ns <= before)
        return COUNTER_OK;
    c->time_ns = c->changed_ns = now_ns;
    if (!before)
        return COUNTER_FIRST;
    if (uw > most(c) || before_uw > most(c))
        return gap(c, pause, COUNTER_LIE);
    if (pause > max_age_ns)
        return gap(c, pause, COUNTER_GAP);
    /* Both are at most POWER_UW_MAX, or what the owner allows. */
    uj = mul_div(add_sat(uw, before_uw), pause, 2 * NS_PER_SECOND);
    c->total_uj = add_sat(c->total_uj, uj);
    *ret_uj = uj;
    return COUNTER_OK;
}
