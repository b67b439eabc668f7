/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of a job beyond its share: lent by idle.c, or given by its promise of latency
 * (promises.c), never both. Reads the job alone. Called by decision.c, idle.c and promises.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct job;

/* Whether it may have some: shared cores, and no order that says how many threads. */
bool beyond_allowed(const struct job *j);

/* Threads that its promise gives it: its user's jobs on the same cores yield to them. */
uint32_t beyond_by_promise(const struct job *j);

/* Threads that it is lent; none while its promise gives it some. */
uint32_t beyond_lent(const struct job *j);
