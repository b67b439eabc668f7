/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cores of several speeds: which of them a job gets that has cores of its own (policy_job.fenced).
 *
 *   plan: cores for each job ─▶ speed that is due to each ─▶ cores, fastest first, each to the user
 *   and then to the job that is furthest behind ─▶ exchanges after which both jobs are faster
 *
 * Under a policy whose shares are equal by its parameter `hybrid`, speed is due in proportion to
 * weights, first to users, then to their jobs, and a job with slower cores gets more of them. Under
 * every other policy the number of cores stays, and each job gets its part of the fast ones. Nobody
 * is ahead of another by more than one core, and the first fast cores go to jobs whose curves say
 * that they use a core best.
 *
 * Jobs on shared cores keep their number: Linux moves their threads over what is left to them. With
 * cores of one speed, without fenced jobs, and when jobs have less than a core each, nothing
 * happens. Pure; called by the registry alone, after the switching gate.
 */
#pragma once

#include "policy/core/policy.h"

/* A parameter of policies whose shares are equal. */
#define SPEEDS_PARAM                                                                               \
    {                                                                                              \
        .name = "hybrid", .max = 1, .def = 0, .unit = "",                                          \
        .text = "what is shared equally where cores differ in speed",                              \
        .names = (const char *const[])                                                             \
        {                                                                                          \
            "speed", "count"                                                                       \
        }                                                                                          \
    }

/* Adds the needs of this stage to @room. */
void speeds_room(const struct policy_snapshot *snapshot, struct policy_room *room);

/* Says for each fenced job of the plan how many cores of each speed it gets. */
void speeds_apply(const struct policy *policy, const struct policy_snapshot *snapshot,
                  struct policy_plan *plan);
