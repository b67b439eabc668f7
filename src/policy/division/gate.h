/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The switching gate: a plan may change how many cores running jobs have only if that pays.
 *
 * A resize is optional if its job could stay as it is. If the rest of the plan still works without
 * all optional resizes, they must be worth it together:
 *
 *   sum over jobs of worth * (speed then - speed now) * horizon  >  factor * sum of worth * speed
 *                                                                   now * cost of a resize
 *
 * The horizon is the time until the first of these jobs is expected to end; a job of unknown work
 * is expected to run as long again as it has run. Nor may a job shrink within a minimum dwell after
 * its last change. If either test fails, each job whose growth pays for itself still grows into
 * unused cores: the cores of a departed job are taken at once.
 *
 * The gate never holds up a resize that must be: for a start, a changed bound, pin or capacity, a
 * deadline, lent cores, or a snapshot that says at_once. Then the plan passes as a whole, because
 * its parts may depend on each other.
 *
 * A policy asks for the gate by having GATE_PARAMS among its parameters; policy_decide() does the
 * rest. A policy that aims at something else than the weighted sum of its jobs' speeds sets the
 * worth in its decisions. Pure; called by the registry alone.
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
     .text = "a change of running jobs must gain this many times its cost"},                       \
    {                                                                                              \
        .name = "dwell", .min = 0, .max = INT64_C(3600000000000), .def = INT64_C(1000000000),      \
        .unit = "ns", .text = "how long after a change a job keeps its cores, where possible"      \
    }

/* The number of GATE_PARAMS. */
#define GATE_PARAM_COUNT 2

/* Adds the gate's needs to @room, if the policy asks for the gate. */
void gate_room(const struct policy *policy, const struct policy_snapshot *snapshot,
               struct policy_room *room);

/* Takes back the resizes that do not pay from a policy's new plan. */
void gate_apply(const struct policy *policy, const struct policy_snapshot *snapshot,
                struct policy_plan *plan);
