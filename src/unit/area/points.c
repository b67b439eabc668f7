/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/points.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/muldiv.h"
#include "base/wallclock.h"

#define METER_MS  10000
#define STEERS_NS (120 * NS_PER_S) /* an older power of lights may be another one by now */
#define NEW_NS    (60 * NS_PER_S)  /* so long a meter that never told anything is waited for */

/* One point's record in the making. */
struct point {
    char name[OUTBOX_POINT_MAX];
    uint64_t from_ns, gap_ns;
};

/* Figures of an other load's meter: told before this process began, and noted for the next one. */
struct other {
    char name[OUTBOX_POINT_MAX];
    uint64_t before_uw, before_until_ns; /* its last power steers so long; 0: it is not known */
    uint64_t noted_ns, noted_peak_uw;    /* time of the reading that is noted; 0: none is */
};

struct points {
    struct device *device; /* borrowed, like the outbox */
    size_t count;
    struct outbox *outbox;
    const struct device *covering; /* NULL: the area is the sum */
    struct point area, *meter;
    struct other *other;        /* of each meter; of use to those that cover other loads */
    struct energy_range before; /* of the area's total: what the meters' own totals do not hold */
    uint64_t meters_ns;         /* when the last records of meters were put */
    uint64_t begun_ns;
};

/* Whether the meter's energy is in the area's. */
static bool counts(const struct points *p, const struct device *d)
{
    return !p->covering || p->covering == d;
}

static struct energy_range area_total(const struct points *p)
{
    struct energy_range sum = p->before;

    if (p->covering) {
        energy_add(&sum, &p->covering->total);
        return sum;
    }
    for (size_t i = 0; i < p->count; i++)
        energy_add(&sum, &p->device[i].total);
    return sum;
}

/*
 * The area's last record may be younger than the meters' last ones, so their sum may have been
 * more. The area's total never falls.
 */
static void restore_area(struct points *p)
{
    struct outbox_record last;
    struct energy_range sum;

    if (outbox_last(p->outbox, p->area.name, &last) < 0)
        return;
    sum = area_total(p);
    p->before = (struct energy_range){
        .uj = sub_sat(last.total.uj, sum.uj),
        .low_uj = sub_sat(last.total.low_uj, sum.low_uj),
        .high_uj = sub_sat(last.total.high_uj, sum.high_uj),
        .basis = last.total.basis,
    };
    p->before.low_uj = p->before.low_uj < p->before.uj ? p->before.low_uj : p->before.uj;
    p->before.high_uj = p->before.high_uj > p->before.uj ? p->before.high_uj : p->before.uj;
}

static void restore_meter(struct points *p, size_t i)
{
    struct outbox_record last;

    if (outbox_last(p->outbox, p->meter[i].name, &last) < 0)
        return;
    p->device[i].total = last.total;
    p->device[i].stored_uj = last.raw_uj;
    p->device[i].stored_ms = last.to_ms;
}

/* Until it is heard, the load draws what it drew a moment ago, or else its most. */
static void restore_other(struct points *p, size_t i)
{
    struct other *o = &p->other[i];
    struct outbox_record last;
    uint64_t age_ms;

    snprintf(o->name, sizeof(o->name), "other:%s", p->device[i].config->name);
    if (!p->device[i].config->covers_other || outbox_last(p->outbox, o->name, &last) < 0)
        return;
    o->noted_peak_uw = last.total.uj > last.raw_uj ? last.total.uj : last.raw_uj;
    p->device[i].peak_uw = o->noted_peak_uw;
    age_ms = sub_sat(wallclock_ms(), last.to_ms);
    if (!last.to_ms || age_ms >= STEERS_NS / NS_PER_MS)
        return;
    o->before_uw = last.raw_uj;
    o->before_until_ns = clock_now_ns() + STEERS_NS - age_ms * NS_PER_MS;
}

int points_new(struct device *device, size_t count, struct outbox *outbox, struct points **ret)
{
    struct points *p = calloc(1, sizeof(*p));

    if (p) {
        p->meter = calloc(count ? count : 1, sizeof(*p->meter));
        p->other = calloc(count ? count : 1, sizeof(*p->other));
    }
    if (!p || !p->meter || !p->other) {
        points_free(p);
        return -ENOMEM;
    }
    p->device = device;
    p->count = count;
    p->outbox = outbox;
    snprintf(p->area.name, sizeof(p->area.name), "area");
    for (size_t i = 0; i < count; i++) {
        snprintf(p->meter[i].name, sizeof(p->meter[i].name), "meter:%s", device[i].config->name);
        restore_meter(p, i);
        restore_other(p, i);
        if (device[i].config->covers_area)
            p->covering = &device[i];
    }
    restore_area(p);
    p->begun_ns = clock_now_ns();
    *ret = p;
    return 0;
}

struct points *points_free(struct points *p)
{
    if (!p)
        return NULL;
    free(p->meter);
    free(p->other);
    free(p);
    return NULL;
}

/* The first record has no time before it, so what was used until then is in its total alone. */
static void put(struct points *p, struct point *point, const struct energy_range *total,
                uint64_t raw_uj, uint64_t now_ns, uint64_t now_ms)
{
    uint64_t lasted_ms = point->from_ns ? (now_ns - point->from_ns) / NS_PER_MS : 0;
    uint64_t gap_ms = point->gap_ns / NS_PER_MS;
    struct outbox_record r = {
        .from_ms = sub_sat(now_ms, lasted_ms),
        .to_ms = now_ms,
        .mono_ns = now_ns,
        .total = *total,
        .raw_uj = raw_uj,
        .gap_ms = (uint32_t)(gap_ms < lasted_ms ? gap_ms : lasted_ms),
    };

    snprintf(r.point, sizeof(r.point), "%s", point->name);
    outbox_put(p->outbox, &r);
    point->from_ns = now_ns;
    point->gap_ns = 0;
}

/* A meter that was never heard is a gap all the time; others tell theirs. */
static void collect_gaps(struct points *p, uint64_t second_ns, uint64_t now_ns)
{
    for (size_t i = 0; i < p->count; i++) {
        struct device *d = &p->device[i];
        uint64_t gap = d->counter.time_ns ? d->gap_ns : second_ns;

        d->gap_ns = 0;
        d->unheard_ns = d->counter.time_ns ? 0 : now_ns;
        p->meter[i].gap_ns = add_sat(p->meter[i].gap_ns, gap);
        if (counts(p, d))
            p->area.gap_ns = add_sat(p->area.gap_ns, gap);
    }
}

static void put_meter(struct points *p, size_t i, uint64_t now_ns, uint64_t now_ms)
{
    const struct device *d = &p->device[i];
    uint64_t raw = d->by_counter ? d->counter.raw_uj : d->stored_uj;

    put(p, &p->meter[i], &d->total, raw, now_ns, now_ms);
}

/*
 * The area's record holds this energy already: after a kill the meter goes on from here, or the
 * area would count it twice. A counter that was not heard again keeps its time, from which
 * device.c tells whether what it counted since then can be.
 */
static void note_meter(struct points *p, size_t i, uint64_t now_ms)
{
    const struct device *d = &p->device[i];
    struct outbox_record r = {.to_ms = d->by_counter ? now_ms : d->stored_ms,
                              .total = d->total,
                              .raw_uj = d->by_counter ? d->counter.raw_uj : d->stored_uj};

    snprintf(r.point, sizeof(r.point), "%s", p->meter[i].name);
    outbox_note(p->outbox, &r);
}

static bool steers(const struct device *d, uint64_t now_ns)
{
    return d->power.basis != POWER_UNKNOWN && now_ns - d->power_ns <= STEERS_NS;
}

/* For restore_other(): the largest power as a total, and the newest one as the raw count. */
static void note_other(struct points *p, size_t i, uint64_t now_ns, uint64_t now_ms)
{
    const struct device *d = &p->device[i];
    struct other *o = &p->other[i];
    uint64_t read_ns = steers(d, now_ns) ? d->power_ns : 0;
    struct outbox_record r = {.total = {d->peak_uw, d->peak_uw, d->peak_uw, POWER_UNKNOWN}};

    if (!d->config->covers_other || !d->power_ns ||
        (read_ns == o->noted_ns && d->peak_uw == o->noted_peak_uw))
        return;
    if (read_ns) {
        r.to_ms = sub_sat(now_ms, (now_ns - read_ns) / NS_PER_MS);
        r.raw_uj = d->power.high_uw;
    }
    snprintf(r.point, sizeof(r.point), "%s", o->name);
    outbox_note(p->outbox, &r);
    o->noted_ns = read_ns;
    o->noted_peak_uw = d->peak_uw;
}

void points_tick(struct points *p, uint64_t now_ns, uint64_t now_ms)
{
    struct energy_range total = area_total(p);

    collect_gaps(p, p->area.from_ns ? now_ns - p->area.from_ns : 0, now_ns);
    put(p, &p->area, &total, 0, now_ns, now_ms);
    if (!p->meters_ns || now_ns - p->meters_ns >= METER_MS * NS_PER_MS) {
        p->meters_ns = now_ns;
        for (size_t i = 0; i < p->count; i++)
            put_meter(p, i, now_ns, now_ms);
    }
    for (size_t i = 0; i < p->count; i++) {
        note_meter(p, i, now_ms);
        note_other(p, i, now_ns, now_ms);
    }
}

struct power_range points_power(const struct points *p, uint64_t now_ns)
{
    struct power_range sum = {0};

    for (size_t i = 0; i < p->count; i++) {
        const struct device *d = &p->device[i];

        if (!counts(p, d))
            continue;
        if (!device_power_known(d, now_ns))
            return (struct power_range){0};
        sum.uw = add_sat(sum.uw, d->power.uw);
        sum.low_uw = add_sat(sum.low_uw, d->power.low_uw);
        sum.high_uw = add_sat(sum.high_uw, d->power.high_uw);
        sum.basis = POWER_MEASURED;
    }
    return sum;
}

uint64_t points_total_uj(const struct points *p)
{
    return area_total(p).uj;
}

void points_take(struct points *p, uint64_t now_ns, struct points_news *ret)
{
    *ret = (struct points_news){.total_uj = points_total_uj(p), .known = p->count > 0};
    for (size_t i = 0; i < p->count; i++) {
        struct device *d = &p->device[i];

        if (!counts(p, d))
            continue;
        ret->known &= !device_silent(d, now_ns);
        ret->hole |= d->hole;
        ret->span_ns = d->span_ns > ret->span_ns ? d->span_ns : ret->span_ns;
        d->hole = false;
        d->span_ns = 0;
    }
}

uint64_t points_other_uw(const struct points *p, uint64_t now_ns)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < p->count; i++) {
        const struct device *d = &p->device[i];
        bool lately = !d->power_ns && now_ns < p->other[i].before_until_ns;

        if (d->config->covers_other)
            sum = add_sat(sum, steers(d, now_ns)    ? d->power.high_uw
                               : lately             ? p->other[i].before_uw
                               : d->config->most_uw ? d->config->most_uw
                                                    : d->peak_uw);
    }
    return sum;
}

bool points_other_known(const struct points *p, uint64_t now_ns)
{
    if (now_ns - p->begun_ns >= NEW_NS)
        return true;
    for (size_t i = 0; i < p->count; i++) {
        const struct device *d = &p->device[i];

        if (d->config->covers_other && !d->peak_uw && !d->config->most_uw && !d->power_ns)
            return false;
    }
    return true;
}
