/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The energy that the area used today, against its budget (power/calendar/budget.h). A day begins
 * at midnight of a zone. In time without a measurement the area counts as drawing all that it may.
 * The event loop's thread; area/policy.c calls it.
 *
 * Each day has an account. Those of the last few days are kept, on the disk, too: when a clock that
 * was wrong is set right, or a unit starts again, the account of the day that comes again goes on,
 * with all energy of the time between. No step of the clock gives a day's budget twice.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "power/calendar/zone.h"
#include "unit/area/points.h"
#include "unit/config.h"

#define SPEND_DAYS 3

struct spend_day {
    int64_t begin_s;    /* 0: nobody knew yet which day it was */
    uint64_t used_uj;   /* measured since the day began */
    uint64_t unseen_uj; /* assumed for times without a measurement: all that the area may draw */
    uint64_t lent_uj;   /* what the day comes to by its last lease; 0: there was none */
    uint64_t total_uj;  /* of the area's meters, when used_uj was right */
};

struct spend {
    char path[CONFIG_PATH_MAX + 16];
    struct spend_day day[SPEND_DAYS]; /* today, and the days that were looked at before */
    int64_t end_s;                    /* today's */
    uint64_t gap_uj;                  /* as unseen_uj, since the present silence of a meter began */
    bool hole;                        /* the energy of a part of this silence is lost */
    uint64_t seen_ns, stored_ns;
    bool begun; /* total_uj is of this process, or of the disk */
};

void spend_open(struct spend *s, const char *state_dir);

/*
 * Once a second, with news of the meters. While one of them is silent, the area counts as drawing
 * @cap_uw, until that one is back and tells what it was, or that it does not know. @utc_s 0: nobody
 * knows which day it is, and the last one goes on. @zone NULL: the day of UTC.
 */
void spend_tick(struct spend *s, const struct zone *zone, int64_t utc_s,
                const struct points_news *news, uint64_t cap_uw, uint64_t now_ns);

uint64_t spend_used_uj(const struct spend *s);
