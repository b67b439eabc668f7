/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon does to a job's cores: affinity of its threads, or a control group of its own
 * with cpuset, weight and quota where the daemon may make one and the processes may be moved. The
 * guardian knows every original before it is changed.
 * Daemon's event loop only; called by plan.c (writes) and tick (drift).
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"
#include "host/cgroup/cgroup.h"

#include <stdbool.h>
#include <stdint.h>

struct job;
struct process;
struct node;

/* Notes the limits that a process has by itself, and puts it under its job's fence. */
void actuate_observe(struct process *p);
void actuate_forget_process(struct process *p);
void actuate_forget(struct job *j); /* gives back whatever is in place for the job */

/* The same of a job that goes on: it becomes a container, or stops being one. */
void actuate_release(struct job *j);

/* The name of the job's control group. */
void actuate_group(const struct job *j, char ret_name[CGROUP_NAME_MAX]);

/*
 * Makes the job's group in @controller (enum cgroup_controllers) and moves its processes in, if
 * that is not done yet. Returns 0 or -errno.
 */
int actuate_enter(struct job *j, unsigned controller, struct error *err);

/* An empty set takes the fence away. Returns 0, or -errno with the job's note filled in. */
int actuate_cores(struct job *j, const struct cpuset *cores);
int actuate_quota(struct job *j, uint32_t quota_mcpu);
void actuate_weight(struct job *j, uint32_t weight);

/* The heartbeats' allowance: true if that of the job changed. */
bool actuate_allowance(struct job *j);

/* Somebody else changed an affinity: it is the new original. True if something was found. */
bool actuate_drift(struct job *j);

/* The daemon's end: everything back. */
void actuate_restore_all(struct node *n);
