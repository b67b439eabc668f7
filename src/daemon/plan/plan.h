/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings the machine to what was decided: describes jobs to settle(), which knows the order of a
 * transaction, and carries out what that says. Owns the timer of shrinks that are not acknowledged.
 * Daemon's event loop only; called by the top level, agent.c, control.c, routes.c and containers.
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

/* Decides, carries out what can be done now and arms the timer for the rest. */
void plan_make(struct daemon *d);
/* The same for an order that waits: without regard for what resizes cost. */
void plan_make_now(struct daemon *d);

/* Does what can be done now, and arms the timer for the rest. */
void plan_advance(struct daemon *d);

/* A process of @j acknowledged or left, or its container's engine answered. */
void plan_acknowledged(struct job *j);

/* A request's deadline passed: do not wait for @j's shrink any longer, it is oversubscribed. */
void plan_give_up(struct job *j);

/* Weights, claims: what nobody waits for. Run when the loop is idle. */
void plan_finish(struct daemon *d);
