/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the cluster that a training may use: free room on nodes, the pods that a node admits,
 * the rest of quotas and disruption budgets.
 *
 * Event loop's thread; used by grow/ and core/.
 */
#pragma once

#include "kube/view/view.h"

/* node_capacity.c */
void room_build(struct core *c);
void room_count_trainings(struct core *c); /* takes room for trainings' pods without a node */
void room_count_elastic(struct core *c);   /* the room if all trainings shrank to their minima */
/* How many pods of the role could be added if other trainings shrank to their minima; <= @most. */
int64_t room_count(const struct core *c, const struct job *job, enum kube_role role, int64_t most);
/* Takes room for one more pod, on a node and in the quotas. */
bool room_take(struct core *c, struct job *job, enum kube_role role, uint32_t *ret_node);
void room_give_back(struct core *c, struct job *job, enum kube_role role, uint32_t node);
const char *room_lack(const struct job *job); /* the reason after room_take() has failed */
bool room_in(const struct kube_amount *free, const struct kube_amount *need);
bool room_powered(const struct node_capacity *capacity, const struct kube_task *task);
/* How often the node has @extras, at most @most. */
int64_t room_extras(const struct node_capacity *capacity, const struct kube_extras *extras,
                    int64_t most);
void room_take_extras(struct node_capacity *capacity, const struct kube_extras *extras,
                      int64_t times);

/* demand.c: what a training's pods ask of their node beyond their template */
void demand_build(struct core *c);
void demand_move(struct job *job, const char *zone, bool required); /* servers, workers and chief */
/*
 * The demand of a pod that room_take() has counted on the node: on no other node that watts bind,
 * and rather there than elsewhere while they bind any. It lives as long as the plan.
 */
const struct kube_demand *demand_of(struct core *c, const struct job *job, enum kube_role role,
                                    uint32_t node);
/* The value of the job's topology key on a node; NULL: it has none. */
const char *demand_zone_of(const struct job *job, const struct node_capacity *capacity);

/* node_admits.c; @more: of a training's pod, NULL: none */
bool place_admits(const struct kube_place *place, const struct kube_demand *more,
                  const struct node_capacity *capacity);
/* The same, of a node that may be away for a while: taints of Kubernetes' own do not count. */
bool place_suits(const struct kube_place *place, const struct kube_demand *more,
                 const struct node_capacity *capacity);
const char *label_value(const struct kube_labels *labels, const char *key); /* NULL: none */
bool labels_match(const struct kube_labels *labels, const struct kube_term *term, const char *name);

/* quota_scope.c: what quotas leave; the first four look at spec.quota and the queue alone */
int64_t quota_workers(const struct job *job, int64_t most); /* room beside the servers */
int32_t quota_servers(const struct job *job, int32_t most); /* room beside the minimum of workers */
int64_t quota_mcpu(const struct job *job); /* for all workers; INT64_MAX: no limit */
bool quota_allows(const struct job *job, enum kube_role role); /* one more pod now */
/* How much more its workers may request in place, by spec.quota and the namespace's quotas. */
int64_t quota_more_mcpu(const struct job *job);
void quota_take_mcpu(struct job *job, int64_t mcpu);
/* Takes so much of the quotas' limits.cpu alone; false: there is not so much. */
bool quota_take_limit(struct job *job, int64_t mcpu);

/* disruption_budget.c: PodDisruptionBudgets */
void budget_build(struct core *c);
bool budget_take(struct core *c, const struct kube_pod *pod);
bool budget_allows(const struct core *c, const struct kube_pod *pod); /* whether @pod may leave */
