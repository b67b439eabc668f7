/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides a job's target over its processes, measured at their heartbeats, with split.h. Daemon's
 * event loop only; called by decision.c, agent.c and the views.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct job;
struct process;

/*
 * Divides the job's wanted threads over the processes without a target of their own, at least 1
 * each. A change without a new target gets a row in the job's changes.
 */
void apportion_divide(struct job *j);

/* A process with pools reported: asks for a decision if another apportionment fits better. */
void apportion_heartbeat(struct process *p, uint64_t now_ns);

/* The process's recent use in thousandths of a core; false: not measured. */
bool apportion_used(const struct process *p, uint32_t *ret_milli);

/* Number of processes that share the target, and whether some get less than one thread. */
uint32_t apportion_count(const struct job *j);
bool apportion_short(const struct job *j);
