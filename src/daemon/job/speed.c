/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/speed.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"

#include <string.h>

#define SAMPLE_NS      NS_PER_S        /* shortest sample */
#define SAMPLE_SLOW_NS (5 * NS_PER_S)  /* shortest sample with few units */
#define SAMPLE_UNITS   20              /* fewer are few */
#define RESIZE_NS      (5 * NS_PER_MS) /* a guess: closures end, threads park */

/* Progress of the job, in its own units (*ret_own) or in operations. */
static uint64_t units_of(const struct job *j, bool *ret_own)
{
    uint64_t own = 0, tasks = 0;

    for (const struct process *p = j->processes; p; p = p->next) {
        own += p->progress_done;
        tasks += p->tasks;
    }
    *ret_own = own > 0;
    return own ? own : tasks;
}

/* Threads that the job is known to have; 0: they are changing, or not counted by us. */
static uint32_t threads_of(const struct job *j)
{
    uint32_t threads = 0;

    if (!job_settled(j) || j->placed.late)
        return 0;
    for (const struct process *p = j->processes; p; p = p->next) {
        if (!process_malleable(p) || !p->beat)
            continue;
        if (p->later || (p->source != PROTO_SOURCE_DAEMON && p->local.intra == 0))
            return 0; /* no pool yet, or a limit of its own */
        threads += p->local.intra ? p->local.intra : p->sent.intra;
    }
    return threads;
}

/* Whether jobs take turns on cores: more threads than cores, or orders of people. */
static bool is_crowded(const struct daemon *d)
{
    uint32_t threads = 0;

    for (const struct job *j = d->jobs->first; j; j = j->next)
        threads += j->wanted.threads.intra ? j->wanted.threads.intra : j->wanted.share;
    return threads > d->jobs->capacity;
}

/* Mean speed of the job's own cores, in permille of the fastest; TOPOLOGY_FASTEST: it has none. */
static uint32_t core_speed(const struct job *j)
{
    const struct topology *topology = &j->daemon->topology;
    const struct cpuset *own = &j->placed.cores;
    uint32_t sum = 0, count = 0;

    if (j->asked.attributes.placement != PLACEMENT_EXCLUSIVE)
        return TOPOLOGY_FASTEST;
    for (int c = cpuset_next(own, 0); c >= 0; c = cpuset_next(own, (unsigned)c + 1)) {
        sum += cpuset_has(&topology->online, (unsigned)c) ? topology->speed[c] : TOPOLOGY_FASTEST;
        count++;
    }
    return sum ? sum / count : TOPOLOGY_FASTEST;
}

/* ---- samples --------------------------------------------------------------------------------- */

static void begin_sample(struct job *j, uint64_t now, uint32_t threads, uint64_t units)
{
    struct speed *s = &j->observed.speed;

    s->begin_ns = threads ? now : 0;
    s->begin_units = units;
    s->threads = threads;
    s->crowded = is_crowded(j->daemon);
    s->core_speed = core_speed(j);
}

static bool is_recalled(const struct speed *s)
{
    return s->earlier == SPEED_EARLIER_OWN || s->earlier == SPEED_EARLIER_SHARED;
}

static void solve(struct speed *s, uint64_t now)
{
    if (is_recalled(s) && prior_disagrees(&s->fit, &s->prior, now))
        s->earlier = SPEED_EARLIER_REFUTED;
    s->known = is_recalled(s);
    if (s->known)
        prior_solve(&s->fit, &s->prior, now, &s->model);
    else
        s->known = fit_solve(&s->fit, now, &s->model);
}

static void take_sample(struct job *j, uint64_t now, uint64_t units)
{
    struct speed *s = &j->observed.speed;
    double rate =
        (double)(units - s->begin_units) * SPEED_RATE * NS_PER_S / (double)(now - s->begin_ns);

    if (s->core_speed != core_speed(j)) /* it moved meanwhile */
        return;
    rate = rate * TOPOLOGY_FASTEST / s->core_speed;
    if (rate < 1 || rate > (double)FIT_RATE_MAX)
        return;
    s->rate = (uint64_t)rate;
    s->rate_of = s->threads;
    if (s->crowded || is_crowded(j->daemon))
        return;
    fit_add(&s->fit, now, s->threads, s->rate);
    solve(s, now);
}

/* The unit changed: no earlier measurement applies. */
static void begin_anew(struct speed *s, bool own, uint64_t now)
{
    fit_forget(&s->fit);
    s->own = own;
    solve(s, now);
    s->rate = 0;
    s->begin_ns = 0;
}

/*
 * A sample begins and ends right after the number of units changed, so that few units are timed to
 * a heartbeat's precision. Returns true if a sample ends.
 */
static bool sample(struct job *j, uint64_t now)
{
    struct speed *s = &j->observed.speed;
    uint32_t threads = threads_of(j);
    bool own, complete = false;
    uint64_t units = units_of(j, &own);

    if (own != s->own)
        begin_anew(s, own, now);
    if (s->begin_ns == 0 || threads != s->threads || units < s->last_units) {
        begin_sample(j, now, threads, units);
        s->exact = false;
    } else if (units > s->last_units && !s->exact) {
        begin_sample(j, now, threads, units);
        s->exact = true;
    } else if (units > s->last_units) {
        uint64_t least_ns = units - s->begin_units < SAMPLE_UNITS ? SAMPLE_SLOW_NS : SAMPLE_NS;

        complete = now - s->begin_ns >= least_ns;
        if (complete) {
            take_sample(j, now, units);
            begin_sample(j, now, threads, units);
        }
    }
    s->last_units = units;
    return complete;
}

/* ---- experiments ----------------------------------------------------------------------------- */

static bool may_explore(const struct job *j)
{
    return j->daemon->jobs->by_curves && j->asked.pinned.intra == 0 && j->asked.lent == 0 &&
           j->wanted.borrowed == 0 && job_malleable(j) && j->promise.room.need == 0 &&
           j->promise.room.yields_to == 0;
}

static void explore(struct job *j, uint64_t now)
{
    struct speed *s = &j->observed.speed;
    uint32_t have = may_explore(j) ? j->wanted.share : 0;
    uint32_t to = fit_explore(&s->fit, now, have, devices_least(j));

    if (to == s->explore)
        return;
    s->explore = to;
    daemon_changed(j->daemon);
}

/* Whether the curve differs from the one that the policy decided by. */
static bool is_news(const struct speed *s)
{
    const struct fit_model *a = &s->model, *b = &s->told;

    if (s->known != s->told_known || !s->known)
        return s->known != s->told_known;
    return (a->parallel > b->parallel ? a->parallel - b->parallel : b->parallel - a->parallel) >
               FIT_ONE / 20 ||
           a->confidence_permille > b->confidence_permille + 100 ||
           b->confidence_permille > a->confidence_permille + 100;
}

void speed_heartbeat(struct job *j, uint64_t now)
{
    bool taken = sample(j, now);

    j->observed.speed.beat_ns = now;
    if (!taken && j->observed.speed.explore == 0)
        return;
    explore(j, now);
    if (taken && is_news(&j->observed.speed) && j->daemon->jobs->by_curves)
        daemon_changed(j->daemon);
}

/* ---- earlier and later runs ------------------------------------------------------------------ */

void speed_recall(struct job *j, const struct prior *prior, bool shared, uint64_t now)
{
    struct speed *s = &j->observed.speed;

    s->prior = *prior;
    s->earlier = shared ? SPEED_EARLIER_SHARED : SPEED_EARLIER_OWN;
    solve(s, now);
    if (is_news(s) && j->daemon->jobs->by_curves)
        daemon_changed(j->daemon);
}

bool speed_recalled(const struct job *j)
{
    return is_recalled(&j->observed.speed);
}

bool speed_learnt(const struct job *j, uint64_t now, struct prior *ret)
{
    const struct speed *s = &j->observed.speed;

    /* A user's row holds what that user's runs have measured, and nothing of a shared one. */
    return prior_learn(&s->fit, s->earlier == SPEED_EARLIER_OWN ? &s->prior : NULL, now, ret);
}

/* ---- what is known --------------------------------------------------------------------------- */

void speed_resized(struct job *j, uint64_t latency_ns)
{
    uint64_t *resize = &j->observed.speed.resize_ns;

    *resize = *resize ? (3 * *resize + latency_ns) / 4 : latency_ns;
}

/* Operations come more often than steps: a second holds enough of them to be compared. */
uint64_t speed_count(const struct job *j, uint64_t *ret_ns)
{
    uint64_t own = 0, tasks = 0;

    for (const struct process *p = j->processes; p; p = p->next) {
        own += p->progress_done;
        tasks += p->tasks;
    }
    *ret_ns = j->observed.speed.beat_ns;
    return tasks ? tasks : own;
}

uint64_t speed_resize_ns(const struct job *j)
{
    return j->observed.speed.resize_ns ? j->observed.speed.resize_ns : RESIZE_NS;
}

uint64_t speed_remaining_ns(const struct job *j)
{
    const struct speed *s = &j->observed.speed;
    uint64_t left = 0;
    double one, time;

    for (const struct process *p = j->processes; p; p = p->next) {
        if (p->progress_done && p->progress_total < p->progress_done)
            return UINT64_MAX; /* its total is not known */
        left += p->progress_total - (p->progress_done ? p->progress_done : p->progress_total);
    }
    if (!s->own || s->rate == 0)
        return UINT64_MAX;
    /* Without a curve, assumes that speed is in proportion to threads. */
    one = !s->known           ? (double)s->rate / s->rate_of
          : s->model.rate_one ? (double)s->model.rate_one
                              : (double)s->rate * (double)fit_time(&s->model, s->rate_of) / FIT_ONE;
    time = (double)left * SPEED_RATE / one * NS_PER_S;
    return time < (double)INT64_MAX ? (uint64_t)time : INT64_MAX;
}

uint32_t speed_threads(const struct job *j)
{
    uint32_t explore = j->observed.speed.explore;

    return explore && explore < j->wanted.share &&
                   j->observed.speed.fit.explore_from == j->wanted.share
               ? explore
               : j->wanted.share;
}
