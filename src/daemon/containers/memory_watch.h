/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The most memory that a container needed in the last ten minutes, and the limit that this asks
 * for. Pure; called by container_memory.c alone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MEMORY_WATCH_MINUTES 10
#define MEMORY_RESERVE_PART  8                    /* of what was needed, … */
#define MEMORY_RESERVE_MIN   (UINT64_C(64) << 20) /* … at least so much */

struct memory_watch {
    uint64_t since_ns; /* the first value of a row without a gap; 0: none yet */
    uint64_t minute;   /* of the clock, that of the last value */
    uint64_t high[MEMORY_WATCH_MINUTES + 1]; /* of each minute, at its number modulo their count */
};

/* @now_ns never goes back. */
void memory_watch_add(struct memory_watch *w, uint64_t bytes, uint64_t now_ns);

/* The highest of the last ten minutes and of what is left of the minute before. 0: none. */
uint64_t memory_watch_high(const struct memory_watch *w, uint64_t now_ns);

/* Whether it has watched for ten minutes. */
bool memory_watch_is_whole(const struct memory_watch *w, uint64_t now_ns);

/*
 * The lowest limit that leaves a reserve above what was needed, in whole MiB. @peak is the most
 * that the kernel has counted in the container's whole life, files included, and serves until ten
 * minutes have been watched; 0: it counts none. Returns 0 while nothing is known.
 */
uint64_t memory_watch_least(const struct memory_watch *w, uint64_t peak, uint64_t now_ns);
