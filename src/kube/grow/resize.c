/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resizes workers in place. To shrink, the threads go first: the chief is told the new number, and
 * the cores follow once the worker has acknowledged it. To grow, the cores go first, and the worker
 * follows its container. A resize that the Kubernetes node defers for long or refuses is undone.
 */
#include "kube/grow/grow.h"

#include "base/minmax.h"

#define THREADS_NS  (5 * NS_PER_S)  /* then the cores shrink even without acknowledgement */
#define DEFERRED_NS (30 * NS_PER_S) /* how long a Kubernetes node may defer a resize */

static uint32_t threads_of(int64_t mcpu)
{
    return (uint32_t)larger(mcpu / 1000, 1);
}

bool resize(struct core *c, struct job *job, struct replica *replica, int64_t mcpu)
{
    struct kube_action *action;

    if (replica->acted_ns && replica->sized_mcpu == mcpu &&
        !core_again(c, job, replica->acted_ns, "workers' size"))
        return false;
    if (!core_once(c, replica))
        return false;
    replica->sized_mcpu = mcpu;
    action = core_act(c, job, KUBE_RESIZE_POD, replica);
    action->resize.mcpu = mcpu;
    action->resize.limit_mcpu = start_lasts(job, replica) ? start_limit_after(job, mcpu) : 0;
    return true;
}

/* Undoes a resize that the Kubernetes node cannot do or defers. Returns whether there was one. */
static bool take_back(struct core *c, struct job *job, struct replica *replica)
{
    const struct kube_pod *pod = replica->pod;
    int64_t actual = pod->actual_mcpu;

    if (pod->resize != KUBE_RESIZE_DEFERRED && pod->resize != KUBE_RESIZE_INFEASIBLE)
        return false;
    if (pod->resize == KUBE_RESIZE_DEFERRED && replica->acted_ns == 0)
        replica->acted_ns = c->now_ns; /* when it was deferred, as far as we know */
    if (pod->resize == KUBE_RESIZE_DEFERRED && c->now_ns - replica->acted_ns < DEFERRED_NS) {
        core_wake(c, replica->acted_ns + DEFERRED_NS);
        return true;
    }
    /* a node that defers may have room soon; one that refuses will not */
    job->record->growth.no_resize_ns =
        c->now_ns + (pod->resize == KUBE_RESIZE_DEFERRED ? PATIENCE_NS : CEILING_NS);
    if (actual && actual != pod->mcpu && resize(c, job, replica, actual))
        core_event(c, job, true, "ResizeRefused", "%s cannot have %lldm of CPU: it keeps %lldm",
                   pod->meta.name, (long long)pod->mcpu, (long long)actual);
    return true;
}

static void resize_worker(struct core *c, struct job *job, struct replica *replica, int64_t target)
{
    const struct kube_pod *pod = replica->pod;
    int64_t actual = pod->actual_mcpu ? pod->actual_mcpu : pod->mcpu;
    struct kube_amount *free = &c->nodes[replica->node].free;
    int64_t room = free->mcpu - c->nodes[replica->node].unpowered_mcpu, until;

    room = smaller(room, quota_more_mcpu(job));
    if (replica->gives_mcpu && target > pod->mcpu - replica->gives_mcpu)
        target = pod->mcpu - replica->gives_mcpu;
    if (target > pod->mcpu && target - pod->mcpu > room)
        target = pod->mcpu + larger(room, 0) / 50 * 50;
    if (actual > pod->mcpu)
        replica->told_threads = threads_of(pod->mcpu); /* it still shrinks */
    /* a resize below 5 % is not worth its pause */
    if (larger(target - pod->mcpu, pod->mcpu - target) * 20 < pod->mcpu)
        return;
    if (target > pod->mcpu) {
        if (c->now_ns < job->record->growth.no_resize_ns || c->others_wait ||
            start_lasts(job, replica))
            return;
        free->mcpu -= target - pod->mcpu;
        quota_take_mcpu(job, target - pod->mcpu);
        resize(c, job, replica, target);
        return;
    }
    replica->told_threads = threads_of(target);
    if (job->reports && replica->reported == KUBE_NODE_IN &&
        (replica->threads == 0 || replica->threads > replica->told_threads)) {
        record_move(job->record, ON_AWAIT_THREADS, c->now_ns);
        until = record_since(job->record, THREADS_AWAITED) + THREADS_NS;
        if (c->now_ns < until) {
            core_wake(c, until);
            return;
        }
    }
    resize(c, job, replica, target);
}

void resize_nodes(struct core *c, struct job *job)
{
    bool shrinks = false;

    if (!job_is_resized(job) || job->silent || !job->reports || refused_now(c, job, REFUSED_RESIZE))
        return;
    for (uint32_t i = 0; i < job->replica_count; i++) {
        struct replica *replica = &job->replicas[i];

        if (replica->role != KUBE_WORKER || replica->state != POD_UP || replica->node == NOWHERE ||
            !replica_stays(replica) || take_back(c, job, replica))
            continue;
        resize_worker(c, job, replica, job->worker_mcpu);
        shrinks |= replica->told_threads != 0;
    }
    if (!shrinks)
        record_move(job->record, ON_THREADS_PARKED, c->now_ns);
}
