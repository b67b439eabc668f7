/* SPDX-License-Identifier: Apache-2.0 */
/* What is free: allocatable minus requests on each node, hard minus used of each quota. */
#include "kube/core/core.h"

#include "policy/division/order.h"

#include <string.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

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

static int64_t *extra_at(const struct spot *spot, const char *name)
{
    const struct kube_extras *all = &spot->node->extras;

    for (uint32_t i = 0; i < all->count; i++)
        if (strcmp(all->at[i].name, name) == 0)
            return &spot->extras[i];
    return NULL;
}

bool room_has_extras(const struct spot *spot, const struct kube_pod *pod)
{
    for (uint32_t i = 0; i < pod->extras.count; i++) {
        const int64_t *left = extra_at(spot, pod->extras.at[i].name);

        if (pod->extras.at[i].amount > (left ? *left : 0))
            return false;
    }
    return true;
}

void room_take_extras(struct spot *spot, const struct kube_pod *pod)
{
    for (uint32_t i = 0; i < pod->extras.count; i++) {
        int64_t *left = extra_at(spot, pod->extras.at[i].name);

        if (left)
            *left -= pod->extras.at[i].amount;
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool node_goes_first(uint32_t x, uint32_t y, const void *arg)
{
    const struct kube_node *const *nodes = arg;

    return strcmp(nodes[x]->meta.name, nodes[y]->meta.name) < 0;
}

static void find_spots(struct core *c)
{
    const struct kube_world *w = c->world;
    uint32_t *order = core_alloc(c, w->node_count, sizeof(*order));

    for (uint32_t i = 0; i < w->node_count; i++)
        order[i] = i;
    order_sort(order, w->node_count, node_goes_first, w->nodes);
    c->spot_count = (uint32_t)w->node_count;
    c->spots = core_alloc(c, c->spot_count, sizeof(*c->spots));
    name_map_init(c, &c->spot_by_name, c->spot_count);
    for (uint32_t i = 0; i < c->spot_count; i++) {
        struct spot *spot = &c->spots[i];
        const struct kube_node *node = w->nodes[order[i]];

        spot->node = node;
        spot->free = node->allocatable;
        spot->extras = core_alloc(c, node->extras.count, sizeof(*spot->extras));
        for (uint32_t e = 0; e < node->extras.count; e++)
            spot->extras[e] = node->extras.at[e].amount;
        spot->usable = node->ready && !node->unschedulable && !node->meta.deleted_ns;
        spot->plain = true;
        for (uint32_t t = 0; t < node->taint_count; t++)
            spot->plain &= node->taints[t].effect == KUBE_PREFER_NO_SCHEDULE;
        name_map_put(&c->spot_by_name, node->meta.name, i);
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

/* Quotas with a scope are left to the API server: it refuses what they do not allow. */
static void find_spaces(struct core *c)
{
    const struct kube_world *w = c->world;
    struct name_map map;

    name_map_init(c, &map, w->quota_count);
    c->spaces = core_alloc(c, w->quota_count, sizeof(*c->spaces));
    for (size_t i = 0; i < w->quota_count; i++) {
        const struct kube_quota *quota = w->quotas[i];
        uint32_t at = name_map_get(&map, quota->meta.namespace);

        if (quota->scoped)
            continue;
        if (at == NOWHERE) {
            at = c->space_count++;
            c->spaces[at] = (struct space){.name = quota->meta.namespace,
                                           .request_left = quota->request_left,
                                           .limit_left = quota->limit_left};
            name_map_put(&map, quota->meta.namespace, at);
            continue;
        }
        tighten(&c->spaces[at].request_left, &quota->request_left);
        tighten(&c->spaces[at].limit_left, &quota->limit_left);
    }
    for (uint32_t j = 0; j < c->job_count; j++) {
        uint32_t at = name_map_get(&map, c->jobs[j].etj->meta.namespace);

        c->jobs[j].space = at == NOWHERE ? NULL : &c->spaces[at];
    }
}

/* No more of what is unlimited is ever counted: it stays far above everything. */
static void use_quota(struct job *job, enum kube_role role, int64_t times)
{
    struct kube_amount request = job_task(job, role)->request;

    if (!job->space)
        return;
    request.pods = 1;
    take(&job->space->request_left, &request, times);
    take(&job->space->limit_left, &job_task(job, role)->limit, times);
}

static int64_t times_in(int64_t free, int64_t each, int64_t most)
{
    if (each <= 0)
        return most;
    return free < each ? 0 : smaller(free / each, most);
}

static int64_t quota_count(const struct job *job, const struct kube_task *task, int64_t most)
{
    if (!job->space)
        return most;
    most = times_in(job->space->request_left.mcpu, task->request.mcpu, most);
    most = times_in(job->space->request_left.bytes, task->request.bytes, most);
    most = times_in(job->space->request_left.pods, 1, most);
    most = times_in(job->space->limit_left.mcpu, task->limit.mcpu, most);
    return times_in(job->space->limit_left.bytes, task->limit.bytes, most);
}

/* ---- room ------------------------------------------------------------------------------------ */

void room_build(struct core *c)
{
    find_spots(c);
    for (size_t i = 0; i < c->world->pod_count; i++) {
        const struct kube_pod *pod = c->world->pods[i];
        uint32_t spot =
            pod->node && !has_ended(pod) ? name_map_get(&c->spot_by_name, pod->node) : NOWHERE;

        if (spot == NOWHERE)
            continue;
        take(&c->spots[spot].free, &pod->request, 1);
        room_take_extras(&c->spots[spot], pod);
    }
}

static bool is_plain(const struct kube_place *place)
{
    return place->selector.count == 0 && place->term_count == 0 && !place->node_name &&
           place->toleration_count == 0;
}

static bool admits(const struct kube_place *place, bool plain, const struct spot *spot)
{
    return plain ? spot->usable && spot->plain : place_admits(place, spot);
}

static struct kube_amount need_of(const struct kube_task *task)
{
    struct kube_amount need = task->request;

    need.pods = 1;
    return need;
}

static bool take_spot(struct core *c, struct job *job, enum kube_role role, uint32_t *ret_spot)
{
    const struct kube_task *task = job_task(job, role);
    struct kube_amount need = need_of(task);
    bool plain = is_plain(&task->place);

    for (uint32_t i = job->cursor[role]; i < c->spot_count; i++) {
        struct spot *spot = &c->spots[i];

        if (!room_in(&spot->free, &need) || !admits(&task->place, plain, spot))
            continue;
        take(&spot->free, &need, 1);
        job->cursor[role] = i;
        *ret_spot = i;
        return true;
    }
    job->cursor[role] = c->spot_count;
    return false;
}

bool room_take(struct core *c, struct job *job, enum kube_role role, uint32_t *ret_spot)
{
    if (quota_count(job, job_task(job, role), 1) < 1 || !take_spot(c, job, role, ret_spot))
        return false;
    use_quota(job, role, 1);
    return true;
}

void room_give_back(struct core *c, struct job *job, enum kube_role role, uint32_t spot)
{
    struct kube_amount need = need_of(job_task(job, role));

    take(&c->spots[spot].free, &need, -1);
    use_quota(job, role, -1);
    memset(job->cursor, 0, sizeof(job->cursor));
}

int64_t room_count(const struct core *c, const struct job *job, enum kube_role role, int64_t most)
{
    const struct kube_task *task = job_task(job, role);
    struct kube_amount need = need_of(task);
    bool plain = is_plain(&task->place);
    int64_t count = 0;

    most = quota_count(job, task, most);
    for (uint32_t i = 0; i < c->spot_count && count < most; i++) {
        const struct spot *spot = &c->spots[i];
        int64_t here = most - count;

        if (!room_in(&spot->elastic, &need) || !admits(&task->place, plain, spot))
            continue;
        here = times_in(spot->elastic.mcpu, need.mcpu, here);
        here = times_in(spot->elastic.bytes, need.bytes, here);
        count += times_in(spot->elastic.pods, 1, here);
    }
    return count;
}

void room_count_trainings(struct core *c)
{
    find_spaces(c);
    for (uint32_t j = 0; j < c->job_count; j++) {
        struct job *job = &c->jobs[j];

        for (uint32_t i = 0; i < job->seat_count; i++) {
            struct seat *seat = &job->seats[i];

            if (seat->state != POD_EXPECTED && seat->state != POD_WAITING)
                continue;
            if (seat->state == POD_EXPECTED)
                use_quota(job, seat->role, 1);
            if (!take_spot(c, job, seat->role, &seat->node))
                seat->node = NOWHERE;
        }
        memset(job->cursor, 0, sizeof(job->cursor));
    }
}

void room_count_elastic(struct core *c)
{
    for (uint32_t i = 0; i < c->spot_count; i++)
        c->spots[i].elastic = c->spots[i].free;
    for (uint32_t j = 0; j < c->job_count; j++) {
        const struct job *job = &c->jobs[j];
        int32_t surplus = job->have[KUBE_WORKER] - job_task(job, KUBE_WORKER)->min;

        for (uint32_t i = job->seat_count; i-- > 0 && job->aim == AIM_RUN && !job->silent;) {
            const struct seat *seat = &job->seats[i];

            if (seat->role != KUBE_WORKER || !seat->pod || seat->node == NOWHERE ||
                !seat_stays(seat) || surplus-- <= 0)
                continue;
            take(&c->spots[seat->node].elastic, &seat->pod->request, -1);
        }
    }
}
