/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's power: reads the sensors, turns them into one account of energy, and divides it
 * among the jobs by CPU time × frequency. Looks at processes are usage.c's: there is no second one.
 *
 * The best working source that sees the whole machine counts: a file that a person named,
 * a meter whose readings are handed down, a board's sensor, psys. Else the packages and their
 * memory are a lower bound of it, else a model makes it up from the load, else it is unknown. While
 * a source that was there is missing, and between readings of a slow one, what its readings taught
 * stands in for it (power/model/stand_in.h).
 *
 * Daemon's event loop only; driven by daemon.c, read by the views.
 */
#pragma once

#include "base/error.h"
#include "daemon/energy/handed.h"
#include "daemon/energy/ledger.h"
#include "host/power/sensors.h"
#include "power/measure/range.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;
struct job_observer;
struct meter;
struct stand_in;
struct watts;

extern const struct job_observer meter_observer;

/* The last look. */
struct meter_now {
    uint64_t time_ns;           /* of the last reading; 0: none */
    struct power_range machine; /* mean since the one before */
    struct energy_range total;  /* since the account of energy began */
    uint64_t gap_ns;
    bool sensed;                    /* a source told `machine`, of the same time as the load */
    bool stood_in;                  /* … or what it had taught did */
    uint32_t load_mcpu, other_mcpu; /* busy cores × speed; what of it is no job's */
    uint32_t speed_permille;        /* of all CPUs */
    bool fast;                      /* its source tells something new every 200 ms */
    bool slow;                      /* … or what was a minute ago: nothing is steered by it */
    bool brief;                     /* of the time since the last meter_pace(), not a division */
    uint64_t packages_uw;           /* what power limits reach, in the last division's time … */
    bool packages_known;            /* … where sensors tell it */
};

/* A source, for people. */
struct meter_source {
    struct sensor sensor;
    struct sensor_reading reading; /* the last one; time_ns 0: none yet */
    uint64_t total_uj, gap_ns;     /* since the daemon began */
    uint64_t uw;                   /* mean between the last two readings … */
    bool known;                    /* … where it is known */
    bool used;                     /* it counts for the machine at present */
};

/* Finds the sensors that d->config names. Returns 0, or -errno with *err for a person. */
int meter_new(struct daemon *d, struct meter **ret, struct error *err);
struct meter *meter_free(struct meter *m); /* takes NULL, returns NULL */

/* At each tick of a daemon with jobs. @looked: usage_look() has just measured the jobs. */
void meter_tick(struct meter *m, bool looked);

/*
 * Between ticks, for a cap that binds: reads a fast source and the machine's load once more.
 * Divides nothing. Returns false where there is no such source.
 */
bool meter_pace(struct meter *m);

/* Without a tick (no jobs) the meter reads by itself, as seldom as its counters' wraps allow. */
void meter_rest(struct meter *m, bool resting);

/* Reads now, if the last reading is a second old: for a person who asks while the meter rests. */
void meter_refresh(struct meter *m);

const struct meter_now *meter_now(const struct meter *m); /* borrowed; of the last reading */
const struct ledger *meter_ledger(const struct meter *m); /* borrowed */
size_t meter_sources(const struct meter *m, struct meter_source *ret, size_t max);

/*
 * The figures that a caller may see. Where one other user's job runs, the machine's watts are that
 * job's: so @live only for those who may have every job's, and the state at the end of the last
 * LEDGER_WINDOW_NS for everybody else.
 */
struct meter_told {
    struct meter_now now;
    struct ledger ledger;
    size_t sources;
    struct meter_source source[SENSORS_MAX];
};

void meter_tell(const struct meter *m, bool live, struct meter_told *ret);

/*
 * The machine's curve: it tells idling and the bounds of jobs, and all power where no source is.
 * Copied. Nothing known (count 0): idling is unknown.
 */
void meter_model(struct meter *m, const struct watts *w);

/* The model that readings taught. Borrowed; whoever stores it may fill it in before the first
 * tick. */
struct stand_in *meter_stand_in(struct meter *m);

/* For the packages' power limits. Borrowed. */
const struct sensors *meter_sensors(const struct meter *m);

/* Takes a reading that was handed down. Returns 0, or as handed_take(). */
int meter_handed(struct meter *m, const struct handed_reading *r, struct error *err);

/* The account of energy goes on from an earlier daemon's; a gap stands for the time without one. */
void meter_resume(struct meter *m, const struct ledger *before);
