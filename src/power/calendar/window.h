/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of the week in local time: `Mon-Fri 18:00-23:00 America/Argentina/Buenos_Aires`. Pure;
 * any thread. Used by src/power/rules, src/unit and src/hub.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "power/calendar/zone.h"

#define WINDOW_DAY_MIN  1440
#define WINDOW_TEXT_MAX 96

struct window {
    uint8_t days;              /* bit 0: Monday; the day on which the window begins */
    uint16_t from_min, to_min; /* minutes of the day; to <= from: the window ends on the next day */
    uint32_t zone;             /* index among the zones of who reads it */
};

/* Checks a window that came from a file or a message. Returns 0 or -EINVAL. */
int window_check(const struct window *w, uint32_t zones);

/*
 * Reads "Mon-Fri 18:00-23:00", "Sat,Sun 00:00-24:00" or "22:00-06:00" (every day) from the
 * beginning of
 * @text. Returns 0, with the number of characters read, blanks behind them included (a zone's name
 * may follow), or -EINVAL with the offset of the first character that does not fit. w->zone is 0.
 */
int window_parse(const char *text, size_t *ret_read, struct window *ret);

/* A local time that occurs twice is open twice, one that does not occur is open never. */
bool window_open(const struct window *w, const struct zone *z, int64_t utc_s);

/* The next moment at which it opens or closes, at most 8 days ahead. */
int64_t window_edge(const struct window *w, const struct zone *z, int64_t utc_s);
