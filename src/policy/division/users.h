/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine is shared by users first, then by the jobs of each: the policy decides for every user
 * as if nobody else were there, on as many cores as that user may have.
 *
 * Users share the cores in proportion to their weights, in whole cores; who can use less than that
 * leaves the rest to the others, in the same proportion. What rounding leaves goes to the largest
 * remainders, then to whoever has the older job. A pin by an administrator (granted) comes first
 * and is no part of its user's share. Cores that the policy leaves idle on one user's share, as a
 * large rigid job does not fit, are offered to the others, those that have waited longest first.
 *
 * What a user's jobs insist on - minima, pins - counts up to the user's share: beyond it, minima
 * become one core each and pins become maxima. A running job that cannot change keeps its cores,
 * which then is at the cost of its user's other jobs. Memory, parameter servers and workers are
 * not divided: nobody gives them back while they run.
 *
 * Cores are divided at the root domain. Pure; called by the registry alone.
 */
#pragma once

#include "policy/core/policy.h"

/*
 * Whether users have to be told apart: several have a job that wants cores, or one has a limit.
 * Where not, *ret_user is the only one that has jobs (or 0).
 */
bool users_share(const struct policy_snapshot *snapshot, uint32_t *ret_user);

/* Adds to @room, which is what the policy needs for all jobs at once, what this stage needs. */
void users_room(const struct policy *policy, const struct policy_snapshot *snapshot,
                struct policy_room *room);

/*
 * The state that the last plan has left for @user: the whole, if users were not told apart then.
 * Borrowed from the snapshot.
 */
const void *users_state(const struct policy_snapshot *snapshot, uint32_t user, size_t *ret_size);

/* Decides for all users and joins their plans. As policy->decide; the gate is applied. */
int users_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                 struct policy_plan *plan);
