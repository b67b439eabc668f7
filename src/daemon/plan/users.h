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

/*
 * Decides what each job has of the cores of `tide pin` (job->wanted.kept): as many as its part of
 * its user's share, and none that a job of another user keeps. Pins of administrators come first
 * and are not cut.
 */
void users_keep_cores(struct daemon *d);

/* Whether it is pinned to cores, rather than to what it has without a fence. */
bool users_pins_cores(const struct job *j);

/* Whether what it is pinned to decides its cores: not if other users keep all of them. */
bool users_keeps_cores(const struct job *j);

/*
 * Whether @j may be pinned to @cores without an administrator: not if a job of another user keeps
 * one of them. Returns 0, or -EPERM with *err.
 */
int users_check_cores(const struct job *j, const struct cpuset *cores, struct error *err);

/* The threads of `tide set`, cut to that part. */
struct threads users_pinned_threads(const struct job *j);
