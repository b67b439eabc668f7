/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises of latency (`--slo p99=50ms`): asks the pure stage (policy/core/promise.h) how many
 * cores a job needs for its promise, and puts that into the policy's snapshot as the job's minimum,
 * and as its maximum where others can use the rest. So every policy composes with promises, and
 * users' shares hold. Daemon's event loop only; called by peers/agent.c, the tick and decision.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct job;
struct policy_job;
struct promise_room;

/* After news of a job's requests; decides at once where it needs other cores. */
void promises_look(struct job *j);

/* Once a second: servers that are idle tell nothing. */
void promises_tick(struct daemon *d);

/*
 * Bounds the cores of jobs with a promise, of @count jobs of a snapshot, on @mcpu, as
 * policy/core/promise_room.h says; older promises first, and nobody yields while another user has
 * jobs. @rooms is memory for @count pointers.
 */
void promises_bound(struct job *const *job, struct promise_room **rooms, struct policy_job *policy,
                    uint32_t count, int64_t mcpu);

/* After the policy: nobody yields any more where its plan leaves no room for that. */
void promises_confirm(struct job *const *job, uint32_t count);

/* Whether its promise decides on the job's cores. */
bool promises_bind(const struct job *j);

/* Lowers the wanted weights of jobs that yield, and adds as much to those to which they do. */
void promises_weigh(struct daemon *d);

/*
 * Says what the promise needs instead of the policy's reason for the share, where the two agree and
 * nothing else bounds the share (@bounded), or behind it.
 */
void promises_explain(struct job *j, bool bounded);

/* Writes "its promise p99=50ms needs 2 cores: …", or nothing. Returns @buf. */
#define PROMISES_TEXT_MAX 128
const char *promises_text(const struct job *j, char buf[PROMISES_TEXT_MAX]);
