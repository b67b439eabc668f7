/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The price of a kWh by the time of the week. Pure; any thread. Used by src/edge, src/unit and
 * src/hub.
 */
#pragma once

#include "power/calendar/window.h"

#define CURRENCY_MAX       8 /* "EUR" */
#define POLICY_TARIFFS_MAX 32

/* The first window that is open counts, else the price of every other time. */
struct policy_tariff {
    char currency[CURRENCY_MAX]; /* "": none */
    uint64_t milli;              /* thousandths per kWh outside of all windows */
    struct {
        struct window window;
        uint64_t milli;
    } window[POLICY_TARIFFS_MAX];
    uint32_t count;
};

/* Thousandths per kWh at that time; UINT64_MAX without a tariff. */
uint64_t tariff_price(const struct policy_tariff *t, const struct zone *const *zone, int64_t utc_s);
