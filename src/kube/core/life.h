/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begins, restarts and ends a training, and reports it to its chief and to people.
 *
 * Event loop's thread; used by reconcile.c.
 */
#pragma once

#include "kube/grow/grow.h"

/* life.c: begin, restart and end of a training */
void life_aim(struct core *c, struct job *job);
void life_act(struct core *c, struct job *job);

/* queueing.c: asks the training's queue, and tells Kueue how it goes */
void queue_act(struct core *c, struct job *job);

/* members.c */
void members_tell(struct core *c, struct job *job);

/* status.c: puts the status first, since the other actions rest on what it reserves */
void status_act(struct core *c, struct job *job, size_t first_action);
