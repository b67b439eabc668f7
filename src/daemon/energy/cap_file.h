/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of caps and of the learnt curve in the state directory. A person's cap outlives a
 * reboot, until its end by the wall clock; a lease of another boot has ended: a breaker's floor is
 * what is left of it. Private to this room.
 */
#pragma once

#include "power/cap/caps.h"

struct daemon;
struct stand_in;

/* Writes all caps but the configuration's. Returns 0 when they are in place, or -errno. */
int cap_file_save(const struct daemon *d, const struct caps *caps);

/* Reads them. A file that is damaged is told of and ignored. */
void cap_file_load(const struct daemon *d, struct caps *ret);

/*
 * The fit that readings of the configured sources taught. Best effort: a daemon without the file
 * learns anew.
 */
void cap_fit_save(const struct daemon *d, const struct stand_in *learnt);
void cap_fit_load(const struct daemon *d, struct stand_in *ret);
