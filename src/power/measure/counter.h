/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One raw counter of energy, as hardware and meters keep it, made into one that never falls. Real
 * counters wrap, begin anew, stay away for a while, and lie; each costs the energy of one interval,
 * which then counts as a gap and never as 0. Pure; the owner's thread.
 */
#pragma once

#include <stdint.h>

enum counter_news {
    COUNTER_FIRST,   /* nothing to compare with */
    COUNTER_OK,      /* *ret_uj is known */
    COUNTER_WRAPPED, /* *ret_uj is known, across the wrap */
    COUNTER_RESET,   /* it fell, and not by a wrap */
    COUNTER_GAP,     /* too long ago: it may have wrapped, or a meter was away */
    COUNTER_LIE      /* more than anything of its kind can draw */
};

struct counter {
    uint64_t total_uj;   /* since the owner began: never falls */
    uint64_t raw_uj;     /* the last reading … */
    uint64_t time_ns;    /* … and its time; 0: none */
    uint64_t changed_ns; /* when raw_uj last changed: coarse counters stand still, then jump */
    uint64_t wrap_uj;    /* it begins anew there (max_energy_range_uj + 1); 0: never */
    uint64_t most_uw;    /* more than this between two readings is a lie; 0: POWER_UW_MAX */
    uint64_t late_ns;    /* a reading may have been on its way so long: it tells no less truth */
    uint64_t gap_ns;     /* time of which nothing is known, and how often */
    uint64_t gaps;
};

/*
 * Takes a reading of raw µJ. Returns how it was understood; *ret_uj is the energy since the last
 * reading, 0 unless OK or WRAPPED. A pause of more than half the time in which most_uw wraps the
 * counter is a GAP. A fall without a wrap is a RESET: the energy until then is unknown. A reading
 * that is not later than the last one changes nothing. A source that cannot be read for a while
 * needs no call: its counter has gone on, and the next reading brings what it used meanwhile.
 */
enum counter_news counter_read(struct counter *c, uint64_t now_ns, uint64_t raw_uj,
                               uint64_t *ret_uj);

/*
 * Takes a reading of watts, from a source without a counter: a trapezoid between readings at most
 * @max_age_ns apart, else a GAP. @before_uw is the value of the last reading.
 */
enum counter_news counter_watts(struct counter *c, uint64_t now_ns, uint64_t uw, uint64_t before_uw,
                                uint64_t max_age_ns, uint64_t *ret_uj);

/* The longest pause that is no GAP; UINT64_MAX: any. */
uint64_t counter_pause_ns(const struct counter *c);
