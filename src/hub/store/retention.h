/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock by which the hub lets old records go. A machine's clock may jump by years (a dead
 * battery, a forged time server), and rows that went do not come back; a hub without a network has
 * nobody to ask. So this clock never goes back, is never ahead of the machine's, and runs at most
 * twice as fast as the time that the hub sees pass: it falls behind a jump, and behind the time in
 * which the hub was off, and catches up by and by. It lies in a file of the hub's directory; an
 * administrator who removes that says that the machine's clock is right. Event loop's thread; used
 * by src/hub/serve.
 */
#pragma once

#include "hub/store/store.h"

#include <limits.h>

#define RETENTION_FILE  "retention"
#define RETENTION_SPEED 2

struct retention {
    char path[PATH_MAX];
    int64_t at_ms;     /* its time */
    int64_t stored_ms; /* as the file has it; 0: there is none yet */
    uint64_t seen_ns;  /* up to when it has run, by CLOCK_BOOTTIME */
};

/*
 * Reads the file in @dir. Without it the clock begins with the newest record of the store, or at
 * @now_ms if there is none. Returns 0, or -errno of the store.
 */
int retention_begin(struct retention *r, const char *dir, struct store *s, int64_t now_ms,
                    uint64_t boot_ns, struct error *err);

/* Lets the clock run up to @boot_ns. Pure. */
void retention_step(struct retention *r, int64_t now_ms, uint64_t boot_ns);

/*
 * The same, at least once a minute; keeps the file, and begins anew if it was removed. Returns 0,
 * or -errno of file or store: the clock runs all the same.
 */
int retention_run(struct retention *r, struct store *s, int64_t now_ms, uint64_t boot_ns,
                  struct error *err);

/* The time by which records are old, at @now_ms of the machine's clock. */
int64_t retention_ms(const struct retention *r, int64_t now_ms);
