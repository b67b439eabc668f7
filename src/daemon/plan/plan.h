/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out decisions: describes jobs to settle(), which knows the order of a transaction, and
 * performs the actions that it returns. Owns the timer of unacknowledged shrinks. Daemon's event
 * loop only; called by the top level, agent.c, control.c, routes.c and containers.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct job;
struct daemon;
struct plan;

int plan_new(struct daemon *d, struct plan **ret); /* 0 or -errno */
struct plan *plan_free(struct plan *p);            /* takes NULL, returns NULL */

/* Decides, does what is possible now and arms the timer for the rest. */
void plan_make(struct daemon *d);
/* As plan_run, for an order that waits: ignores what resizes cost. */
void plan_make_now(struct daemon *d);

/* Carries out threads that were changed without a decision: extras on idle cores. */
void plan_retarget(struct daemon *d);

/* Does what is possible now and arms the timer for the rest; nothing in a daemon that ends. */
void plan_advance(struct daemon *d);

/* A process of @j acknowledged or left, or its container's engine answered. */
void plan_acknowledged(struct job *j);

/* A request's deadline passed: stops waiting for @j's shrink, which is oversubscribed. */
void plan_give_up(struct job *j);

/* Weights and machine share, which nobody waits for. Runs when the loop is idle. */
void plan_finish(struct daemon *d);
