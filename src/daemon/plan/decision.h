/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what each job in the table should have: fills in a policy's snapshot, calls
 * policy_decide() (external_decide() where a decider outside is the policy), and writes the wanted
 * shares, targets, cores, weights and quotas into the jobs, with the reason. Changes nothing
 * outside of the daemon. Daemon's event loop only; called by plan/, the API, record/ (chronicle.c,
 * store.c) and daemon.c.
 */
#pragma once

#include "base/error.h"
#include "policy/core/policy.h"

#include <stdbool.h>
#include <stdint.h>

struct decision;
struct job;
struct daemon;

/* Starts with the default policy. Returns 0 or -ENOMEM. */
int decision_new(struct decision **ret, struct error *err);
struct decision *decision_free(struct decision *d); /* takes NULL, returns NULL */

/* The policy in force and its parameters. Borrowed; decision_set_policy copies. */
const struct policy_spec *decision_policy(const struct decision *d);
void decision_set_policy(struct decision *d, const struct policy_spec *spec);

/*
 * Whether this daemon can use it. Returns 0, -ENODATA (it needs the machine's watts, which nothing
 * tells, or a decider) or -EINVAL (a parameter of the simulator alone); *err says what would help.
 */
int decision_check_policy(const struct daemon *d, const struct policy_spec *spec,
                          struct error *err);

/* policy_spec_parse() and that check. */
int decision_parse_policy(const struct daemon *d, const char *text, struct policy_spec *ret,
                          struct error *err);

/*
 * Writes what 0 … @cores cores are worth to the jobs of the last decision (worth_of_cores()); all 0
 * before the first. Returns 0 or -ENOMEM.
 */
int decision_worth(const struct daemon *d, uint32_t cores, uint64_t *ret);

/*
 * Calls @take for each job of the last decision that has fewer cores because of the power cap, with
 * how many: the policy decides twice over the same jobs, with the cap and without it. Returns 0 or
 * -errno of the policy.
 */
typedef void decision_take(void *arg, const struct job *j, uint32_t cores);
int decision_shrunk(const struct daemon *d, decision_take *take, void *arg);

/*
 * Decides for all jobs; @at_once ignores what resizes cost. If the policy fails, which is a bug,
 * everything stays as it is; returns -errno with *err.
 *
 * A plan may start, pause and resume submitted jobs and containers. The snapshot shows a job of
 * `tide run` as running and not preemptible. A plan that is invalid for the snapshot is refused as
 * a whole, -EPROTO.
 */
int decision_make(struct daemon *d, uint64_t now, bool at_once, struct error *err);

/* Whether the job takes part in the division of cores. */
bool decision_counts(const struct job *j, uint64_t now);

/*
 * Threads that the job may have in all, its share included, where idle cores are lent; the share
 * where it may have no more: pinned, rigid, fenced, limited, lending, or in an experiment.
 */
uint32_t decision_most_threads(const struct job *j);

/* Computes the threads of a job anew whose extra threads have changed, with the reason for it. */
void decision_lend(struct job *j, const char *reason);

/* Whether a power cap, or the policy, wants cores unused; then idle ones are not for others. */
bool decision_keeps_idle(const struct daemon *d);

unsigned decision_capacity(const struct decision *d); /* its cores at the last decision */
uint64_t decision_next(const struct decision *d);     /* when to decide again; or POLICY_NEVER */
