/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tracks which keys are worked on and which wait after a failure. Work on a key never overlaps, and
 * its delay doubles with each failure in a row, up to a cap. Pure: the caller brings the clock.
 * Event loop's thread; called by act.c, whose keys are UIDs of trainings.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WORK_KEY_MAX 64
#define WORK_BASE_NS (200ull * 1000000)   /* delay after the first failure … */
#define WORK_CAP_NS  (60ull * 1000000000) /* … and the longest */

struct work_queue;

struct work_queue *work_new(uint64_t base_ns, uint64_t cap_ns); /* NULL: out of memory */
struct work_queue *work_free(struct work_queue *q);             /* takes NULL, returns NULL */

/*
 * Begins work on @key; after true work_end() has to follow. False: the key is busy or has to wait,
 * and the queue notes that it is wanted; or out of memory.
 */
bool work_begin(struct work_queue *q, const char *key, uint64_t now);

/* Whether work_begin() would begin it. */
bool work_may_begin(const struct work_queue *q, const char *key, uint64_t now);

/* Returns whether the key was wanted meanwhile. After a failure work_next_ns() tells when it is
 * due. */
bool work_end(struct work_queue *q, const char *key, bool good, uint64_t now);

/*
 * Ends a round that began all pending work: forgets keys that were due and not begun, as nothing is
 * left to do for them.
 */
void work_settle(struct work_queue *q, uint64_t now);

/* The object of @key is gone: its failures do not count for a later one of the same key. */
void work_forget(struct work_queue *q, const char *key);

/* When the first waiting key is due; UINT64_MAX: none waits. */
uint64_t work_next_ns(const struct work_queue *q);

unsigned work_busy(const struct work_queue *q);                      /* begun, not ended */
unsigned work_failures(const struct work_queue *q, const char *key); /* in a row */
