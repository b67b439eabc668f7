/* SPDX-License-Identifier: Apache-2.0 */
/* Creates pods where there is room, asks them to leave, and deletes them. */
#include "kube/grow/grow.h"

#define FAILURE_NS     (5 * NS_PER_S) /* delay after two failures in a row; then doubles */
#define FAILURE_MAX_NS (300 * NS_PER_S)

/* ---- more ------------------------------------------------------------------------------------ */

void scale_create(struct core *c, struct job *job, enum kube_role role, uint32_t node)
{
    uint32_t index = role == KUBE_CHIEF ? 0 : (uint32_t)job->record->next_index[role]++;
    struct replica *replica = view_add_replica(c, job, role, index);
    struct kube_action *action = core_act(c, job, KUBE_CREATE_POD, NULL);

    replica->node = node;
    replica->mcpu = job_task(job, role)->mcpu;
    replica->acted_ns = c->now_ns;
    job->have[role]++;
    if (role == KUBE_WORKER) {
        job->held_mcpu += job_task(job, role)->request.mcpu;
        action->create.start_mcpu = start_limit(c, job, node);
    }
    action->create.demand = demand_of(c, job, role, node);
    action->create.role = role;
    action->create.index = index;
    if (role == KUBE_CHIEF)
        job->chief = replica;
    core_wake(c, c->now_ns + 2 * ECHO_NS);
}

void scale_give_back(struct core *c, struct job *job, const uint32_t *nodes, uint32_t count)
{
    uint32_t at = 0;

    for (int role = 0; role < KUBE_ROLE_MAX; role++)
        for (int32_t i = 0; i < job_task(job, role)->min && at < count; i++)
            room_give_back(c, job, role, nodes[at++]);
}

uint32_t *scale_take_least(struct core *c, struct job *job)
{
    uint32_t *nodes, taken = 0, total = 0;

    for (int role = 0; role < KUBE_ROLE_MAX; role++)
        total += (uint32_t)job_task(job, role)->min;
    nodes = core_alloc(c, total, sizeof(*nodes));
    for (int role = 0; role < KUBE_ROLE_MAX && nodes; role++)
        for (int32_t i = 0; i < job_task(job, role)->min; i++) {
            if (room_take(c, job, role, &nodes[taken])) {
                taken++;
                continue;
            }
            scale_give_back(c, job, nodes, taken);
            return NULL;
        }
    return nodes;
}

/* A zone where the training can begin now comes before any other, then the one for most workers. */
static int64_t worth_of(struct core *c, struct job *job, const char *zone)
{
    const struct kube_task *task = job_task(job, KUBE_WORKER);
    uint32_t *nodes;
    int64_t worth;

    demand_move(job, zone, true);
    worth = room_count(c, job, KUBE_WORKER, task->max);
    nodes = scale_take_least(c, job);
    if (!nodes)
        return worth;
    scale_give_back(c, job, nodes, UINT32_MAX);
    return worth + KUBE_TASKS_MAX + 1;
}

static void choose_zone(struct core *c, struct job *job)
{
    const char *best = NULL;
    int64_t most = -1;
    struct name_map seen;

    core_map(c, &seen, c->node_count);
    for (uint32_t i = 0; i < c->node_count && !c->error; i++) {
        const char *zone = demand_zone_of(job, &c->nodes[i]);
        int64_t worth;

        if (!zone || !c->nodes[i].usable || name_map_get(&seen, zone) != NOWHERE)
            continue;
        name_map_put(&seen, zone, i);
        worth = worth_of(c, job, zone);
        if (worth > most) {
            most = worth;
            best = zone;
        }
    }
    if (!best && job->etj->closeness == KUBE_REQUIRE)
        best = ""; /* which no node has */
    demand_move(job, best, job->etj->closeness == KUBE_REQUIRE);
    job->unpowered = false;
}

void scale_choose_zones(struct core *c)
{
    for (uint32_t j = 0; j < c->job_count; j++)
        if (c->jobs[j].etj->topology_key && c->jobs[j].aim == AIM_RUN && !c->jobs[j].runs)
            choose_zone(c, &c->jobs[j]);
}

bool scale_start(struct core *c, struct job *job)
{
    const uint32_t *nodes = scale_take_least(c, job);

    if (!nodes)
        return false;
    for (int role = 0, at = 0; role < KUBE_ROLE_MAX; role++)
        for (int32_t i = 0; i < job_task(job, role)->min; i++)
            scale_create(c, job, role, nodes[at++]);
    return true;
}

/* Each failure in a row delays the replacement further, until the training makes progress. */
static bool may_replace(struct core *c, struct job *job)
{
    struct failures *failures = &job->record->failures;
    int64_t delay = 0;

    if (failures->count == 0)
        return true;
    if (job->report && job->report->progress.step > failures->step &&
        c->now_ns - failures->at_ns > PATIENCE_NS) {
        failures->count = 0;
        return true;
    }
    if (failures->count > 1)
        delay = FAILURE_NS << (failures->count < 8 ? failures->count - 2 : 6);
    delay = delay < FAILURE_MAX_NS ? delay : FAILURE_MAX_NS;
    if (c->now_ns >= failures->at_ns + delay)
        return true;
    core_wake(c, failures->at_ns + delay);
    return false;
}

static void grow(struct core *c, struct job *job, enum kube_role role, int32_t want)
{
    int32_t from = job->have[role];
    uint32_t node;

    if (want <= from || !may_replace(c, job) || !refused_allow(c, job, role))
        return;
    while (job->have[role] < want && quota_allows(job, role) && room_take(c, job, role, &node))
        scale_create(c, job, role, node);
    if (job->have[role] < want)
        job->lack = room_lack(job);
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

void scale_delete(struct core *c, struct job *job, struct replica *replica)
{
    struct kube_action *action;

    replica->drops = true;
    if (!replica->pod || !core_once(c, replica))
        return;
    action = core_act(c, job, KUBE_DELETE_POD, replica);
    /* its Kubernetes node is gone: no kubelet could report its end */
    action->delete.grace_s = replica->state == POD_LOST && replica->node == NOWHERE ? 0 : -1;
}

/* Whether the chief has to release the replica before its pod may go. */
static bool in_training(const struct job *job, const struct replica *replica)
{
    return job->reports && replica->state == POD_UP && replica->reported <= KUBE_NODE_DRAINING;
}

static bool drop(struct core *c, struct job *job, struct replica *replica, const char *why)
{
    if (!replica->pod || !budget_take(c, replica->pod))
        return false;
    if (!in_training(job, replica)) {
        scale_delete(c, job, replica);
        return true;
    }
    replica->drops = true;
    if (core_once(c, replica)) {
        struct kube_action *action = core_act(c, job, KUBE_ASK_LEAVE, replica);

        action->note.reason = "Leave";
        action->note.text = why;
    }
    return true;
}

/* The replica that is missed least: one outside the training if there is any, else the newest. */
static struct replica *least_missed(struct job *job, enum kube_role role)
{
    struct replica *best = NULL;

    for (uint32_t i = job->replica_count; i-- > 0;) {
        struct replica *replica = &job->replicas[i];

        if (replica->role != role || !replica_stays(replica) || !replica->pod || replica->kept)
            continue;
        if (!best || (in_training(job, best) && !in_training(job, replica)) ||
            (best->state != POD_WAITING && replica->state == POD_WAITING))
            best = replica;
    }
    return best;
}

static void shrink(struct core *c, struct job *job, enum kube_role role, int32_t want)
{
    int32_t from = job->have[role];
    struct replica *replica;

    while (job->have[role] > want && (replica = least_missed(job, role))) {
        if (drop(c, job, replica, job->rolled_back[role] ? "it did not pay" : "others gain more"))
            job->have[role]--;
        else
            replica->kept = true;
    }
    if (job->have[role] == from)
        return;
    learn_changed(c, job, role, from, job->have[role]);
    core_event(c, job, false, job->rolled_back[role] ? "RolledBack" : "ScaledDown",
               "%s: %d -> %d (%s)", role == KUBE_PS ? "parameter servers" : "workers", from,
               job->have[role], job->why_text);
}

/* Removes the workers whose room foreign pods wait for. */
static void give_way(struct core *c, struct job *job)
{
    int32_t count = 0;

    for (uint32_t i = 0; i < job->replica_count; i++) {
        struct replica *replica = &job->replicas[i];

        if (!replica->victim || replica->drops)
            continue;
        if (drop(c, job, replica, "others wait for its room"))
            count++;
    }
    if (count == 0)
        return;
    learn_changed(c, job, KUBE_WORKER, job->have[KUBE_WORKER] + count, job->have[KUBE_WORKER]);
    core_event(c, job, false, "GaveWay", "%d workers leave: other pods wait for their room", count);
}

/* Removes workers that no node takes, and caps growth at the rest for a while. */
static void withdraw_pending(struct core *c, struct job *job)
{
    int32_t least = job_task(job, KUBE_WORKER)->min;

    for (uint32_t i = job->replica_count; i-- > 0;) {
        struct replica *replica = &job->replicas[i];

        if (replica->role != KUBE_WORKER || replica->state != POD_WAITING || replica->drops)
            continue;
        if (c->now_ns - replica->since_ns < c->settings->pending_ns) {
            core_wake(c, replica->since_ns + c->settings->pending_ns);
            continue;
        }
        if (job->have[KUBE_WORKER] <= least)
            continue;
        scale_delete(c, job, replica);
        job->have[KUBE_WORKER]--;
        if (job->want[KUBE_WORKER] > job->have[KUBE_WORKER])
            job->want[KUBE_WORKER] = job->have[KUBE_WORKER];
        learn_hold(c, job, KUBE_WORKER, job->have[KUBE_WORKER]);
        core_event(c, job, true, "Withdrawn", "%s: no node took it: %s", replica->pod->meta.name,
                   replica->pod->message ? replica->pod->message : "no reason is known");
    }
}

/* ---- the end of pods ------------------------------------------------------------------------- */

static void note_failure(struct core *c, struct job *job, const struct replica *replica)
{
    struct record *r = job->record;

    if (replica->acted_ns)
        return;
    r->failures.count += r->failures.at_ns != c->now_ns;      /* a lost machine counts once */
    trial_move(&r->trial[replica->role], TRIAL_BROKEN, NULL); /* a trial is void after a failure */
    r->failures.at_ns = c->now_ns;
    r->failures.step = job->report ? job->report->progress.step : 0;
    core_event(c, job, true, "NodeFailed", "%s %s", replica->pod->meta.name,
               replica->state == POD_FAILED ? "has failed" : "is lost");
}

/* Whether the replica has left the training, or has had enough time to. */
static bool has_left(struct core *c, const struct job *job, const struct replica *replica)
{
    int64_t until = replica->since_ns + c->settings->drain_ns;

    if (!job->reports || replica->reported == KUBE_NODE_RELEASED ||
        replica->reported == KUBE_NODE_LOST || c->now_ns >= until)
        return true;
    core_wake(c, until);
    return false;
}

void scale_clean(struct core *c, struct job *job, bool everything)
{
    for (uint32_t i = 0; i < job->replica_count; i++) {
        struct replica *replica = &job->replicas[i];
        bool failed = replica->state == POD_FAILED || (replica->state == POD_LOST && replica->gone);

        if (replica->role == KUBE_CHIEF || replica->state == POD_GOING || !replica->pod ||
            replica->drops)
            continue;
        if (failed && job->aim == AIM_RUN && !replica->pod->leave)
            note_failure(c, job, replica);
        if (everything || failed || replica->state == POD_ENDED ||
            (replica->state == POD_LEAVING && has_left(c, job, replica)) ||
            (job->aim != AIM_RUN && replica->reported == KUBE_NODE_RELEASED))
            scale_delete(c, job, replica);
    }
}

void scale_nodes(struct core *c, struct job *job)
{
    scale_clean(c, job, false); /* first, so that replacements find their room free */
    give_way(c, job);
    withdraw_pending(c, job);
    shrink(c, job, KUBE_PS, job->want[KUBE_PS]);
    shrink(c, job, KUBE_WORKER, job->want[KUBE_WORKER]);
    if (job->report && job->report->finished)
        return; /* its replicas have left for good; only the chief's program is still to end */
    grow(c, job, KUBE_PS, job->want[KUBE_PS]);
    grow(c, job, KUBE_WORKER, learn_step(c, job, job->want[KUBE_WORKER]));
}
