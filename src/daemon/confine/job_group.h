/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's control group below the daemon's own: made in a controller when first needed, and removed
 * after the job. A process that is exiting keeps its group for a while, so removal is tried in
 * steps between turns of the loop. Owns job.placed.groups and process.moved. Daemon's event loop
 * only; called by actuate.c and freezer.c.
 */
#pragma once

#include "base/error.h"
#include "host/cgroup/cgroup.h"

struct daemon;
struct job;
struct job_groups;
struct process;

/* The groups that are still to be removed. Returns 0 or -errno. */
int job_groups_new(struct daemon *d, struct job_groups **ret);
struct job_groups *job_groups_free(struct job_groups *g); /* takes NULL, returns NULL */

void job_group_name(const struct job *j, char ret_name[CGROUP_NAME_MAX]);

/*
 * Makes the job's group in @controller (enum cgroup_controllers) and moves its processes in, if
 * that is not done yet. Returns 0 or -errno.
 */
int job_group_enter(struct job *j, unsigned controller, struct error *err);

/* Moves a process that joins into the groups of its job. */
void job_group_add(struct process *p);

void job_group_remove(struct job *j);

/* A quota of a power cap on all groups together; 0: none. Remembers it and when it changed. */
void job_groups_note_quota(struct job_groups *g, uint32_t mcpu);
uint32_t job_groups_quota(const struct job_groups *g);
/* Agents see that quota as their own, and for a moment after it was lifted. Takes NULL. */
bool job_groups_seem_limited(const struct job_groups *g);
