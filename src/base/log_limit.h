/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log on stderr that strangers can write into: so many lines in a window of time; of the others
 * the next window tells the number. One thread.
 */
#pragma once

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct log_limit {
    uint64_t window_ns;
    unsigned lines;
};

/* Whether @program may write a line: at most @burst of them in @window_s seconds. */
static inline bool log_limit_takes(struct log_limit *l, const char *program, unsigned burst,
                                   unsigned window_s)
{
    uint64_t now = clock_now_ns();

    if (now - l->window_ns > window_s * NS_PER_S) {
        if (l->lines > burst)
            fprintf(stderr, "%s: %u lines of this log were left out\n", program, l->lines - burst);
        l->window_ns = now;
        l->lines = 0;
    }
    return l->lines++ < burst;
}
