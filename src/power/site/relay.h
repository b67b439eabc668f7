/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a relay may be switched now: minimum times on and off, what always stays on, and a bound
 * on changes per hour, which also catches a relay that chatters by itself. Pure; any thread; times
 * are monotonic. Used by src/unit.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RELAY_MOST_PER_HOUR 60

enum relay_answer { RELAY_SWITCH, RELAY_LATER, RELAY_NEVER, RELAY_ALREADY };

struct relay {
    bool on, known; /* as the relay last said */
    bool always_on;
    uint32_t min_on_s, min_off_s;
    uint32_t most_per_hour; /* 0: RELAY_MOST_PER_HOUR */
    uint32_t changes;       /* since hour_ns */
    uint64_t changed_ns, hour_ns;
    uint64_t ordered_ns; /* the last order that it has not answered; 0: none */
};

/*
 * RELAY_SWITCH: send the order; relay_is() will tell what came of it. RELAY_LATER: ask again at
 * *ret_later_ns (UINT64_MAX: when it has told its state for the first time). RELAY_NEVER: it stays
 * on by configuration, or it changed too often: not before *ret_later_ns (UINT64_MAX: never).
 */
enum relay_answer relay_ask(struct relay *r, bool on, uint64_t now_ns, uint64_t *ret_later_ns);

/* The relay says how it is. Returns true for a change. */
bool relay_is(struct relay *r, bool on, uint64_t now_ns);
