/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/containers/container_state.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/confine/guardian.h"
#include "daemon/confine/journal.h"
#include "daemon/daemon.h"
#include "daemon/plan/plan.h"
#include "host/cgroup/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "engine-fault"

#define FAILURES_MAX 3              /* an update that fails (HTTP 500) so often is refused … */
#define REFUSED_NS   (5 * NS_PER_S) /* … for so long: the engine may recover */

/* A quota of either form in thousandths of a CPU. 0: no quota; a lifted quota equals all CPUs. */
static uint32_t quota_of(const struct container *c, const struct limits *l)
{
    uint32_t mcpu = engine_quota_mcpu(&l->quota);
    bool lifted = l->quota.nano_cpus > 0 && mcpu >= 1000 * container_daemon(c)->topology.cpus;

    return lifted ? 0 : mcpu;
}

static unsigned difference(const struct container *c, const struct limits *a,
                           const struct limits *b)
{
    return (cpuset_equal(&a->cpus, &b->cpus) ? 0 : CONTAINER_CPUS) |
           (quota_of(c, a) == quota_of(c, b) ? 0 : CONTAINER_QUOTA) |
           (a->shares == b->shares ? 0 : CONTAINER_SHARES);
}

/* The shares that give the group weight @weight; CGROUP_WEIGHT_STD: a new container's. */
static uint32_t shares_for(const struct container *c, uint32_t weight)
{
    uint32_t std = c->set->shares == CGROUP_SHARES_V1 ? 1024 : CGROUP_WEIGHT_STD;

    return cgroup_units_to_shares(c->set->shares, weight * std / CGROUP_WEIGHT_STD);
}

/* An engine cannot unset a limit, but takes a value with the same effect. */
static void as_given(const struct container *c, struct limits *l)
{
    const struct daemon *d = container_daemon(c);

    if (cpuset_count(&l->cpus) == 0)
        l->cpus = d->topology.online;
    if (l->shares == 0)
        l->shares = shares_for(c, CGROUP_WEIGHT_STD);
    if (l->quota.nano_cpus == 0 && l->quota.quota_us == 0)
        l->quota.quota_us = -1;
}

static bool differs(const struct container *c)
{
    return difference(c, &c->want, &c->placed) | c->again;
}

/* While an update may be under way, the job may run on its old cores and on its new ones. */
static void note_cores(struct container *c)
{
    struct cpuset *cores = &c->job->placed.cores;
    bool moves = !container_sure(&c->state) && c->sent.fenced;

    if (!c->placed.fenced) {
        cpuset_zero(cores);
        return;
    }
    *cores = c->placed.cpus;
    for (unsigned w = 0; moves && w < CPUSET_WORDS; w++)
        cores->word[w] |= c->sent.cpus.word[w];
}

static struct engine_update own_limits(const struct container *c)
{
    return (struct engine_update){
        .cpus = &c->own.cpus, .quota = &c->own.quota, .shares = c->own.shares};
}

/*
 * Notes in the restore journal what the guardian is to restore, before the first change. Returns 0
 * once that is on disk, 1 (containers_flush will write it together with others) or -errno.
 */
static int note_own(struct container *c)
{
    struct engine_update own = own_limits(c);
    int r = journal_note(guardian_journal(container_daemon(c)->guardian), container_engine_path(c),
                         c->id, &own);

    if (r > 0)
        sd_event_source_set_enabled(c->set->flush, SD_EVENT_ONESHOT);
    return r;
}

static void correct_own(const struct container *c)
{
    struct engine_update own = own_limits(c);

    journal_correct(guardian_journal(container_daemon(c)->guardian), c->id, &own);
    sd_event_source_set_enabled(c->set->flush, SD_EVENT_ONESHOT);
}

/*
 * Somebody changed the limits of a pinned container: they are the container's own from now on. The
 * policy counts the job with the cores that they leave, and works around it.
 */
static void accept(struct container *c, const struct limits *now)
{
    struct job *j = c->job;
    struct daemon *d = container_daemon(c);
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
        j->asked.kept_cores = now->cpus;
        if (cpuset_equal(&now->cpus, &d->topology.online))
            cpuset_zero(&j->asked.kept_cores);
    }
    j->observed.allowed_mcpu = container_own_mcpu(j);
    mcpu = j->observed.allowed_mcpu ? j->observed.allowed_mcpu : 1000 * cpuset_count(&d->cpus);
    if (what & (CONTAINER_CPUS | CONTAINER_QUOTA))
        j->asked.pinned = (struct threads){.intra = mcpu < 1000 ? 1 : mcpu / 1000};
    for (struct process *p = j->processes; p; p = p->next)
        if (!p->outside)
            p->original = c->own.cpus;
    daemon_log_as("limits-changed",
                  "job %s (%s) is pinned: its container's limits, changed by another program, are "
                  "left as they are",
                  j->id, j->name);
    j->dirty = true;
    daemon_store_later(d);
    daemon_changed(d);
}

/* Its own limits are others: the policy, which shares inside of them, decides anew. */
static void room_changed(struct container *c)
{
    struct job *j = c->job;

    correct_own(c);
    if (!j)
        return;
    j->observed.allowed_mcpu = container_own_mcpu(j);
    for (struct process *p = j->processes; p; p = p->next)
        if (!p->outside)
            p->original = c->own.cpus;
    j->dirty = true;
    daemon_store_later(container_daemon(c));
    daemon_changed(container_daemon(c));
}

/* The kubelet changed the limits of its pod's container: they are its own, whatever they are. */
static void take_room(struct container *c, const struct limits *now)
{
    unsigned what = difference(c, now, &c->placed);

    if (what & CONTAINER_QUOTA)
        c->own.quota = c->want.quota = now->quota;
    if (what & CONTAINER_SHARES)
        c->own.shares = c->want.shares = now->shares;
    if (what & CONTAINER_CPUS) {
        c->own.cpus = c->want.cpus = now->cpus;
        c->want.fenced = false;
    }
    room_changed(c);
}

/* The kubelet chooses its CPUs: also those that we have chosen before are its own now. */
static void keep_cpus(struct container *c, struct limits *now)
{
    bool other = !cpuset_equal(&c->own.cpus, &now->cpus) || c->want.fenced;

    now->fenced = c->want.fenced = false;
    c->own.cpus = c->want.cpus = now->cpus;
    if (c->job)
        container_cpus_fixed(c->job);
    if (other)
        room_changed(c);
}

void container_cpus_fixed(struct job *j)
{
    j->placed.unfenceable = true;
    snprintf(j->placed.note, sizeof(j->placed.note),
             "the kubelet's CPU manager chooses its cores: its threads alone follow");
}

void container_unkeep(struct job *j)
{
    struct container *c = j->container;

    if (!c)
        return;
    if (c->accepted & CONTAINER_SHARES)
        j->placed.weight = 0; /* to be written again */
    if (c->accepted & CONTAINER_QUOTA)
        j->placed.quota_mcpu = CGROUP_NO_QUOTA;
    c->accepted = 0;
}

static void step(struct container *c, enum container_event e, bool limits_differ);

/* The answer to the last update may be lost; the limits found tell whether it was carried out. */
static void find_sent(struct container *c, const struct limits *now)
{
    if (!difference(c, now, &c->sent))
        c->placed = c->sent;
}

static struct limits limits_of(const struct container *c, const struct engine_container *seen)
{
    struct limits now = {
        .cpus = seen->limits.cpus, .quota = seen->limits.quota, .shares = seen->limits.shares};

    as_given(c, &now);
    return now;
}

static enum container_event pause_found(const struct engine_container *seen)
{
    return seen->state == ENGINE_PAUSED ? CONTAINER_FOUND_PAUSED : CONTAINER_FOUND_RUNNING;
}

void container_found(struct container *c, const struct engine_container *seen)
{
    struct limits now = limits_of(c, seen);
    bool first = c->state.phase == CONTAINER_NEW, other; /* other: by another program */

    find_sent(c, &now);
    container_memory_found(c, &seen->limits);
    c->fixed = seen->limits.fixed;
    other = c->job && (c->drift.known || container_only_cpus(c)) && difference(c, &now, &c->placed);
    if (other && container_only_cpus(c)) {
        take_room(c, &now);
        other = false;
    } else if (other && c->job->asked.kept) {
        accept(c, &now);
        other = false;
    }
    if (first || (!c->job && difference(c, &now, &c->placed)))
        c->own = now; /* the owner changed them while the container did not run */
    if (!c->job)
        c->want = c->own;
    now.fenced = !first && c->placed.fenced && (difference(c, &now, &c->own) & CONTAINER_CPUS);
    if (c->fixed)
        keep_cpus(c, &now);
    c->placed = now;
    if (first)
        c->sent = now;
    drift_settled(c);
    step(c, pause_found(seen), differs(c) && (!other || drift_repair(c)));
    if (!c->job)
        return;
    if (!container_stands(&c->state))
        admission_runs(c->job);
    note_cores(c);
}

void container_found_free(struct container *c, const struct engine_container *seen)
{
    struct limits now = limits_of(c, seen);

    find_sent(c, &now);
    container_happens(c, pause_found(seen));
}

/* ---- the engine's answer ---- */

static void give_up(struct container *c, const struct engine_result *result)
{
    struct job *j = c->job;

    snprintf(j->placed.note, sizeof(j->placed.note), "%.*s", JOB_REASON_MAX - 1, result->text);
    daemon_err("job %s (%s): %s", j->id, j->name, result->text);
    if (difference(c, &c->sent, &c->placed) & CONTAINER_CPUS)
        j->placed.unfenceable = true;
    if (difference(c, &c->sent, &c->placed) & CONTAINER_QUOTA)
        j->placed.quota_failed = true;
    c->failures = 0;
    c->again = 0;
    c->refused_ns = result->code == -EINVAL ? 0 : clock_now_ns();
    daemon_changed(container_daemon(c)); /* the next decision wants what the engine accepts */
}

/* Lets the next decision ask again for limits that a failing engine refused. */
static void retry(struct container *c)
{
    uint32_t quota_mcpu = engine_quota_mcpu(&c->placed.quota);
    struct job *j = c->job;

    if (!j || !c->refused_ns || clock_now_ns() - c->refused_ns < REFUSED_NS)
        return;
    c->refused_ns = 0;
    j->placed.unfenceable = j->placed.quota_failed = false;
    j->placed.quota_mcpu = quota_mcpu ? quota_mcpu : CGROUP_NO_QUOTA;
    j->placed.weight = 0;
    j->placed.note[0] = '\0';
    daemon_changed(container_daemon(c));
}

bool container_unsettled(const struct container *c)
{
    const struct container_state *s = &c->state;
    bool stands = container_stands(s) && s->pause != PAUSE_PERSON;

    return s->phase != CONTAINER_NEW && (difference(c, &c->placed, &c->want) ||
                                         (s->want_paused ? !container_stands(s) : stands));
}

/*
 * The engine refused for good: the update is invalid, or failed repeatedly. An ended container is
 * not updated again: podman updates running ones only, and stores nothing.
 */
static bool is_refused(struct container *c, const struct engine_result *result)
{
    bool lost = result->code == -ETIMEDOUT || result->code == -ECONNRESET;

    if (result->verb != ENGINE_V_UPDATE)
        return result->code == -EBUSY;
    if (!c->job)
        return !lost;
    c->failures += result->code == -EREMOTEIO;
    return result->code == -EINVAL || c->failures >= FAILURES_MAX;
}

static enum container_event update_answered(struct container *c, const struct engine_result *result)
{
    if (result->code == 0) {
        c->placed = c->sent;
        c->again &= ~c->sending;
        c->failures = 0;
        drift_written(c, c->sending);
        return CONTAINER_DONE;
    }
    if (c->echoes)
        c->echoes--;
    if (result->code == -ENOTCONN) {
        c->sent = c->placed;
        return CONTAINER_UNSENT;
    }
    if (!is_refused(c, result)) {
        c->drift.known = false;
        return CONTAINER_LOST; /* the tick inspects, then sends again */
    }
    if (c->job)
        give_up(c, result);
    c->want = c->sent = c->placed;
    return CONTAINER_REFUSED;
}

static enum container_event pause_answered(struct container *c, const struct engine_result *result)
{
    bool lost = result->code < 0 && result->code != -ENOTCONN && !is_refused(c, result);

    c->pause_call.answered_ms = lost ? UINT64_MAX : clock_real_ms();
    if (lost || result->code == -ENOTCONN)
        c->pause_call.phase = CONTAINER_NEW;
    if (result->code == 0 && result->verb == ENGINE_V_UNPAUSE)
        journal_pause(guardian_journal(container_daemon(c)->guardian), c->id, false);
    if (lost)
        c->drift.known = false;
    return result->code == 0           ? CONTAINER_DONE
           : lost                      ? CONTAINER_LOST
           : result->code == -ENOTCONN ? CONTAINER_UNSENT
                                       : CONTAINER_REFUSED;
}

static void on_done(void *arg, const struct engine_result *result)
{
    struct container *c = arg;
    struct daemon *d = container_daemon(c);

    failpoint(result->verb == ENGINE_V_UPDATE  ? FAILPOINT_UPDATE_ANSWERED
              : result->verb == ENGINE_V_PAUSE ? FAILPOINT_PAUSE_ANSWERED
                                               : FAILPOINT_UNPAUSE_ANSWERED);
    c->ticket = 0;
    journal_call(guardian_journal(d->guardian), c->id, false);
    container_happens(c, result->verb == ENGINE_V_UPDATE ? update_answered(c, result)
                                                         : pause_answered(c, result));
    if (!c->job)
        return;
    note_cores(c);
    plan_advance(d);
    job_announce_settled(c->job);
}

/* ---- sending ---- */

static int64_t pause_it(struct container *c, struct engine_then then)
{
    int64_t r;

    journal_pause(guardian_journal(container_daemon(c)->guardian), c->id, true);
    daemon_store_now(container_daemon(c)); /* a new daemon has to know that the pause is ours */
    r = engine_pause(container_engine(c), c->id, then);
    failpoint(FAILPOINT_PAUSE_ASKED);
    return r;
}

static int64_t unpause_it(struct container *c, struct engine_then then)
{
    int64_t r = engine_unpause(container_engine(c), c->id, then);

    failpoint(FAILPOINT_UNPAUSE_ASKED);
    return r;
}

static int64_t update(struct container *c, struct engine_then then)
{
    unsigned what = difference(c, &c->want, &c->placed) | c->again;
    struct engine_update u = {.cpus = what & CONTAINER_CPUS ? &c->want.cpus : NULL,
                              .quota = what & CONTAINER_QUOTA ? &c->sent.quota : NULL,
                              .shares = what & CONTAINER_SHARES ? c->want.shares : 0};
    int64_t r;

    c->sent = c->want;
    if (c->placed.quota.nano_cpus > 0 && engine_quota_mcpu(&c->want.quota) == 0)
        c->sent.quota = engine_quota_make(&c->placed.quota, 0, container_daemon(c)->topology.cpus);
    c->sending = what;
    r = engine_update(container_engine(c), c->id, &u, then);
    if (r > 0)
        c->echoes++;
    else
        c->sent = c->placed;
    failpoint(FAILPOINT_UPDATE_ASKED);
    return r;
}

/* Records a change that is on its way: a new daemon has to tell it from one by the owner. */
static void sent(struct container *c)
{
    struct daemon *d = container_daemon(c);

    journal_call(guardian_journal(d->guardian), c->id, true);
    if (c->state.phase != CONTAINER_UPDATING)
        c->pause_call = (struct pause_call){c->state.phase, clock_real_ms(), UINT64_MAX};
    if (!c->job)
        return;
    note_cores(c);
    c->job->dirty = true;
    daemon_store_later(d);
}

static void unsent(struct container *c, int64_t error)
{
    daemon_err("container %.12s: cannot reach its engine: %s; trying again", c->id,
               strerror((int)-error));
    container_happens(c, CONTAINER_UNSENT); /* the tick tries again */
}

static void note(struct container *c)
{
    int r = note_own(c);

    if (r == 0)
        container_happens(c, CONTAINER_NOTED);
    else if (r < 0)
        unsent(c, r);
}

static void carry_out(struct container *c, enum container_action action)
{
    struct engine_then then = {.done = on_done, .arg = c},
                       seen = {.done = c->set->inspected, .arg = c};
    int64_t ticket;

    if (action == CONTAINER_DO_NOTE)
        note(c);
    if (action == CONTAINER_DO_NOTE || action == CONTAINER_DO_NOTHING)
        return;
    ticket = action == CONTAINER_DO_INSPECT  ? engine_inspect(container_engine(c), c->id, seen)
             : action == CONTAINER_DO_UPDATE ? update(c, then)
             : action == CONTAINER_DO_PAUSE  ? pause_it(c, then)
                                             : unpause_it(c, then);
    c->ticket = ticket > 0 ? ticket : 0;
    if (ticket < 0)
        unsent(c, ticket);
    else if (action != CONTAINER_DO_INSPECT)
        sent(c);
}

/* A job that a person has paused takes no part until the pause ends. */
static void tell_pause(struct container *c, enum container_pause before)
{
    struct journal *journal = guardian_journal(container_daemon(c)->guardian);

    if (c->state.pause == PAUSE_PERSON && before != PAUSE_PERSON)
        journal_pause(journal, c->id, false);
    if (!c->job || c->job->observed.frozen == (c->state.pause == PAUSE_PERSON))
        return;
    c->job->observed.frozen = c->state.pause == PAUSE_PERSON;
    daemon_changed(container_daemon(c));
}

/* Until an earlier daemon's changes are undone only container_watch.c asks, once a second. */
static bool may_ask(const struct container *c)
{
    return container_engine(c) &&
           !journal_left(guardian_journal(container_daemon(c)->guardian), c->id);
}

static void step(struct container *c, enum container_event e, bool limits_differ)
{
    struct container_view v = {.engine = may_ask(c), .differs = limits_differ, .job = c->job};
    enum container_pause before = c->state.pause;
    enum container_action action = container_step(&c->state, e, v);

    tell_pause(c, before);
    carry_out(c, action);
    if (!c->job && container_sure(&c->state) && !container_unsettled(c))
        journal_forget(guardian_journal(container_daemon(c)->guardian), c->id);
}

void container_happens(struct container *c, enum container_event e)
{
    step(c, e, differs(c));
}

void containers_flush(struct containers *set)
{
    journal_sync(guardian_journal(set->daemon->guardian));
    for (struct container *c = set->first; c; c = c->next)
        container_happens(c, CONTAINER_NOTED);
    plan_advance(set->daemon); /* a change no longer wanted gets no answer */
}

void container_tick(struct container *c)
{
    bool resting = drift_resting(c);

    container_memory_look(c);
    retry(c);
    if (!resting)
        drift_look(c);
    step(c, CONTAINER_TICK, !resting && differs(c));
}

void container_reset(struct container *c)
{
    c->want = c->own;
    c->failures = c->again = c->accepted = 0;
    c->drift = (struct drift){0};
    c->refused_ns = 0;
    container_happens(c, CONTAINER_ENDED);
}

/* While the engine is away, the guardian keeps what is to be restored. */
void container_let_go(struct container *c)
{
    c->want = c->own;
    container_happens(c, CONTAINER_WANT_RUNNING);
}

/* ---- what the plan wants ---- */

void container_want_cores(struct job *j, const struct cpuset *cores)
{
    struct container *c = j->container;

    if (!c)
        return;
    c->want.fenced = cpuset_count(cores) > 0 && !c->fixed;
    c->want.cpus = c->want.fenced ? *cores : c->own.cpus;
    if (cpuset_equal(&c->want.cpus, &c->placed.cpus) && !container_changing(&c->state)) {
        c->placed.fenced = c->want.fenced; /* in place already */
        note_cores(c);
    }
    container_happens(c, CONTAINER_WANT);
}

void container_want_weight(struct job *j, uint32_t weight)
{
    if (j->container && !(j->container->accepted & CONTAINER_SHARES) &&
        !container_only_cpus(j->container))
        j->container->want.shares = shares_for(j->container, weight);
}

/* Writes all shares again, in the other conversion, and corrects what the guardian restores. */
static void reinterpret_shares(struct containers *set, enum cgroup_shares shares)
{
    uint32_t before = cgroup_units_to_shares(set->shares, CGROUP_WEIGHT_STD);

    set->shares = shares;
    for (struct container *c = set->first; c; c = c->next) {
        if (c->state.phase != CONTAINER_NEW && c->own.shares == before) {
            c->own.shares = shares_for(c, CGROUP_WEIGHT_STD);
            correct_own(c);
        }
        if (c->job)
            c->job->placed.weight = 0;
    }
}

void container_weighs(struct job *j, uint32_t units)
{
    struct container *c = j->container;
    enum cgroup_shares other;

    if (!c || c->set->shares == CGROUP_SHARES_V1 || !container_sure(&c->state))
        return;
    other = c->set->shares == CGROUP_SHARES_LOG ? CGROUP_SHARES_LINEAR : CGROUP_SHARES_LOG;
    if (units == cgroup_shares_to_units(c->set->shares, c->placed.shares) ||
        units != cgroup_shares_to_units(other, c->placed.shares))
        return;
    reinterpret_shares(c->set, other);
    daemon_store_later(container_daemon(c));
}

void container_write(struct job *j)
{
    if (j->container)
        container_happens(j->container, CONTAINER_WANT);
}

void container_want_quota(struct job *j, uint32_t quota_mcpu)
{
    struct container *c = j->container;

    if (!c || (c->accepted & CONTAINER_QUOTA) || container_only_cpus(c))
        return;
    c->want.quota =
        quota_mcpu == CGROUP_NO_QUOTA
            ? c->own.quota
            : engine_quota_make(&c->placed.quota, quota_mcpu, container_daemon(c)->topology.cpus);
    container_happens(c, CONTAINER_WANT);
}

/* Cancelling also ends a person's pause: a paused process cannot exit. */
int container_want_paused(struct job *j, bool paused)
{
    struct container *c = j->container;

    if (!paused && j->admission.ending && container_stands(&c->state))
        container_happens(c, CONTAINER_CANCELLED);
    else if (c->state.want_paused != paused)
        container_happens(c, paused ? CONTAINER_WANT_PAUSED : CONTAINER_WANT_RUNNING);
    return 0;
}

bool container_can_pause(const struct job *j, const char **ret_why)
{
    bool away = !container_engine(j->container), pod = container_only_cpus(j->container);

    *ret_why = pod    ? "it is a pod's, and no kubelet pauses a pod"
               : away ? "its engine does not answer"
                      : "it is paused by hand";
    return !away && !pod && j->container->state.pause != PAUSE_PERSON;
}

bool container_paused(const struct job *j)
{
    return j->container && container_stands(&j->container->state);
}

bool container_busy(const struct job *j)
{
    return j->container && container_changing(&j->container->state);
}

bool container_behind(const struct job *j)
{
    const struct container *c = j->container;

    return c && (container_busy(j) || c->state.phase == CONTAINER_DOUBTED ||
                 (difference(c, &c->want, &c->placed) | c->again) & CONTAINER_CPUS);
}

void container_own_cpus(const struct job *j, struct cpuset *ret)
{
    *ret = j->container ? j->container->own.cpus : j->daemon->topology.online;
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
    return cpus >= 1000 * j->daemon->topology.cpus ? 0 : cpus;
}
