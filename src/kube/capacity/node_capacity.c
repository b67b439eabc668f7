/* SPDX-License-Identifier: Apache-2.0 */
/* Free room: allocatable minus requests on each node, hard minus used in each quota. */
#include "kube/capacity/capacity.h"

#include "base/minmax.h"

#include "policy/division/order.h"

#include <string.h>

static void take(struct kube_amount *from, const struct kube_amount *amount, int64_t times)
{
    from->mcpu -= times * amount->mcpu;
    from->bytes -= times * amount->bytes;
    from->pods -= times * amount->pods;
}

bool room_in(const struct kube_amount *free, const struct kube_amount *need)
{
    return free->mcpu >= need->mcpu && free->bytes >= need->bytes && free->pods >= need->pods;
}

bool room_powered(const struct node_capacity *capacity, const struct kube_task *task)
{
    return capacity->free.mcpu - capacity->unpowered_mcpu >= task->request.mcpu;
}

static int64_t times_in(int64_t free, int64_t each, int64_t most)
{
    if (each <= 0)
        return most;
    return free < each ? 0 : smaller(free / each, most);
}

static int64_t *extra_at(const struct node_capacity *capacity, const char *name)
{
    const struct kube_extras *all = &capacity->node->extras;

    for (uint32_t i = 0; i < all->count; i++)
        if (strcmp(all->at[i].name, name) == 0)
            return &capacity->extras[i];
    return NULL;
}

int64_t room_extras(const struct node_capacity *capacity, const struct kube_extras *extras,
                    int64_t most)
{
    for (uint32_t i = 0; i < extras->count; i++) {
        const int64_t *left = extra_at(capacity, extras->at[i].name);

        most = times_in(left ? *left : 0, extras->at[i].amount, most);
    }
    return most;
}

void room_take_extras(struct node_capacity *capacity, const struct kube_extras *extras,
                      int64_t times)
{
    for (uint32_t i = 0; i < extras->count; i++) {
        int64_t *left = extra_at(capacity, extras->at[i].name);

        if (left)
            *left -= times * extras->at[i].amount;
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool node_goes_first(uint32_t x, uint32_t y, const void *arg)
{
    const struct kube_node *const *nodes = arg;

    return strcmp(nodes[x]->meta.name, nodes[y]->meta.name) < 0;
}

/* Cores of the node beyond those that its watts allow now. */
static int64_t unpowered(struct core *c, const struct kube_node *node)
{
    if (!node->capped || (node->power_until_ns && node->power_until_ns <= c->world->wall_ns))
        return 0;
    if (node->power_until_ns)
        core_wake(c, c->now_ns + node->power_until_ns - c->world->wall_ns);
    return larger(node->allocatable.mcpu - node->power_mcpu, 0);
}

/* GPU operators label their nodes, which may come before the resource does. */
static bool is_told(const struct kube_node *node, const char *resource)
{
    size_t length = strlen(resource);

    for (uint32_t l = 0; l < node->labels.count; l++)
        if (strncmp(node->labels.at[l].key, resource, length) == 0 &&
            strcmp(node->labels.at[l].key + length, ".present") == 0 &&
            strcmp(node->labels.at[l].value, "true") == 0)
            return true;
    return false;
}

static void find_gpus(const struct kube_settings *settings, struct node_capacity *capacity)
{
    for (uint32_t g = 0; g < settings->gpu_count; g++) {
        const int64_t *amount = extra_at(capacity, settings->gpus[g]);

        capacity->gpu_told |= is_told(capacity->node, settings->gpus[g]);
        capacity->gpu |= capacity->gpu_told || (amount && *amount > 0);
    }
}

static void find_nodes(struct core *c)
{
    const struct kube_world *w = c->world;
    uint32_t *order = core_alloc(c, w->node_count, sizeof(*order));

    c->nodes = core_alloc(c, w->node_count, sizeof(*c->nodes));
    core_map(c, &c->node_by_name, w->node_count);
    if (c->error)
        return;
    for (uint32_t i = 0; i < w->node_count; i++)
        order[i] = i;
    order_sort(order, w->node_count, node_goes_first, w->nodes);
    c->node_count = (uint32_t)w->node_count;
    for (uint32_t i = 0; i < c->node_count; i++) {
        struct node_capacity *capacity = &c->nodes[i];
        const struct kube_node *node = w->nodes[order[i]];

        capacity->node = node;
        capacity->free = node->allocatable;
        capacity->unpowered_mcpu = unpowered(c, node);
        c->capped |= capacity->unpowered_mcpu > 0;
        capacity->extras = core_alloc(c, node->extras.count, sizeof(*capacity->extras));
        if (!capacity->extras)
            return;
        for (uint32_t e = 0; e < node->extras.count; e++)
            capacity->extras[e] = node->extras.at[e].amount;
        find_gpus(c->settings, capacity);
        capacity->usable = node->ready && !node->unschedulable && !node->meta.deleted_ns;
        capacity->plain = true;
        for (uint32_t t = 0; t < node->taint_count; t++)
            capacity->plain &= node->taints[t].effect == KUBE_PREFER_NO_SCHEDULE;
        name_map_put(&c->node_by_name, node->meta.name, i);
    }
}

static bool has_ended(const struct kube_pod *pod)
{
    return pod->phase == KUBE_POD_SUCCEEDED || pod->phase == KUBE_POD_FAILED;
}

/* ---- quotas ---------------------------------------------------------------------------------- */

static void tighten(struct kube_amount *left, const struct kube_amount *other)
{
    left->mcpu = smaller(left->mcpu, other->mcpu);
    left->bytes = smaller(left->bytes, other->bytes);
    left->pods = smaller(left->pods, other->pods);
}

/* Quotas with a scope are not counted: the API server refuses pods that they do not allow. */
static void find_quota_scopes(struct core *c)
{
    const struct kube_world *w = c->world;
    struct name_map map;

    core_map(c, &map, w->quota_count);
    c->quota_scopes = core_alloc(c, w->quota_count, sizeof(*c->quota_scopes));
    if (c->error)
        return;
    for (size_t i = 0; i < w->quota_count; i++) {
        const struct kube_quota *quota = w->quotas[i];
        uint32_t at = name_map_get(&map, quota->meta.namespace);

        if (quota->scoped)
            continue;
        if (at == NOWHERE) {
            at = c->quota_scope_count++;
            c->quota_scopes[at] = (struct quota_scope){.name = quota->meta.namespace,
                                                       .request_left = quota->request_left,
                                                       .limit_left = quota->limit_left};
            name_map_put(&map, quota->meta.namespace, at);
            continue;
        }
        tighten(&c->quota_scopes[at].request_left, &quota->request_left);
        tighten(&c->quota_scopes[at].limit_left, &quota->limit_left);
    }
    for (uint32_t j = 0; j < c->job_count; j++) {
        uint32_t at = name_map_get(&map, c->jobs[j].etj->meta.namespace);

        c->jobs[j].quota_scope = at == NOWHERE ? NULL : &c->quota_scopes[at];
    }
}

/* An unlimited quota (INT64_MAX) is reduced, too: it stays far above every request. */
static void use_quota(struct job *job, enum kube_role role, int64_t times)
{
    struct kube_amount request = job_task(job, role)->request;

    if (!job->quota_scope)
        return;
    request.pods = 1;
    take(&job->quota_scope->request_left, &request, times);
    take(&job->quota_scope->limit_left, &job_task(job, role)->limit, times);
}

static int64_t quota_count(const struct job *job, const struct kube_task *task, int64_t most)
{
    if (!job->quota_scope)
        return most;
    most = times_in(job->quota_scope->request_left.mcpu, task->request.mcpu, most);
    most = times_in(job->quota_scope->request_left.bytes, task->request.bytes, most);
    most = times_in(job->quota_scope->request_left.pods, 1, most);
    most = times_in(job->quota_scope->limit_left.mcpu, task->limit.mcpu, most);
    return times_in(job->quota_scope->limit_left.bytes, task->limit.bytes, most);
}

/* ---- room ------------------------------------------------------------------------------------ */

const char *room_lack(const struct job *job)
{
    return job->unpowered ? "NoPower" : "NoRoom";
}

void room_build(struct core *c)
{
    find_nodes(c);
    if (c->error)
        return;
    for (size_t i = 0; i < c->world->pod_count; i++) {
        const struct kube_pod *pod = c->world->pods[i];
        uint32_t node =
            pod->node && !has_ended(pod) ? name_map_get(&c->node_by_name, pod->node) : NOWHERE;

        if (node == NOWHERE)
            continue;
        take(&c->nodes[node].free, &pod->request, 1);
        room_take_extras(&c->nodes[node], &pod->extras, 1);
    }
}

static bool is_plain(const struct job *job, enum kube_role role)
{
    const struct kube_place *place = &job_task(job, role)->place;
    const struct kube_demand *more = &job->demand[role];

    return place->selector.count == 0 && place->term_count == 0 && !place->node_name &&
           place->toleration_count == 0 && more->selector_count == 0 &&
           more->toleration_count == 0 && !more->topology_required && !more->no_gpus;
}

static bool admits(const struct job *job, enum kube_role role, bool plain,
                   const struct node_capacity *capacity)
{
    return plain ? capacity->usable && capacity->plain
                 : place_admits(&job_task(job, role)->place, &job->demand[role], capacity);
}

static struct kube_amount need_of(const struct kube_task *task)
{
    struct kube_amount need = task->request;

    need.pods = 1;
    return need;
}

/* @grows: the pod does not exist yet, so the node's watts count, too. */
static bool take_there(struct job *job, enum kube_role role, bool grows,
                       struct node_capacity *capacity)
{
    const struct kube_task *task = job_task(job, role);
    struct kube_amount need = need_of(task);

    if (!room_in(&capacity->free, &need) || !admits(job, role, is_plain(job, role), capacity) ||
        room_extras(capacity, &task->extras, 1) < 1)
        return false;
    if (grows && !room_powered(capacity, task)) {
        job->unpowered = true;
        return false;
    }
    take(&capacity->free, &need, 1);
    room_take_extras(capacity, &task->extras, 1);
    return true;
}

/* Where its topology is only preferred, nodes of it come first, as the scheduler has it. */
static bool take_nearby(struct core *c, struct job *job, enum kube_role role, bool grows,
                        uint32_t *ret_node)
{
    const struct kube_demand *more = &job->demand[role];

    for (uint32_t i = 0; more->topology_value && !more->topology_required && i < c->node_count;
         i++) {
        const char *zone = demand_zone_of(job, &c->nodes[i]);

        if (zone && strcmp(zone, more->topology_value) == 0 &&
            take_there(job, role, grows, &c->nodes[i])) {
            *ret_node = i;
            return true;
        }
    }
    return false;
}

static bool take_on_node(struct core *c, struct job *job, enum kube_role role, bool grows,
                         uint32_t *ret_node)
{
    if (take_nearby(c, job, role, grows, ret_node))
        return true;
    for (uint32_t i = job->cursor[role]; i < c->node_count; i++) {
        if (!take_there(job, role, grows, &c->nodes[i]))
            continue;
        job->cursor[role] = i;
        *ret_node = i;
        return true;
    }
    job->cursor[role] = c->node_count;
    return false;
}

bool room_take(struct core *c, struct job *job, enum kube_role role, uint32_t *ret_node)
{
    if (quota_count(job, job_task(job, role), 1) < 1 || !take_on_node(c, job, role, true, ret_node))
        return false;
    use_quota(job, role, 1);
    return true;
}

void room_give_back(struct core *c, struct job *job, enum kube_role role, uint32_t node)
{
    struct kube_amount need = need_of(job_task(job, role));

    take(&c->nodes[node].free, &need, -1);
    room_take_extras(&c->nodes[node], &job_task(job, role)->extras, -1);
    use_quota(job, role, -1);
    memset(job->cursor, 0, sizeof(job->cursor));
}

int64_t room_count(const struct core *c, const struct job *job, enum kube_role role, int64_t most)
{
    const struct kube_task *task = job_task(job, role);
    struct kube_amount need = need_of(task);
    bool plain = is_plain(job, role);
    int64_t count = 0;

    most = quota_count(job, task, most);
    for (uint32_t i = 0; i < c->node_count && count < most; i++) {
        const struct node_capacity *capacity = &c->nodes[i];
        int64_t here = most - count;

        if (!room_in(&capacity->elastic, &need) || !admits(job, role, plain, capacity))
            continue;
        here = room_extras(capacity, &task->extras, here);
        here = times_in(capacity->elastic.mcpu - capacity->unpowered_mcpu, need.mcpu, here);
        here = times_in(capacity->elastic.bytes, need.bytes, here);
        count += times_in(capacity->elastic.pods, 1, here);
    }
    return count;
}

void room_count_trainings(struct core *c)
{
    find_quota_scopes(c);
    for (uint32_t j = 0; j < c->job_count; j++) {
        struct job *job = &c->jobs[j];

        for (uint32_t i = 0; i < job->replica_count; i++) {
            struct replica *replica = &job->replicas[i];

            if (replica->state != POD_EXPECTED && replica->state != POD_WAITING)
                continue;
            if (replica->state == POD_EXPECTED)
                use_quota(job, replica->role, 1);
            if (!take_on_node(c, job, replica->role, false, &replica->node))
                replica->node = NOWHERE;
        }
        memset(job->cursor, 0, sizeof(job->cursor));
    }
}

void room_count_elastic(struct core *c)
{
    for (uint32_t i = 0; i < c->node_count; i++)
        c->nodes[i].elastic = c->nodes[i].free;
    for (uint32_t j = 0; j < c->job_count; j++) {
        const struct job *job = &c->jobs[j];
        int32_t surplus = job->have[KUBE_WORKER] - job_task(job, KUBE_WORKER)->min;

        for (uint32_t i = job->replica_count; i-- > 0 && job->aim == AIM_RUN && !job->silent;) {
            const struct replica *replica = &job->replicas[i];

            if (replica->role != KUBE_WORKER || !replica->pod || replica->node == NOWHERE ||
                !replica_stays(replica) || surplus-- <= 0)
                continue;
            take(&c->nodes[replica->node].elastic, &replica->pod->request, -1);
        }
    }
}
