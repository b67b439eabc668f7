/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of energy by the tariff of the policy in force. A stretch of time is charged its mean
 * price, in quarters of an hour: within it nobody knows when the energy was used. Any thread;
 * private to this room.
 */
#pragma once

#include "hub/tree/in_force.h"

#include <jansson.h>

/* "EUR"; NULL: there is no tariff. @policy may be NULL, as in the others. */
const char *cost_currency(const struct in_force *policy);

/* In the currency; null without a tariff. */
json_t *cost_of(const struct in_force *policy, double uj, int64_t from_ms, int64_t to_ms);

/* [{from_ms, amount}], each from when a kWh costs that; at most COST_PRICES_MAX. */
#define COST_PRICES_MAX 1000
json_t *cost_prices(const struct in_force *policy, int64_t from_ms, int64_t to_ms);
