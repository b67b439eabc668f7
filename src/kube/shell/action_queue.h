/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is being worked on, and what has to wait after a failure: a key is begun once at a time, and
 * after each failure in a row not before twice the time, up to a cap. Pure: the caller brings the
 * clock. Event loop's thread; called by act.c, whose keys are UIDs of trainings.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WORK_KEY_MAX 64
#define WORK_BASE_NS (200ull * 1000000)   /* after the first failure … */
#define WORK_CAP_NS  (60ull * 1000000000) /* … and at most */

struct work_queue;

struct work_queue *work_new(uint64_t base_ns, uint64_t cap_ns); /* NULL: out of memory */
struct work_queue *work_free(struct work_queue *q);             /* takes NULL, returns NULL */

/*
 * Whether @key is begun now: then work_end has to follow. False: it is being worked on, or its time
 * has not come (or -ENOMEM); it is remembered that it was wanted.
 */
bool work_begin(struct work_queue *q, const char *key, uint64_t now);

/* Whether work_begin() would begin it. */
bool work_may_begin(const struct work_queue *q, const char *key, uint64_t now);

/* Returns whether it was wanted meanwhile; of a failure work_next_ns() tells when. */
bool work_end(struct work_queue *q, const char *key, bool good, uint64_t now);

/*
 * A round is over in which everything that has something to do was begun: of what was due, and was
 * not, nothing is left to do.
 */
void work_settle(struct work_queue *q, uint64_t now);

/* There is no such thing any more: failures before do not count for one of the same key. */
void work_forget(struct work_queue *q, const char *key);

/* When the first of those that wait may be begun; UINT64_MAX: none waits. */
uint64_t work_next_ns(const struct work_queue *q);

unsigned work_busy(const struct work_queue *q);                      /* begun, not ended */
unsigned work_failures(const struct work_queue *q, const char *key); /* in a row */
