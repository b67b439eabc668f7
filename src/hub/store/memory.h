/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The newest totals of points, so that a record is stored without a question to the database.
 * Private to this room; store.c forgets all of them when a transaction fails.
 */
#pragma once

#include "hub/store/store_state.h"

int memory_new(struct memory **ret);
struct memory *memory_free(struct memory *m); /* takes NULL, returns NULL */

/* NULL: not remembered. Valid until the next call. */
struct known *memory_find(struct memory *m, const char *unit, const char *point);
/* Remembers it, in place of others when there are too many. */
void memory_put(struct memory *m, const char *unit, const char *point, const struct known *k);
void memory_forget(struct memory *m);
