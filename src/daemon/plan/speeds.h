/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's CPUs as decisions see them: cores, NUMA nodes and groups of one speed.
 *
 *   sysfs ─▶ topology ─▶ groups in the snapshot ─▶ plan: so many of each speed for a job ─▶
 *   cores_assign() with the same groups
 *
 * Daemon's event loop only; called by decision.c.
 */
#pragma once

#include "policy/core/cores.h"
#include "policy/core/policy.h"

struct daemon;
struct job;

/* Describes every CPU. Those that are made up (--cpus) are fast cores of the first NUMA node. */
void speeds_of_cpus(const struct daemon *daemon, struct cores_machine *ret);

/* Counts the usable CPUs of each speed, the fastest first. Returns how many speeds there are. */
uint32_t speeds_of_machine(const struct daemon *daemon, struct policy_speed ret[POLICY_SPEEDS_MAX]);

/* Adds to the job's reason how many of its cores are slow ones, where it has cores of its own. */
void speeds_explain(struct job *job);
