/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of energy by the tariff of the policy in force, which has one price in each quarter of
 * an hour. A longer stretch of time is charged its mean price: within it nobody knows when the
 * energy was used. Any thread; private to this room.
 */
#pragma once

#include "hub/tree/in_force.h"

#include <jansson.h>

/* "EUR"; NULL: there is no tariff. @policy may be NULL, as in the others. */
const char *cost_currency(const struct in_force *policy);

/* The mean price of a kWh in that time, in thousandths; -1: there is no tariff. */
double cost_price(const struct in_force *policy, int64_t from_ms, int64_t to_ms);

/* The cost of energy that was used evenly in that time, in the currency; 0 without a tariff. */
double cost_of(const struct in_force *policy, double uj, int64_t from_ms, int64_t to_ms);

/* null without a tariff. */
json_t *cost_json(const struct in_force *policy, double cost);

/* [{from_ms, amount}], each from when a kWh costs that; at most COST_PRICES_MAX. */
#define COST_PRICES_MAX 1000
json_t *cost_prices(const struct in_force *policy, int64_t from_ms, int64_t to_ms);
