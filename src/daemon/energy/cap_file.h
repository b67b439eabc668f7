/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of caps in the run directory. A cap of another boot has ended: a breaker's floor is what
 * is left of it. Private to this room.
 */
#pragma once

#include "power/cap/caps.h"

struct daemon;

/* Writes all caps but the configuration's. Returns 0 when they are in place, or -errno. */
int cap_file_save(const struct daemon *d, const struct caps *caps);

/* Reads them. A file that is damaged is told of and ignored. */
void cap_file_load(const struct daemon *d, struct caps *ret);
