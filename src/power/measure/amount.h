/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Amounts of power and energy as people, files and meters write them: "120 W", "1.2kW", "0.35 kWh",
 * "83200 mW". Pure; any thread.
 */
#pragma once

#include <stdint.h>

enum amount_kind {
    AMOUNT_PLAIN, /* a number without a unit */
    AMOUNT_POWER,
    AMOUNT_ENERGY
};

/*
 * Reads one amount and nothing else but blanks around it. *ret_micro: µW, µJ, or for a plain number
 * its millionths. Units: uW mW W kW MW, uJ mJ J kJ MJ Wh kWh MWh. Digits beyond the millionth are
 * cut. Returns 0, -EINVAL (no amount: negative, "nan", "1e3", another unit) or -ERANGE.
 */
int amount_parse(const char *text, uint64_t *ret_micro, enum amount_kind *ret_kind);
