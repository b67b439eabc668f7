/* SPDX-License-Identifier: Apache-2.0 */
/* Reads power from the output of programs. Pure; any thread; used by program.c and tests. */
#pragma once

#include <stdint.h>

/*
 * Finds the first line that is an amount and nothing else: "83.2" or "83.2 W" is a power, "12.5
 * kWh" a counter; amounts above INT64_MAX are none. Returns 1 for a power (*ret in µW), 2 for an
 * energy (µJ), or -ENOENT.
 */
int printed_amount(const char *text, uint64_t *ret);

/*
 * Reads ipmitool's answer to "dcmi power reading" (the line "Instantaneous power reading: N
 * Watts"), or to "sdr get NAME" of a sensor in watts (the line "Sensor Reading : N (+/- M) Watts").
 * Returns 0 with µW, -ENODATA (the controller has none now), or -ENOENT (no such line).
 */
int printed_ipmi(const char *text, uint64_t *ret_uw);

/* The last line that is not blank, without its end: the reason that a program gives. Cuts at @size.
 * Control characters become spaces. */
void printed_reason(const char *text, char *ret, unsigned size);
