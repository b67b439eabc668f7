/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The switching gate: a plan may change how many cores running jobs have only if that pays.
 *
 * A resize is optional if its job could stay as it is. If all optional resizes can be left out at
 * once, with everything else that the plan does still done, they have to be worth it together:
 *
 *   sum over jobs of worth * (speed then - speed now) * horizon  >  factor * sum of worth * speed
 *                                                                   now * cost of a resize
 *
 * The horizon is how long the first of them is expected to go on; one whose work is not known, as
 * long again as it has run. And nobody is shrunk within a minimum dwell after its last change. When
 * that fails, jobs still grow, each if it pays for itself, into cores that nobody uses: those that
 * a departed job has left are taken at once.
 *
 * What cannot be left out - a start needs the cores, a bound, pin or capacity changed, a deadline,
 * lent cores - is never held up, nor is a snapshot that says at_once. Then the plan is made as it
 * is, as any part of it may rest on the rest.
 *
 * A policy asks for the gate by having GATE_PARAMS among its parameters; policy_decide() does the
 * rest. Where its aim is not the sum of its jobs' speeds by weight, it sets the worth in its
 * decisions. Pure; called by the registry alone.
 */
#pragma once

#include "policy/core/policy.h"

#include <stdbool.h>

#define GATE_PARAMS                                                                                \
    {.name = "switch-factor",                                                                      \
     .min = 0,                                                                                     \
     .max = 1000,                                                                                  \
     .def = 2,                                                                                     \
     .unit = "",                                                                                   \
     .text = "its cost that a change of running jobs must save"},                                  \
    {                                                                                              \
        .name = "dwell", .min = 0, .max = INT64_C(3600000000000), .def = INT64_C(1000000000),      \
        .unit = "ns", .text = "no job is shrunk so soon after a change, if that can wait"          \
    }

/* How many parameters that are. */
#define GATE_PARAM_COUNT 2

/* Adds what the gate needs, if the policy asks for it. */
void gate_room(const struct policy *policy, const struct policy_snapshot *snapshot,
               struct policy_room *room);

/* Takes back the resizes of a plan, fresh from the policy, that do not pay. */
void gate_apply(const struct policy *policy, const struct policy_snapshot *snapshot,
                struct policy_plan *plan);
