/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a training's status: phase, conditions, counts, progress; sends events on changes. */
#include "kube/core/life.h"

#include "base/minmax.h"
#include "base/visible.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The least time between two statuses of a training. The _PER part is added for each training: it
 * bounds the requests of all trainings together. */
#define PROGRESS_NS     (10 * NS_PER_S) /* where only progress changed */
#define PROGRESS_PER_NS (NS_PER_S / 10) /* at most 10 requests a second */
#define TELL_NS         (1 * NS_PER_S)  /* where only texts or counts for people changed */
#define TELL_PER_NS     (NS_PER_S / 13) /* at most 13 requests a second */

static enum kube_phase phase_of(const struct job *job)
{
    switch (job->aim) {
    case AIM_NOTHING:
        return KUBE_INVALID;
    case AIM_REMOVE:
        return KUBE_TERMINATING;
    case AIM_SUSPEND:
        return job->replica_count ? KUBE_SUSPENDING : KUBE_SUSPENDED;
    case AIM_END:
        return job->status.phase;
    default:
        if (!job->runs && !job->starts)
            return KUBE_PENDING;
        return job->reports || (!job->begins && job->chief && job->chief->state == POD_UP)
                   ? KUBE_RUNNING
                   : KUBE_STARTING;
    }
}

static int32_t ready_of(const struct job *job, enum kube_role role)
{
    int32_t count = 0;

    for (uint32_t i = 0; i < job->replica_count; i++)
        count += job->replicas[i].role == role && job->replicas[i].reported == KUBE_NODE_IN &&
                 job->replicas[i].pod && !job->replicas[i].gone &&
                 job->replicas[i].state != POD_GOING;
    return count;
}

static void count(struct job *job, enum kube_role role, struct kube_count *to)
{
    bool wanted = job->aim == AIM_RUN;

    to->next_index = job->record->next_index[role];
    to->desired = wanted ? job->want[role] : 0;
    to->actual = job->have[role];
    to->ready = ready_of(job, role);
    if (wanted && !job->runs && !job->starts)
        to->desired = job_task(job, role)->min;
}

__attribute__((format(printf, 6, 7))) static void set(struct core *c, struct job *job,
                                                      enum kube_condition_type type, bool truth,
                                                      const char *reason, const char *fmt, ...)
{
    struct kube_condition *to = &job->status.conditions[type];
    enum kube_truth status = truth ? KUBE_TRUE : KUBE_FALSE;
    va_list ap;

    if (to->status != status || to->since_ns == 0)
        to->since_ns = c->world->wall_ns;
    to->status = status;
    to->generation = job->etj->meta.generation;
    snprintf(to->reason, sizeof(to->reason), "%s", reason);
    va_start(ap, fmt);
    vsnprintf(to->message, sizeof(to->message), fmt, ap);
    va_end(ap);
    visible(to->message); /* a text of others that was cut may end inside a character */
}

/* Whether somebody overwrites our values repeatedly; a single time may have been a slip. */
static bool contested(struct core *c, const struct job *job)
{
    const struct contest *contest = &job->record->contest;

    if (contest->count < 2 || c->now_ns - contest->at_ns >= CEILING_NS)
        return false;
    core_wake(c, contest->at_ns + CEILING_NS);
    return true;
}

/* Why it has no pods, or is to have none. */
static const char *rest_reason(const struct job *job)
{
    if (job->etj->suspend)
        return job->replica_count ? "Suspending" : "Suspended";
    if (job->queue == QUEUE_UNKNOWN)
        return "QueueUnknown";
    return job->workload && job->workload->evicted ? "Evicted" : "Queued";
}

static const char *rest_message(const struct job *job)
{
    if (job->etj->suspend)
        return "everything is given back; it goes on from its checkpoint";
    if (job->queue == QUEUE_UNKNOWN)
        return "nobody can tell yet what its queue says";
    if (job->workload && *job->workload->why)
        return job->workload->why;
    return job->workload && !job->workload->active ? "its Workload is not active: nobody admits it"
                                                   : "it waits until its queue admits it";
}

static void set_conditions(struct core *c, struct job *job)
{
    const struct kube_status *s = &job->status;
    const char *phase = kube_phase_name(s->phase);
    bool runs = s->phase == KUBE_RUNNING, ended = job->aim == AIM_END;
    bool ready = runs && s->ps.ready >= job_task(job, KUBE_PS)->min &&
                 s->worker.ready >= job_task(job, KUBE_WORKER)->min;

    if (job->etj->fault)
        set(c, job, KUBE_ACCEPTED, false, "InvalidSpec", "%s", job->etj->fault);
    else
        set(c, job, KUBE_ACCEPTED, true, "Accepted", "the spec can be carried out");
    set(c, job, KUBE_READY, ready, ready ? "InTraining" : phase,
        ready ? "chief and replicas are in the training"
              : "the training has less than its minimum of replicas");
    if (runs && job->silent)
        set(c, job, KUBE_PROGRESSING, false, "Silent",
            "its chief does not report: it keeps the size that it has");
    else if (runs)
        set(c, job, KUBE_PROGRESSING, true, "Training", "its chief reports");
    else if (job->silent)
        set(c, job, KUBE_PROGRESSING, false, "NeverReported",
            "its chief has not reported yet: it keeps its minimum of replicas");
    else
        set(c, job, KUBE_PROGRESSING, s->phase == KUBE_STARTING, phase, "%s",
            job->lack ? job->why_text : phase);
    if (job->trouble_reason)
        set(c, job, KUBE_DEGRADED, true, job->trouble_reason, "%s", job->trouble);
    else if (contested(c, job) && !ended)
        set(c, job, KUBE_DEGRADED, true, "Contested",
            "somebody else changes its %s again and again", job->record->contest.what);
    else if (s->phase == KUBE_FAILED)
        set(c, job, KUBE_DEGRADED, true, "BackoffLimitExceeded", "its chief failed %d times",
            s->restarts);
    else
        set(c, job, KUBE_DEGRADED, false, "AsExpected", "nothing is known to be wrong");
    set(c, job, KUBE_COMPLETE, ended, ended ? phase : "NotEnded", "%s",
        ended ? "the training has ended" : "the training has not ended");
    set(c, job, KUBE_IS_SUSPENDED, s->phase == KUBE_SUSPENDED,
        job->aim == AIM_SUSPEND ? rest_reason(job) : "NotSuspended", "%s",
        s->phase == KUBE_SUSPENDED    ? rest_message(job)
        : s->phase == KUBE_SUSPENDING ? "it saves a checkpoint and gives everything back"
                                      : "nothing asks it to give everything back");
}

/* Sets the sentence for `kubectl get -o wide` that explains the training's state. */
static void set_reason(struct job *job)
{
    struct kube_status *s = &job->status;
    const char *reason = kube_phase_name(s->phase), *message = "";

    if (job->etj->fault) {
        reason = "InvalidSpec";
        message = job->etj->fault;
    } else if (job->trouble_reason) {
        reason = job->trouble_reason;
        message = job->trouble;
    } else if (job->aim == AIM_SUSPEND && !job->etj->suspend) {
        reason = rest_reason(job);
        message = rest_message(job);
    } else if (job->aim == AIM_RUN) {
        reason = job->lack ? job->lack : job->etj->replicas ? "Pinned" : "Policy";
        message = job->why_text;
        if (job->etj->replicas && !job->lack)
            message = job->want[KUBE_WORKER] < job->etj->replicas
                          ? "spec.quota or its queue leaves less than spec.workers.replicas"
                          : "spec.workers.replicas says so";
    }
    if (job->aim == AIM_RUN && !job->trouble_reason && job->silent) {
        reason = "Silent";
        message = "its chief does not report: it keeps the size that it has";
    }
    snprintf(s->reason, sizeof(s->reason), "%s", reason);
    snprintf(s->message, sizeof(s->message), "%s", message);
    visible(s->message);
}

/* Adds the present size to those that the training had. */
static void note_size(struct core *c, struct kube_status *s)
{
    struct kube_size now = {.since_ns = c->world->wall_ns / NS_PER_S * NS_PER_S,
                            .ps = s->ps.actual,
                            .workers = s->worker.actual};
    struct kube_size *last = s->size_count ? &s->sizes[s->size_count - 1] : NULL;

    if (last ? last->ps == now.ps && last->workers == now.workers : !now.ps && !now.workers)
        return;
    if (last && last->since_ns >= now.since_ns) { /* of one second the last counts */
        now.since_ns = last->since_ns;
        *last = now;
        return;
    }
    if (s->size_count == KUBE_SIZES_MAX)
        memmove(&s->sizes[0], &s->sizes[1], --s->size_count * sizeof(s->sizes[0]));
    s->sizes[s->size_count++] = now;
}

/* ---- whether it is worth a request ----------------------------------------------------------- */

static bool counts_differ(const struct kube_count *a, const struct kube_count *b)
{
    return a->desired != b->desired || a->actual != b->actual || a->ready != b->ready;
}

static bool conditions_differ(const struct kube_status *a, const struct kube_status *b)
{
    for (int i = 0; i < KUBE_CONDITION_MAX; i++) {
        const struct kube_condition *x = &a->conditions[i], *y = &b->conditions[i];

        if (x->status != y->status || strcmp(x->reason, y->reason) != 0 ||
            x->generation != y->generation)
            return true;
    }
    return false;
}

/* Whether they differ in fields that later actions rest on, or that people and programs await. */
static bool matters(const struct kube_status *a, const struct kube_status *b)
{
    return a->phase != b->phase || a->observed_generation != b->observed_generation ||
           a->members_generation != b->members_generation || a->members_hash != b->members_hash ||
           a->restarts != b->restarts || strcmp(a->failed_uid, b->failed_uid) != 0 ||
           a->ps.next_index != b->ps.next_index || a->worker.next_index != b->worker.next_index ||
           conditions_differ(a, b);
}

/* Whether they differ; ignores progress and efficiency, which change all the time. */
static bool differs(const struct kube_status *a, const struct kube_status *b)
{
    bool texts = strcmp(a->reason, b->reason) != 0 || strcmp(a->message, b->message) != 0;

    for (int i = 0; i < KUBE_CONDITION_MAX; i++)
        texts |= strcmp(a->conditions[i].message, b->conditions[i].message) != 0;
    return texts || counts_differ(&a->ps, &b->ps) || counts_differ(&a->worker, &b->worker) ||
           matters(a, b);
}

static bool progress_due(struct core *c, const struct job *job)
{
    const struct kube_status *told = &job->etj->status;
    int64_t every = PROGRESS_NS + (int64_t)c->job_count * PROGRESS_PER_NS;
    int64_t due = job->record->sent.status_ns + every;

    if (!job->report || (told->has_progress && told->progress.step == job->status.progress.step))
        return false;
    if (!told->has_progress && job->record->sent.status_ns == 0)
        return true;
    if (c->now_ns >= due)
        return true;
    core_wake(c, due);
    return false;
}

static bool worth_sending(struct core *c, struct job *job)
{
    int64_t status_ns = job->record->sent.status_ns;
    const struct kube_status *told = &job->etj->status;
    int64_t since = job->entry->was_sent ? status_ns : 0;

    int64_t due = since + TELL_NS + (int64_t)c->job_count * TELL_PER_NS;

    if (!differs(&job->status, told))
        return progress_due(c, job);
    if (!since || matters(&job->status, &job->entry->sent))
        return true;
    /* we sent this status, but the object does not have it */
    if (matters(&job->status, told) || !differs(&job->status, &job->entry->sent))
        return core_again(c, job, since, "status");
    core_wake(c, due);
    return c->now_ns >= due;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void tell_rest(struct core *c, struct job *job, const struct kube_status *now,
                      const struct kube_status *before)
{
    bool rested = before->conditions[KUBE_IS_SUSPENDED].status == KUBE_TRUE;
    const char *why = rest_reason(job);

    if (now->phase == KUBE_SUSPENDED && before->phase != KUBE_SUSPENDED)
        core_event(c, job, false, why, "%s",
                   job->etj->suspend ? "everything is given back" : rest_message(job));
    if (rested && now->phase != KUBE_SUSPENDED && job->queue == QUEUE_ADMITTED)
        core_event(c, job, false, "Admitted", "by the ClusterQueue %s, with at most %d workers",
                   job->workload->cluster_queue,
                   (int)smaller(queue_most(job, KUBE_WORKER), job_task(job, KUBE_WORKER)->max));
}

static void tell_changes(struct core *c, struct job *job)
{
    const struct kube_status *now = &job->status;
    const struct kube_status *before = job->entry->was_sent ? &job->entry->sent : &job->etj->status;
    const struct kube_condition *degraded = &now->conditions[KUBE_DEGRADED];

    if (now->phase == KUBE_INVALID && before->phase != KUBE_INVALID)
        core_event(c, job, true, "InvalidSpec", "%s", job->etj->fault);
    if (now->phase == KUBE_SUCCEEDED && before->phase != KUBE_SUCCEEDED)
        core_event(c, job, false, "Succeeded", "the training has ended");
    if (now->phase == KUBE_FAILED && before->phase != KUBE_FAILED)
        core_event(c, job, true, "Failed", "its chief failed %d times", now->restarts);
    tell_rest(c, job, now, before);
    if (now->phase != KUBE_FAILED && degraded->status == KUBE_TRUE &&
        strcmp(degraded->reason, before->conditions[KUBE_DEGRADED].reason) != 0)
        core_event(c, job, true, job->trouble_reason ? job->trouble_reason : "Contested", "%s",
                   degraded->message);
}

/* Puts the status patch in front of the training's other actions. */
static void insert_first(struct core *c, struct job *job, size_t first,
                         const struct kube_status *status)
{
    struct kube_action action, *actions;

    core_act(c, job, KUBE_PATCH_STATUS, NULL)->status = status;
    if (c->error)
        return;
    actions = c->plan->actions;
    action = actions[c->plan->count - 1];
    memmove(&actions[first + 1], &actions[first], (c->plan->count - 1 - first) * sizeof(*actions));
    actions[first] = action;
}

void status_act(struct core *c, struct job *job, size_t first_action)
{
    struct kube_status *s = &job->status, *copy;

    s->phase = phase_of(job);
    s->observed_generation = job->etj->meta.generation;
    count(job, KUBE_PS, &s->ps);
    count(job, KUBE_WORKER, &s->worker);
    note_size(c, s);
    if (job->report) {
        s->has_progress = true;
        s->progress = job->report->progress;
        s->progress_ns = c->world->wall_ns;
        s->efficiency_percent = learn_efficiency(c, job);
    }
    set_reason(job);
    set_conditions(c, job);
    if (!worth_sending(c, job))
        return;
    copy = core_alloc(c, 1, sizeof(*copy));
    if (!copy)
        return;
    *copy = *s;
    tell_changes(c, job);
    insert_first(c, job, first_action, copy);
    job->sends = copy;
    job->record->sent.status_ns = c->now_ns;
}
