/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes' parts of a job's target: what split.h divides, measured at their heartbeats.
 * Daemon's event loop only; called by decision.c, agent.c and the views.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct job;
struct process;

/*
 * Divides the job's wanted threads over the processes that are not set from within, at least 1
 * each; a division that changed by itself gets a row in the job's changes.
 */
void apportion_divide(struct job *j);

/* A process with pools reported: asks for a decision if its job's target should be split anew. */
void apportion_heartbeat(struct process *p, uint64_t now_ns);

/* What it used of late, in thousandths of a core; false: not measured (yet). */
bool apportion_used(const struct process *p, uint32_t *ret_milli);

/* Processes that share the job's target, and whether that is less than one thread for each. */
uint32_t apportion_count(const struct job *j);
bool apportion_short(const struct job *j);
