/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the cluster a training may use: room on nodes, what a node admits, what quotas and
 * disruption budgets leave.
 *
 * Event loop's thread; used by grow/ and core/.
 */
#pragma once

#include "kube/view/view.h"

/* node_capacity.c */
void room_build(struct core *c);
void room_count_trainings(struct core *c); /* what those of their pods need that have no node yet */
void room_count_elastic(struct core *c);   /* what there would be beside minima alone */
/* The most pods of such a role that could be added, up to @most, if others gave way. */
int64_t room_count(const struct core *c, const struct job *job, enum kube_role role, int64_t most);
/* Takes room for one more, on a node and of the quotas. */
bool room_take(struct core *c, struct job *job, enum kube_role role, uint32_t *ret_node);
void room_give_back(struct core *c, struct job *job, enum kube_role role, uint32_t node);
bool room_in(const struct kube_amount *free, const struct kube_amount *need);
bool room_has_extras(const struct node_capacity *capacity, const struct kube_pod *pod);
void room_take_extras(struct node_capacity *capacity, const struct kube_pod *pod);

/* node_admits.c */
bool place_admits(const struct kube_place *place, const struct node_capacity *capacity);
bool labels_match(const struct kube_labels *labels, const struct kube_term *term, const char *name);

/* quota_scope.c: what quotas leave */
int64_t quota_workers(const struct job *job, int64_t most); /* of spec.quota, beside the servers */
int32_t quota_servers(const struct job *job, int32_t most); /* and beside the least of workers */
int64_t quota_mcpu(const struct job *job); /* of it for all workers; INT64_MAX: no limit */
bool quota_allows(const struct job *job, enum kube_role role); /* of it, one more pod now */
/* How much more its workers may ask for in place, of its own quota and the namespace's. */
int64_t quota_more_mcpu(const struct job *job);
void quota_take_mcpu(struct job *job, int64_t mcpu);

/* disruption_budget.c: PodDisruptionBudgets */
void budget_build(struct core *c);
bool budget_take(struct core *c, const struct kube_pod *pod);
bool budget_allows(const struct core *c, const struct kube_pod *pod); /* one more */
