/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/containers/container_state.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/confine/guardian.h"
#include "daemon/confine/keep.h"
#include "daemon/node.h"
#include "daemon/plan/plan.h"
#include "host/cgroup/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FAILURES_MAX 3              /* an engine that fails (HTTP 500) so often refuses … */
#define REFUSED_NS   (5 * NS_PER_S) /* … for so long: it may just not have been well */

/* In thousandths of a CPU, of either kind; 0: none, which is all there are where one is lifted. */
static uint32_t quota_of(const struct container *c, const struct limits *l)
{
    uint32_t mcpu = engine_quota_mcpu(&l->quota);
    bool lifted = l->quota.nano_cpus > 0 && mcpu >= 1000 * container_node(c)->topology.cpus;

    return lifted ? 0 : mcpu;
}

static unsigned difference(const struct container *c, const struct limits *a,
                           const struct limits *b)
{
    return (cpuset_equal(&a->cpus, &b->cpus) ? 0 : CONTAINER_CPUS) |
           (quota_of(c, a) == quota_of(c, b) ? 0 : CONTAINER_QUOTA) |
           (a->shares == b->shares ? 0 : CONTAINER_SHARES);
}

/* Shares with which its control group weighs @weight; CGROUP_WEIGHT_STD: as if nothing was said. */
static uint32_t shares_for(const struct container *c, uint32_t weight)
{
    uint32_t std = c->set->shares == CGROUP_SHARES_V1 ? 1024 : CGROUP_WEIGHT_STD;

    return cgroup_units_to_shares(c->set->shares, weight * std / CGROUP_WEIGHT_STD);
}

/* "Never given" cannot be written; what has the same effect can. */
static void as_given(const struct container *c, struct limits *l)
{
    const struct node *n = container_node(c);

    if (cpuset_count(&l->cpus) == 0)
        l->cpus = n->topology.online;
    if (l->shares == 0)
        l->shares = shares_for(c, CGROUP_WEIGHT_STD);
    if (l->quota.nano_cpus == 0 && l->quota.quota_us == 0)
        l->quota.quota_us = -1;
}

/* While an update may be under way the job may run where it was and where it will be. */
static void note_cores(struct container *c)
{
    struct cpuset *cores = &c->job->cores;

    if (!c->placed.fenced) {
        cpuset_zero(cores);
        return;
    }
    *cores = c->placed.cpus;
    for (unsigned w = 0; (c->ticket || c->stale) && c->sent.fenced && w < CPUSET_WORDS; w++)
        cores->word[w] |= c->sent.cpus.word[w];
}

/*
 * A pause that is not ours is a person's, who ends it; one that we want is made again. One that we
 * knew of is ours, though we want it to end by now; and so is one that an earlier daemon had asked
 * for, should its engine get to that only now.
 */
static void find_pause(struct container *c, bool paused)
{
    bool began = paused && !c->paused;

    c->paused = paused;
    if (began && !c->want_paused && c->inherited)
        c->inherited = false;
    else if (began && !c->want_paused)
        c->by_hand = c->want_paused = true;
    else if (!paused && c->by_hand)
        c->by_hand = c->want_paused = false;
}

static struct engine_update own_limits(const struct container *c)
{
    return (struct engine_update){
        .cpus = &c->own.cpus, .quota = &c->own.quota, .shares = c->own.shares};
}

/*
 * Before anything is changed: what the guardian is to put back. Returns 0 once that is on disk, 1
 * (containers_flush will see to it, once for all that come meanwhile) or -errno.
 */
static int note_own(struct container *c)
{
    struct engine_update own = own_limits(c);
    int r = keep_note(guardian_keep(container_node(c)->guardian), container_engine_path(c), c->id,
                      &own);

    c->unwritten = r > 0;
    if (r > 0)
        sd_event_source_set_enabled(c->set->flush, SD_EVENT_ONESHOT);
    return r;
}

static void correct_own(const struct container *c)
{
    struct engine_update own = own_limits(c);

    keep_correct(guardian_keep(container_node(c)->guardian), c->id, &own);
    sd_event_source_set_enabled(c->set->flush, SD_EVENT_ONESHOT);
}

/*
 * A pinned container's limits were changed by hand: they are its own from now on. As many cores as
 * they leave it has for the policy, too, which works around them.
 */
static void accept(struct container *c, const struct limits *now)
{
    struct job *j = c->job;
    struct node *n = container_node(c);
    unsigned what = difference(c, now, &c->placed);
    uint32_t mcpu;

    c->accepted |= what;
    if (what & CONTAINER_CPUS)
        c->own.cpus = c->want.cpus = now->cpus;
    if (what & CONTAINER_QUOTA)
        c->own.quota = c->want.quota = now->quota;
    if (what & CONTAINER_SHARES)
        c->own.shares = c->want.shares = now->shares;
    correct_own(c);
    if (what & CONTAINER_CPUS) {
        j->kept_cores = now->cpus;
        if (cpuset_equal(&now->cpus, &n->topology.online))
            cpuset_zero(&j->kept_cores);
    }
    j->allowed_mcpu = container_own_mcpu(j);
    mcpu = j->allowed_mcpu ? j->allowed_mcpu : 1000 * cpuset_count(&n->cpus);
    if (what & (CONTAINER_CPUS | CONTAINER_QUOTA))
        j->pinned = (struct threads){.intra = mcpu < 1000 ? 1 : mcpu / 1000};
    for (struct process *p = j->processes; p; p = p->next)
        if (!p->outside)
            p->original = c->own.cpus;
    node_log("job %s (%s): limits changed by hand are left, it is pinned", j->id, j->name);
    j->dirty = true;
    node_store_later(n);
    node_changed(n);
}

void container_unkeep(struct job *j)
{
    struct container *c = j->container;

    if (!c)
        return;
    if (c->accepted & CONTAINER_SHARES)
        j->weight_set = 0; /* to be written anew */
    if (c->accepted & CONTAINER_QUOTA)
        j->quota_set_mcpu = CGROUP_NO_QUOTA;
    c->accepted = 0;
}

void container_found(struct container *c, const struct engine_container *seen)
{
    struct limits now = {
        .cpus = seen->limits.cpus, .quota = seen->limits.quota, .shares = seen->limits.shares};

    bool other; /* wrote it */

    as_given(c, &now);
    c->memory_bytes = seen->limits.memory_bytes;
    if (c->job)
        c->job->own_memory_bytes = c->memory_bytes;
    other = c->job && c->drift.known && !c->stale && difference(c, &now, &c->placed);
    find_pause(c, seen->state == ENGINE_PAUSED);
    if (other && c->job->kept) {
        accept(c, &now);
        other = false;
    }
    if (!c->stated || (!c->job && difference(c, &now, &c->placed)))
        c->own = now; /* changed while it did not run: by its owner */
    if (!c->job)
        c->want = c->own;
    now.fenced = c->stated && c->placed.fenced && (difference(c, &now, &c->own) & CONTAINER_CPUS);
    c->placed = now;
    c->stated = true;
    c->stale = false;
    if (c->job && !c->paused)
        admission_runs(c->job);
    if (c->job)
        note_cores(c);
    drift_settled(c);
    if (!other || drift_repair(c))
        container_push(c);
}

/* ---- the engine's answer ---- */

static void refused(struct container *c, const struct engine_result *result)
{
    struct job *j = c->job;

    snprintf(j->note, sizeof(j->note), "%.*s", JOB_REASON_MAX - 1, result->text);
    node_log("job %s (%s): %s", j->id, j->name, result->text);
    if (difference(c, &c->sent, &c->placed) & CONTAINER_CPUS)
        j->unfenceable = true;
    if (difference(c, &c->sent, &c->placed) & CONTAINER_QUOTA)
        j->quota_failed = true;
    c->failures = 0;
    c->again = 0;
    c->refused_ns = result->code == -EINVAL ? 0 : clock_now_ns();
    c->want = c->placed; /* rolled back; the next decision asks for what can be had */
    node_changed(container_node(c));
}

void container_retry(struct container *c)
{
    uint32_t quota_mcpu = engine_quota_mcpu(&c->placed.quota);
    struct job *j = c->job;

    if (!j || !c->refused_ns || clock_now_ns() - c->refused_ns < REFUSED_NS)
        return;
    c->refused_ns = 0;
    j->unfenceable = j->quota_failed = false;
    j->quota_set_mcpu = quota_mcpu ? quota_mcpu : CGROUP_NO_QUOTA;
    j->weight_set = 0;
    j->note[0] = '\0';
    node_changed(container_node(c));
}

/* Whether the call was carried out: no, yes, or nobody can tell. */
static void settle(struct container *c, const struct engine_result *result)
{
    bool failed = result->verb == ENGINE_V_UPDATE && result->code == -EREMOTEIO;

    if (result->code == 0)
        c->failures = 0;
    else if (failed)
        c->failures++;
    if (result->verb == ENGINE_V_UPDATE && (result->code == -EINVAL || c->failures >= FAILURES_MAX))
        refused(c, result);
    else if (result->code < 0)
        c->stale = true; /* the tick inspects, then sends again */
}

bool container_unsettled(const struct container *c)
{
    return c->stated && (difference(c, &c->placed, &c->want) || c->paused != c->want_paused);
}

/* Its job is over: what it began with is to be in place for its next start. */
static void settle_ended(struct container *c, const struct engine_result *result)
{
    bool lost =
        result->code == -ETIMEDOUT || result->code == -ECONNRESET || result->code == -ENOTCONN;
    bool refused = result->code < 0 && !lost;

    if (refused)
        c->want =
            c->placed; /* podman writes to no container that does not run, and keeps nothing */
    if (!container_unsettled(c))
        keep_forget(guardian_keep(container_node(c)->guardian), c->id);
    /* An update of before its end has come back; or the pause ends, whatever its limits are. */
    if (result->code == 0 || (refused && result->verb == ENGINE_V_UPDATE))
        container_push(c);
    if (!c->ticket)
        container_inspect(c); /* it may have been started again meanwhile */
}

static void on_done(void *arg, const struct engine_result *result)
{
    struct container *c = arg;
    struct node *n = container_node(c);

    failpoint(result->verb == ENGINE_V_UPDATE  ? FAILPOINT_UPDATE_ANSWERED
              : result->verb == ENGINE_V_PAUSE ? FAILPOINT_PAUSE_ANSWERED
                                               : FAILPOINT_UNPAUSE_ANSWERED);
    c->ticket = 0;
    keep_call(guardian_keep(n->guardian), c->id, false);
    c->answered_ms = clock_real_ms();
    if (result->code < 0 && result->verb == ENGINE_V_UPDATE && c->echoes)
        c->echoes--;
    if (result->code == 0 && result->verb == ENGINE_V_UPDATE) {
        c->placed = c->sent;
        c->again &= ~c->sending;
        drift_written(c, c->sending);
    } else if (result->code == 0)
        c->paused = result->verb == ENGINE_V_PAUSE;
    if (result->code == 0 && result->verb == ENGINE_V_UNPAUSE)
        keep_pause(guardian_keep(n->guardian), c->id, false);
    if (!c->job) {
        settle_ended(c, result);
        return;
    }
    settle(c, result);
    note_cores(c);
    if (c->news)
        container_inspect(c);
    c->news = false;
    container_push(c);
    plan_advance(n);
    job_announce_settled(c->job);
}

/* ---- sending ---- */

static int64_t pause_it(struct container *c)
{
    keep_pause(guardian_keep(container_node(c)->guardian), c->id, true);
    node_store_now(container_node(c)); /* a new daemon has to know that it is ours */
    return engine_pause(container_engine(c), c->id,
                        (struct engine_then){.done = on_done, .arg = c});
}

static int64_t update(struct container *c, unsigned what)
{
    struct engine_update u = {.cpus = what & CONTAINER_CPUS ? &c->want.cpus : NULL,
                              .quota = what & CONTAINER_QUOTA ? &c->sent.quota : NULL,
                              .shares = what & CONTAINER_SHARES ? c->want.shares : 0};
    int64_t r;

    c->sent = c->want;
    if (c->placed.quota.nano_cpus > 0 && engine_quota_mcpu(&c->want.quota) == 0)
        c->sent.quota = engine_quota_make(&c->placed.quota, 0, container_node(c)->topology.cpus);
    c->sending = what;
    r = engine_update(container_engine(c), c->id, &u,
                      (struct engine_then){.done = on_done, .arg = c});
    c->echoes += r > 0;
    return r;
}

void container_push(struct container *c)
{
    struct engine *engine = container_engine(c);
    struct engine_then then = {.done = on_done, .arg = c};
    unsigned what = difference(c, &c->want, &c->placed) | c->again;
    bool pauses = c->want_paused && !c->paused;
    int noted = 0;

    if (c->ticket || c->stale || !c->stated || !engine)
        return;
    if (pauses || what)
        noted = note_own(c);
    if (noted > 0)
        return;
    c->sent = c->placed;
    if (noted < 0) {
        c->ticket = noted;
    } else if (pauses) {
        c->ticket = pause_it(c);
        failpoint(FAILPOINT_PAUSE_ASKED);
    } else if (what) {
        c->ticket = update(c, what);
        failpoint(FAILPOINT_UPDATE_ASKED);
    } else if (!c->want_paused && c->paused) {
        c->ticket = engine_unpause(engine, c->id, then);
        failpoint(FAILPOINT_UNPAUSE_ASKED);
    } else {
        return;
    }
    if (c->ticket < 0) {
        node_log("container %.12s: cannot ask the engine: %s", c->id, strerror((int)-c->ticket));
        c->ticket = 0; /* the tick tries again */
        return;
    }
    keep_call(guardian_keep(container_node(c)->guardian), c->id, true);
    c->called_ms = clock_real_ms();
    c->overtaken |= c->asked;
    if (!c->job)
        return;
    note_cores(c);
    c->job->dirty = true; /* a new daemon has to tell our doing from its owner's */
    node_store_later(container_node(c));
}

void containers_flush(struct containers *set)
{
    keep_sync(guardian_keep(set->node->guardian));
    for (struct container *c = set->first; c; c = c->next) {
        if (!c->unwritten)
            continue;
        c->unwritten = false;
        container_push(c);
    }
    plan_advance(set->node); /* for whom it is not wanted any more there will be no answer */
}

void container_reset(struct container *c)
{
    c->want = c->own;
    c->unwritten = false;
    c->paused = c->want_paused = c->by_hand = c->stale = c->news = false; /* it has ended */
    c->failures = c->again = c->accepted = 0;
    c->drift = (struct drift){0};
    c->refused_ns = 0;
    container_push(c);
    if (!c->ticket)
        keep_forget(guardian_keep(container_node(c)->guardian), c->id);
}

/* While its engine is away, the guardian keeps what is to be put back. */
void container_let_go(struct container *c)
{
    c->want = c->own;
    c->want_paused = c->by_hand;
    container_push(c);
    if (!c->ticket && !container_unsettled(c))
        keep_forget(guardian_keep(container_node(c)->guardian), c->id);
}

void container_found_free(struct container *c, enum engine_state state)
{
    if (!c->paused || state == ENGINE_PAUSED)
        return;
    c->paused = false;
    if (!container_unsettled(c))
        keep_forget(guardian_keep(container_node(c)->guardian), c->id);
}

/* ---- what the plan wants ---- */

void container_want_cores(struct job *j, const struct cpuset *cores)
{
    struct container *c = j->container;

    if (!c)
        return;
    c->want.fenced = cpuset_count(cores) > 0;
    c->want.cpus = c->want.fenced ? *cores : c->own.cpus;
    if (cpuset_equal(&c->want.cpus, &c->placed.cpus) && !c->ticket) {
        c->placed.fenced = c->want.fenced; /* nothing to write */
        note_cores(c);
    }
    container_push(c);
}

void container_want_weight(struct job *j, uint32_t weight)
{
    if (j->container && !(j->container->accepted & CONTAINER_SHARES))
        j->container->want.shares = shares_for(j->container, weight);
}

/* What was written for one way is written anew for the other; so is what the guardian knows. */
static void reinterpret_shares(struct containers *set, enum cgroup_shares shares)
{
    uint32_t before = cgroup_units_to_shares(set->shares, CGROUP_WEIGHT_STD);

    set->shares = shares;
    for (struct container *c = set->first; c; c = c->next) {
        if (c->stated && c->own.shares == before) {
            c->own.shares = shares_for(c, CGROUP_WEIGHT_STD);
            correct_own(c);
        }
        if (c->job)
            c->job->weight_set = 0;
    }
}

void container_weighs(struct job *j, uint32_t units)
{
    struct container *c = j->container;
    enum cgroup_shares other;

    if (!c || c->set->shares == CGROUP_SHARES_V1 || c->ticket || c->stale || !c->stated)
        return;
    other = c->set->shares == CGROUP_SHARES_LOG ? CGROUP_SHARES_LINEAR : CGROUP_SHARES_LOG;
    if (units == cgroup_shares_to_units(c->set->shares, c->placed.shares) ||
        units != cgroup_shares_to_units(other, c->placed.shares))
        return;
    reinterpret_shares(c->set, other);
    node_store_later(container_node(c));
}

void container_write(struct job *j)
{
    if (j->container)
        container_push(j->container);
}

void container_want_quota(struct job *j, uint32_t quota_mcpu)
{
    struct container *c = j->container;

    if (!c || (c->accepted & CONTAINER_QUOTA))
        return;
    c->want.quota =
        quota_mcpu == CGROUP_NO_QUOTA
            ? c->own.quota
            : engine_quota_make(&c->placed.quota, quota_mcpu, container_node(c)->topology.cpus);
    container_push(c);
}

int container_want_paused(struct job *j, bool paused)
{
    struct container *c = j->container;

    if (c->want_paused == paused)
        return 0;
    c->want_paused = paused;
    if (!paused) /* also by whose hand it was paused */
        c->by_hand = j->frozen = false;
    container_push(c);
    return 0;
}

bool container_can_pause(const struct job *j, const char **ret_why)
{
    bool away = !container_engine(j->container);

    *ret_why = away ? "its engine does not answer" : "it is paused by hand";
    return !away && !j->container->by_hand;
}

bool container_paused(const struct job *j)
{
    return j->container && j->container->paused;
}

bool container_busy(const struct job *j)
{
    return j->container && (j->container->ticket > 0 || j->container->unwritten);
}

bool container_behind(const struct job *j)
{
    const struct container *c = j->container;

    return c && (container_busy(j) || c->stale ||
                 (difference(c, &c->want, &c->placed) | c->again) & CONTAINER_CPUS);
}

void container_own_cpus(const struct job *j, struct cpuset *ret)
{
    *ret = j->container ? j->container->own.cpus : j->node->topology.online;
}

uint32_t container_own_mcpu(const struct job *j)
{
    const struct container *c = j->container;
    uint32_t quota, cpus;

    if (!c)
        return 0;
    quota = engine_quota_mcpu(&c->own.quota);
    cpus = 1000 * cpuset_count(&c->own.cpus);
    if (quota && quota < cpus)
        cpus = quota;
    return cpus >= 1000 * j->node->topology.cpus ? 0 : cpus;
}
