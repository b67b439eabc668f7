/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rest of spec.quota and of what a queue has admitted for a training, and of its namespace's
 * quotas for growth in place. node_capacity.c counts the rest of the latter for more pods.
 */
#include "kube/capacity/capacity.h"

#include "base/minmax.h"

/*
 * The most cores that a queue has admitted for all workers; INT64_MAX: no queue bounds them. While
 * nobody can tell, those that they have.
 */
static int64_t admitted_mcpu(const struct job *job)
{
    const struct kube_task *task = job_task(job, KUBE_WORKER);
    int64_t most = queue_most(job, KUBE_WORKER);

    if (job->queue == QUEUE_UNKNOWN)
        return larger(job->held_mcpu, task->min * task->request.mcpu);
    return most == INT32_MAX ? INT64_MAX : most * task->request.mcpu;
}

/* The rest of spec.quota beside the chief and @count pods of @role; INT64_MAX: no quota. */
static struct kube_amount left_beside(const struct job *job, enum kube_role role, int64_t count)
{
    const struct kube_amount *all = &job->etj->quota, *other = &job_task(job, role)->request;
    const struct kube_amount *chief = &job_task(job, KUBE_CHIEF)->request;

    return (struct kube_amount){
        .mcpu = all->mcpu ? all->mcpu - chief->mcpu - count * other->mcpu : INT64_MAX,
        .bytes = all->bytes ? all->bytes - chief->bytes - count * other->bytes : INT64_MAX};
}

static int64_t times_in(const struct kube_amount *left, const struct kube_amount *each,
                        int64_t most)
{
    if (each->mcpu > 0)
        most = smaller(most, larger(left->mcpu, 0) / each->mcpu);
    if (each->bytes > 0)
        most = smaller(most, larger(left->bytes, 0) / each->bytes);
    return most;
}

static int64_t servers_of(const struct job *job)
{
    return larger(job->want[KUBE_PS], job_task(job, KUBE_PS)->min);
}

int64_t quota_workers(const struct job *job, int64_t most)
{
    const struct kube_task *task = job_task(job, KUBE_WORKER);
    struct kube_amount left = left_beside(job, KUBE_PS, servers_of(job));

    most = smaller(most, queue_most(job, KUBE_WORKER));
    return larger(times_in(&left, &task->request, most), task->min);
}

int32_t quota_servers(const struct job *job, int32_t most)
{
    const struct kube_task *task = job_task(job, KUBE_PS);
    struct kube_amount left = left_beside(job, KUBE_WORKER, job_task(job, KUBE_WORKER)->min);

    most = (int32_t)smaller(most, queue_most(job, KUBE_PS));
    return (int32_t)larger(times_in(&left, &task->request, most), task->min);
}

int64_t quota_mcpu(const struct job *job)
{
    return smaller(left_beside(job, KUBE_PS, servers_of(job)).mcpu, admitted_mcpu(job));
}

bool quota_allows(const struct job *job, enum kube_role role)
{
    const struct kube_amount *need = &job_task(job, role)->request;
    const struct kube_task *worker = job_task(job, KUBE_WORKER);
    struct kube_amount left = left_beside(job, KUBE_PS, job->have[KUBE_PS]);

    if (role == KUBE_CHIEF) /* left_beside() always counts it */
        return true;
    if (job->have[role] >= queue_most(job, role))
        return false;
    if (role == KUBE_WORKER)
        left.mcpu = smaller(left.mcpu, admitted_mcpu(job));
    left.bytes -= job->have[KUBE_WORKER] * worker->request.bytes;
    return need->mcpu <= left.mcpu - job->held_mcpu && need->bytes <= left.bytes;
}

int64_t quota_more_mcpu(const struct job *job)
{
    const struct kube_task *task = job_task(job, KUBE_WORKER);
    int64_t own = smaller(left_beside(job, KUBE_PS, job->have[KUBE_PS]).mcpu, admitted_mcpu(job));
    int64_t more = own == INT64_MAX ? own : own - job->held_mcpu;

    if (!job->quota_scope)
        return larger(more, 0);
    more = smaller(more, job->quota_scope->request_left.mcpu);
    /* the ratio of limit to request stays; an unlimited quota is far above every request */
    if (task->limit_mcpu > 0 && task->mcpu > 0 && job->quota_scope->limit_left.mcpu < INT64_MAX / 4)
        more = smaller(more, (int64_t)((double)job->quota_scope->limit_left.mcpu *
                                       (double)task->mcpu / (double)task->limit_mcpu));
    return larger(more, 0);
}

bool quota_take_limit(struct job *job, int64_t mcpu)
{
    if (!job->quota_scope)
        return true;
    if (job->quota_scope->limit_left.mcpu < mcpu)
        return false;
    job->quota_scope->limit_left.mcpu -= mcpu;
    return true;
}

void quota_take_mcpu(struct job *job, int64_t mcpu)
{
    const struct kube_task *task = job_task(job, KUBE_WORKER);

    job->held_mcpu += mcpu;
    if (!job->quota_scope)
        return;
    job->quota_scope->request_left.mcpu -= mcpu;
    if (task->mcpu > 0)
        job->quota_scope->limit_left.mcpu -=
            (mcpu * task->limit_mcpu + task->mcpu - 1) / task->mcpu;
}
