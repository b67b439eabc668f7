/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the table of jobs to what each should have: fills in a policy's snapshot, asks
 * policy_decide(), and writes shares, thread targets, cores, weights and quotas that are wanted
 * into the jobs, with the reason. Changes nothing outside of the daemon.
 * Daemon's event loop only; called by plan.c and the API.
 */
#pragma once

#include "base/error.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stdint.h>

struct decision;
struct job;
struct node;

/* @name NULL: the default policy. Returns 0, -ENOENT or -ENOMEM. */
int decision_new(const char *name, struct decision **ret, struct error *err);
struct decision *decision_free(struct decision *d); /* takes NULL, returns NULL */

const struct policy *decision_policy(const struct decision *d);
int decision_set_policy(struct decision *d, const char *name, struct error *err); /* or -ENOENT */

/* Decides for all jobs. When the policy fails, which is a bug, everything stays; returns -errno. */
int decision_make(struct node *n, uint64_t now);

/* Whether the job takes part in the division of cores. */
bool decision_counts(const struct job *j, uint64_t now);

/* Splits the job's wanted threads over its processes. */
void decision_split(struct job *j);

unsigned decision_capacity(const struct decision *d); /* cores of this daemon, at the last time */
uint64_t decision_next(const struct decision *d);     /* decide again then; POLICY_NEVER */
