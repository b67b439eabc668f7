/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A day's energy as a cap of this hour. The rest of the day's energy is spread over the remaining
 * hours by their weights: equal ones (flat), or more where a tariff or the grid's carbon intensity
 * is low. Pure; any thread. Used by src/unit for its own area, by src/hub for areas of several
 * units:
 *
 *   the units' records of today, in the hub's store, and their last leases for what is not told yet
 *   -> used_uj of the area -> budget_cap_uw() -> the cap of a group of leases (hub/tree/caps.c)
 *   -> each unit's lease, by demand.
 *   Without the hub, a unit's last lease is its part of what is left of that day
 *   (budget_of_cap_uj()), and on later days it has the part that the policy says (rules.h, alone).
 */
#pragma once

#include <stdint.h>

#define BUDGET_HOURS 26 /* of the longest local day, in Antarctica */

struct budget {
    uint64_t day_uj, used_uj; /* allowed for the day; used since it began */
    uint64_t floor_uw;
    uint16_t weight[BUDGET_HOURS];  /* of each hour since the day began */
    int64_t begin_utc_s, end_utc_s; /* zone_day() */
};

/*
 * Energy left × this hour's weight / weighted seconds left, at least the floor. The floor, too,
 * when nothing is left or the day is over.
 */
uint64_t budget_cap_uw(const struct budget *b, int64_t now_utc_s);

/*
 * The inverse: the energy of which the rest of the day would have this cap now. Where caps of
 * several add up to no more than budget_cap_uw(), what this gives adds up to no more than is left.
 * 0: the day is over.
 */
uint64_t budget_of_cap_uj(const struct budget *b, int64_t now_utc_s, uint64_t cap_uw);

/* The cap where nobody knows which hour of which day it is, or what was used. */
uint64_t budget_flat_uw(uint64_t day_uj, uint64_t floor_uw);

/*
 * Weights of prices or intensities, one an hour: the cheapest hour gets @spread times the weight of
 * the dearest, others between. An hour without a price (0) counts as a mean one.
 */
void budget_weigh(const uint64_t *price, uint32_t hours, uint16_t spread, uint16_t *ret_weight);
