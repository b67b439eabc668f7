/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The area's energy, in records for the outbox: `area` each second, `meter:NAME` each ten. The
 * area is the meter that covers it, else the sum of all meters. The event loop's thread; area.c
 * calls it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "edge/outbox.h"
#include "unit/device/device.h"

struct points;

/* Totals go on where the outbox's last records ended. Borrows devices and outbox. */
int points_new(struct device *device, size_t count, struct outbox *outbox, struct points **ret);
struct points *points_free(struct points *p);

/* Once a second: puts the records that are due. */
void points_tick(struct points *p, uint64_t now_ns, uint64_t now_ms);

/* The area's draw now; POWER_UNKNOWN: no meter tells it, or one of them is not heard. */
struct power_range points_power(const struct points *p, uint64_t now_ns);

/* News of the meters since the last call; one caller. */
struct points_news {
    uint64_t total_uj; /* what the area ever used */
    bool known;        /* none of them is silent */
    bool hole;         /* energy of some of the time before was never told */
    uint64_t span_ns;  /* the longest time of which one reading since then told */
};
void points_take(struct points *p, uint64_t now_ns, struct points_news *ret);

/*
 * The most that the area's other loads (covers = other) draw: the upper bounds of their readings. A
 * meter that is not heard counts with its `most`, else with its largest reading ever.
 */
uint64_t points_other_uw(const struct points *p, uint64_t now_ns);

/* Whether there is a figure for each of them, or none was told for a minute since points_new(). */
bool points_other_known(const struct points *p, uint64_t now_ns);

uint64_t points_total_uj(const struct points *p); /* what the area ever used */
