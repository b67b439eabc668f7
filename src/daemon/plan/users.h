/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Users share the machine before their jobs do: finds the users and their weights (tide.conf), and
 * limits a job whose user's share is less than its jobs ask for. Daemon's event loop only; called
 * by decision.c and by modules that take orders.
 */
#pragma once

#include "base/error.h"
#include "daemon/job/job.h"
#include "policy/core/policy.h"

#include <stdint.h>

struct daemon;

/*
 * Sets the user of each of @count jobs of a snapshot (@job: the daemon's jobs). @users has room for
 * @count. Returns the number of users.
 */
uint32_t users_fill(const struct daemon *d, struct job *const *job, uint32_t count,
                    struct policy_job *jobs, struct policy_user *users);

/* Takes up the plan's decision on the job's user. */
void users_take_up(struct job *j, const struct policy_decision *decision);

/* The most cores that all jobs of a user may have; UINT32_MAX: no limit. */
uint32_t users_most(const struct daemon *d, uid_t uid);

/* Adds up the cores of each user's jobs; called after all jobs were taken up. */
void users_add_up(struct daemon *d);

/* Whether the user's jobs have more cores than the user's share: then no core is exclusive. */
bool users_over(const struct job *j);

/*
 * The weight of a job of @cores cores. All jobs of a user over its share weigh together as much as
 * that share.
 */
uint32_t users_weight(const struct job *j, uint32_t cores);

/* The cores of `tide pin`, cut to the job's part of its user's share. */
struct cpuset users_kept_cores(const struct job *j);

/* The threads of `tide set`, cut to that part. */
struct threads users_pinned_threads(const struct job *j);
