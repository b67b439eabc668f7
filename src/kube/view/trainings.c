/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the list of trainings with their pods, reports and records. */
#include "kube/view/view.h"

#include "policy/division/order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REPLICAS_MORE 8 /* initial room for pods that are added */

/* ---- trainings ------------------------------------------------------------------------------- */

struct ranks {
    const struct kube_etj *const *etjs;
    int32_t *priority; /* of each */
};

static bool job_goes_first(uint32_t x, uint32_t y, const void *arg)
{
    const struct ranks *ranks = arg;
    const struct kube_etj *a = ranks->etjs[x], *b = ranks->etjs[y];

    if (ranks->priority[x] != ranks->priority[y])
        return ranks->priority[x] > ranks->priority[y];
    if (a->meta.created_ns != b->meta.created_ns)
        return a->meta.created_ns < b->meta.created_ns;
    return strcmp(a->meta.uid, b->meta.uid) < 0;
}

static bool competes(const struct core *c, const struct kube_etj *etj)
{
    return !etj->fault && !etj->suspend && !etj->meta.deleted_ns &&
           queue_state(c, etj) != QUEUE_WAITS && etj->status.phase != KUBE_SUCCEEDED &&
           etj->status.phase != KUBE_FAILED;
}

/*
 * spec.priority orders the trainings of one namespace only: it counts down from the highest there,
 * which is 0. So nobody can put trainings of one namespace before those of another.
 */
static void find_priorities(struct core *c, const struct ranks *ranks)
{
    const struct kube_world *w = c->world;
    struct name_map map;
    int32_t *highest = core_alloc(c, w->etj_count, sizeof(*highest));

    core_map(c, &map, w->etj_count);
    if (c->error)
        return;
    for (uint32_t i = 0; i < w->etj_count; i++) {
        const struct kube_etj *etj = w->etjs[i];
        uint32_t at = name_map_get(&map, etj->meta.namespace);

        if (at == NOWHERE && competes(c, etj)) {
            name_map_put(&map, etj->meta.namespace, i);
            highest[i] = etj->priority;
        } else if (competes(c, etj) && etj->priority > highest[at]) {
            highest[at] = etj->priority;
        }
    }
    for (uint32_t i = 0; i < w->etj_count; i++) {
        uint32_t at = name_map_get(&map, w->etjs[i]->meta.namespace);
        int64_t from = at == NOWHERE ? 0 : (int64_t)w->etjs[i]->priority - highest[at];

        ranks->priority[i] = (int32_t)(from < INT32_MIN ? INT32_MIN : from < 0 ? from : 0);
    }
}

static void find_jobs(struct core *c)
{
    const struct kube_world *w = c->world;
    uint32_t *order = core_alloc(c, w->etj_count, sizeof(*order));
    struct ranks ranks = {.etjs = w->etjs,
                          .priority = core_alloc(c, w->etj_count, sizeof(*ranks.priority))};

    c->jobs = core_alloc(c, w->etj_count, sizeof(*c->jobs));
    core_map(c, &c->job_by_uid, w->etj_count);
    if (c->error)
        return;
    for (uint32_t i = 0; i < w->etj_count; i++)
        order[i] = i;
    queue_find(c);
    if (c->error)
        return;
    find_priorities(c, &ranks);
    if (c->error)
        return;
    order_sort(order, w->etj_count, job_goes_first, &ranks);
    c->job_count = (uint32_t)w->etj_count;
    for (uint32_t i = 0; i < c->job_count; i++) {
        struct job *job = &c->jobs[i];

        job->etj = w->etjs[order[i]];
        job->priority = ranks.priority[order[i]];
        job->held = w->held && w->held[order[i]];
        job->workload = queue_workload(c, job->etj);
        job->queue = queue_state(c, job->etj);
        job->status = job->etj->status;
        job->entry = memory_entry(c->memory, job->etj->meta.uid);
        job->record = core_alloc(c, 1, sizeof(*job->record));
        if (!job->entry || !job->record) {
            c->error = -ENOMEM;
            return;
        }
        *job->record = job->entry->record;
        if (job->held && job->record->sent.status_ns)
            job->record->sent.status_ns = c->now_ns; /* a status may be under way */
        refused_forget(c, job);
        name_map_put(&c->job_by_uid, job->etj->meta.uid, i);
    }
}

const struct kube_task *job_task(const struct job *job, enum kube_role role)
{
    return &job->etj->task[role];
}

bool job_is_resized(const struct job *job)
{
    return job->etj->worker_mcpu_min < job->etj->worker_mcpu_max;
}

/* ---- replicas -----------------------------------------------------------------------------------
 */

static struct job *owner_of(struct core *c, const struct kube_pod *pod)
{
    uint32_t j = pod->job ? name_map_get(&c->job_by_uid, pod->owner_uid) : NOWHERE;

    if (j == NOWHERE || strcmp(c->jobs[j].etj->meta.namespace, pod->meta.namespace) != 0)
        return NULL;
    return &c->jobs[j];
}

static enum pod_state state_of(const struct core *c, const struct kube_pod *pod, uint32_t node)
{
    if (pod->meta.deleted_ns)
        return POD_GOING;
    if (pod->phase == KUBE_POD_SUCCEEDED)
        return POD_ENDED;
    if (pod->phase == KUBE_POD_FAILED)
        return POD_FAILED;
    if (!pod->node)
        return pod->leave ? POD_LEAVING : POD_WAITING;
    if (node == NOWHERE || !c->nodes[node].node->ready)
        return POD_LOST;
    if (pod->leave)
        return POD_LEAVING;
    return pod->phase == KUBE_POD_RUNNING && pod->ip ? POD_UP : POD_STARTING;
}

static void fill_replicas(struct core *c)
{
    const struct kube_world *w = c->world;

    for (size_t i = 0; i < w->pod_count; i++) {
        struct job *job = owner_of(c, w->pods[i]);

        if (job)
            job->replica_room++;
    }
    for (uint32_t j = 0; j < c->job_count; j++) {
        struct job *job = &c->jobs[j];

        job->replica_room += job->entry->replica_count + REPLICAS_MORE;
        job->replicas = core_alloc(c, job->replica_room, sizeof(*job->replicas));
        if (!job->replicas)
            return;
    }
    for (size_t i = 0; i < w->pod_count; i++) {
        const struct kube_pod *pod = w->pods[i];
        struct job *job = owner_of(c, pod);
        uint32_t node = pod->node ? name_map_get(&c->node_by_name, pod->node) : NOWHERE;

        if (job)
            job->replicas[job->replica_count++] = (struct replica){
                .pod = pod,
                .role = pod->role,
                .index = pod->index,
                .node = node,
                .mcpu = pod->mcpu,
                .state = state_of(c, pod, node),
                .since_ns = c->now_ns,
                .reported = KUBE_NODE_STATE_MAX,
            };
    }
}

static bool replica_goes_first(uint32_t x, uint32_t y, const void *arg)
{
    const struct replica *a = (const struct replica *)arg + x, *b = (const struct replica *)arg + y;

    if (a->role != b->role)
        return a->role < b->role;
    if (a->index != b->index)
        return a->index < b->index;
    return x < y;
}

static void sort_replicas(struct core *c, struct job *job)
{
    struct replica *sorted = core_alloc(c, job->replica_room, sizeof(*sorted));
    uint32_t *order = core_alloc(c, job->replica_count, sizeof(*order));

    if (c->error)
        return;
    for (uint32_t i = 0; i < job->replica_count; i++)
        order[i] = i;
    order_sort(order, job->replica_count, replica_goes_first, job->replicas);
    for (uint32_t i = 0; i < job->replica_count; i++)
        sorted[i] = job->replicas[order[i]];
    job->replicas = sorted;
}

struct replica *view_add_replica(struct core *c, struct job *job, enum kube_role role,
                                 uint32_t index)
{
    struct replica *replica;

    if (c->error)
        return &c->lost_replica;
    if (job->replica_count == job->replica_room) {
        uint32_t chief = job->chief ? (uint32_t)(job->chief - job->replicas) : NOWHERE;
        uint32_t room = 2 * job->replica_room + REPLICAS_MORE;
        struct replica *more = core_alloc(c, room, sizeof(*more));

        if (!more)
            return &c->lost_replica;
        job->replica_room = room;
        memcpy(more, job->replicas, job->replica_count * sizeof(*more));
        job->replicas = more;
        job->chief = chief == NOWHERE ? NULL : &more[chief];
    }
    replica = &job->replicas[job->replica_count++];
    *replica = (struct replica){.role = role,
                                .index = index,
                                .state = POD_EXPECTED,
                                .node = NOWHERE,
                                .since_ns = c->now_ns,
                                .reported = KUBE_NODE_STATE_MAX};
    return replica;
}

/* Takes over what the record knows of each pod; created pods that no watch shows are expected. */
static void remember_replicas(struct core *c, struct job *job)
{
    const struct memory_entry *entry = job->entry;
    uint32_t seen = job->replica_count, at = 0;

    for (uint32_t i = 0; i < entry->replica_count; i++) {
        const struct replica_record *old = &entry->replicas[i];

        while (at < seen &&
               (job->replicas[at].role < old->role ||
                (job->replicas[at].role == old->role && job->replicas[at].index < old->index)))
            at++;
        if (at < seen && job->replicas[at].role == old->role &&
            job->replicas[at].index == old->index) {
            if (job->replicas[at].state == old->state) {
                job->replicas[at].since_ns = old->since_ns;
                job->replicas[at].sized_mcpu = old->sized_mcpu;
                job->replicas[at].acted_ns = job->held && old->acted_ns ? c->now_ns : old->acted_ns;
            }
        } else if (old->state == POD_EXPECTED &&
                   (job->held || c->now_ns - old->since_ns < 2 * ECHO_NS)) {
            struct replica *replica = view_add_replica(c, job, old->role, old->index);

            if (!job->held) /* if held, the creation may not even be sent yet */
                replica->since_ns = old->since_ns;
            replica->mcpu = old->mcpu;
            core_wake(c, replica->since_ns + 2 * ECHO_NS);
        }
    }
    if (job->replica_count > seen)
        sort_replicas(c, job);
}

/* Stores the replicas in order, as remember_replicas() expects them. */
static void store(struct job *job)
{
    struct memory_entry *entry = job->entry;

    entry->seen = true;
    entry->record = *job->record;
    entry->replica_count = job->replica_count;
    for (uint32_t i = 0; i < job->replica_count; i++)
        entry->replicas[i] = (struct replica_record){
            .role = job->replicas[i].role,
            .state = job->replicas[i].state,
            .index = job->replicas[i].index,
            .mcpu = job->replicas[i].mcpu,
            .since_ns = job->replicas[i].since_ns,
            .acted_ns = job->replicas[i].acted_ns,
            .sized_mcpu = job->replicas[i].sized_mcpu,
        };
    if (job->sends) {
        entry->sent = *job->sends;
        entry->was_sent = true;
    }
}

static int make_room(const struct job *job)
{
    struct memory_entry *entry = job->entry;
    struct replica_record *replicas;

    if (job->replica_count <= entry->replica_room)
        return 0;
    replicas = realloc(entry->replicas, job->replica_count * sizeof(*replicas));
    if (!replicas)
        return -ENOMEM;
    entry->replicas = replicas;
    entry->replica_room = job->replica_count;
    return 0;
}

int memory_store(struct core *c)
{
    for (uint32_t j = 0; j < c->job_count; j++) {
        sort_replicas(c, &c->jobs[j]);
        if (c->error || make_room(&c->jobs[j]))
            return -ENOMEM;
    }
    for (uint32_t j = 0; j < c->job_count; j++)
        store(&c->jobs[j]);
    memory_sweep(c->memory);
    return 0;
}

/* ---- what is known of each ------------------------------------------------------------------- */

static void find_indices(struct job *job)
{
    struct record *record = job->record;
    int64_t *next = record->next_index;

    if (job->etj->status.ps.next_index > next[KUBE_PS])
        next[KUBE_PS] = job->etj->status.ps.next_index;
    if (job->etj->status.worker.next_index > next[KUBE_WORKER])
        next[KUBE_WORKER] = job->etj->status.worker.next_index;
    for (uint32_t i = 0; i < job->replica_count; i++)
        if (job->replicas[i].index >= next[job->replicas[i].role])
            next[job->replicas[i].role] = (int64_t)job->replicas[i].index + 1;
}

/* Finds the chief: if there are two pods, the one that is not being deleted. */
static void find_chief(struct job *job)
{
    for (uint32_t i = 0; i < job->replica_count && job->replicas[i].role == KUBE_CHIEF; i++)
        if (!job->chief || job->chief->state == POD_GOING)
            job->chief = &job->replicas[i];
}

static void apply_report(struct job *job)
{
    const struct kube_report *report = job->report;

    for (uint32_t n = 0; report && n < report->node_count; n++) {
        const struct kube_reported_node *node = &report->nodes[n];

        for (uint32_t i = 0; i < job->replica_count; i++)
            if (job->replicas[i].role == node->role && job->replicas[i].index == node->index) {
                job->replicas[i].reported = node->state;
                job->replicas[i].threads = node->threads;
            }
    }
}

/* An unknown node may be new, since watches are not ordered among themselves: so this waits. */
static void find_lost(struct core *c, struct job *job)
{
    for (uint32_t i = 0; i < job->replica_count; i++) {
        struct replica *replica = &job->replicas[i];

        if (replica->role ==
            KUBE_CHIEF) /* never two chiefs: only Kubernetes tells when one is gone */
            continue;
        if (replica->state == POD_LOST) {
            replica->gone = c->now_ns - replica->since_ns >= c->settings->node_lost_ns;
            if (!replica->gone)
                core_wake(c, replica->since_ns + c->settings->node_lost_ns);
        }
        if (replica->reported == KUBE_NODE_LOST && replica->state <= POD_LOST) {
            replica->state = POD_LOST;
            replica->gone = true;
        }
    }
}

static void hear(struct core *c, struct job *job)
{
    struct record *record = job->record;
    bool up = job->chief && job->chief->state == POD_UP;

    if (job->report && job->report->at_ns > record->heard_ns)
        record->heard_ns = job->report->at_ns;
    if (up && job->chief->since_ns > record->heard_ns)
        record->heard_ns = job->chief->since_ns;
    job->reports = job->report != NULL;
    job->begins = !job->reports && job->etj->status.phase != KUBE_RUNNING;
    job->silent = up && c->now_ns - record->heard_ns >= c->settings->silent_ns;
    if (up && !job->silent)
        core_wake(c, record->heard_ns + c->settings->silent_ns);
}

static void find_reports(struct core *c)
{
    struct name_map map;

    core_map(c, &map, c->job_count);
    for (uint32_t j = 0; j < c->job_count; j++)
        if (c->jobs[j].chief && c->jobs[j].chief->pod)
            name_map_put(&map, c->jobs[j].chief->pod->meta.uid, j);
    for (size_t i = 0; i < c->world->report_count; i++) {
        const struct kube_report *report = c->world->reports[i];
        uint32_t j = report->chief_uid ? name_map_get(&map, report->chief_uid) : NOWHERE;

        if (j != NOWHERE)
            c->jobs[j].report = report;
    }
}

bool replica_stays(const struct replica *replica)
{
    return (replica->state <= POD_UP || (replica->state == POD_LOST && !replica->gone)) &&
           !replica->victim && !replica->drops;
}

void view_count(struct job *job)
{
    memset(job->have, 0, sizeof(job->have));
    job->held_mcpu = 0;
    for (uint32_t i = 0; i < job->replica_count; i++) {
        const struct replica *replica = &job->replicas[i];

        if (!replica_stays(replica))
            continue;
        job->have[replica->role]++;
        if (replica->role == KUBE_WORKER)
            job->held_mcpu += (replica->pod ? replica->pod->request.mcpu
                                            : job_task(job, KUBE_WORKER)->request.mcpu) -
                              replica->gives_mcpu;
    }
}

void view_build(struct core *c)
{
    find_jobs(c);
    if (!c->error)
        fill_replicas(c);
    if (c->error)
        return;
    for (uint32_t j = 0; j < c->job_count; j++) {
        struct job *job = &c->jobs[j];

        sort_replicas(c, job);
        remember_replicas(c, job);
        find_indices(job);
        find_chief(job);
    }
    find_reports(c);
    for (uint32_t j = 0; j < c->job_count; j++) {
        struct job *job = &c->jobs[j];

        apply_report(job);
        find_lost(c, job);
        hear(c, job);
        view_count(job);
    }
}
