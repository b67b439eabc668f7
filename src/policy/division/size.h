/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimates a job's remaining work, for the policies that go by it. A job of unknown size is
 * expected to run as long again as it has run, and for some time at least: in practice, jobs that
 * have run long go on long (Harchol-Balter and Downey 1997).
 *
 * Pure; used by policies alone.
 */
#pragma once

#include "policy/core/policy.h"

/* Defines the policy's parameter @unknown_ns of the functions. */
#define SIZE_PARAM(index)                                                                          \
    [index] = {.name = "unknown",                                                                  \
               .min = 1,                                                                           \
               .max = INT64_C(31536000000000000),                                                  \
               .def = INT64_C(60000000000),                                                        \
               .unit = "ns",                                                                       \
               .text = "work assumed for a new job of unknown size"}

static inline uint64_t size_left_ns(const struct policy_job *job, int64_t unknown_ns)
{
    if (job->remaining_ns != POLICY_UNKNOWN)
        return job->remaining_ns;
    return job->run_ns > (uint64_t)unknown_ns ? job->run_ns : (uint64_t)unknown_ns;
}
