/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the table of jobs to what each should have: fills in a policy's snapshot, asks
 * policy_decide(), and writes shares, thread targets, cores, weights and quotas that are wanted
 * into the jobs, with the reason. Changes nothing outside of the daemon.
 * Daemon's event loop only; called by plan.c and the API.
 */
#pragma once

#include "base/error.h"
#include "policy/core/policy.h"

#include <stdbool.h>
#include <stdint.h>

struct decision;
struct job;
struct daemon;

/* Begins with the default policy. Returns 0 or -ENOMEM. */
int decision_new(struct decision **ret, struct error *err);
struct decision *decision_free(struct decision *d); /* takes NULL, returns NULL */

/* The policy in force and its parameters. Borrowed; setting copies. */
const struct policy_spec *decision_policy(const struct decision *d);
void decision_set_policy(struct decision *d, const struct policy_spec *spec);

/*
 * policy_spec_parse() for a policy that this daemon can decide by. -ENOTSUP: it goes by watts, of
 * which no source is known here (tide-sim has them from its scenario).
 */
int decision_parse_policy(const char *text, struct policy_spec *ret, struct error *err);

/*
 * Decides for all jobs, with @at_once without regard for what resizes cost. When the policy fails,
 * which is a bug, everything stays; returns -errno with *err.
 *
 * A plan may start, pause and resume submitted jobs and containers. A job of `tide run` has begun
 * by itself: its snapshot says running and not preemptible. A plan that is not valid for the
 * snapshot is refused as a whole, -EPROTO.
 */
int decision_make(struct daemon *d, uint64_t now, bool at_once, struct error *err);

/* Whether the job takes part in the division of cores. */
bool decision_counts(const struct job *j, uint64_t now);

unsigned decision_capacity(const struct decision *d); /* cores of this daemon, at the last time */
uint64_t decision_next(const struct decision *d);     /* decide again then; POLICY_NEVER */
