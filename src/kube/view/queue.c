/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what Kueue says of each training, in the Workload that the controller made for it. */
#include "kube/view/view.h"

#include <string.h>

void queue_find(struct core *c)
{
    const struct kube_world *w = c->world;

    core_map(c, &c->workload_by_owner, w->workload_count);
    for (uint32_t i = 0; i < w->workload_count && !c->error; i++)
        if (w->workloads[i]->owner_uid && strncmp(w->workloads[i]->meta.name, "etj-", 4) == 0)
            name_map_put(&c->workload_by_owner, w->workloads[i]->owner_uid, i);
}

const struct kube_workload *queue_workload(const struct core *c, const struct kube_etj *etj)
{
    uint32_t i = name_map_get(&c->workload_by_owner, etj->meta.uid);
    const struct kube_workload *workload = i == NOWHERE ? NULL : c->world->workloads[i];

    return workload && strcmp(workload->meta.namespace, etj->meta.namespace) == 0 ? workload : NULL;
}

const struct kube_flavor *queue_flavor(const struct core *c, const char *name)
{
    for (size_t i = 0; i < c->world->flavor_count; i++)
        if (strcmp(c->world->flavors[i]->meta.name, name) == 0)
            return c->world->flavors[i];
    return NULL;
}

static bool flavors_are_known(const struct core *c, const struct kube_workload *workload)
{
    for (int role = 0; role < KUBE_ROLE_MAX; role++)
        for (uint32_t i = 0; i < workload->assignment[role].flavor_count; i++)
            if (!queue_flavor(c, workload->assignment[role].flavors[i]))
                return false;
    return true;
}

enum queue_state queue_state(const struct core *c, const struct kube_etj *etj)
{
    const struct kube_workload *workload = queue_workload(c, etj);

    if (!*etj->queue || c->world->kueue == KUBE_KUEUE_ABSENT)
        return QUEUE_NONE;
    if (c->world->kueue == KUBE_KUEUE_UNKNOWN)
        return QUEUE_UNKNOWN;
    /* an admission of what it asked for before is none */
    if (!workload || workload->asks != etj->asks || !workload->admitted || workload->evicted ||
        workload->finished || workload->meta.deleted_ns)
        return QUEUE_WAITS;
    return flavors_are_known(c, workload) ? QUEUE_ADMITTED : QUEUE_UNKNOWN;
}

int32_t queue_most(const struct job *job, enum kube_role role)
{
    if (job->queue != QUEUE_ADMITTED || job->workload->assignment[role].count < 0)
        return INT32_MAX;
    return job->workload->assignment[role].count;
}
