/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of a job beyond its share: lent by idle.c, or given by its promise of latency
 * (promises.c), never both. Only reads. Called by decision.c, idle.c, promises.c, view.c and
 * chronicle.c.
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

/* Those lent ones that it has now. */
uint32_t beyond_extra(const struct job *j);

/* The job whose promise gives it threads now, which lower this one's weight; or NULL. */
struct job *beyond_yields_to(const struct job *j);

/* The policy's reason for the job's share, the threads beyond it, and to whom it yields. */
#define BEYOND_REASON_MAX 256
void beyond_reason(const struct job *j, char ret_reason[BEYOND_REASON_MAX]);
