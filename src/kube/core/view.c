/* SPDX-License-Identifier: Apache-2.0 */
/* Who has what: trainings with their pods, reports and what is remembered of them. */
#include "kube/core/core.h"

#include "policy/division/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEATS_MORE 8 /* room for pods that are added, at first */

/* ---- trainings ------------------------------------------------------------------------------- */

static bool job_goes_first(uint32_t x, uint32_t y, const void *arg)
{
    const struct kube_etj *const *etjs = arg;
    const struct kube_etj *a = etjs[x], *b = etjs[y];

    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->meta.created_ns != b->meta.created_ns)
        return a->meta.created_ns < b->meta.created_ns;
    return strcmp(a->meta.uid, b->meta.uid) < 0;
}

static void find_jobs(struct core *c)
{
    const struct kube_world *w = c->world;
    uint32_t *order = core_alloc(c, w->etj_count, sizeof(*order));

    for (uint32_t i = 0; i < w->etj_count; i++)
        order[i] = i;
    order_sort(order, w->etj_count, job_goes_first, w->etjs);
    c->job_count = (uint32_t)w->etj_count;
    c->jobs = core_alloc(c, c->job_count, sizeof(*c->jobs));
    name_map_init(c, &c->job_by_uid, c->job_count);
    for (uint32_t i = 0; i < c->job_count; i++) {
        struct job *job = &c->jobs[i];

        job->etj = w->etjs[order[i]];
        job->held = w->held && w->held[order[i]];
        job->status = job->etj->status;
        job->record = memory_record(c->memory, job->etj->meta.uid);
        if (!job->record)
            longjmp(c->out_of_memory, 1);
        job->record->seen = true;
        if (job->held && job->record->status_ns)
            job->record->status_ns = c->now_ns; /* it may be what is under way */
        refused_forget(c, job);
        name_map_put(&c->job_by_uid, job->etj->meta.uid, i);
    }
}

const struct kube_task *job_task(const struct job *job, enum kube_role role)
{
    return &job->etj->task[role];
}

/* ---- seats ----------------------------------------------------------------------------------- */

static struct job *owner_of(struct core *c, const struct kube_pod *pod)
{
    uint32_t j = pod->job ? name_map_get(&c->job_by_uid, pod->owner_uid) : NOWHERE;

    if (j == NOWHERE || strcmp(c->jobs[j].etj->meta.namespace, pod->meta.namespace) != 0)
        return NULL;
    return &c->jobs[j];
}

static enum pod_state state_of(const struct core *c, const struct kube_pod *pod, uint32_t spot)
{
    if (pod->meta.deleted_ns)
        return POD_GOING;
    if (pod->phase == KUBE_POD_SUCCEEDED)
        return POD_ENDED;
    if (pod->phase == KUBE_POD_FAILED)
        return POD_FAILED;
    if (!pod->node)
        return pod->leave ? POD_LEAVING : POD_WAITING;
    if (spot == NOWHERE || !c->spots[spot].node->ready)
        return POD_LOST;
    if (pod->leave)
        return POD_LEAVING;
    return pod->phase == KUBE_POD_RUNNING && pod->ip ? POD_UP : POD_STARTING;
}

static void fill_seats(struct core *c)
{
    const struct kube_world *w = c->world;

    for (size_t i = 0; i < w->pod_count; i++) {
        struct job *job = owner_of(c, w->pods[i]);

        if (job)
            job->seat_room++;
    }
    for (uint32_t j = 0; j < c->job_count; j++) {
        struct job *job = &c->jobs[j];

        job->seat_room += job->record->seat_count + SEATS_MORE;
        job->seats = core_alloc(c, job->seat_room, sizeof(*job->seats));
    }
    for (size_t i = 0; i < w->pod_count; i++) {
        const struct kube_pod *pod = w->pods[i];
        struct job *job = owner_of(c, pod);
        uint32_t spot = pod->node ? name_map_get(&c->spot_by_name, pod->node) : NOWHERE;

        if (job)
            job->seats[job->seat_count++] = (struct seat){
                .pod = pod,
                .role = pod->role,
                .index = pod->index,
                .node = spot,
                .mcpu = pod->mcpu,
                .state = state_of(c, pod, spot),
                .since_ns = c->now_ns,
                .reported = KUBE_NODE_STATE_MAX,
            };
    }
}

static bool seat_goes_first(uint32_t x, uint32_t y, const void *arg)
{
    const struct seat *a = (const struct seat *)arg + x, *b = (const struct seat *)arg + y;

    if (a->role != b->role)
        return a->role < b->role;
    if (a->index != b->index)
        return a->index < b->index;
    return x < y;
}

static void sort_seats(struct core *c, struct job *job)
{
    struct seat *sorted = core_alloc(c, job->seat_room, sizeof(*sorted));
    uint32_t *order = core_alloc(c, job->seat_count, sizeof(*order));

    for (uint32_t i = 0; i < job->seat_count; i++)
        order[i] = i;
    order_sort(order, job->seat_count, seat_goes_first, job->seats);
    for (uint32_t i = 0; i < job->seat_count; i++)
        sorted[i] = job->seats[order[i]];
    job->seats = sorted;
}

struct seat *view_add_seat(struct core *c, struct job *job, enum kube_role role, uint32_t index)
{
    struct seat *seat;

    if (job->seat_count == job->seat_room) {
        uint32_t chief = job->chief ? (uint32_t)(job->chief - job->seats) : NOWHERE;
        struct seat *more;

        job->seat_room = 2 * job->seat_room + SEATS_MORE;
        more = core_alloc(c, job->seat_room, sizeof(*more));
        memcpy(more, job->seats, job->seat_count * sizeof(*more));
        job->seats = more;
        job->chief = chief == NOWHERE ? NULL : &more[chief];
    }
    seat = &job->seats[job->seat_count++];
    *seat = (struct seat){.role = role,
                          .index = index,
                          .state = POD_EXPECTED,
                          .node = NOWHERE,
                          .since_ns = c->now_ns,
                          .reported = KUBE_NODE_STATE_MAX};
    return seat;
}

/* What the record knows of each; what was made and is not to be seen yet is expected a while. */
static void remember_seats(struct core *c, struct job *job)
{
    const struct record *record = job->record;
    uint32_t seen = job->seat_count, at = 0;

    for (uint32_t i = 0; i < record->seat_count; i++) {
        const struct seat_record *old = &record->seats[i];

        while (at < seen &&
               (job->seats[at].role < old->role ||
                (job->seats[at].role == old->role && job->seats[at].index < old->index)))
            at++;
        if (at < seen && job->seats[at].role == old->role && job->seats[at].index == old->index) {
            if (job->seats[at].state == old->state) {
                job->seats[at].since_ns = old->since_ns;
                job->seats[at].sized_mcpu = old->sized_mcpu;
                job->seats[at].acted_ns = job->held && old->acted_ns ? c->now_ns : old->acted_ns;
            }
        } else if (old->state == POD_EXPECTED &&
                   (job->held || c->now_ns - old->since_ns < 2 * ECHO_NS)) {
            struct seat *seat = view_add_seat(c, job, old->role, old->index);

            if (!job->held) /* else its time has not begun: it may not even be asked for yet */
                seat->since_ns = old->since_ns;
            seat->mcpu = old->mcpu;
            core_wake(c, seat->since_ns + 2 * ECHO_NS);
        }
    }
    if (job->seat_count > seen)
        sort_seats(c, job);
}

/* Kept in the order of the seats, which remember_seats() relies on. */
static void store_seats(struct core *c, struct job *job)
{
    struct record *record = job->record;
    struct seat_record *seats = NULL;

    sort_seats(c, job);
    if (job->seat_count) {
        seats = realloc(record->seats, job->seat_count * sizeof(*seats));
        if (!seats)
            longjmp(c->out_of_memory, 1);
        record->seats = seats;
    }
    record->seat_count = job->seat_count;
    for (uint32_t i = 0; i < job->seat_count; i++)
        seats[i] = (struct seat_record){
            .role = job->seats[i].role,
            .state = job->seats[i].state,
            .index = job->seats[i].index,
            .mcpu = job->seats[i].mcpu,
            .since_ns = job->seats[i].since_ns,
            .acted_ns = job->seats[i].acted_ns,
            .sized_mcpu = job->seats[i].sized_mcpu,
        };
}

void memory_store(struct core *c)
{
    for (uint32_t j = 0; j < c->job_count; j++)
        store_seats(c, &c->jobs[j]);
    memory_sweep(c->memory);
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
    for (uint32_t i = 0; i < job->seat_count; i++)
        if (job->seats[i].index >= next[job->seats[i].role])
            next[job->seats[i].role] = (int64_t)job->seats[i].index + 1;
}

/* A chief that ends makes room for the next one: the one that lives counts, if there are two. */
static void find_chief(struct job *job)
{
    for (uint32_t i = 0; i < job->seat_count && job->seats[i].role == KUBE_CHIEF; i++)
        if (!job->chief || job->chief->state == POD_GOING)
            job->chief = &job->seats[i];
}

static void apply_report(struct job *job)
{
    const struct kube_report *report = job->report;

    for (uint32_t n = 0; report && n < report->node_count; n++) {
        const struct kube_reported_node *node = &report->nodes[n];

        for (uint32_t i = 0; i < job->seat_count; i++)
            if (job->seats[i].role == node->role && job->seats[i].index == node->index) {
                job->seats[i].reported = node->state;
                job->seats[i].threads = node->threads;
            }
    }
}

/* A node that is not known may just have come: watches are not ordered among themselves. */
static void find_lost(struct core *c, struct job *job)
{
    for (uint32_t i = 0; i < job->seat_count; i++) {
        struct seat *seat = &job->seats[i];

        if (seat->role == KUBE_CHIEF) /* there must never be two: Kubernetes says when it is gone */
            continue;
        if (seat->state == POD_LOST) {
            seat->gone = c->now_ns - seat->since_ns >= c->settings->node_lost_ns;
            if (!seat->gone)
                core_wake(c, seat->since_ns + c->settings->node_lost_ns);
        }
        if (seat->reported == KUBE_NODE_LOST && seat->state <= POD_LOST) {
            seat->state = POD_LOST;
            seat->gone = true;
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

    name_map_init(c, &map, c->job_count);
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

bool seat_stays(const struct seat *seat)
{
    return (seat->state <= POD_UP || (seat->state == POD_LOST && !seat->gone)) && !seat->victim &&
           !seat->drops;
}

void view_count(struct job *job)
{
    memset(job->have, 0, sizeof(job->have));
    job->held_mcpu = 0;
    for (uint32_t i = 0; i < job->seat_count; i++) {
        const struct seat *seat = &job->seats[i];

        if (!seat_stays(seat))
            continue;
        job->have[seat->role]++;
        if (seat->role == KUBE_WORKER)
            job->held_mcpu +=
                (seat->pod ? seat->pod->request.mcpu : job_task(job, KUBE_WORKER)->request.mcpu) -
                seat->gives_mcpu;
    }
}

void view_build(struct core *c)
{
    find_jobs(c);
    fill_seats(c);
    for (uint32_t j = 0; j < c->job_count; j++) {
        struct job *job = &c->jobs[j];

        sort_seats(c, job);
        remember_seats(c, job);
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
