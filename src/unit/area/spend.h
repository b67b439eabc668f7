/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The energy that the area used today, against its budget (power/calendar/budget.h). A day begins
 * at midnight of a zone. In time without a measurement the area counts as drawing all that it may.
 * Kept on the disk, so that a restart forgets nothing of the day. The event loop's thread;
 * area/policy.c calls it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "power/calendar/zone.h"
#include "unit/config.h"

struct spend {
    char path[CONFIG_PATH_MAX + 16];
    int64_t day_s, end_s; /* the day's beginning and end; 0: none yet */
    uint64_t used_uj;     /* measured since the day began */
    uint64_t unseen_uj;   /* assumed for times without a measurement: all that the area may draw */
    uint64_t gap_uj;      /* the same, since the present silence of a meter began */
    uint64_t lent_uj;     /* what the day comes to by today's last lease; 0: there was none */
    uint64_t total_uj;    /* of the area's meters, when used_uj was right */
    uint64_t seen_ns, stored_ns;
    bool begun; /* total_uj is of this process, or of the disk */
};

void spend_open(struct spend *s, const char *state_dir);

/*
 * Once a second. @total_uj: what the area's meters ever counted. @known: they tell what it draws;
 * otherwise it counts as drawing @cap_uw. @zone NULL: the day of UTC. A clock that is set back
 * does not begin the day anew.
 */
void spend_tick(struct spend *s, const struct zone *zone, int64_t utc_s, uint64_t total_uj,
                bool known, uint64_t cap_uw, uint64_t now_ns);

uint64_t spend_used_uj(const struct spend *s);
