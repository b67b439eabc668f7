/* SPDX-License-Identifier: Apache-2.0 */
#include "power/cap/keeper.h"

#include "base/clock.h"
#include "base/minmax.h"
#include "base/muldiv.h"
#include "power/model/watts.h"

#include <errno.h>
#include <string.h>

#define CORE_MCPU      1000
#define QUANTUM        10 /* mcpu: less is not worth a change */
#define LARGE_CORES    16
#define STEP_PART      20  /* of the machine: what a quota grows by at most in a second */
#define MARGIN_AT_ONCE 40  /* permille, before any forecast was judged */
#define LIMIT_MARGIN   20  /* permille of the cap that a power limit stays below it */
#define OTHERS_GONE    100 /* mcpu less of no job */
#define OTHERS_MEAN    4   /* readings that the mean load of no job is about */
#define ERRORS_MEAN    8   /* readings that the mean error of forecasts is about */
#define CLEAR          10  /* permille above the cap that a reading has to show */
#define CLEAR_BELOW    50  /* permille of the cap that a reading has to lie below its forecast */
/* Permille: what a reading counts for the energy that was missed, and for the bias. Damped so that
 * a step of the machine's power is followed in about four readings without swinging. */
#define MISSED_GAIN 400
#define BIAS_GAIN   100
#define BRIEF_APART (NS_PER_S / 2) /* brief readings further apart are not in a row */
#define STEADY_MS   2500 /* a longer pause between readings teaches no more than this one */
/* Energy above the cap is saved again within about PAY_MS, forgotten in FORGET_MS; it is at most
 * what the cap allows in DEBT_MS, at least minus that of CREDIT_MS: what a counter that changes in
 * steps may show too late. */
#define PAY_MS    2000
#define FORGET_MS 20000
#define DEBT_MS   1000
#define CREDIT_MS 50
#define FALL_PART 20 /* a cap that falls by more than this part of it begins anew for the debt */

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

    return (uint32_t)smaller_u64(load, WATTS_LOAD_MAX);
}

struct power_range keeper_forecast(const struct keeper *k, const struct keeper_input *in,
                                   uint32_t mcpu)
{
    struct watts w = moved(k, in);

    return watts_at(&w, load_with(in, mcpu));
}

/*
 * The excess that two readings in a row have over the forecast, if both lie clearly above the cap.
 * A counter that changes each tenth of a second shows too much in one reading and then too little,
 * never twice too much, and one that changes each millisecond shows it all; in between, the lasting
 * part of it is the mean's.
 */
static uint64_t surely_over(const struct keeper_input *in, uint64_t forecast, uint64_t *before)
{
    uint64_t over = 0, sure;

    if (in->machine.uw > in->cap_uw + mul_div(in->cap_uw, CLEAR, 1000) && in->machine.uw > forecast)
        over = in->machine.uw - forecast;
    sure = smaller_u64(over, *before);
    *before = over - sure;
    return sure;
}

/* The same downwards: a curve that lies far too high keeps jobs from growing. */
static uint64_t surely_below(const struct keeper_input *in, uint64_t forecast, uint64_t *before)
{
    uint64_t below = sub_sat(forecast, in->machine.uw), sure;

    if (below <= mul_div(in->cap_uw, CLEAR_BELOW, 1000))
        below = 0;
    sure = smaller_u64(below, *before);
    *before = below - sure;
    return sure;
}

/* The margin follows what the mean of some forecasts is wrong by, faster upwards than downwards. */
static void follow_margin(struct keeper *k, int64_t residual, uint64_t reading)
{
    uint64_t off, permille;

    k->off_uw += (residual - k->off_uw) / ERRORS_MEAN;
    off = (uint64_t)(k->off_uw < 0 ? -k->off_uw : k->off_uw);
    permille = smaller_u64(mul_div_up(off, 1000, reading ? reading : 1), KEEPER_MARGIN_MAX);
    if (permille > k->margin_permille)
        k->margin_permille += (uint32_t)(permille - k->margin_permille + 3) / 4;
    else
        k->margin_permille -= (uint32_t)(k->margin_permille - permille + 7) / 8;
}

/* The energy that forecasts have missed moves the curve. A reading that a counter's step made too
 * high is followed by one that is too low: the energy of both has no error. */
static void follow_bias(struct keeper *k, int64_t residual, int64_t ms)
{
    int64_t missed;

    ms = ms < STEADY_MS ? ms : STEADY_MS;
    missed = k->missed_uj + residual * ms / 1000;
    k->missed_uj = missed - missed * MISSED_GAIN / 1000;
    k->bias_uw += missed * BIAS_GAIN / ms;
}

/* Energy above the cap, while there is one and jobs have had the time to shrink. */
static void owe(struct keeper *k, const struct keeper_input *in, int64_t ms)
{
    int64_t cap = (int64_t)in->cap_uw;

    if (k->cap_uw == 0 || in->now_ns - k->begun_ns < KEEPER_SETTLE_NS) {
        k->debt_uj = 0;
        return;
    }
    k->debt_uj -= k->debt_uj * (ms < FORGET_MS ? ms : FORGET_MS) / FORGET_MS;
    k->debt_uj += ((int64_t)in->machine.uw - cap) * ms / 1000;
    if (k->debt_uj > cap * DEBT_MS / 1000)
        k->debt_uj = cap * DEBT_MS / 1000;
    if (k->debt_uj < -cap * CREDIT_MS / 1000)
        k->debt_uj = -cap * CREDIT_MS / 1000;
}

/* How long the reading is, in ms, at least 1; 1 for the first. */
static int64_t since_reading(const struct keeper *k, const struct keeper_input *in)
{
    return trusts(k, in) ? (int64_t)((in->machine_ns - k->read_ns) / NS_PER_MS) + 1 : 1;
}

/*
 * Moves the curve onto the readings: at once onto the first one, and where two lie clearly above
 * the cap or below their forecasts; otherwise slowly. Single readings are off by more than any
 * window of ten seconds.
 */
static void learn(struct keeper *k, const struct keeper_input *in, int64_t ms)
{
    bool first = !trusts(k, in);
    uint64_t reading = in->machine.uw, forecast;
    int64_t residual, step;
    struct watts w;

    if (first)
        k->bias_uw = k->off_uw = k->missed_uj = k->debt_uj = 0;
    k->read_ns = in->machine_ns;
    w = moved(k, in);
    forecast = watts_at(&w, in->load_mcpu).uw;
    residual = (int64_t)(reading - forecast);
    if (first) {
        k->margin_permille = MARGIN_AT_ONCE;
        k->over_uw = k->below_uw = 0;
        k->bias_uw = residual;
        return;
    }
    owe(k, in, ms);
    step = (int64_t)surely_over(in, forecast, &k->over_uw);
    if (ms <= STEADY_MS) /* readings that are seconds apart may be of a time before jobs grew */
        step -= (int64_t)surely_below(in, forecast, &k->below_uw);
    if (step) {
        k->bias_uw += step;
        k->missed_uj = 0;
        return;
    }
    follow_margin(k, residual, reading);
    follow_bias(k, residual, ms);
}

/* Brief readings above the cap move the curve upwards, and teach nothing else. */
static void warn(struct keeper *k, const struct keeper_input *in)
{
    struct watts w = moved(k, in);

    if (in->machine_ns == k->brief_ns) /* a step without a new one */
        return;
    if (in->machine_ns - k->brief_ns > BRIEF_APART)
        k->brief_over_uw = 0;
    k->brief_ns = in->machine_ns;
    if (trusts(k, in))
        k->bias_uw += (int64_t)surely_over(in, watts_at(&w, in->load_mcpu).uw, &k->brief_over_uw);
}

/* Load of no job comes and goes; what lasts counts, and what is too much for the cap at once. */
static void follow_others(struct keeper *k, const struct keeper_input *in)
{
    if (k->cap_uw == 0)
        k->other_mcpu = in->other_mcpu;
    else if (in->other_mcpu > k->other_mcpu)
        k->other_mcpu += (in->other_mcpu - k->other_mcpu + OTHERS_MEAN - 1) / OTHERS_MEAN;
    else
        k->other_mcpu -= (k->other_mcpu - in->other_mcpu + OTHERS_MEAN - 1) / OTHERS_MEAN;
}

static bool is_reading(const struct keeper *k, const struct keeper_input *in)
{
    return in->sensed && in->machine.basis != POWER_UNKNOWN && in->machine_ns <= in->now_ns &&
           in->now_ns - in->machine_ns <= KEEPER_FRESH_NS && in->machine_ns != k->read_ns &&
           in->machine.uw <= POWER_UW_MAX;
}

/* The power to aim at: the cap less @margin, and less what pays the debt. */
static uint64_t aim_uw(const struct keeper *k, const struct keeper_input *in, uint32_t margin)
{
    uint64_t aim = in->cap_uw - mul_div_up(in->cap_uw, margin, 1000);

    return k->debt_uj > 0 ? sub_sat(aim, (uint64_t)k->debt_uj * 1000 / PAY_MS) : aim;
}

/* Load that fits that, errors of the forecast included. */
static uint32_t sure_load(const struct keeper *k, const struct keeper_input *in, uint32_t margin)
{
    struct watts w = moved(k, in);

    return watts_load(&w, aim_uw(k, in, margin), true);
}

/* Busy mcpu of the machine's cores that make @load at its speed. */
static uint32_t busy_of(const struct keeper_input *in, uint64_t load)
{
    return (uint32_t)smaller_u64(mul_div(load, 1000, speed_of(in)),
                                 (uint64_t)in->cores * CORE_MCPU);
}

/*
 * Busy mcpu for jobs: beside the lasting load of no job the forecast, errors included, has to fit;
 * beside that of this moment the forecast alone, and nearly.
 */
static uint32_t fitting(const struct keeper *k, const struct keeper_input *in, uint32_t margin)
{
    struct watts w = moved(k, in);
    uint64_t nearly = in->cap_uw + mul_div(in->cap_uw, KEEPER_MARGIN / 2, 1000);
    uint64_t lasting = sub_sat(sure_load(k, in, margin), k->other_mcpu);
    uint64_t now = sub_sat(watts_load(&w, nearly, false), in->other_mcpu);

    return busy_of(in, smaller_u64(lasting, now));
}

static void change_to(struct keeper *k, const struct keeper_input *in, uint32_t mcpu)
{
    k->grew = mcpu > k->most_mcpu;
    k->grew_from = k->most_mcpu;
    k->beside_mcpu = in->other_mcpu;
    k->most_mcpu = mcpu;
    k->changed_ns = in->now_ns;
}

/*
 * A quota is raised in small steps, each judged by a reading: a new fit may lie far from the
 * machine's curve, and a power limit that lowers the speed leaves room only until somebody takes
 * it.
 */
static bool grows_in_steps(const struct keeper *k, const struct keeper_input *in)
{
    return in->quota && trusts(k, in);
}

/* How much it grows towards @fits at a time, after a reading of @ms. */
static uint32_t growth(const struct keeper *k, const struct keeper_input *in, uint32_t fits,
                       int64_t ms)
{
    uint64_t more = fits - k->most_mcpu, cores = in->cores / LARGE_CORES, most;

    if (!grows_in_steps(k, in))
        return (uint32_t)smaller_u64(more, (cores > 1 ? cores : 1) * CORE_MCPU);
    most =
        mul_div((uint64_t)in->cores * CORE_MCPU / STEP_PART, ms > 1000 ? (uint64_t)ms : 1000, 1000);
    most = smaller_u64(most, more / 2 + (uint64_t)in->cores * QUANTUM);
    return (uint32_t)smaller_u64(more, most > KEEPER_QUOTA_MIN ? most : KEEPER_QUOTA_MIN);
}

static uint32_t whole_quanta(uint32_t mcpu, uint32_t full)
{
    return mcpu == full ? full : mcpu - mcpu % QUANTUM;
}

/*
 * Growth within a core changes no thread of a job: a quota alone grows, and is not waited for. Out
 * of a pause jobs go on at once, too, unless they did so before and that did not hold.
 */
static void grow(struct keeper *k, const struct keeper_input *in, uint32_t fits, int64_t ms)
{
    uint32_t up = (k->most_mcpu + CORE_MCPU - 1) / CORE_MCPU * CORE_MCPU;
    uint32_t to = k->most_mcpu + growth(k, in, fits, ms);

    if (in->quota && k->most_mcpu == 0 && k->wait_ns <= KEEPER_GROW_NS) {
        change_to(k, in, (uint32_t)smaller_u64(fits, CORE_MCPU));
    } else if (in->quota && to <= up) {
        k->most_mcpu = to;
    } else if (in->now_ns - k->changed_ns >= k->wait_ns) {
        if (k->grew)
            k->wait_ns = KEEPER_GROW_NS;
        change_to(k, in, to);
    } else if (in->quota) {
        k->most_mcpu = up;
    }
}

/* Shrinks, grows, or leaves it. Between half the margin and all of it nothing shrinks. A cap
 * that rises is not waited for. @ms: of a reading that has come and is not brief; 0: none has. */
static void resize(struct keeper *k, const struct keeper_input *in, bool begins, int64_t ms)
{
    uint32_t full = in->cores * CORE_MCPU, fits;
    uint64_t since = in->now_ns - k->changed_ns;

    fits = whole_quanta(fitting(k, in, KEEPER_MARGIN), full);
    if (in->quota && fits < KEEPER_QUOTA_MIN) /* no quota would hold jobs to that */
        fits = 0;
    if (begins || (in->cap_uw > k->cap_uw && fits > k->most_mcpu)) {
        k->wait_ns = KEEPER_GROW_NS;
        change_to(k, in, fits);
        k->grew = false;
    } else if (fitting(k, in, KEEPER_MARGIN / 2) < k->most_mcpu) {
        /* Growth that did not hold: the curve is flatter than the machine. */
        if (k->grew && fits <= k->grew_from && since < k->wait_ns)
            k->wait_ns = smaller_u64(2 * k->wait_ns, KEEPER_WAIT_MAX);
        change_to(k, in, fits);
    } else if (fits > k->most_mcpu && (ms || !grows_in_steps(k, in))) {
        if (in->other_mcpu + OTHERS_GONE < k->beside_mcpu) /* they may have been the reason */
            k->wait_ns = KEEPER_GROW_NS;
        grow(k, in, fits, ms);
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

/* Writes the power that policies divide: that above idle, in equal parts of a core without rest. */
static void share_out(const struct keeper *k, const struct keeper_input *in,
                      struct keeper_plan *plan)
{
    uint64_t idle = smaller_u64(keeper_forecast(k, in, 0).uw, in->cap_uw);
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
    plan->whole_mcpu = busy_of(in, sure_load(k, in, KEEPER_MARGIN));
}

static uint64_t next_step(const struct keeper *k, const struct keeper_input *in)
{
    uint64_t next = UINT64_MAX;

    if (k->most_mcpu < in->cores * CORE_MCPU)
        next = k->changed_ns + k->wait_ns;
    if (trusts(k, in))
        next = smaller_u64(next, k->read_ns + KEEPER_TRUST_NS + 1);
    return next > in->now_ns ? next : UINT64_MAX;
}

/* A limit holds the mean exactly where it is set, so it needs the margin too. */
static uint64_t limit_below(const struct keeper_input *in)
{
    uint64_t most = in->cap_uw - mul_div_up(in->cap_uw, LIMIT_MARGIN, 1000);

    return most > in->unlimited_uw ? most - in->unlimited_uw : 1;
}

int keeper_step(struct keeper *k, const struct keeper_input *in, struct keeper_plan *ret)
{
    struct keeper_plan plan = {.next_ns = UINT64_MAX};
    bool begins = k->cap_uw == 0;
    int64_t ms = 0;

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
    if (begins || in->cap_uw < k->cap_uw - k->cap_uw / FALL_PART)
        k->begun_ns = in->now_ns;
    if (is_reading(k, in)) {
        if (in->brief) {
            warn(k, in);
        } else {
            ms = since_reading(k, in);
            follow_others(k, in);
            learn(k, in, ms);
            judge(k, in);
        }
    }
    resize(k, in, begins, ms);
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
