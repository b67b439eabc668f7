/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/apportion.h"

#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/job/split.h"
#include "host/proc/proc.h"

#include <stdio.h>

struct apportion {
    uint32_t n, target; /* of the processes without a target of their own */
    struct process *process[JOB_PROCESSES_MAX];
    struct split_part part[JOB_PROCESSES_MAX];
};

static bool is_set_within(const struct process *p)
{
    return p->local.intra > 0 && p->job->asked.pinned.intra > 0;
}

static void collect(struct job *j, struct apportion *ret)
{
    ret->n = 0;
    ret->target = j->wanted.threads.intra;
    for (struct process *p = j->processes; p && ret->n < JOB_PROCESSES_MAX; p = p->next) {
        if (!process_malleable(p) || j->wanted.threads.intra == 0)
            continue;
        if (is_set_within(p)) {
            ret->target -= p->local.intra < ret->target ? p->local.intra : ret->target;
            continue;
        }
        ret->process[ret->n] = p;
        ret->part[ret->n++] =
            (struct split_part){.max = process_max(p), .had = p->want.intra, .use = &p->use};
    }
}

/* ---- whether cores are scarce ---- */

/* Processor time of the whole machine, whoever used it. */
static struct {
    uint64_t at_ns, ns;
    bool scarce;
} busy;

static void look_at_machine(struct daemon *d, uint64_t now_ns)
{
    uint64_t busy_ns, past_ns = now_ns - busy.at_ns;

    if (past_ns < SPLIT_LOOK_NS || proc_read_busy(d->root, &busy_ns) < 0)
        return;
    busy.scarce = (busy_ns - busy.ns) * 1000 >= past_ns * d->topology.cpus * SPLIT_SCARCE;
    busy.at_ns = now_ns;
    busy.ns = busy_ns;
}

/* CPUs of the machine, or those that the job may use. */
static bool is_scarce(const struct job *j)
{
    uint64_t milli = 0;

    for (const struct process *p = j->processes; p; p = p->next)
        milli += p->use.n ? p->use.milli[0] : 0;
    return busy.scarce || milli * 1000 >= (uint64_t)job_allowed_mcpu(j) * SPLIT_SCARCE;
}

/* ---- dividing ---- */

/* Each process that serves gets the threads of the shape of its promise, each other one a thread.
 */
static void divide_by_shape(const struct job *j, struct apportion *parts)
{
    const struct instances_shape *shape = &j->promise.shape;
    uint32_t whole = parts->target / shape->count; /* a smaller target is no longer its shape's */

    whole = whole < shape->threads ? whole : shape->threads;
    for (uint32_t i = 0; i < parts->n; i++) {
        struct split_part *part = &parts->part[i];
        bool serves = parts->process[i]->latency.ended > 0;

        part->part = serves && whole ? whole : 1;
        if (part->max && part->part > part->max)
            part->part = part->max;
    }
}

static void divide(struct job *j, struct apportion *parts)
{
    if (j->promise.shape.threads)
        divide_by_shape(j, parts);
    else
        split_divide(parts->part, parts->n, parts->target, is_scarce(j));
}

static uint32_t even(uint32_t whole, uint32_t n, uint32_t i)
{
    uint32_t part = whole / n + (i < whole % n);

    return whole > 0 && part == 0 ? 1 : part;
}

/*
 * "3 + 1 threads for its processes, by what they use", or "2 of its processes at a time with 2
 * threads each, by requests in flight".
 */
static void record(struct job *j, const struct apportion *parts)
{
    char reason[JOB_REASON_MAX];
    size_t len = 0;

    if (j->promise.shape.threads) {
        snprintf(reason, sizeof(reason),
                 "%u of its processes at a time with %u thread%s each, by requests in flight",
                 j->promise.shape.count, j->promise.shape.threads,
                 j->promise.shape.threads == 1 ? "" : "s");
        job_record(j, j->wanted.threads.intra, j->wanted.threads.intra, reason);
        return;
    }
    for (uint32_t i = 0; i < parts->n && len < sizeof(reason) / 2; i++)
        len += (size_t)snprintf(reason + len, sizeof(reason) - len, "%s%u", i ? " + " : "",
                                parts->part[i].part);
    snprintf(reason + len, sizeof(reason) - len, "%s threads for its processes, by what they use",
             len >= sizeof(reason) / 2 ? " + …" : "");
    job_record(j, j->wanted.threads.intra, j->wanted.threads.intra, reason);
}

void apportion_divide(struct job *j)
{
    static struct apportion parts; /* static: large, and only one thread uses it */
    bool same = j->placed.commanded && j->wanted.threads.intra == j->wanted.threads_before.intra,
         changed = false;

    collect(j, &parts);
    divide(j, &parts);
    for (struct process *p = j->processes; p; p = p->next)
        p->want = j->wanted.threads.intra && is_set_within(p) && process_malleable(p)
                      ? p->local
                      : (struct threads){0};
    for (uint32_t i = 0; i < parts.n; i++) {
        parts.process[i]->want =
            (struct threads){parts.part[i].part, even(j->wanted.threads.inter, parts.n, i)};
        changed |= parts.part[i].part != parts.part[i].had;
        same &= parts.part[i].had > 0;
    }
    if (changed && same)
        record(j, &parts);
}

static bool pays(struct job *j)
{
    static struct apportion parts;

    collect(j, &parts);
    divide(j, &parts);
    for (uint32_t i = 0; i < parts.n; i++)
        if (parts.part[i].part != parts.part[i].had)
            return true;
    return false;
}

void apportion_heartbeat(struct process *p, uint64_t now_ns)
{
    struct job *j = p->job;
    struct proc_stat stat;

    if (apportion_count(j) < 2 || !process_malleable(p) || p->sent.intra == 0 ||
        p->acked_generation < p->sent_generation ||
        proc_read_stat(j->daemon->root, p->pid, &stat) < 0)
        return;
    look_at_machine(j->daemon, now_ns);
    if (split_look(&p->use, p->sent.intra, now_ns, stat.cpu_ns) && pays(j))
        daemon_changed(j->daemon);
}

bool apportion_used(const struct process *p, uint32_t *ret_milli)
{
    uint32_t most = 0;

    if (p->use.n == 0)
        return false;
    for (uint32_t i = 0; i < p->use.n; i++)
        most = p->use.milli[i] > most ? p->use.milli[i] : most;
    *ret_milli = most;
    return true;
}

uint32_t apportion_count(const struct job *j)
{
    uint32_t n = 0;

    for (const struct process *p = j->processes; p; p = p->next)
        n += process_malleable(p);
    return n;
}

bool apportion_short(const struct job *j)
{
    return j->wanted.threads.intra > 0 && apportion_count(j) > j->wanted.threads.intra;
}
