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
#define CALM           4  /* readings that a mean is about */
#define CLEAR_BRIEF    80 /* permille above the cap that a brief reading has to show */

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
 * What two readings in a row lie above both forecast and cap by, and clearly above the cap. A
 * counter that changes in steps shows too much in one reading and then too little, never twice too
 * much; in between, the lasting part of it is the mean's.
 */
static uint64_t surely_over(const struct keeper_input *in, uint64_t forecast, uint64_t *before)
{
    uint64_t over = 0, sure;
    uint32_t clear = in->brief ? CLEAR_BRIEF : KEEPER_MARGIN;

    if (in->machine.uw > in->cap_uw + mul_div(in->cap_uw, clear, 1000) && in->machine.uw > forecast)
        over = in->machine.uw - forecast;
    sure = least(over, *before);
    *before = over - sure;
    return sure;
}

/* The margin follows what the mean of some forecasts is wrong by, faster upwards than downwards. */
static void follow_margin(struct keeper *k, uint64_t reading)
{
    uint64_t off = (uint64_t)(k->off_uw < 0 ? -k->off_uw : k->off_uw);
    uint64_t permille = least(mul_div_up(off, 1000, reading ? reading : 1), KEEPER_MARGIN_MAX);

    if (permille > k->margin_permille)
        k->margin_permille += (uint32_t)(permille - k->margin_permille + 3) / 4;
    else
        k->margin_permille -= (uint32_t)(k->margin_permille - permille + 15) / 16;
}

/*
 * Moves the curve onto the readings: at once onto the first one and where two lie above the cap,
 * otherwise by their mean of about four. Single readings are off by more than any window of ten
 * seconds.
 */
static void learn(struct keeper *k, const struct keeper_input *in)
{
    bool first = !trusts(k, in);
    uint64_t reading = in->machine.uw, forecast;
    int64_t residual, step;
    struct watts w;

    if (first)
        k->bias_uw = k->off_uw = 0;
    k->read_ns = in->machine_ns;
    w = moved(k, in);
    forecast = watts_at(&w, in->load_mcpu).uw;
    residual = (int64_t)(reading - forecast);
    if (first) {
        k->margin_permille = MARGIN_AT_ONCE;
        k->over_uw = k->brief_over_uw = 0;
        k->bias_uw = residual;
        return;
    }
    step = (int64_t)surely_over(in, forecast, &k->over_uw);
    k->bias_uw += step;
    k->off_uw += (residual - step - k->off_uw) / CALM;
    follow_margin(k, reading);
    step = k->off_uw / 2;
    k->bias_uw += step;
    k->off_uw -= step;
}

/* Brief readings above the cap move the curve upwards, and teach nothing else. */
static void warn(struct keeper *k, const struct keeper_input *in)
{
    struct watts w = moved(k, in);

    if (trusts(k, in))
        k->bias_uw += (int64_t)surely_over(in, watts_at(&w, in->load_mcpu).uw, &k->brief_over_uw);
}

/* Load of no job comes and goes; what lasts counts, and what is too much for the cap at once. */
static void follow_others(struct keeper *k, const struct keeper_input *in)
{
    if (k->cap_uw == 0)
        k->other_mcpu = in->other_mcpu;
    else if (in->other_mcpu > k->other_mcpu)
        k->other_mcpu += (in->other_mcpu - k->other_mcpu + CALM - 1) / CALM;
    else
        k->other_mcpu -= (k->other_mcpu - in->other_mcpu + CALM - 1) / CALM;
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

/* Whether the load of this moment, errors aside, draws clearly more than the cap. */
static bool bursts(const struct keeper *k, const struct keeper_input *in)
{
    struct watts w = moved(k, in);

    return in->other_mcpu > k->other_mcpu &&
           watts_at(&w, load_with(in, k->most_mcpu)).uw >
               in->cap_uw + mul_div(in->cap_uw, KEEPER_MARGIN / 2, 1000);
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

static uint32_t whole_quanta(uint32_t mcpu, uint32_t full)
{
    return mcpu == full ? full : mcpu - mcpu % QUANTUM;
}

/* Shrinks, grows, or leaves it. Between half the margin and all of it nothing changes. A cap
 * that rises is not waited for. */
static void resize(struct keeper *k, const struct keeper_input *in, bool begins)
{
    uint32_t full = in->cores * CORE_MCPU, fits, grows, others;
    uint64_t since = in->now_ns - k->changed_ns;

    if (bursts(k, in))
        k->other_mcpu = in->other_mcpu;
    others = in->other_mcpu > k->other_mcpu ? in->other_mcpu : k->other_mcpu;
    fits = whole_quanta(fitting_beside(k, in, KEEPER_MARGIN, k->other_mcpu), full);
    grows = whole_quanta(fitting_beside(k, in, KEEPER_MARGIN, others), full);
    if (begins || (in->cap_uw > k->cap_uw && grows > k->most_mcpu)) {
        k->wait_ns = KEEPER_GROW_NS;
        change_to(k, in, grows);
        k->grew = false;
    } else if (fitting_beside(k, in, KEEPER_MARGIN / 2, k->other_mcpu) < k->most_mcpu) {
        /* Growth that did not hold: the curve is flatter than the machine. */
        if (k->grew && since < k->wait_ns)
            k->wait_ns = least(2 * k->wait_ns, KEEPER_WAIT_MAX);
        change_to(k, in, fits);
    } else if (grows > k->most_mcpu && since >= k->wait_ns) {
        if (k->grew)
            k->wait_ns = KEEPER_GROW_NS;
        change_to(k, in, (uint32_t)least(grows, (uint64_t)k->most_mcpu + growth(in)));
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
    if (begins)
        follow_others(k, in);
    if (is_reading(k, in)) {
        if (in->brief) {
            warn(k, in);
        } else {
            k->brief_over_uw = 0;
            follow_others(k, in);
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
