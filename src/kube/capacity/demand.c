/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Demands of a training's pods on their node beyond their template: to be close to their chief
 * (spec.topology), no node with GPUs that they do not ask for, no node that its watts bind but
 * their own, and the nodes that a queue gives.
 */
#include "kube/capacity/capacity.h"

#include <string.h>

#define HOSTS_MAX 256 /* nodes with GPUs, or bound by watts, that a pod's affinity names */

/* ---- closeness ------------------------------------------------------------------------------- */

const char *demand_zone_of(const struct job *job, const struct node_capacity *capacity)
{
    return label_value(&capacity->node->labels, job->etj->topology_key);
}

/* The value that a pod without a node was made for; NULL: none, or it is only preferred. */
static const char *zone_wanted(const struct job *job, const struct kube_pod *pod)
{
    for (uint32_t t = 0; t < pod->place.term_count; t++)
        for (uint32_t i = 0; i < pod->place.terms[t].count; i++) {
            const struct kube_requirement *need = &pod->place.terms[t].at[i];

            if (!need->field && need->op == KUBE_IN && need->value_count == 1 &&
                strcmp(need->key, job->etj->topology_key) == 0)
                return need->values[0];
        }
    return NULL;
}

static const char *zone_of(const struct core *c, const struct job *job,
                           const struct replica *replica)
{
    const struct kube_pod *pod = replica->pod;
    uint32_t node = pod && pod->node ? name_map_get(&c->node_by_name, pod->node) : NOWHERE;

    if (node != NOWHERE)
        return demand_zone_of(job, &c->nodes[node]);
    return pod && !pod->node ? zone_wanted(job, pod) : NULL;
}

/* The chief's zone; while it has none, as before it is made anew, that of the first replica. */
static const char *find_zone(const struct core *c, const struct job *job)
{
    const char *zone = job->chief ? zone_of(c, job, job->chief) : NULL;

    for (uint32_t i = 0; i < job->replica_count && !job->chief && !zone; i++)
        if (replica_stays(&job->replicas[i]))
            zone = zone_of(c, job, &job->replicas[i]);
    return zone;
}

void demand_move(struct job *job, const char *zone, bool required)
{
    job->zone = zone;
    memset(job->cursor, 0, sizeof(job->cursor));
    for (int role = 0; role < KUBE_ROLE_MAX; role++) {
        job->demand[role].topology_key = zone ? job->etj->topology_key : NULL;
        job->demand[role].topology_value = zone;
        job->demand[role].topology_required = zone && required;
    }
}

/* A chief that is nowhere by this label has no workers beside it: "" is no node's zone. */
static void build_topology(struct core *c, struct job *job)
{
    bool required = job->etj->closeness == KUBE_REQUIRE;
    const char *zone = find_zone(c, job);

    if (!zone && required && job->chief && job->chief->pod)
        zone = "";
    demand_move(job, zone, required);
}

/* ---- flavors --------------------------------------------------------------------------------- */

static void add_place(struct kube_label *labels, struct kube_toleration *tolerations,
                      struct kube_demand *more, const struct kube_place *place)
{
    for (uint32_t i = 0; i < place->selector.count; i++)
        labels[more->selector_count++] = place->selector.at[i];
    for (uint32_t i = 0; i < place->toleration_count; i++)
        tolerations[more->toleration_count++] = place->tolerations[i];
}

/* Each flavor once: those of cores and of memory are mostly the same. */
static bool is_first(const struct kube_assignment *a, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (strcmp(a->flavors[i], a->flavors[at]) == 0)
            return false;
    return true;
}

/* Nodes that the queue has given to the role. */
static void build_flavors(struct core *c, struct job *job, enum kube_role role)
{
    const struct kube_assignment *a = &job->workload->assignment[role];
    uint32_t labels = a->place.selector.count, tolerations = a->place.toleration_count;
    struct kube_demand *more = &job->demand[role];
    struct kube_toleration *tolerated;
    struct kube_label *selector;

    for (uint32_t i = 0; i < a->flavor_count; i++) {
        labels += queue_flavor(c, a->flavors[i])->place.selector.count;
        tolerations += queue_flavor(c, a->flavors[i])->place.toleration_count;
    }
    selector = core_alloc(c, labels, sizeof(*selector));
    tolerated = core_alloc(c, tolerations, sizeof(*tolerated));
    if (c->error)
        return;
    add_place(selector, tolerated, more, &a->place);
    for (uint32_t i = 0; i < a->flavor_count; i++)
        if (is_first(a, i))
            add_place(selector, tolerated, more, &queue_flavor(c, a->flavors[i])->place);
    more->selector = selector;
    more->tolerations = tolerated;
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static bool asks_for_gpu(const struct core *c, const struct kube_task *task)
{
    for (uint32_t e = 0; e < task->extras.count; e++)
        for (uint32_t g = 0; g < c->settings->gpu_count; g++)
            if (task->extras.at[e].amount > 0 &&
                strcmp(task->extras.at[e].name, c->settings->gpus[g]) == 0)
                return true;
    return false;
}

/*
 * A pod that only nodes with GPUs would ever take, by its template, may use them. Those that its
 * affinity has to name are the ones that would take it, too: mostly a taint keeps it off.
 */
static void build_gpus(struct core *c, struct job *job, enum kube_role role)
{
    const struct kube_place *place = &job_task(job, role)->place;
    struct kube_demand *more = &job->demand[role];
    const char **hosts = core_alloc(c, HOSTS_MAX, sizeof(*hosts));
    bool others = false;

    if (!hosts || asks_for_gpu(c, job_task(job, role)))
        return;
    more->hosts = hosts;
    for (uint32_t i = 0; i < c->node_count; i++) {
        const struct node_capacity *capacity = &c->nodes[i];
        const char *host = label_value(&capacity->node->labels, KUBE_LABEL_HOSTNAME);

        if (!place_suits(place, more, capacity))
            continue;
        others |= !capacity->gpu;
        if (capacity->gpu && !capacity->gpu_told && host && more->host_count < HOSTS_MAX)
            hosts[more->host_count++] = host;
    }
    more->no_gpus = others;
    more->gpus = c->settings->gpus;
    more->gpu_count = c->settings->gpu_count;
}

/* ---- watts ----------------------------------------------------------------------------------- */

/* Names nodes other than @node whose watts bind; @powered: they allow one more such pod, or not. */
static uint32_t name_bound(const struct core *c, const struct job *job, enum kube_role role,
                           uint32_t node, bool powered, uint32_t count, const char **ret_hosts)
{
    const struct kube_task *task = job_task(job, role);

    for (uint32_t i = 0; i < c->node_count && count < HOSTS_MAX; i++) {
        const struct node_capacity *capacity = &c->nodes[i];
        const char *host = label_value(&capacity->node->labels, KUBE_LABEL_HOSTNAME);

        if (i != node && host && capacity->unpowered_mcpu > 0 &&
            room_powered(capacity, task) == powered &&
            place_admits(&task->place, &job->demand[role], capacity))
            ret_hosts[count++] = host;
    }
    return count;
}

/*
 * The scheduler knows requests alone, and would spread pods evenly over nodes with many and with
 * few watts: on a node that watts bind, only those that are counted there.
 */
const struct kube_demand *demand_of(struct core *c, const struct job *job, enum kube_role role,
                                    uint32_t node)
{
    struct kube_demand *more = c->capped ? core_alloc(c, 1, sizeof(*more)) : NULL;
    const char **hosts = more ? core_alloc(c, HOSTS_MAX, sizeof(*hosts)) : NULL;

    if (!hosts)
        return &job->demand[role];
    *more = job->demand[role];
    more->host = label_value(&c->nodes[node].node->labels, KUBE_LABEL_HOSTNAME);
    more->bound = hosts;
    more->taken_count = name_bound(c, job, role, node, false, 0, hosts);
    more->bound_count = name_bound(c, job, role, node, true, more->taken_count, hosts);
    return more;
}

void demand_build(struct core *c)
{
    bool gpus = false;

    for (uint32_t i = 0; i < c->node_count; i++)
        gpus |= c->nodes[i].gpu;
    for (uint32_t j = 0; j < c->job_count && !c->error; j++) {
        struct job *job = &c->jobs[j];

        for (int role = 0; role < KUBE_ROLE_MAX && job->queue == QUEUE_ADMITTED; role++)
            build_flavors(c, job, (enum kube_role)role);
        for (int role = 0; role < KUBE_ROLE_MAX && gpus && !job->etj->gpu_nodes; role++)
            build_gpus(c, job, (enum kube_role)role);
        if (job->etj->topology_key)
            build_topology(c, job);
    }
}
