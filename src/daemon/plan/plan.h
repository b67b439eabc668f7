/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings the machine to what was decided, in an order that keeps every core with one owner:
 *
 *   lower targets → acknowledged, or deadline → narrow cores and quotas
 *                 → widen them, where nobody still has to leave → raise targets → weights
 *
 * The plan is no list of steps but the difference between what is wanted and what is in place,
 * looked at again whenever something moved; so the latest decision wins by itself.
 * Daemon's event loop only.
 */
#pragma once

#include <stdint.h>

struct job;
struct node;

/* Does what can be done now, and arms the timer for the rest. */
void plan_advance(struct node *n);

/* A process of @j acknowledged or left. */
void plan_acknowledged(struct job *j);

/* A request's deadline passed: do not wait for @j's shrink any longer, it is oversubscribed. */
void plan_give_up(struct job *j);

/* Weights, claims: what nobody waits for. Run when the loop is idle. */
void plan_finish(struct node *n);

/* Sets the timer to the earliest deadline of shrinks and waits. */
void plan_arm_deadline(struct node *n);
