/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes a training: measures which sizes pay, decides how many servers and workers it gets, and
 * creates, resizes and removes their pods.
 *
 * Event loop's thread; used by core/.
 */
#pragma once

#include "kube/capacity/capacity.h"

/* foreign_pods.c: keeps room free for foreign pods that wait; where needed, surplus workers leave
 */
void foreign_pods_serve(struct core *c);

/* learn.c */
void learn(struct core *c, struct job *job);
void learn_judge(struct core *c, struct job *job); /* ends a trial whose outcome is clear */
int32_t learn_ps(struct core *c, struct job *job); /* how many parameter servers it should have */
/* The most pods of @role that may pay. */
int32_t learn_most(struct core *c, const struct job *job, enum kube_role role);
/* The fewest workers that are as fast as @workers. */
int32_t learn_useful(const struct job *job, int32_t workers);
/* The next number of workers that is faster; INT32_MAX: there is none. */
int32_t learn_next_useful(const struct job *job, int32_t workers);
/* The number of workers for now: @want when it is time to grow, else the present number. */
int32_t learn_step(struct core *c, struct job *job, int32_t want);
void learn_changed(struct core *c, struct job *job, enum kube_role role, int32_t from, int32_t to);
void learn_hold(struct core *c, struct job *job, enum kube_role role, int32_t ceiling);
/* The speed with 1 … @count workers, in thousandths of one worker's; the job must have a model. */
void learn_curve(const struct job *job, uint32_t count, uint32_t *ret_table);
int32_t learn_efficiency(struct core *c, const struct job *job); /* in percent; -1: not known */

/* counts.c */
void counts_decide(struct core *c);

/* scale.c: creates and removes the pods of replicas */
/* Takes room for the minimum of each role; returns the node of each pod. NULL: there is no room. */
uint32_t *scale_take_least(struct core *c, struct job *job);
void scale_give_back(struct core *c, struct job *job, const uint32_t *nodes, uint32_t count);
/* Where trainings that wait to begin shall: in the zone with most room for their workers. */
void scale_choose_zones(struct core *c);
bool scale_start(struct core *c,
                 struct job *job); /* creates the minimum of each role, or nothing */
void scale_create(struct core *c, struct job *job, enum kube_role role, uint32_t node);
void scale_nodes(struct core *c, struct job *job);
void scale_delete(struct core *c, struct job *job, struct replica *replica);
/* Deletes pods that have left, have ended or are lost; all but the chief's if @everything. */
void scale_clean(struct core *c, struct job *job, bool everything);

/* start.c: more cores for the start of a worker */
/* The limit of a new worker on @node until it is in the training; 0: the usual one. */
int64_t start_limit(struct core *c, struct job *job, uint32_t node);
bool start_lasts(const struct job *job, const struct replica *replica);
/* The usual limit of a worker that requests @mcpu. */
int64_t start_limit_after(const struct job *job, int64_t mcpu);
void start_end(struct core *c, struct job *job); /* gives back what is no longer needed */
/* The threads of a worker that began with such a limit, which it must not follow; 0: another one.
 */
uint32_t start_threads(const struct job *job, const struct replica *replica);

/* resize.c */
/* Returns whether a request is sent. */
bool resize(struct core *c, struct job *job, struct replica *replica, int64_t mcpu);
void resize_nodes(struct core *c, struct job *job);
