/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PodDisruptionBudgets: a ready pod leaves only if every budget that selects it allows one more
 * disruption. Pods on their way out count as disruptions, as the budgets may not show them yet.
 */
#include "kube/capacity/capacity.h"

#include <string.h>

static bool means(const struct kube_pdb *pdb, const struct kube_pod *pod)
{
    return !pdb->nothing && strcmp(pdb->meta.namespace, pod->meta.namespace) == 0 &&
           labels_match(&pod->labels, &pdb->selector, "");
}

void budget_build(struct core *c)
{
    const struct kube_world *w = c->world;

    c->budget = core_alloc(c, w->pdb_count, sizeof(*c->budget));
    if (!c->budget)
        return;
    for (size_t i = 0; i < w->pdb_count; i++)
        c->budget[i] = w->pdbs[i]->allowed;
    for (uint32_t j = 0; j < c->job_count && w->pdb_count; j++)
        for (uint32_t s = 0; s < c->jobs[j].replica_count; s++) {
            const struct replica *replica = &c->jobs[j].replicas[s];

            for (size_t i = 0; i < w->pdb_count; i++)
                if ((replica->state == POD_LEAVING || replica->state == POD_GOING) &&
                    replica->pod->ready && means(w->pdbs[i], replica->pod))
                    c->budget[i]--;
        }
}

bool budget_allows(const struct core *c, const struct kube_pod *pod)
{
    const struct kube_world *w = c->world;

    for (size_t i = 0; i < w->pdb_count && pod->ready; i++)
        if (means(w->pdbs[i], pod) && c->budget[i] <= 0)
            return false;
    return true;
}

bool budget_take(struct core *c, const struct kube_pod *pod)
{
    const struct kube_world *w = c->world;

    if (!budget_allows(c, pod))
        return false;
    for (size_t i = 0; i < w->pdb_count && pod->ready; i++)
        if (means(w->pdbs[i], pod))
            c->budget[i]--;
    return true;
}
