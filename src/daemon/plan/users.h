/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The users among whom the machine is shared before their jobs are: who they are, by what weight
 * (tide.conf), and what follows for a job whose user has been given less than its jobs ask for.
 * Daemon's event loop only; called by decision.c, and by whoever takes orders.
 */
#pragma once

#include "base/error.h"
#include "daemon/job/job.h"
#include "policy/core/policy.h"

#include <stdint.h>

struct daemon;

/*
 * Sets the user of each of @count jobs of a snapshot, where @job holds the daemon's. @users has
 * room for as many. Returns how many there are.
 */
uint32_t users_fill(const struct daemon *d, struct job *const *job, uint32_t count,
                    struct policy_job *jobs, struct policy_user *users);

/* What the plan says of the job's user. */
void users_take_up(struct job *j, const struct policy_decision *decision);

/* Adds up what each user's jobs have; after all jobs were taken up. */
void users_add_up(struct daemon *d);

/* The user's jobs have more cores together than the user has: no core is one job's alone then. */
bool users_over(const struct job *j);

/*
 * The weight of a job of @cores cores: jobs of a user that is over weigh, all together, no more
 * than the user's cores.
 */
uint32_t users_weight(const struct job *j, uint32_t cores);

/* The cores of `tide pin`, as many of them as the job's share of its user's cores allows. */
struct cpuset users_kept_cores(const struct job *j);

/* The threads of `tide set`, as many of them as that share allows. */
struct threads users_pinned_threads(const struct job *j);
