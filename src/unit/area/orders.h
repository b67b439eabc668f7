/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ids of commands that came, so that none is carried out twice: not when a broker repeats it,
 * not after a restart. Each is on the disk before it is carried out. When there are many, those go
 * whose end was an hour ago. The event loop's thread; area/site.c calls it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define ORDERS_MAX 512

struct orders;

/* A file that cannot be read is told in the log and counts as empty. Returns 0 or -ENOMEM. */
int orders_open(const char *state_dir, struct orders **ret, struct error *err);
void orders_close(struct orders *o); /* takes NULL */

bool orders_known(const struct orders *o, const char *id);

/*
 * Returns 0. Otherwise it is not noted: -E2BIG: there are too many whose end was not an hour ago;
 * or -errno of the disk.
 */
int orders_note(struct orders *o, const char *id, uint64_t until_ms, uint64_t wall_ms);
