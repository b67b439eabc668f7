/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large a training is: what pays, how many of what, and the pods that come, shrink and leave.
 *
 * Event loop's thread; used by core/.
 */
#pragma once

#include "kube/capacity/capacity.h"

/* foreign_pods.c: what others wait for is kept free, and our surplus leaves where that is needed */
void foreign_pods_serve(struct core *c);

/* learn.c */
void learn(struct core *c, struct job *job);
void learn_judge(struct core *c, struct job *job); /* whether what was tried pays */
int32_t learn_ps(struct core *c, struct job *job); /* how many parameter servers it should have */
int32_t learn_most(struct core *c, const struct job *job, enum kube_role role); /* that may pay */
int32_t learn_useful(const struct job *job, int32_t workers); /* so many do as much as @workers */
/* The next number that does more; INT32_MAX: there is none. */
int32_t learn_next_useful(const struct job *job, int32_t workers);
/* @want, or what there is, until it is time to grow. */
int32_t learn_step(struct core *c, struct job *job, int32_t want);
void learn_changed(struct core *c, struct job *job, enum kube_role role, int32_t from, int32_t to);
void learn_hold(struct core *c, struct job *job, enum kube_role role, int32_t ceiling);
/* Its speed with 1 … @count workers, in thousandths of one worker's; it must have a model. */
void learn_curve(const struct job *job, uint32_t count, uint32_t *ret_table);
int32_t learn_efficiency(struct core *c, const struct job *job); /* percent; -1: not known */

/* counts.c */
void counts_decide(struct core *c);

/* scale.c: nodes come and go */
bool scale_start(struct core *c, struct job *job); /* all of the least, or nothing */
void scale_create(struct core *c, struct job *job, enum kube_role role, uint32_t node);
void scale_nodes(struct core *c, struct job *job);
void scale_delete(struct core *c, struct job *job, struct replica *replica);
/* Deletes those that have left, have ended or are lost; of all when @everything. */
void scale_clean(struct core *c, struct job *job, bool everything);

/* resize.c */
void resize_nodes(struct core *c, struct job *job);
