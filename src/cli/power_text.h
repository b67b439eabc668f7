/* SPDX-License-Identifier: Apache-2.0 */
/* Power and energy of the daemon's answers as texts. Null is unknown, and shown as "-". Pure. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/* @uw, micro-watts: "83.5 W", "1.21 kW", "450 mW", "0 W". */
void text_power(const json_t *uw, char *buf, size_t size);

/* @uj, micro-joules: "12.3 J", "4.21 Wh" from a Wh on, "1.21 kWh". */
void text_energy(const json_t *uj, char *buf, size_t size);

/* Bounds: "4.1 to 4.9 Wh", in the unit of the upper one. */
void text_energy_bounds(const json_t *low_uj, const json_t *high_uj, char *buf, size_t size);
