/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies themselves, one file each. Pure data and functions. Only the registry uses this
 * header; all other code finds a policy by its name.
 */
#pragma once

#include "policy/core/policy.h"

extern const struct policy policy_deadline;
extern const struct policy policy_equal;
extern const struct policy policy_fcfs;
extern const struct policy policy_hesrpt;
extern const struct policy policy_makespan;
extern const struct policy policy_power_cap;
extern const struct policy policy_priority;
extern const struct policy policy_response;
extern const struct policy policy_round_robin;
extern const struct policy policy_throughput;
extern const struct policy policy_weighted;
