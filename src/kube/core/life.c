/* SPDX-License-Identifier: Apache-2.0 */
/* Begins, restarts and ends a training, as its chief's pod and its spec require. */
#include "kube/core/life.h"

#include <stdio.h>
#include <string.h>

#define RESTART_NS     (10 * NS_PER_S) /* delay of the second restart; doubles with each */
#define RESTART_MAX_NS (300 * NS_PER_S)
#define RANKS          4 /* of actions of one training, see rank_of() */
#define SAVING_TIMES   4 /* a chief that may be saving gets so many times drain_ns */

/* ---- trouble --------------------------------------------------------------------------------- */

static const char *kind_of(const char *trouble)
{
    return strstr(trouble, "Image") ? "ImageUnavailable" : "ContainerFails";
}

static void find_trouble(struct core *c, struct job *job)
{
    for (uint32_t i = 0; i < job->replica_count && !job->trouble_reason; i++) {
        const struct replica *replica = &job->replicas[i];
        const struct kube_pod *pod = replica->pod;

        if (!pod || replica->state == POD_GOING)
            continue;
        if (pod->trouble) {
            job->trouble_reason = kind_of(pod->trouble);
            snprintf(job->trouble, sizeof(job->trouble), "%.80s: %s: %.120s", pod->meta.name,
                     pod->trouble, pod->message ? pod->message : "no message");
        } else if (replica->state == POD_WAITING && c->now_ns - replica->since_ns >= ECHO_NS) {
            job->trouble_reason = "Unschedulable";
            snprintf(job->trouble, sizeof(job->trouble), "%.80s waits for a node: %.140s",
                     pod->meta.name, pod->message ? pod->message : "the scheduler is silent");
        } else if (replica->state == POD_WAITING) {
            core_wake(c, replica->since_ns + ECHO_NS);
        }
    }
    if (!job->trouble_reason && job->status.restarts && job->chief &&
        job->chief->state == POD_FAILED) {
        job->trouble_reason = "ChiefFailed";
        snprintf(job->trouble, sizeof(job->trouble), "%.80s ended with status %d; restart %d of %d",
                 job->chief->pod->meta.name, job->chief->pod->exit_code, job->status.restarts,
                 job->etj->backoff_limit);
    }
}

/* ---- aim ------------------------------------------------------------------------------------- */

/* Counts the chief's failure as a restart, once for each failed pod. */
static void count_failure(struct job *job)
{
    const struct kube_pod *pod = job->chief->pod;
    struct kube_status *status = &job->status;

    if (strcmp(status->failed_uid, pod->meta.uid) == 0)
        return;
    snprintf(status->failed_uid, sizeof(status->failed_uid), "%s", pod->meta.uid);
    status->restarts++;
}

/*
 * Whether it may have no pods: a person pauses it, or a queue has not admitted it (any more). While
 * nobody can tell, what drains goes on draining: its chief saves, and its queue waits for its room.
 */
static bool has_to_rest(const struct job *job)
{
    return job->etj->suspend || job->queue == QUEUE_WAITS ||
           (job->queue == QUEUE_UNKNOWN &&
            (job->replica_count == 0 || job->etj->status.phase == KUBE_SUSPENDING));
}

/* A queue takes its room for others. Its pods go then, whatever its spec has become meanwhile. */
static bool is_pushed_out(const struct job *job)
{
    return job->queue == QUEUE_WAITS && job->replica_count > 0 && job->workload &&
           job->workload->evicted;
}

void life_aim(struct core *c, struct job *job)
{
    const struct kube_etj *etj = job->etj;
    bool rests = has_to_rest(job);
    bool ended = etj->status.phase == KUBE_SUCCEEDED || etj->status.phase == KUBE_FAILED;
    const struct replica *chief = job->chief;

    job->runs = job->replica_count > 0 || etj->status.phase == KUBE_STARTING ||
                etj->status.phase == KUBE_RUNNING;
    job->aim = AIM_RUN;
    if (etj->meta.deleted_ns) {
        job->aim = AIM_REMOVE;
    } else if (ended) {
        job->aim = AIM_END;
    } else if (etj->fault && !is_pushed_out(job)) {
        job->aim = AIM_NOTHING;
    } else if (chief && chief->state == POD_ENDED &&
               (!rests || (job->report && job->report->finished))) {
        job->aim = AIM_END;
        job->status.phase = KUBE_SUCCEEDED;
    } else if (chief && chief->state == POD_FAILED && !rests) {
        count_failure(job);
        job->failed = job->status.restarts > etj->backoff_limit;
    } else if (rests) {
        job->aim = AIM_SUSPEND;
    }
    if (job->failed) {
        job->aim = AIM_END;
        job->status.phase = KUBE_FAILED;
    }
    if (job->aim == AIM_SUSPEND || job->aim == AIM_REMOVE)
        record_move(job->record, ON_DRAIN, c->now_ns);
    else
        record_move(job->record, job->aim == AIM_RUN && job->runs ? ON_RUN : ON_REST, c->now_ns);
    if (job->aim != AIM_END)
        find_trouble(c, job);
}

/* ---- the chief ------------------------------------------------------------------------------- */

static void restart_chief(struct core *c, struct job *job)
{
    int32_t n = job->status.restarts;
    int64_t delay = n > 1 ? RESTART_NS << (n < 8 ? n - 2 : 6) : 0;
    int64_t until = job->chief->since_ns + (delay < RESTART_MAX_NS ? delay : RESTART_MAX_NS);

    if (c->now_ns < until)
        core_wake(c, until);
    else
        scale_delete(c, job, job->chief);
}

/* A chief's pod always has the same name, so a new one cannot exist before the old one is gone. */
static void keep_chief(struct core *c, struct job *job)
{
    uint32_t node;

    if (!job->chief) {
        if (!refused_allow(c, job, KUBE_CHIEF))
            return;
        if (room_take(c, job, KUBE_CHIEF, &node))
            scale_create(c, job, KUBE_CHIEF, node);
        else
            job->lack = room_lack(job);
    } else if (job->chief->state == POD_FAILED) {
        restart_chief(c, job);
    }
}

/* ---- drain ----------------------------------------------------------------------------------- */

static bool has_nodes(const struct job *job)
{
    for (uint32_t i = 0; i < job->replica_count; i++)
        if (job->replicas[i].role != KUBE_CHIEF && job->replicas[i].state != POD_GOING)
            return true;
    return false;
}

/* A chief that still reports while its training drains may be saving: it gets more time. */
static int64_t drain_until(struct core *c, const struct job *job)
{
    int64_t patience = c->settings->drain_ns, fresh;

    if (job->report) {
        fresh = job->report->at_ns + ECHO_NS;
        patience *= c->now_ns < fresh ? SAVING_TIMES : 1;
        if (c->now_ns < fresh)
            core_wake(c, fresh);
    }
    return record_since(job->record, LIFE_DRAINS) + patience;
}

/*
 * The replicas go first, as long as the chief can release them and save; the chief goes last. A
 * chief without a report is waited for if the status has progress: another controller got its
 * reports.
 */
static void drain(struct core *c, struct job *job)
{
    int64_t until = drain_until(c, job);
    bool late = c->now_ns >= until;
    bool serves = job->chief && job->chief->state == POD_UP && !job->silent &&
                  (job->reports || job->etj->status.has_progress);

    if (!late)
        core_wake(c, until);
    scale_clean(c, job, late || !serves);
    if (job->chief && job->chief->state != POD_GOING && (late || !serves || !has_nodes(job)))
        scale_delete(c, job, job->chief);
    if (job->replica_count == 0 && job->aim == AIM_REMOVE && job->etj->finalizer >= 0 &&
        core_due(c, &job->record->sent.no_finalizer_ns))
        core_act(c, job, KUBE_REMOVE_FINALIZER, NULL);
}

/* ---- one training ---------------------------------------------------------------------------- */

static void begin(struct core *c, struct job *job)
{
    if (!job->starts)
        return;
    job->starts = !c->others_wait && scale_start(c, job);
    job->lack = job->starts ? NULL : room_lack(job);
    if (job->starts) {
        job->record->growth.changed_ns = 0;
        core_event(c, job, false, "Started", "workers: %d, parameter servers: %d (%s)",
                   job->have[KUBE_WORKER], job->have[KUBE_PS], job->why_text);
    }
}

static void run(struct core *c, struct job *job)
{
    struct sent *sent = &job->record->sent;
    bool announced = sent->service && sent->trust == c->world->trust;

    if (job->etj->finalizer < 0 &&
        (sent->finalizer_ns == 0 || core_again(c, job, sent->finalizer_ns, "finalizer"))) {
        sent->finalizer_ns = c->now_ns;
        core_act(c, job, KUBE_ADD_FINALIZER, NULL);
    }
    if ((job->runs || job->starts) && !announced && !refused_now(c, job, REFUSED_SERVICE)) {
        core_act(c, job, KUBE_CREATE_SERVICE, NULL);
        sent->service = true;
        sent->trust = c->world->trust;
    }
    if (job->runs) {
        keep_chief(c, job);
        scale_nodes(c, job);
        start_end(c, job);
        resize_nodes(c, job);
    } else {
        begin(c, job);
    }
}

/* Runs after all decisions: failed replicas are replaced, and this trouble must not stop growth. */
static void tell_failures(struct core *c, struct job *job)
{
    const struct failures *failures = &job->record->failures;

    if (job->trouble_reason || job->aim == AIM_END || failures->count == 0 ||
        c->now_ns - failures->at_ns >= PATIENCE_NS)
        return;
    job->trouble_reason = "NodesFail";
    snprintf(job->trouble, sizeof(job->trouble),
             "replicas failed or were lost lately, %d times in a row", failures->count);
    core_wake(c, failures->at_ns + PATIENCE_NS);
}

/* Actions that may be refused come last: giving pods back and informing the chief never wait. */
static int rank_of(const struct kube_action *action)
{
    switch (action->kind) {
    case KUBE_ASK_LEAVE:
    case KUBE_DELETE_POD:
        return 0;
    case KUBE_SET_MEMBERS:
        return 1;
    case KUBE_MAKE_WORKLOAD:
    case KUBE_TURN_WORKLOAD:
    case KUBE_TELL_WORKLOAD:
    case KUBE_DELETE_WORKLOAD:
        return 2;
    default:
        return RANKS - 1;
    }
}

static void put_in_order(struct core *c, size_t first)
{
    size_t count = c->plan->count - first, at = 0;
    struct kube_action *actions, *ordered;

    if (count < 2)
        return;
    actions = &c->plan->actions[first];
    ordered = core_alloc(c, count, sizeof(*ordered));
    if (!ordered)
        return;
    for (int rank = 0; rank < RANKS; rank++)
        for (size_t i = 0; i < count; i++)
            if (rank_of(&actions[i]) == rank)
                ordered[at++] = actions[i];
    memcpy(actions, ordered, count * sizeof(*ordered));
}

void life_act(struct core *c, struct job *job)
{
    size_t first = c->plan->count;

    switch (job->aim) {
    case AIM_NOTHING:
        break;
    case AIM_RUN:
        run(c, job);
        break;
    case AIM_END:
        scale_clean(c, job, true);
        break;
    case AIM_SUSPEND:
    case AIM_REMOVE:
        drain(c, job);
        break;
    }
    if (job->aim != AIM_NOTHING)
        members_tell(c, job);
    queue_act(c, job);
    put_in_order(c, first);
    tell_failures(c, job);
    refused_tell(job);
    status_act(c, job, first);
}
