/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/device/device.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/muldiv.h"
#include "base/wallclock.h"

#define LATE_NS        (10 * NS_PER_S) /* two messages of a plug may come at once */
#define CLOCK_SLACK_MS 60000
#define QUIET_POLLS    3
#define QUIET_S        60 /* a plug tells its power so often, if its period is not said */
#define SILENT_NS      (120 * NS_PER_S)
#define PAUSE_MAX_NS   (450 * NS_PER_S) /* a longer one was an outage */
#define PAUSE_FALLS    16               /* a pause is forgotten after so many times its length */

static void tell(struct device *d, const char *problem)
{
    if (strcmp(d->problem, problem) == 0)
        return;
    snprintf(d->problem, sizeof(d->problem), "%s", problem);
    d->trouble(d->arg, d);
}

void device_lost(struct device *d, const char *fmt, ...)
{
    char text[sizeof(d->problem)];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    d->power.basis = POWER_UNKNOWN;
    d->told_ns = 0;
    tell(d, text);
}

/* Whether the reading is good; a bad one is logged once. The counter has noted its gap. */
static bool understood(struct device *d, enum counter_news news, uint64_t gap_before_ns)
{
    d->gap_ns = add_sat(d->gap_ns, d->counter.gap_ns - gap_before_ns);
    if (news == COUNTER_LIE) {
        tell(d, "it tells more than anything of its kind can draw");
        return false;
    }
    tell(d, news == COUNTER_RESET ? "its counter began anew" : "");
    return news == COUNTER_OK || news == COUNTER_WRAPPED;
}

/* Adds energy of the last @span_ns. */
static void add(struct device *d, uint64_t uj, uint64_t span_ns)
{
    struct energy_range more = energy_within(uj, d->config->error_permille, POWER_MEASURED);

    energy_add(&d->total, &more);
    if (uj && span_ns > d->span_ns)
        d->span_ns = span_ns;
}

/* Nothing is known of the time up to the first reading. */
static void heard(struct device *d, uint64_t now_ns)
{
    if (d->unheard_ns)
        d->gap_ns = add_sat(d->gap_ns, sub_sat(now_ns, d->unheard_ns));
    d->unheard_ns = 0;
}

/*
 * The meter went on counting while this process was away: its counter tells what was used
 * meanwhile, if it is the same counter still. The wall clock may have been set, so a little more is
 * believed. Returns whether it is.
 */
static bool bridge(struct device *d, uint64_t raw_uj)
{
    uint64_t most_uw = d->config->most_uw ? d->config->most_uw : POWER_UW_MAX;
    uint64_t away_ms = sub_sat(wallclock_ms(), d->stored_ms);
    uint64_t most_ns = (away_ms + CLOCK_SLACK_MS) * NS_PER_MS;
    bool same = d->stored_uj && raw_uj >= d->stored_uj &&
                raw_uj - d->stored_uj <= mul_div(most_uw, most_ns, NS_PER_S);

    if (same)
        add(d, raw_uj - d->stored_uj, away_ms * NS_PER_MS);
    d->stored_uj = 0;
    return same;
}

/*
 * A plug may also tell when its power changes: of its pauses the longest of the last time counts.
 * The time in which it was known to be away is no pause.
 */
static void note_pause(struct device *d, uint64_t now_ns)
{
    uint64_t pause = d->told_ns ? now_ns - d->told_ns : 0;

    d->pause_ns = sub_sat(d->pause_ns, pause / PAUSE_FALLS);
    pause = pause < PAUSE_MAX_NS ? pause : PAUSE_MAX_NS;
    d->pause_ns = pause > d->pause_ns ? pause : d->pause_ns;
    d->told_ns = now_ns;
}

void device_energy(struct device *d, uint64_t now_ns, uint64_t raw_uj)
{
    uint64_t uj, before_ns, gap = d->counter.gap_ns;
    enum counter_news news;
    bool bridged;

    heard(d, now_ns);
    note_pause(d, now_ns);
    bridged = bridge(d, raw_uj);
    if (!d->by_counter) /* its watts, if it told any first, are not counted twice */
        d->counter =
            (struct counter){.most_uw = d->config->most_uw, .late_ns = LATE_NS, .gap_ns = gap};
    d->by_counter = true;
    before_ns = d->counter.time_ns;
    news = counter_read(&d->counter, now_ns, raw_uj, &uj);
    if (understood(d, news, gap))
        add(d, uj, now_ns - before_ns);
    else if (news != COUNTER_FIRST || !bridged)
        d->hole = true;
}

void device_watts(struct device *d, uint64_t now_ns, uint64_t uw)
{
    uint64_t most = d->config->most_uw ? d->config->most_uw : POWER_UW_MAX;
    uint64_t uj, before_ns = d->counter.time_ns, gap = d->counter.gap_ns;
    uint32_t poll_s = d->config->period_s ? d->config->period_s : d->config->ops->poll_s;
    uint64_t quiet = (d->config->ops->poll_s ? QUIET_POLLS * poll_s
                      : poll_s               ? poll_s
                                             : QUIET_S) *
                     NS_PER_S;
    struct energy_range second;

    if (uw > most) {
        device_lost(d, "it tells %llu W, more than it can draw",
                    (unsigned long long)(uw / 1000000));
        return;
    }
    heard(d, now_ns);
    note_pause(d, now_ns);
    second = energy_within(uw, d->config->error_permille, POWER_MEASURED); /* uJ of one second */
    d->power = (struct power_range){second.uj, second.low_uj, second.high_uj, second.basis};
    d->power_ns = now_ns;
    d->peak_uw = d->power.high_uw > d->peak_uw ? d->power.high_uw : d->peak_uw;
    if (!d->by_counter) {
        if (understood(d, counter_watts(&d->counter, now_ns, uw, d->last_uw, quiet, &uj), gap))
            add(d, uj, now_ns - before_ns);
        else
            d->hole = true;
    }
    d->last_uw = uw;
}

static uint64_t patience_ns(const struct device *d)
{
    uint64_t usual = d->config->period_s * NS_PER_S;
    uint64_t most = 2 * (d->pause_ns > usual ? d->pause_ns : usual);

    return most > SILENT_NS ? most : SILENT_NS;
}

bool device_silent(const struct device *d, uint64_t now_ns)
{
    return !d->told_ns || now_ns - d->told_ns > patience_ns(d);
}

bool device_power_known(const struct device *d, uint64_t now_ns)
{
    return d->power.basis != POWER_UNKNOWN && now_ns - d->power_ns <= patience_ns(d);
}
