/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory limit of a container that runs, `tide memory`:
 *
 *   its control group, each second → what it needs (memory_watch.h), its limit → the job
 *   a person's word → may it be? → the job's file → the engine → its control group
 *
 * A limit that is too low ends a job, where one core too few only slows it: a limit is lowered to
 * what the last ten minutes needed and a reserve, and no further. It is no limit of the plan's: it
 * stays when the job ends or the daemon goes, as one that `docker update` has set.
 */
#include "base/clock.h"
#include "base/size.h"
#include "daemon/containers/container_state.h"
#include "daemon/daemon.h"
#include "daemon/job/usage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "engine-fault"

struct memory_change {
    struct container *container;
    int64_t ticket;
    container_memory_fn *done; /* NULL: nobody waits any more */
    void *arg;
    uint32_t number; /* the job's: another run of the container is another job */
    uid_t uid;
};

/* A higher limit counts as soon as it is asked for: nobody else gets that memory meanwhile. */
void container_memory_show(const struct container *c, struct job *j)
{
    const struct container_memory *m = &c->memory;
    struct job_memory *shown = &j->observed.memory;
    bool rises = m->change && m->limit && m->asked > m->limit;
    uint64_t now = clock_now_ns();

    *shown = (struct job_memory){.limit = m->limit, .counts = rises ? m->asked : m->limit};
    if (!m->known)
        return;
    shown->high = memory_watch_high(&m->watch, now);
    shown->least = container_only_cpus(c) ? 0 : memory_watch_least(&m->watch, m->peak, now);
}

static void changed(struct container *c)
{
    container_memory_show(c, c->job);
    c->job->dirty = true;
    daemon_store_later(container_daemon(c));
    daemon_changed(container_daemon(c));
}

/* A limit that we did not ask for is somebody else's word: the container's own from now on. */
static void take_limit(struct container *c, uint64_t bytes)
{
    struct container_memory *m = &c->memory;

    if (bytes == m->limit)
        return;
    m->limit = bytes;
    if (!m->asks || bytes != m->asked) {
        m->own = bytes;
        m->asks = m->change != NULL; /* what it was asked for before says nothing any more */
    }
    if (c->job)
        changed(c);
}

void container_memory_begin(struct container *c)
{
    c->memory.known = false;
    c->memory.watch = (struct memory_watch){0};
}

/* Podman tells what the container was made with, whatever it is by now: the kernel's word counts.
 */
void container_memory_found(struct container *c, const struct engine_limits *limits)
{
    c->memory.swap_bytes = limits->swap_bytes;
    container_memory_look(c);
    if (!c->memory.known)
        take_limit(c, limits->memory_bytes);
}

void container_memory_look(struct container *c)
{
    struct container_memory *m = &c->memory;
    struct cgroup_memory seen;

    m->known = false;
    if (!c->job)
        return;
    m->known = container_group(c->job) &&
               cgroup_read_memory(container_daemon(c)->cgroup, &c->place, &seen) == 0;
    if (m->known) {
        m->peak = seen.peak;
        memory_watch_add(&m->watch, seen.firm, clock_now_ns());
        take_limit(c, seen.limit == UINT64_MAX ? 0 : seen.limit);
    }
    container_memory_show(c, c->job);
}

/* ---- changes ---- */

/* Frees a change that is no longer the container's. */
static void conclude(struct memory_change *m, const struct error *err)
{
    struct container *c = m->container;
    struct job *j = c->job && c->job->number == m->number ? c->job : NULL;
    container_memory_fn *done = m->done;
    void *arg = m->arg;

    free(m);
    if (done)
        done(arg, j, err);
}

/* The engine may go on, and nobody else changes the limit until it has answered. */
void container_memory_cancel(struct memory_change *m)
{
    if (m)
        m->done = NULL;
}

void container_memory_gone(struct container *c)
{
    struct memory_change *m = c->memory.change;
    struct error err;

    if (!m)
        return;
    engine_cancel(c->set->engine, m->ticket);
    c->memory.change = NULL;
    error_set(&err, -ENOENT, "the container has ended");
    conclude(m, &err);
}

static void tell_log(const struct container *c, uid_t uid)
{
    char text[SIZE_TEXT_MAX] = "none";

    if (c->memory.limit)
        size_text(c->memory.limit, text);
    daemon_log("job %s (%s): its container's memory limit is %s, as user %u asked", c->job->id,
               c->job->name, text, (unsigned)uid);
}

static bool is_lost(int code)
{
    return code == -ETIMEDOUT || code == -ECONNRESET;
}

static void on_done(void *arg, const struct engine_result *result)
{
    struct memory_change *m = arg;
    struct container *c = m->container;
    struct error err = {0};

    if (result->code < 0)
        error_set(&err, result->code, "%s", result->text);
    container_memory_look(c);
    if (result->code == 0 && !c->memory.known)
        take_limit(c, c->memory.asked);
    if (result->code < 0 && !is_lost(result->code))
        c->memory.asked = c->memory.limit; /* podman's part of it that holds, or none */
    if (result->code == 0 && c->job)
        tell_log(c, m->uid);
    c->memory.change = NULL;
    if (c->job)
        changed(c);
    conclude(m, &err);
}

static int check_higher(const struct job *j, uint64_t bytes, bool governs, struct error *err)
{
    const struct container_memory *m = &j->container->memory;
    uint64_t others = 0, all = j->daemon->memory_bytes;
    char own[SIZE_TEXT_MAX], left[SIZE_TEXT_MAX], together[SIZE_TEXT_MAX];

    size_text(m->own, own);
    if (!governs && m->own && (bytes == 0 || bytes > m->own))
        return error_word(
            err,
            error_set(err, -EPERM, "job %s began with %s: its owner cannot have more", j->id, own),
            "memory-above-own");
    for (const struct job *o = j->daemon->jobs->first; o; o = o->next)
        others += o == j || o->admission.phase == JOB_QUEUED ? 0 : usage_memory(o);
    if (all == 0 || bytes == 0 || (others <= all && bytes <= all - others))
        return 0;
    size_text(others < all ? all - others : 0, left);
    size_text(all, together);
    return error_word(err,
                      error_set(err, -ENOSPC, "jobs may have %s together, and %s are left for %s",
                                together, left, j->id),
                      "memory-taken");
}

static int check_lower(const struct job *j, uint64_t bytes, struct error *err)
{
    const struct job_memory *now = &j->observed.memory;
    char high[SIZE_TEXT_MAX];

    if (now->least == 0)
        return error_word(
            err,
            error_set(err, -EAGAIN,
                      "how much memory job %s needs is not known: its control group was not read "
                      "for ten minutes yet, or cannot be read",
                      j->id),
            "memory-unknown");
    if (bytes >= now->least)
        return 0;
    size_text(now->high, high);
    return error_word(err,
                      error_set(err, -ERANGE,
                                "job %s needed up to %s in the last ten minutes: its limit can be "
                                "%" PRIu64 "M or more",
                                j->id, high, now->least >> 20),
                      "memory-in-use");
}

static int check(const struct job *j, uint64_t bytes, bool governs, struct error *err)
{
    const struct container_memory *m = &j->container->memory;

    if (container_only_cpus(j->container))
        return error_word(err,
                          error_set(err, -EOPNOTSUPP,
                                    "job %s is a container of a pod: the kubelet limits it", j->id),
                          "memory-of-kubelet");
    if (m->change)
        return error_set(err, -EBUSY, "another change of job %s's memory is under way", j->id);
    if (bytes == m->limit)
        return 0;
    return bytes == 0 || (m->limit && bytes > m->limit) ? check_higher(j, bytes, governs, err)
                                                        : check_lower(j, bytes, err);
}

static int ask_engine(struct container *c, struct memory_change *m, struct error *err)
{
    struct engine *engine = container_engine(c);
    struct engine_then then = {.done = on_done, .arg = m};
    uint64_t asked = c->memory.asked;
    struct engine_update update = {.memory_bytes = asked ? asked : ENGINE_NO_MEMORY_LIMIT,
                                   .swap_bytes = c->memory.swap_bytes};

    m->ticket = engine ? engine_update(engine, c->id, &update, then) : -ENOTCONN;
    if (m->ticket > 0)
        return 0;
    return error_word(err,
                      error_set(err, (int)m->ticket, "the engine on %.100s cannot be asked: %s",
                                c->set->path, strerror((int)-m->ticket)),
                      "no-engine");
}

/* On disk before the engine hears of it: the next daemon has to tell it from one by the owner. */
static int begin(struct container *c, uint64_t bytes, struct memory_change *m, struct error *err)
{
    int r;

    c->memory.asks = true;
    c->memory.asked = bytes;
    c->memory.change = m;
    changed(c);
    daemon_store_now(container_daemon(c));
    r = ask_engine(c, m, err);
    if (r == 0)
        return 0;
    c->memory.asked = c->memory.limit;
    c->memory.change = NULL;
    changed(c);
    return r;
}

int container_memory_change(struct job *j, const struct memory_order *order,
                            struct memory_change **ret, struct error *err)
{
    struct container *c = j->container;
    uint64_t bytes = order->bytes;
    struct memory_change *m;
    int r;

    *ret = NULL;
    if (!c)
        return error_word(
            err, error_set(err, -EOPNOTSUPP, "job %s is no container: nothing limits it", j->id),
            "memory-not-limited");
    bytes = bytes ? bytes - bytes % (uint64_t)sysconf(_SC_PAGESIZE) : c->memory.own;
    container_memory_look(c);
    r = check(j, bytes, order->governs, err);
    if (r < 0)
        return r;
    if (bytes == c->memory.limit) {
        order->done(order->arg, j, &(struct error){0});
        return 0;
    }
    m = calloc(1, sizeof(*m));
    if (!m)
        return error_set(err, -ENOMEM, "out of memory");
    *m = (struct memory_change){
        .container = c,
        .done = order->done,
        .arg = order->arg,
        .number = j->number,
        .uid = order->uid,
    };
    r = begin(c, bytes, m, err);
    if (r < 0)
        free(m);
    else
        *ret = m;
    return r;
}
