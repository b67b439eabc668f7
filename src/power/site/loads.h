/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watts that an area's other loads (lights, a fridge) take from its cap before the rest is
 * divided. A rise counts at once; a fall only when it has lasted for half a minute, so that leases
 * do not follow each reading. Pure; any thread; times are monotonic. Used by src/unit.
 */
#pragma once

#include <stdint.h>

#define LOADS_FALL_NS (30 * UINT64_C(1000000000))

struct loads {
    uint64_t held_uw;  /* what counts */
    uint64_t most_uw;  /* largest reading since since_ns */
    uint64_t since_ns; /* begin of the present half minute; 0: no reading yet */
};

/* Takes what the loads draw at most at @now_ns. Returns what counts: never less than that. */
uint64_t loads_hold(struct loads *l, uint64_t uw, uint64_t now_ns);
