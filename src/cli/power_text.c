/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/power_text.h"

#include "base/cleanup.h"

#include <stdio.h>

struct unit {
    double micro;
    const char *name;
};

static const struct unit power_units[] = {{1e12, "MW"}, {1e9, "kW"}, {1e6, "W"}, {1e3, "mW"}};
static const struct unit energy_units[] = {
    {3.6e15, "MWh"}, {3.6e12, "kWh"}, {3.6e9, "Wh"}, {1e6, "J"}};

/* The largest unit of which it is one at least, else the smallest. */
static const struct unit *choose(double micro, const struct unit *units, size_t n)
{
    size_t i = 0;

    while (i + 1 < n && micro < units[i].micro)
        i++;
    return &units[i];
}

/* Three digits; more only before the point. */
static void number(double value, char *buf, size_t size)
{
    snprintf(buf, size, "%.*f", value >= 99.95 || value <= 0 ? 0 : value >= 9.995 ? 1 : 2, value);
}

static void text(const json_t *value, const struct unit *units, size_t n, char *buf, size_t size)
{
    double micro = json_number_value(value);
    const struct unit *unit = choose(micro, units, n);
    char digits[32];

    if (!json_is_number(value)) {
        snprintf(buf, size, "-");
        return;
    }
    if (micro <= 0)
        unit = &units[n - (units == power_units ? 2 : 1)];
    number(micro / unit->micro, digits, sizeof(digits));
    snprintf(buf, size, "%s %s", digits, unit->name);
}

void text_power(const json_t *uw, char *buf, size_t size)
{
    text(uw, power_units, ARRAY_LEN(power_units), buf, size);
}

void text_energy(const json_t *uj, char *buf, size_t size)
{
    text(uj, energy_units, ARRAY_LEN(energy_units), buf, size);
}

void text_energy_bounds(const json_t *low_uj, const json_t *high_uj, char *buf, size_t size)
{
    double low = json_number_value(low_uj), high = json_number_value(high_uj);
    const struct unit *unit = choose(high, energy_units, ARRAY_LEN(energy_units));
    char from[32], to[32];

    if (!json_is_number(low_uj) || !json_is_number(high_uj)) {
        snprintf(buf, size, "-");
        return;
    }
    number(low / unit->micro, from, sizeof(from));
    number(high / unit->micro, to, sizeof(to));
    snprintf(buf, size, "%s to %s %s", from, to, unit->name);
}
