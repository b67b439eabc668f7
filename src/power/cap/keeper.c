/* SPDX-License-Identifier: Apache-2.0 */
#include "power/cap/keeper.h"

#include "base/muldiv.h"
#include "power/model/watts.h"

#include <errno.h>
#include <string.h>

#define CORE_MCPU      1000
#define QUANTUM        50 /* mcpu: less is not worth a decision */
#define LARGE_CORES    16
#define MARGIN_AT_ONCE 50 /* permille, before any forecast was judged */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Whether the curve lies where readings moved it to. */
static bool trusts(const struct keeper *k, const struct keeper_input *in)
{
    return k->read_ns && in->now_ns - k->read_ns <= KEEPER_TRUST_NS;
}

static uint32_t speed_of(const struct keeper_input *in)
{
    return in->speed_permille ? in->speed_permille : 1000;
}

/* The model as readings moved it. Judged forecasts stand in for the model's own error. */
static struct watts moved(const struct keeper *k, const struct keeper_input *in)
{
    struct watts w = *in->watts;

    if (trusts(k, in)) {
        w.error_permille = k->margin_permille;
        watts_shift(&w, k->bias_uw);
    }
    return w;
}

static uint32_t load_with(const struct keeper_input *in, uint32_t mcpu)
{
    uint64_t load = mul_div(mcpu, speed_of(in), 1000) + in->other_mcpu;

    return (uint32_t)least(load, WATTS_LOAD_MAX);
}

struct power_range keeper_forecast(const struct keeper *k, const struct keeper_input *in,
                                   uint32_t mcpu)
{
    struct watts w = moved(k, in);

    return watts_at(&w, load_with(in, mcpu));
}

/*
 * Moves the curve onto the reading: all the way where it shows that the machine is above its cap,
 * otherwise faster upwards than downwards. The margin follows the errors of the forecasts, eight
 * times as fast upwards as downwards.
 */
static void learn(struct keeper *k, const struct keeper_input *in)
{
    bool first = !trusts(k, in);
    uint64_t reading = in->machine.uw, forecast, off, permille;
    struct watts w;
    int64_t residual;

    if (first) {
        k->bias_uw = 0;
        k->margin_permille = MARGIN_AT_ONCE;
    }
    k->read_ns = in->machine_ns;
    w = moved(k, in);
    forecast = watts_at(&w, in->load_mcpu).uw;
    residual = (int64_t)(reading - forecast);
    off = residual < 0 ? forecast - reading : reading - forecast;
    permille = least(mul_div_up(off, 1000, reading ? reading : 1), KEEPER_MARGIN_MAX);
    if (first || reading > in->cap_uw)
        k->bias_uw += residual;
    else
        k->bias_uw += residual > 0 ? residual / 2 : residual / 8;
    if (first)
        return;
    if (permille > k->margin_permille)
        k->margin_permille += (uint32_t)(permille - k->margin_permille + 3) / 4;
    else
        k->margin_permille -= (uint32_t)(k->margin_permille - permille) / 32;
}

/*
 * Brief readings above the cap move the curve upwards, and teach nothing else. A counter that
 * changes in steps shows too much in one reading and then too little, never twice too much.
 */
static void warn(struct keeper *k, const struct keeper_input *in)
{
    struct watts w = moved(k, in);
    uint64_t forecast = watts_at(&w, in->load_mcpu).uw, over = 0, sure;

    if (trusts(k, in) && in->machine.uw > in->cap_uw && in->machine.uw > forecast)
        over = in->machine.uw - forecast;
    sure = least(over, k->brief_over_uw);
    k->bias_uw += (int64_t)sure;
    k->brief_over_uw = over - sure;
}

static bool is_reading(const struct keeper *k, const struct keeper_input *in)
{
    return in->sensed && in->machine.basis != POWER_UNKNOWN && in->machine_ns <= in->now_ns &&
           in->now_ns - in->machine_ns <= KEEPER_FRESH_NS && in->machine_ns != k->read_ns &&
           in->machine.uw <= POWER_UW_MAX;
}

/* Busy mcpu beside load of @other whose forecast, errors included, stays @margin below the cap. */
static uint32_t fitting_beside(const struct keeper *k, const struct keeper_input *in,
                               uint32_t margin, uint32_t other)
{
    struct watts w = moved(k, in);
    uint64_t most = (uint64_t)in->cores * CORE_MCPU;
    uint64_t load = watts_load(&w, in->cap_uw - mul_div_up(in->cap_uw, margin, 1000), true);

    return (uint32_t)least(mul_div(sub_sat(load, other), 1000, speed_of(in)), most);
}

/* The same of jobs alone. */
static uint32_t fitting(const struct keeper *k, const struct keeper_input *in, uint32_t margin)
{
    return fitting_beside(k, in, margin, in->other_mcpu);
}

static void change_to(struct keeper *k, const struct keeper_input *in, uint32_t mcpu)
{
    k->grew = mcpu > k->most_mcpu;
    k->most_mcpu = mcpu;
    k->changed_ns = in->now_ns;
}

/* At most this much more at a time. */
static uint32_t growth(const struct keeper_input *in)
{
    return in->cores / LARGE_CORES > 1 ? in->cores / LARGE_CORES * CORE_MCPU : CORE_MCPU;
}

/* Shrinks, grows, or leaves it. Between half the margin and all of it nothing changes. */
static void resize(struct keeper *k, const struct keeper_input *in, bool begins)
{
    uint32_t fits = fitting(k, in, KEEPER_MARGIN);
    uint32_t full = in->cores * CORE_MCPU;
    uint64_t since = in->now_ns - k->changed_ns;

    if (fits != full)
        fits -= fits % QUANTUM;
    if (begins) {
        k->wait_ns = KEEPER_GROW_NS;
        change_to(k, in, fits);
        k->grew = false;
    } else if (fitting(k, in, KEEPER_MARGIN / 2) < k->most_mcpu) {
        /* Growth that did not hold: the curve is flatter than the machine. */
        if (k->grew && since < k->wait_ns)
            k->wait_ns = least(2 * k->wait_ns, KEEPER_WAIT_MAX);
        change_to(k, in, fits);
    } else if (fits > k->most_mcpu && since >= k->wait_ns) {
        if (k->grew)
            k->wait_ns = KEEPER_GROW_NS;
        change_to(k, in, (uint32_t)least(fits, (uint64_t)k->most_mcpu + growth(in)));
    }
}

/* Since when readings lie above the cap. */
static void judge(struct keeper *k, const struct keeper_input *in)
{
    if (in->machine.uw <= in->cap_uw)
        k->over_ns = 0;
    else if (k->over_ns == 0)
        k->over_ns = in->machine_ns ? in->machine_ns : 1;
}

static bool is_over(const struct keeper *k, const struct keeper_input *in)
{
    if (k->most_mcpu == 0 && keeper_forecast(k, in, 0).uw > in->cap_uw)
        return true;
    return k->over_ns && in->now_ns - k->over_ns >= KEEPER_SETTLE_NS &&
           in->now_ns - k->changed_ns >= KEEPER_SETTLE_NS;
}

/* What policies divide: power above idle in equal parts of a core, which leave no rest. */
static void share_out(const struct keeper *k, const struct keeper_input *in,
                      struct keeper_plan *plan)
{
    uint64_t idle = least(keeper_forecast(k, in, 0).uw, in->cap_uw);
    uint32_t cores = k->most_mcpu / CORE_MCPU;

    if (in->quota && k->most_mcpu % CORE_MCPU)
        cores++;
    plan->core_uw = cores ? (in->cap_uw - idle) / cores : 0;
    if (plan->core_uw == 0) {
        cores = 0;
        plan->core_uw = 1;
    }
    plan->cores = cores;
    plan->cap_uw = in->cap_uw;
    plan->idle_uw = in->cap_uw - cores * plan->core_uw;
    plan->most_mcpu = k->most_mcpu;
    plan->whole_mcpu = fitting_beside(k, in, KEEPER_MARGIN, 0);
}

static uint64_t next_step(const struct keeper *k, const struct keeper_input *in)
{
    uint64_t next = UINT64_MAX;

    if (k->most_mcpu < in->cores * CORE_MCPU)
        next = k->changed_ns + k->wait_ns;
    if (trusts(k, in))
        next = least(next, k->read_ns + KEEPER_TRUST_NS + 1);
    return next > in->now_ns ? next : UINT64_MAX;
}

/* A limit holds the mean exactly where it is set, so it needs the margin too. */
static uint64_t limit_below(const struct keeper_input *in)
{
    uint64_t most = in->cap_uw - mul_div_up(in->cap_uw, KEEPER_MARGIN, 1000);

    return most > in->unlimited_uw ? most - in->unlimited_uw : 1;
}

int keeper_step(struct keeper *k, const struct keeper_input *in, struct keeper_plan *ret)
{
    struct keeper_plan plan = {.next_ns = UINT64_MAX};
    bool begins = k->cap_uw == 0;

    if (in->cap_uw == 0) {
        plan.changed = !begins;
        memset(k, 0, sizeof(*k));
        *ret = plan;
        return 0;
    }
    if (in->watts->count == 0)
        return -ENODATA;
    if (is_reading(k, in)) {
        if (in->brief) {
            warn(k, in);
        } else {
            k->brief_over_uw = 0;
            learn(k, in);
            judge(k, in);
        }
    }
    resize(k, in, begins);
    share_out(k, in, &plan);
    plan.changed = begins || in->cap_uw != k->cap_uw || plan.cores != k->cores;
    plan.over = is_over(k, in);
    plan.next_ns = next_step(k, in);
    if (in->limit)
        plan.limit_uw = limit_below(in);
    if (in->quota && k->most_mcpu < in->cores * CORE_MCPU)
        plan.quota_mcpu = k->most_mcpu > KEEPER_QUOTA_MIN ? k->most_mcpu : KEEPER_QUOTA_MIN;
    k->cap_uw = in->cap_uw;
    k->cores = plan.cores;
    *ret = plan;
    return 0;
}
