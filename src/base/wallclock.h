/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of the day for tide-power and tide-hub: what calendars, records and budgets go by.
 * Monotonic times, certificates and tided never go by it. Tests and demonstrations set it by the
 * environment variable TIDE_CLOCK of the program:
 *
 *   START,FACTOR          it was START (seconds since 1970) when the program began, and runs FACTOR
 *                         times as fast (1 to 100000; a fraction is fine)
 *   START,FACTOR,BEGAN    it was START at BEGAN, a real time: the same for several programs, and
 *                         after a restart
 *   …,unsynchronised      nobody vouches for it
 *   /PATH                 a file with one of these, read each time: the clock can jump
 *
 * Any thread after wallclock_begin().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/*
 * Reads TIDE_CLOCK. Returns 0 without it, 1 with it (worth a line in the log), or -EINVAL: it is
 * none of the above. Without this call the time is the real one.
 */
int wallclock_begin(struct error *err);

uint64_t wallclock_ms(void); /* since 1970 */

/* Whether the kernel keeps the clock to a server's; with TIDE_CLOCK, whatever that says. */
bool wallclock_synced(void);
