/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/settle.h"

struct work {
    struct settle_state *s; /* as it will be after the actions */
    struct settle_actions *a;
};

static struct settle_action *add(struct work *w, enum settle_verb verb, const struct settle_job *j)
{
    struct settle_action *action = &w->a->action[w->a->n++];

    action->verb = verb;
    action->job = (unsigned)(j - w->s->jobs);
    action->process = 0;
    cpuset_zero(&action->cores);
    return action;
}

/* ---- threads ---- */

/* The threads that a process may be running: all of its pools' before the first command. */
static uint32_t present(const struct settle_process *p)
{
    return p->commanded ? p->sent.intra : p->max;
}

static bool wants_command(const struct settle_process *p)
{
    return p->malleable && p->want.intra > 0 &&
           (!p->commanded || p->want.intra != p->sent.intra || p->want.inter != p->sent.inter);
}

static void command(struct work *w, enum settle_verb verb, const struct settle_job *j,
                    struct settle_process *p)
{
    add(w, verb, j)->process = (unsigned)(p - j->processes);
    if (!p->commanded)
        p->held = p->max;
    if (p->want.intra < p->held && p->shrink_since_ns == 0)
        p->shrink_since_ns = w->s->now_ns;
    p->sent = p->want;
    p->commanded = true;
}

/* A paused process has nothing to park; it gets its target when it goes on. */
static bool stands_still(const struct settle_job *j)
{
    return j->frozen || j->paused;
}

static bool is_shrinking(const struct settle_job *j, uint64_t now_ns)
{
    for (unsigned i = 0; i < j->n_processes && !stands_still(j); i++)
        if (j->processes[i].shrink_since_ns && !j->processes[i].waits &&
            now_ns < j->processes[i].shrink_since_ns + SETTLE_GRACE_NS)
            return true;
    return false;
}

static bool is_late(const struct settle_job *j, uint64_t now_ns)
{
    for (unsigned i = 0; i < j->n_processes && !stands_still(j); i++)
        if (j->processes[i].shrink_since_ns &&
            now_ns >= j->processes[i].shrink_since_ns + SETTLE_GRACE_NS)
            return true;
    return false;
}

static void lower_targets(struct work *w)
{
    for (unsigned i = 0; i < w->s->n_jobs; i++) {
        struct settle_job *j = &w->s->jobs[i];

        for (unsigned k = 0; k < j->n_processes; k++)
            if (wants_command(&j->processes[k]) &&
                j->processes[k].want.intra <= present(&j->processes[k]))
                command(w, SETTLE_LOWER, j, &j->processes[k]);
    }
}

/*
 * Threads on shared cores wait for those that others park, except for a grow that a person ordered.
 * An exclusive job's cores are in place already when it gets here.
 */
static void raise_targets(struct work *w, struct settle_job *j, bool somebody_leaves)
{
    if (!cpuset_equal(&j->cores, &j->want_cores) || j->busy ||
        (somebody_leaves && !j->urgent && !j->exclusive))
        return;
    for (unsigned k = 0; k < j->n_processes; k++)
        if (wants_command(&j->processes[k]))
            command(w, SETTLE_RAISE, j, &j->processes[k]);
}

/* ---- cores ---- */

static bool is_fenced(const struct cpuset *set)
{
    return cpuset_count(set) > 0;
}

static bool is_subset(const struct cpuset *a, const struct cpuset *b)
{
    struct cpuset both;

    cpuset_and(&both, a, b);
    return cpuset_equal(&both, a);
}

static void subtract(struct cpuset *set, const struct cpuset *other)
{
    for (unsigned w = 0; w < CPUSET_WORDS; w++)
        set->word[w] &= ~other->word[w];
}

/* Threads still park, or an engine has not answered. */
static bool is_leaving(const struct settle_job *j, uint64_t now_ns)
{
    return is_shrinking(j, now_ns) || j->busy;
}

/*
 * Cores that @o has to leave but may still run threads on. Before its first fence that is every
 * core; a job without threads to park is fenced in this very pass.
 */
static void still_there(const struct settle_state *s, const struct settle_job *o,
                        struct cpuset *ret)
{
    cpuset_zero(ret);
    if (!is_fenced(&o->want_cores) || o->paused)
        return;
    if (is_fenced(&o->cores))
        *ret = o->cores;
    else if (is_leaving(o, s->now_ns))
        *ret = s->cpus;
    subtract(ret, &o->want_cores);
}

/* Wanted cores that @j may have now: all but those that an exclusive neighbour has not left yet. */
static void free_part(const struct settle_state *s, const struct settle_job *j, struct cpuset *ret)
{
    struct cpuset there;

    *ret = j->want_cores;
    for (unsigned i = 0; i < s->n_jobs; i++) {
        const struct settle_job *o = &s->jobs[i];

        if (o == j || (!o->exclusive && !j->exclusive))
            continue;
        still_there(s, o, &there);
        subtract(ret, &there);
    }
}

static void fence(struct work *w, enum settle_verb verb, struct settle_job *j,
                  const struct cpuset *cores)
{
    add(w, verb, j)->cores = *cores;
    if (!j->remote) {
        j->cores = *cores;
        return;
    }
    /* Until the engine has answered, the job may run on old and new cores. */
    j->busy = j->behind = true;
    for (unsigned i = 0; is_fenced(&j->cores) && i < CPUSET_WORDS; i++)
        j->cores.word[i] |= cores->word[i];
}

/*
 * Threads that stay until a safe point keep their cores: pressed onto fewer ones they would only
 * wait for each other. The weights divide these cores meanwhile, and others come in. Without
 * weights, or where some job has cores of its own, it has to leave.
 */
static bool may_stay(const struct settle_state *s, const struct settle_job *j)
{
    bool waits = false;

    for (unsigned i = 0; i < j->n_processes; i++) {
        const struct settle_process *p = &j->processes[i];

        waits |= p->waits && p->shrink_since_ns && p->want.intra <= p->sent.intra;
    }
    for (unsigned i = 0; waits && i < s->n_jobs; i++)
        waits = !s->jobs[i].exclusive;
    return waits && j->weighed;
}

/* Takes away the cores that @j has to leave, unless threads still park. Returns true if it did. */
static bool narrow(struct work *w, struct settle_job *j)
{
    struct cpuset kept;

    if (is_leaving(j, w->s->now_ns) || j->stuck || !is_fenced(&j->want_cores) ||
        may_stay(w->s, j) || (is_fenced(&j->cores) && is_subset(&j->cores, &j->want_cores)))
        return false;
    if (is_fenced(&j->cores))
        cpuset_and(&kept, &j->cores, &j->want_cores);
    else
        free_part(w->s, j, &kept);
    if (!is_fenced(&kept))
        return false; /* moves as a whole once its new cores are free */
    fence(w, SETTLE_NARROW, j, &kept);
    return true;
}

static bool widen(struct work *w, struct settle_job *j, bool force)
{
    struct cpuset free;

    if (cpuset_equal(&j->cores, &j->want_cores) || j->stuck || is_leaving(j, w->s->now_ns) ||
        may_stay(w->s, j))
        return false;
    free_part(w->s, j, &free);
    if (!force && is_fenced(&j->want_cores) && !cpuset_equal(&free, &j->want_cores))
        return false;
    fence(w, SETTLE_WIDEN, j, &j->want_cores);
    return true;
}

/*
 * Each pass may free cores for another job. Two jobs that exchange cores would wait for each other
 * for ever: when nothing moves and no thread parks, the first one moves.
 */
static void move_cores(struct work *w)
{
    const struct settle_state *s = w->s;
    bool moved = true;

    while (moved) {
        bool parking = false;

        moved = false;
        for (unsigned i = 0; i < s->n_jobs; i++) {
            moved |= narrow(w, &s->jobs[i]);
            parking |= is_leaving(&s->jobs[i], s->now_ns);
        }
        for (unsigned i = 0; i < s->n_jobs; i++) {
            moved |= widen(w, &s->jobs[i], false);
            parking |= s->jobs[i].behind;
        }
        for (unsigned i = 0; !moved && !parking && i < s->n_jobs; i++)
            moved = widen(w, &s->jobs[i], true);
    }
}

/* ---- the rest ---- */

static void set_quota(struct work *w, struct settle_job *j)
{
    if (j->want_quota_mcpu == j->quota_mcpu || j->quota_refused ||
        (j->want_quota_mcpu < j->quota_mcpu && is_shrinking(j, w->s->now_ns)))
        return;
    add(w, SETTLE_QUOTA, j);
    j->quota_mcpu = j->want_quota_mcpu;
    j->busy |= j->remote;
}

static uint64_t next_deadline(const struct settle_state *s)
{
    uint64_t next = SETTLE_NEVER;

    for (unsigned i = 0; i < s->n_jobs; i++)
        for (unsigned k = 0; k < s->jobs[i].n_processes; k++) {
            const struct settle_process *p = &s->jobs[i].processes[k];
            uint64_t at_ns = p->shrink_since_ns + SETTLE_GRACE_NS;

            if (p->shrink_since_ns && at_ns > s->now_ns && at_ns < next)
                next = at_ns;
        }
    return next;
}

void settle(struct settle_state *s, struct settle_actions *ret)
{
    struct work w = {s, ret};
    bool leaves = false; /* some threads park, or a pause is under way */

    ret->n = 0;
    lower_targets(&w);
    for (unsigned i = 0; i < s->n_jobs; i++) {
        s->jobs[i].late = is_late(&s->jobs[i], s->now_ns);
        leaves |=
            is_shrinking(&s->jobs[i], s->now_ns) || (!s->jobs[i].wanted && s->jobs[i].running);
    }
    move_cores(&w);
    for (unsigned i = 0; i < s->n_jobs; i++) {
        set_quota(&w, &s->jobs[i]);
        raise_targets(&w, &s->jobs[i], leaves);
    }
    for (unsigned i = 0; i < s->n_jobs && !leaves; i++) {
        const struct settle_job *j = &s->jobs[i];

        if (j->wanted && !j->running && !j->busy && cpuset_equal(&j->cores, &j->want_cores))
            add(&w, SETTLE_START, j);
    }
    ret->next_ns = next_deadline(s);
}
