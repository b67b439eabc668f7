/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More cores for the start of a worker. Loading TensorFlow and preparing functions is most of what
 * a new worker costs, and takes many times longer than need be within a small limit. So its pod is
 * made with the limit spec.workers.cpu.start, and gets its usual one in place once it works.
 *
 * The request is the usual one all the time: the start uses cores that nobody else wants just then,
 * takes no room from other pods and waits for none. What is under way is told by the pod itself
 * (KUBE_ANNOTATION_START and its limit), so it survives this process. The threads are those of the
 * usual limit from the begin, because results depend on their number.
 *
 *   pod made ──▶ starts ──▶ up ──▶ in the training, and examples are done ──▶ usual limit
 *                            └───▶ PATIENCE_NS later, or gives cores to a foreign pod ──▶ usual
 * limit
 */
#include "kube/grow/grow.h"

#include "base/minmax.h"

int64_t start_limit_after(const struct job *job, int64_t mcpu)
{
    const struct kube_task *task = job_task(job, KUBE_WORKER);

    if (task->mcpu <= 0) /* not of a spec that is carried out */
        return mcpu;
    return larger((mcpu * task->limit_mcpu + task->mcpu - 1) / task->mcpu, mcpu);
}

int64_t start_limit(struct core *c, struct job *job, uint32_t node)
{
    int64_t start = job->etj->worker_start_mcpu;
    struct growth *growth = &job->record->growth;

    if (!start)
        return 0;
    /* a LimitRange, or a policy, may be why a pod was refused */
    if (job->record->refused[REFUSED_CHIEF + KUBE_WORKER].code)
        growth->no_start_ns = c->now_ns + CEILING_NS;
    /* without the right to resize pods, for example, it could not be given back */
    if (c->now_ns < growth->no_start_ns || refused_now(c, job, REFUSED_RESIZE) ||
        c->nodes[node].unpowered_mcpu > 0 ||
        !quota_take_limit(job, start - job_task(job, KUBE_WORKER)->limit_mcpu))
        return 0;
    return start;
}

bool start_lasts(const struct job *job, const struct replica *replica)
{
    const struct kube_pod *pod = replica->pod;

    /* a worker that has grown in place since may have the same limit, in its usual ratio */
    return pod && pod->start_mcpu && pod->limit_mcpu == pod->start_mcpu &&
           pod->limit_mcpu > start_limit_after(job, pod->mcpu);
}

/* Whether a worker has been up for so long that it may never join, and wakes us when it has. */
static bool is_late(struct core *c, const struct replica *replica)
{
    int64_t until = replica->since_ns + PATIENCE_NS, started_ns = replica->pod->started_ns;

    /* the clock of the node, for a controller that begins anew again and again */
    if (started_ns && c->world->wall_ns - started_ns >= CEILING_NS)
        return true;
    if (c->now_ns < until)
        core_wake(c, until);
    return c->now_ns >= until;
}

static void end_one(struct core *c, struct job *job, struct replica *replica)
{
    const struct kube_pod *pod = replica->pod;
    bool works = replica->reported == KUBE_NODE_IN && job->report->progress.examples > 0;

    if ((works || is_late(c, replica)) && resize(c, job, replica, pod->mcpu) && !works)
        core_event(c, job, true, "StartTooLong",
                   "%s is not in the training yet: it keeps %lldm of CPU", pod->meta.name,
                   (long long)start_limit_after(job, pod->mcpu));
}

void start_end(struct core *c, struct job *job)
{
    if (refused_now(c, job, REFUSED_RESIZE))
        return;
    for (uint32_t i = 0; i < job->replica_count; i++) {
        struct replica *replica = &job->replicas[i];

        /* one that gives cores to a foreign pod gets its usual limit with that resize */
        if (start_lasts(job, replica) && replica->state == POD_UP && replica_stays(replica) &&
            replica->gives_mcpu == 0)
            end_one(c, job, replica);
    }
}

uint32_t start_threads(const struct job *job, const struct replica *replica)
{
    const struct kube_pod *pod = replica->pod;
    int64_t mcpu;

    if (!pod || !pod->start_mcpu)
        return 0;
    /* cores come first, and go last */
    mcpu = pod->actual_mcpu ? smaller(pod->actual_mcpu, pod->mcpu) : pod->mcpu;
    return (uint32_t)larger(start_limit_after(job, mcpu) / 1000, 1);
}
