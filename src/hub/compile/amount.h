/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Amounts as people write them in a power policy: "1200 W", "90 kWh/day", "50 %". Whole numbers
 * of the smallest unit come out, without a rounding error. Any thread, no state.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "power/calendar/tariff.h"

#define AMOUNT_TEXT_MAX 40

/* Each returns 0 or -EINVAL. Amounts above RULE_AMOUNT_MAX are refused. */
int amount_power(const char *text, uint64_t *ret_uw);       /* mW, W, kW, MW */
int amount_budget(const char *text, uint64_t *ret_uj);      /* Wh/day, kWh/day, MWh/day */
int amount_share(const char *text, uint64_t *ret_permille); /* 0 % to 100 %, in tenths */
int amount_carbon(const char *text, uint64_t *ret_g);       /* g/kWh */

/* "0.25 EUR/kWh", in thousandths; the currency has to be @currency. */
int amount_price(const char *text, const char *currency, uint64_t *ret_milli);

/* The other way round, for messages: "800 W", "1.25 kW", "90 kWh/day", "50 %". */
void amount_power_text(uint64_t uw, char ret[AMOUNT_TEXT_MAX]);
void amount_budget_text(uint64_t uj, char ret[AMOUNT_TEXT_MAX]);
void amount_share_text(uint64_t permille, char ret[AMOUNT_TEXT_MAX]);
