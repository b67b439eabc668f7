/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what Kueue says of each training, in the Workload that the controller made for it. */
#include "kube/view/view.h"

#include <stdio.h>
#include <string.h>

void kube_workload_name(const struct kube_etj *etj, char ret[KUBE_NAME_MAX + 1])
{
    snprintf(ret, KUBE_NAME_MAX + 1, "etj-%s-%.8s", etj->meta.name, etj->meta.uid);
}

/* Whether the controller makes @workload for @etj: whoever may write Workloads, in any namespace,
 * can name @etj as the owner of another. */
static bool is_of(const struct kube_workload *workload, const struct kube_etj *etj)
{
    char name[KUBE_NAME_MAX + 1];

    kube_workload_name(etj, name);
    return strcmp(workload->meta.name, name) == 0 &&
           strcmp(workload->meta.namespace, etj->meta.namespace) == 0;
}

void queue_find(struct core *c)
{
    const struct kube_world *w = c->world;
    struct name_map etjs;

    core_map(c, &c->workload_by_owner, w->workload_count);
    core_map(c, &etjs, w->workload_count ? w->etj_count : 0);
    for (uint32_t i = 0; i < w->etj_count && w->workload_count && !c->error; i++)
        name_map_put(&etjs, w->etjs[i]->meta.uid, i);
    for (uint32_t i = 0; i < w->workload_count && !c->error; i++) {
        const char *uid = w->workloads[i]->owner_uid;
        uint32_t owner = uid ? name_map_get(&etjs, uid) : NOWHERE;

        if (owner != NOWHERE && is_of(w->workloads[i], w->etjs[owner]))
            name_map_put(&c->workload_by_owner, uid, i);
    }
}

const struct kube_workload *queue_workload(const struct core *c, const struct kube_etj *etj)
{
    uint32_t i = name_map_get(&c->workload_by_owner, etj->meta.uid);

    return i == NOWHERE ? NULL : c->world->workloads[i];
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
