/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes come and go: pods are made where there is room, asked to leave, and deleted. */
#include "kube/core/core.h"

#define FAILURE_NS     (5 * NS_PER_S) /* until the second node that failed is replaced; doubles */
#define FAILURE_MAX_NS (300 * NS_PER_S)

/* ---- more ------------------------------------------------------------------------------------ */

void scale_create(struct core *c, struct job *job, enum kube_role role, uint32_t spot)
{
    struct record *r = job->record;
    uint32_t index = role == KUBE_CHIEF ? 0 : (uint32_t)r->next_index[role]++;
    struct seat *seat = view_add_seat(c, job, role, index);
    struct kube_action *action = core_act(c, job, KUBE_CREATE_POD, NULL);

    seat->node = spot;
    seat->mcpu = job_task(job, role)->mcpu;
    seat->acted_ns = c->now_ns;
    job->have[role]++;
    if (role == KUBE_WORKER)
        job->held_mcpu += job_task(job, role)->request.mcpu;
    action->create.role = role;
    action->create.index = index;
    if (role == KUBE_CHIEF)
        job->chief = seat;
    core_wake(c, c->now_ns + 2 * ECHO_NS);
}

bool scale_start(struct core *c, struct job *job)
{
    uint32_t *spots, taken = 0, total = 0;

    for (int role = 0; role < KUBE_ROLE_MAX; role++)
        total += (uint32_t)job_task(job, role)->min;
    spots = core_alloc(c, total, sizeof(*spots));
    for (int role = 0; role < KUBE_ROLE_MAX; role++)
        for (int32_t i = 0; i < job_task(job, role)->min; i++) {
            if (room_take(c, job, role, &spots[taken])) {
                taken++;
                continue;
            }
            for (int back = 0, at = 0; back <= role; back++)
                for (int32_t k = 0; k < job_task(job, back)->min && at < (int)taken; k++)
                    room_give_back(c, job, back, spots[at++]);
            return false;
        }
    for (int role = 0, at = 0; role < KUBE_ROLE_MAX; role++)
        for (int32_t i = 0; i < job_task(job, role)->min; i++)
            scale_create(c, job, role, spots[at++]);
    return true;
}

/* Nodes that fail one after the other are replaced ever later, until the training gets on. */
static bool may_replace(struct core *c, struct job *job)
{
    struct record *r = job->record;
    int64_t delay = 0;

    if (r->failures == 0)
        return true;
    if (job->report && job->report->progress.step > r->failed_step &&
        c->now_ns - r->failed_ns > PATIENCE_NS) {
        r->failures = 0;
        return true;
    }
    if (r->failures > 1)
        delay = FAILURE_NS << (r->failures < 8 ? r->failures - 2 : 6);
    delay = delay < FAILURE_MAX_NS ? delay : FAILURE_MAX_NS;
    if (c->now_ns >= r->failed_ns + delay)
        return true;
    core_wake(c, r->failed_ns + delay);
    return false;
}

static void grow(struct core *c, struct job *job, enum kube_role role, int32_t want)
{
    int32_t from = job->have[role];
    uint32_t spot;

    if (want <= from || !may_replace(c, job) || !refused_allow(c, job, role))
        return;
    while (job->have[role] < want && quota_allows(job, role) && room_take(c, job, role, &spot))
        scale_create(c, job, role, spot);
    if (job->have[role] < want)
        job->lack = "NoRoom";
    if (job->have[role] == from)
        return;
    learn_changed(c, job, role, from, job->have[role]);
    core_event(c, job, false, "ScaledUp", "%s: %d -> %d (%s)",
               role == KUBE_PS ? "parameter servers" : "workers", from, job->have[role],
               role == KUBE_PS && from >= job_task(job, role)->min
                   ? "much of a step is communication"
                   : job->why_text);
}

/* ---- fewer ----------------------------------------------------------------------------------- */

void scale_delete(struct core *c, struct job *job, struct seat *seat)
{
    struct kube_action *action;

    seat->drops = true;
    if (!seat->pod || !core_once(c, seat))
        return;
    action = core_act(c, job, KUBE_DELETE_POD, seat);
    /* nobody is there who could say that it has ended */
    action->delete.grace_s = seat->state == POD_LOST && seat->node == NOWHERE ? 0 : -1;
}

/* Whether the chief has to let go of it first. */
static bool in_training(const struct job *job, const struct seat *seat)
{
    return job->reports && seat->state == POD_UP && seat->reported <= KUBE_NODE_DRAINING;
}

static bool drop(struct core *c, struct job *job, struct seat *seat, const char *why)
{
    if (!seat->pod || !budget_take(c, seat->pod))
        return false;
    if (!in_training(job, seat)) {
        scale_delete(c, job, seat);
        return true;
    }
    seat->drops = true;
    if (core_once(c, seat)) {
        struct kube_action *action = core_act(c, job, KUBE_ASK_LEAVE, seat);

        action->note.reason = "Leave";
        action->note.text = why;
    }
    return true;
}

/* The one that is missed least: what is not in the training yet, then what came last. */
static struct seat *least_missed(struct job *job, enum kube_role role)
{
    struct seat *best = NULL;

    for (uint32_t i = job->seat_count; i-- > 0;) {
        struct seat *seat = &job->seats[i];

        if (seat->role != role || !seat_stays(seat) || !seat->pod || seat->kept)
            continue;
        if (!best || (in_training(job, best) && !in_training(job, seat)) ||
            (best->state != POD_WAITING && seat->state == POD_WAITING))
            best = seat;
    }
    return best;
}

static void shrink(struct core *c, struct job *job, enum kube_role role, int32_t want)
{
    int32_t from = job->have[role];
    struct seat *seat;

    while (job->have[role] > want && (seat = least_missed(job, role))) {
        if (drop(c, job, seat, job->rolled_back[role] ? "it did not pay" : "others gain more"))
            job->have[role]--;
        else
            seat->kept = true;
    }
    if (job->have[role] == from)
        return;
    learn_changed(c, job, role, from, job->have[role]);
    core_event(c, job, false, job->rolled_back[role] ? "RolledBack" : "ScaledDown",
               "%s: %d -> %d (%s)", role == KUBE_PS ? "parameter servers" : "workers", from,
               job->have[role], job->why_text);
}

/* Those whose room others' pods wait for. */
static void give_way(struct core *c, struct job *job)
{
    int32_t count = 0;

    for (uint32_t i = 0; i < job->seat_count; i++) {
        struct seat *seat = &job->seats[i];

        if (!seat->victim || seat->drops)
            continue;
        if (drop(c, job, seat, "others wait for its room"))
            count++;
    }
    if (count == 0)
        return;
    learn_changed(c, job, KUBE_WORKER, job->have[KUBE_WORKER] + count, job->have[KUBE_WORKER]);
    core_event(c, job, false, "GaveWay", "%d workers leave: other pods wait for their room", count);
}

/* No node takes it: growth ends below for a while. */
static void withdraw_pending(struct core *c, struct job *job)
{
    int32_t least = job_task(job, KUBE_WORKER)->min;

    for (uint32_t i = job->seat_count; i-- > 0;) {
        struct seat *seat = &job->seats[i];

        if (seat->role != KUBE_WORKER || seat->state != POD_WAITING || seat->drops)
            continue;
        if (c->now_ns - seat->since_ns < c->settings->pending_ns) {
            core_wake(c, seat->since_ns + c->settings->pending_ns);
            continue;
        }
        if (job->have[KUBE_WORKER] <= least)
            continue;
        scale_delete(c, job, seat);
        job->have[KUBE_WORKER]--;
        if (job->want[KUBE_WORKER] > job->have[KUBE_WORKER])
            job->want[KUBE_WORKER] = job->have[KUBE_WORKER];
        learn_hold(c, job, KUBE_WORKER, job->have[KUBE_WORKER]);
        core_event(c, job, true, "Withdrawn", "%s: no node took it: %s", seat->pod->meta.name,
                   seat->pod->message ? seat->pod->message : "no reason is known");
    }
}

/* ---- the end of pods ------------------------------------------------------------------------- */

static void note_failure(struct core *c, struct job *job, const struct seat *seat)
{
    struct record *r = job->record;

    if (seat->acted_ns)
        return;
    r->failures += r->failed_ns != c->now_ns; /* a machine takes all that it had with it */
    r->trial[seat->role].to = 0;              /* it would be judged without what has failed */
    r->failed_ns = c->now_ns;
    r->failed_step = job->report ? job->report->progress.step : 0;
    core_event(c, job, true, "NodeFailed", "%s %s", seat->pod->meta.name,
               seat->state == POD_FAILED ? "has failed" : "is lost");
}

/* It has left, or was given the time to. */
static bool has_left(struct core *c, const struct job *job, const struct seat *seat)
{
    int64_t until = seat->since_ns + c->settings->drain_ns;

    if (!job->reports || seat->reported == KUBE_NODE_RELEASED || seat->reported == KUBE_NODE_LOST ||
        c->now_ns >= until)
        return true;
    core_wake(c, until);
    return false;
}

void scale_clean(struct core *c, struct job *job, bool everything)
{
    for (uint32_t i = 0; i < job->seat_count; i++) {
        struct seat *seat = &job->seats[i];
        bool failed = seat->state == POD_FAILED || (seat->state == POD_LOST && seat->gone);

        if (seat->role == KUBE_CHIEF || seat->state == POD_GOING || !seat->pod || seat->drops)
            continue;
        if (failed && job->aim == AIM_RUN && !seat->pod->leave)
            note_failure(c, job, seat);
        if (everything || failed || seat->state == POD_ENDED ||
            (seat->state == POD_LEAVING && has_left(c, job, seat)) ||
            (job->aim != AIM_RUN && seat->reported == KUBE_NODE_RELEASED))
            scale_delete(c, job, seat);
    }
}

void scale_nodes(struct core *c, struct job *job)
{
    scale_clean(c, job, false); /* before others take their places */
    give_way(c, job);
    withdraw_pending(c, job);
    shrink(c, job, KUBE_PS, job->want[KUBE_PS]);
    shrink(c, job, KUBE_WORKER, job->want[KUBE_WORKER]);
    if (job->report && job->report->finished)
        return; /* its nodes have left for good; only its chief's program has still to end */
    grow(c, job, KUBE_PS, job->want[KUBE_PS]);
    grow(c, job, KUBE_WORKER, learn_step(c, job, job->want[KUBE_WORKER]));
}
