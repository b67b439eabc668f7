/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a program outside of Threadtide, the decider, for a plan: a snapshot becomes a line of JSON,
 * its answer, a line of JSON, becomes a plan.
 *
 *   snapshot ─▶ decider_question() ─▶ socket ─▶ decider_read() ─▶ decider_apply() ─▶ plan
 *
 * docs/policies.md describes both lines. No clock and no I/O; any thread.
 */
#pragma once

#include "base/error.h"
#include "policy/core/policy.h"

#include <stddef.h>
#include <stdint.h>

#define DECIDER_VERSION  1
#define DECIDER_LINE_MAX (4u << 20) /* bytes of an answer */

/*
 * The question: one line with its newline, allocated; NULL: out of memory. @equal is the plan of
 * `equal` for the snapshot: it says how many cores each user may have.
 */
char *decider_question(const struct policy_snapshot *snapshot, const struct policy_plan *equal);

/*
 * Reads the answer of @size bytes, without its newline. *ret_cores has the cores of each job of the
 * snapshot; 0: the answer does not name it. Returns 0, or -EBADMSG with *err: it is no answer to
 * this question.
 */
int decider_read(const char *line, size_t size, const struct policy_snapshot *snapshot,
                 int64_t *ret_cores, struct error *err);

/*
 * Decides as the policy `equal`, but with @cores for each job that has a choice. Refuses, as a
 * whole, cores that miss a job's bounds, its user's share or the machine's capacity: -EBADMSG with
 * *err. The plan is then the one of `equal`. Another value below 0: there is no plan, as
 * policy_decide() says. @cores NULL: no answer, so `equal` decides.
 */
int decider_apply(const struct policy_snapshot *snapshot, const int64_t *cores,
                  struct policy_plan *plan, struct error *err);

/* The policy that decides where the decider does not. */
const struct policy *decider_fallback(void);
