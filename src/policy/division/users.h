/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine is shared among users first, then among the jobs of each user. The policy decides for
 * each user as if no other user were there, on the cores that this user may have.
 *
 * Users share the cores in proportion to their weights, in whole cores. A user who can use fewer
 * leaves the rest to the others, in the same proportion. Cores that rounding leaves go to the
 * largest remainders, then to the user with the older job. A pin by an administrator (granted)
 * comes first and is no part of its user's share. If cores of a share stay idle, because a large
 * rigid job does not fit or one of the user's jobs lends them, the other users may have them, the
 * longest waiting first. Loans are between jobs of one user.
 *
 * Minima and pins of a user's jobs count up to the user's share: beyond it, minima become one core
 * each and pins become maxima. A running job that cannot change keeps its cores at the cost of its
 * user's other jobs. Memory, parameter servers and workers are not divided, because no running job
 * gives them back.
 *
 * Cores are divided at the root domain. Pure; called by the registry alone.
 */
#pragma once

#include "policy/core/policy.h"

/*
 * True if the division must look at users: several have a job that wants cores, or one has a limit.
 * If not, *ret_user is the only user with jobs (or 0).
 */
bool users_share(const struct policy_snapshot *snapshot, uint32_t *ret_user);

/* Adds the needs of this stage to @room, which holds the policy's needs for all jobs at once. */
void users_room(const struct policy *policy, const struct policy_snapshot *snapshot,
                struct policy_room *room);

/*
 * Returns the state that the last plan left for @user, or the whole state if that plan did not look
 * at users. Borrowed from the snapshot.
 */
const void *users_state(const struct policy_snapshot *snapshot, uint32_t user, size_t *ret_size);

/* Decides for all users and joins their plans. Works as policy->decide; applies the gate. */
int users_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                 struct policy_plan *plan);
