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

/* Grows the buffer *line of *room bytes if all are @used. Returns 0, -EMSGSIZE or -ENOMEM. */
int decider_make_room(char **line, size_t *room, size_t used);

/*
 * The question: one line with its newline, allocated; NULL: out of memory. @equal is the plan of
 * `equal` for the snapshot: it says how many cores each user may have.
 */
char *decider_question(const struct policy_snapshot *snapshot, const struct policy_plan *equal);

/*
 * Reads the answer of @size bytes, without its newline. *ret_cores has the cores of each job of the
 * snapshot; 0: the answer does not name it. Returns 0, -ESTALE (it answers another snapshot) or
 * -EBADMSG, with *err.
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

/* ---- an answer that stays in force, for daemons that do not wait for the next one ---- */

/* A job of an accepted answer, which had a choice between these bounds. */
struct decider_kept {
    uint64_t id;
    int64_t least_mcpu, most_mcpu;
    int64_t cores;
};

/*
 * Checks that @cores name each job of the snapshot that has a choice, within its bounds, and no
 * other, and writes them as decider_keep() takes them; *ret_kept has room for all jobs. Returns
 * their number, or -EBADMSG with *err.
 */
int decider_accept(const struct policy_snapshot *snapshot, const int64_t *cores,
                   struct decider_kept *ret_kept, struct error *err);

/*
 * Fits an answer to a snapshot that came after its own: *ret_cores has the cores of
 * each job that is still there, has a choice and has the bounds that it had; 0 for the others,
 * which get at least their minimum. Where these leave no room for that, jobs of the answer give
 * cores up, one by one, first the one that has most above its minimum; those of a user who has too
 * many before the others. @equal is the plan of `equal` for the snapshot. Returns 1 if every job
 * with a choice has the cores of the answer, 0 if not, -ENOMEM.
 */
int decider_keep(const struct policy_snapshot *snapshot, const struct policy_plan *equal,
                 const struct decider_kept *kept, size_t count, int64_t *ret_cores);

/*
 * As decider_apply(), but jobs with a choice and 0 cores get what `equal` gives them beside the
 * others.
 */
int decider_apply_kept(const struct policy_snapshot *snapshot, const int64_t *cores,
                       struct policy_plan *plan, struct error *err);

/* The policy that decides where the decider does not. */
const struct policy *decider_fallback(void);
