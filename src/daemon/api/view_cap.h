/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON of power caps, and what their routes share (routes_cap.c). Daemon's event loop only; called
 * by the routes.
 */
#pragma once

#include "power/cap/caps.h"

#include <jansson.h>
#include <stdbool.h>

struct daemon;
struct error;
struct request;

/* The cap in force, whether it is kept, all caps that stand, and the curve behind them. */
json_t *view_cap(const struct daemon *d);

/* Takes a whole number from @min to @max; absent or null: *ret stays. False: answered with the
 * error. */
bool request_take_amount(struct request *r, const char *key, uint64_t min, uint64_t max,
                         uint64_t *ret);

/* Carries out what cap_set() has set, where @e is 0, and answers: 200, or 202 while jobs shrink. */
void request_answer_cap(struct request *r, int e, const struct error *err);
