/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the Workload of a training that asks for a queue: makes it, follows pauses, and tells Kueue
 * when quota is free again, when the training is ready and when it has ended.
 */
#include "kube/core/life.h"

#include <string.h>

static struct kube_action *act(struct core *c, struct job *job, enum kube_action_kind kind)
{
    struct kube_action *action;

    if (!core_due(c, &job->record->sent.workload_ns[kind - KUBE_MAKE_WORKLOAD]))
        return NULL;
    action = core_act(c, job, kind, NULL);
    action->queueing = (struct kube_queueing){.workload = job->workload,
                                              .version = c->world->kueue_version,
                                              .active = !job->etj->suspend,
                                              .wall_ns = c->world->wall_ns};
    return action;
}

static void tell(struct core *c, struct job *job, enum kube_news news)
{
    struct kube_action *action = act(c, job, KUBE_TELL_WORKLOAD);

    if (action)
        action->queueing.news = news;
}

static const struct kube_class *find_class(const struct kube_class *const *classes, size_t count,
                                           const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (*name ? strcmp(classes[i]->meta.name, name) == 0 : classes[i]->standard)
            return classes[i];
    return NULL;
}

/* Kueue's own class comes before that of the pods, as with its own kinds of jobs. */
static int32_t priority_of(const struct core *c, const struct kube_etj *etj)
{
    const struct kube_world *w = c->world;
    const struct kube_class *class = NULL;

    if (*etj->queue_priority)
        class = find_class(w->queue_classes, w->queue_class_count, etj->queue_priority);
    if (!class)
        class = find_class(w->classes, w->class_count, etj->priority_class);
    return class ? class->value : 0;
}

static void make(struct core *c, struct job *job)
{
    struct kube_action *action;

    if (job->etj->suspend || job->aim == AIM_END || refused_now(c, job, REFUSED_WORKLOAD))
        return;
    action = act(c, job, KUBE_MAKE_WORKLOAD);
    if (action)
        action->queueing.priority = priority_of(c, job->etj);
}

/* Whether all that is left of it, if anything, is the pod of a chief that has ended. */
static bool is_over(const struct job *job)
{
    return job->replica_count == 0 ||
           (job->replica_count == 1 && job->chief &&
            (job->chief->state == POD_ENDED || job->chief->state == POD_FAILED));
}

static bool is_ready(const struct job *job)
{
    int32_t count[KUBE_ROLE_MAX] = {0};

    for (uint32_t i = 0; i < job->replica_count; i++)
        count[job->replicas[i].role] += job->replicas[i].reported == KUBE_NODE_IN;
    return job->reports && count[KUBE_PS] >= job_task(job, KUBE_PS)->min &&
           count[KUBE_WORKER] >= job_task(job, KUBE_WORKER)->min;
}

void queue_act(struct core *c, struct job *job)
{
    const struct kube_workload *workload = job->workload;
    bool asks = *job->etj->queue, gone = job->replica_count == 0;

    /* that of a training that is deleted goes with it, and holds its quota until then */
    if (c->world->kueue != KUBE_KUEUE_KNOWN || job->aim == AIM_REMOVE)
        return;
    /* a spec that cannot be carried out asks for nothing; its quota is freed when its pods have
     * gone, and a spec without a fault queues anew */
    if (job->etj->fault && job->aim != AIM_END) {
        if (workload && !workload->meta.deleted_ns && workload->reserved && gone)
            act(c, job, KUBE_DELETE_WORKLOAD);
        return;
    }
    if (!workload && asks)
        make(c, job);
    if (!workload || workload->meta.deleted_ns)
        return;
    if (job->aim == AIM_END) {
        if (!workload->finished && is_over(job))
            tell(c, job,
                 job->status.phase == KUBE_SUCCEEDED ? KUBE_NEWS_SUCCEEDED : KUBE_NEWS_FAILED);
        return;
    }
    if (!asks || workload->finished || workload->asks != job->etj->asks) {
        if (gone || !asks)
            act(c, job, KUBE_DELETE_WORKLOAD);
        return;
    }
    /* Kueue gives the quota of a Workload that is turned off to others at once: so the pods go
     * first. It or a person may have turned it off, too: we turn on only what we have turned off.
     */
    if (job->etj->suspend ? workload->active && gone : workload->paused) {
        act(c, job, KUBE_TURN_WORKLOAD);
        return;
    }
    if (workload->evicted && workload->reserved && gone)
        tell(c, job, KUBE_NEWS_RELEASED);
    else if (job->queue == QUEUE_ADMITTED && !workload->pods_ready && is_ready(job))
        tell(c, job, KUBE_NEWS_READY);
}
