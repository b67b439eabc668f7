/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves foreign pods that wait for a node. Trainings do not get the room that these need. If they
 * find no room, workers beyond their training's minimum leave before the scheduler would preempt
 * them: so workers finish their closure, and pods of equal priority get room, too.
 */
#include "kube/grow/grow.h"

#include "policy/division/order.h"

#include <string.h>

#define WAITING_MAX 256 /* pods served at a time; the others follow once these have a node */

/* A worker that may leave or shrink; an entry in the list of its Kubernetes node. */
struct evictable {
    struct job *job;
    struct replica *replica;
    uint32_t next;
    bool kept; /* a disruption budget forbids that it leaves: it can only shrink */
};

struct foreign_pods {
    struct core *c;
    struct evictable *at;
    uint32_t count;
    uint32_t *first; /* by Kubernetes node */
    uint32_t *last;
};

static void add(struct kube_amount *to, const struct kube_amount *more, int64_t times)
{
    to->mcpu += times * more->mcpu;
    to->bytes += times * more->bytes;
    to->pods += times * more->pods;
}

static struct kube_amount sum(const struct kube_amount *a, const struct kube_amount *b)
{
    struct kube_amount both = *a;

    add(&both, b, 1);
    return both;
}

static int32_t surplus_of(const struct job *job)
{
    const struct kube_etj *etj = job->etj;
    int32_t keep = etj->replicas ? etj->replicas : etj->task[KUBE_WORKER].min;

    return job->have[KUBE_WORKER] - keep;
}

/* The mcpu by which the worker can still shrink in place. */
static int64_t slack_of(const struct evictable *e)
{
    int64_t slack = e->replica->mcpu - e->replica->gives_mcpu - e->job->etj->worker_mcpu_min;

    if (!e->job->reports || e->replica->state != POD_UP || e->replica->victim ||
        e->job->record->refused[REFUSED_RESIZE].code)
        return 0;
    return slack > 0 ? slack : 0;
}

static void push(struct foreign_pods *o, struct job *job, struct replica *replica)
{
    uint32_t i = o->count++;

    o->at[i] = (struct evictable){.job = job,
                                  .replica = replica,
                                  .next = NOWHERE,
                                  .kept = !budget_allows(o->c, replica->pod)};
    if (o->first[replica->node] == NOWHERE)
        o->first[replica->node] = i;
    else
        o->at[o->last[replica->node]].next = i;
    o->last[replica->node] = i;
}

/* Lists the evictable workers: those of the least important training first, newest first. */
static void find_evictable(struct foreign_pods *o)
{
    struct core *c = o->c;
    size_t replicas = 0;

    for (uint32_t j = 0; j < c->job_count; j++)
        replicas += c->jobs[j].replica_count;
    o->at = core_alloc(c, replicas, sizeof(*o->at));
    o->first = core_alloc(c, c->node_count, sizeof(*o->first));
    o->last = core_alloc(c, c->node_count, sizeof(*o->last));
    if (c->error)
        return;
    for (uint32_t i = 0; i < c->node_count; i++)
        o->first[i] = NOWHERE;
    for (uint32_t j = c->job_count; j-- > 0;) {
        struct job *job = &c->jobs[j];

        for (uint32_t i = job->replica_count; i-- > 0;) {
            struct replica *replica = &job->replicas[i];

            if (!replica->pod || replica->node == NOWHERE || !replica->pod->node)
                continue;
            if (replica->pod->actual_mcpu > replica->pod->mcpu) /* already shrinking */
                c->nodes[replica->node].promise.mcpu +=
                    replica->pod->actual_mcpu - replica->pod->mcpu;
            if (replica->state == POD_LEAVING || replica->state == POD_GOING)
                add(&c->nodes[replica->node].promise, &replica->pod->request, 1);
            else if (replica->role == KUBE_WORKER && replica_stays(replica) &&
                     job->aim == AIM_RUN && !job->silent)
                push(o, job, replica);
        }
    }
}

/*
 * How many workers have to leave the node to fit @pod; 0: it cannot fit. A training may have
 * several workers there, not all of them surplus.
 */
static uint32_t victims_at(struct foreign_pods *o, uint32_t node, const struct kube_pod *pod,
                           bool mark)
{
    struct node_capacity *at = &o->c->nodes[node];
    struct kube_amount room = sum(&at->free, &at->promise);
    uint32_t victims = 0;
    const struct job *last = NULL;
    int32_t surplus = 0;

    for (uint32_t i = o->first[node]; i != NOWHERE && !room_in(&room, &pod->request);
         i = o->at[i].next) {
        struct evictable *e = &o->at[i];

        if (e->job != last)
            surplus = surplus_of(e->job);
        last = e->job;
        if (e->replica->victim || e->kept || surplus <= 0 ||
            e->replica->pod->priority > pod->priority)
            continue;
        add(&room, &e->replica->pod->request, 1);
        surplus--;
        victims++;
        if (mark) {
            e->replica->victim = true;
            add(&at->promise, &e->replica->pod->request, 1);
            view_count(e->job);
        }
    }
    return room_in(&room, &pod->request) ? victims : 0;
}

/* Whether workers of the node can shrink in place to fit @pod, which costs the least. */
static bool shrink_at(struct foreign_pods *o, uint32_t node, const struct kube_pod *pod, bool mark)
{
    struct node_capacity *at = &o->c->nodes[node];
    struct kube_amount room = sum(&at->free, &at->promise);
    int64_t lacking = pod->request.mcpu - room.mcpu;

    if (lacking <= 0 || room.bytes < pod->request.bytes || room.pods < pod->request.pods)
        return false;
    for (uint32_t i = o->first[node]; i != NOWHERE && lacking > 0; i = o->at[i].next) {
        struct evictable *e = &o->at[i];
        int64_t part = slack_of(e) < lacking ? slack_of(e) : lacking;

        if (e->replica->pod->priority > pod->priority)
            continue;
        lacking -= part;
        if (mark) {
            e->replica->gives_mcpu += part;
            e->job->held_mcpu -= part;
            at->promise.mcpu += part;
        }
    }
    return lacking <= 0;
}

/* Reserves room for @pod: neither trainings nor other waiting pods may count on it. */
static void keep_free(struct node_capacity *capacity, const struct kube_pod *pod)
{
    add(&capacity->free, &pod->request, -1);
    room_take_extras(capacity, &pod->extras, 1);
}

static bool admits(const struct node_capacity *capacity, const struct kube_pod *pod)
{
    return place_admits(&pod->place, NULL, capacity) && room_extras(capacity, &pod->extras, 1) == 1;
}

static bool make_room(struct foreign_pods *o, const struct kube_pod *pod)
{
    struct core *c = o->c;
    uint32_t best = NOWHERE, fewest = UINT32_MAX;

    for (uint32_t i = 0; i < c->node_count; i++) {
        uint32_t victims;

        if (o->first[i] == NOWHERE || !admits(&c->nodes[i], pod))
            continue;
        if (shrink_at(o, i, pod, false)) {
            shrink_at(o, i, pod, true);
            keep_free(&c->nodes[i], pod);
            return true;
        }
        victims = victims_at(o, i, pod, false);
        if (victims && victims < fewest) {
            fewest = victims;
            best = i;
        }
    }
    if (best == NOWHERE)
        return false;
    victims_at(o, best, pod, true);
    keep_free(&c->nodes[best], pod);
    return true;
}

/* Finds room that is free, or will be once everything already asked to leave has left. */
static bool find_room(struct core *c, const struct kube_pod *pod)
{
    for (int with_promise = 0; with_promise < 2; with_promise++)
        for (uint32_t i = 0; i < c->node_count; i++) {
            struct node_capacity *capacity = &c->nodes[i];
            struct kube_amount room =
                with_promise ? sum(&capacity->free, &capacity->promise) : capacity->free;

            if (!room_in(&room, &pod->request) || !admits(capacity, pod))
                continue;
            keep_free(capacity, pod);
            return true;
        }
    return false;
}

static bool pod_goes_first(uint32_t x, uint32_t y, const void *arg)
{
    const struct kube_pod *const *pods = arg;
    const struct kube_pod *a = pods[x], *b = pods[y];

    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->meta.created_ns != b->meta.created_ns)
        return a->meta.created_ns < b->meta.created_ns;
    return strcmp(a->meta.uid, b->meta.uid) < 0;
}

/* Whether @pod lacks room that trainings could give. A pod that only lacks a volume, a neighbour or
 * a GPU would hold such room for ever. */
static bool lacks_room(const struct kube_pod *pod)
{
    return !pod->unschedulable || !pod->message || strstr(pod->message, "Insufficient cpu") ||
           strstr(pod->message, "Insufficient memory") || strstr(pod->message, "Too many pods");
}

static bool waits(const struct core *c, const struct kube_pod *pod)
{
    if (pod->node || pod->gated || pod->meta.deleted_ns || pod->phase != KUBE_POD_PENDING ||
        !lacks_room(pod))
        return false;
    return !pod->job || name_map_get(&c->job_by_uid, pod->owner_uid) == NOWHERE;
}

void foreign_pods_serve(struct core *c)
{
    const struct kube_world *w = c->world;
    struct foreign_pods o = {.c = c};
    uint32_t *order, count = 0, at = 0;

    for (size_t i = 0; i < w->pod_count; i++)
        count += waits(c, w->pods[i]);
    if (count == 0)
        return;
    order = core_alloc(c, count, sizeof(*order));
    if (!order)
        return;
    for (uint32_t i = 0; i < w->pod_count; i++)
        if (waits(c, w->pods[i]))
            order[at++] = i;
    order_sort(order, count, pod_goes_first, w->pods);
    find_evictable(&o);
    if (c->error)
        return;
    for (uint32_t i = 0; i < count && i < WAITING_MAX; i++) {
        const struct kube_pod *pod = w->pods[order[i]];

        if (!find_room(c, pod) && pod->unschedulable)
            c->others_wait |= make_room(&o, pod);
    }
}
