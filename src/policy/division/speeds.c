/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/division/speeds.h"

#include "base/minmax.h"

#include "policy/division/layout.h"

#include <string.h>

#define SLOW_MOST 3  /* slow cores for a fast one, in an exchange */
#define GAIN_PART 64 /* an exchange must gain this part of the two jobs' progress */

/* A running job. */
struct taker {
    uint32_t job;
    uint32_t user;
    uint32_t least, most; /* cores; the same: their number stays */
    uint32_t has;
    int64_t due;       /* mcpu of cores of any one speed */
    int64_t speed;     /* permille of the fastest, sum over its cores */
    int64_t efficient; /* permille of a core that each of its threads is worth */
    uint32_t of_speed[POLICY_SPEEDS_MAX];
};

/* A user; without users, all jobs have the first one. */
struct group {
    int64_t due, speed;
    int64_t has_mcpu;
    int64_t user_mcpu; /* the maximum in the plan */
    bool is_short;     /* its jobs could use more */
};

/* All members lie within the plan's scratch. */
struct speeds {
    const struct policy_snapshot *snapshot;
    struct policy_plan *plan;
    struct taker *taker;
    uint32_t n;
    struct group *group;
    uint32_t groups;
    uint32_t cores; /* that the plan gives away */
    bool equal;
};

void speeds_room(const struct policy_snapshot *snapshot, struct policy_room *room)
{
    size_t bytes = snapshot->job_count * sizeof(struct taker) +
                   (snapshot->user_count + 1) * sizeof(struct group);

    if (snapshot->speed_count > 1 && room->scratch_bytes < bytes)
        room->scratch_bytes = bytes; /* the policy no longer needs it then */
}

/* ---- who takes part -------------------------------------------------------------------------- */

static bool runs(const struct policy_decision *d)
{
    return d->verb == POLICY_VERB_START || d->verb == POLICY_VERB_KEEP ||
           d->verb == POLICY_VERB_RESIZE || d->verb == POLICY_VERB_RESUME;
}

/* Speed with @cores in thousandths of one core's; Amdahl, nine tenths parallel, where unknown. */
static int64_t speed_with(const struct policy_job *job, uint32_t cores)
{
    const struct policy_curve *c = &job->curve[POLICY_MCPU];

    if (c->count == 0)
        return INT64_C(10000) * cores / (cores + 9);
    return c->speedup_permille[(cores < c->count ? cores : c->count) - 1];
}

/* Whether its number of cores follows from a share alone, which may as well be one of speed. */
static bool is_level(const struct speeds *s, uint32_t j)
{
    const struct policy_job *job = &s->snapshot->jobs[j];
    uint32_t why = s->plan->decisions[j].reason.code;

    return s->equal && job->fenced && job->malleability == POLICY_MALLEABLE &&
           policy_job_fixed(job, POLICY_MCPU) < 0 &&
           (why == POLICY_REASON_EQUAL_SHARE || why == POLICY_REASON_WEIGHTED_SHARE) &&
           (s->snapshot->user_count == 0 ||
            s->snapshot->users[job->user].most_mcpu == POLICY_UNLIMITED);
}

static struct taker take_in(const struct speeds *s, uint32_t j, uint32_t cores)
{
    const struct policy_job *job = &s->snapshot->jobs[j];
    struct taker t = {.job = j,
                      .user = s->snapshot->user_count ? job->user : 0,
                      .least = cores,
                      .most = cores,
                      .due = (int64_t)cores * POLICY_CORE_MCPU};

    if (!is_level(s, j))
        return t;
    t.least =
        (uint32_t)((policy_job_least(job, POLICY_MCPU) + POLICY_CORE_MCPU - 1) / POLICY_CORE_MCPU);
    t.least = t.least < cores ? t.least : cores; /* more than its user's share is nobody's due */
    t.most =
        (uint32_t)(smaller(policy_job_most(job, POLICY_MCPU), POLICY_CORES_MAX * POLICY_CORE_MCPU) /
                   POLICY_CORE_MCPU);
    return t;
}

/* Finds the running jobs. False if there is nothing to choose. */
static bool find_takers(struct speeds *s)
{
    const struct policy_snapshot *snapshot = s->snapshot;
    uint32_t cores = 0;
    bool fenced = false;

    for (uint32_t j = 0; j < snapshot->job_count; j++) {
        const struct policy_decision *d = &s->plan->decisions[j];
        int64_t mcpu = runs(d) ? policy_decision_total(s->plan, j, POLICY_MCPU) : 0;
        struct group *g = &s->group[snapshot->user_count ? snapshot->jobs[j].user : 0];

        if (!runs(d))
            continue;
        if (mcpu == 0 || mcpu % POLICY_CORE_MCPU)
            return false;
        s->taker[s->n++] = take_in(s, j, (uint32_t)(mcpu / POLICY_CORE_MCPU));
        s->cores += (uint32_t)(mcpu / POLICY_CORE_MCPU);
        fenced |= snapshot->jobs[j].fenced;
        g->has_mcpu += mcpu;
        g->user_mcpu = larger(g->user_mcpu, d->user_mcpu);
        g->is_short |= d->reason.users > 0;
    }
    for (uint32_t i = 0; i < snapshot->speed_count; i++)
        cores += snapshot->speeds[i].cores;
    return fenced && s->cores <= cores;
}

/* ---- what is due ----------------------------------------------------------------------------- */

/* Users' shares are whole cores, which rounding makes unequal: speed is due without that. */
static void find_dues_of_users(struct speeds *s)
{
    int64_t all = 0, weights = 0;

    for (uint32_t u = 0; u < s->groups; u++) {
        s->group[u].due = s->group[u].has_mcpu;
        if (s->group[u].is_short) {
            all += s->group[u].has_mcpu;
            weights += s->snapshot->users[u].weight;
        }
    }
    for (uint32_t u = 0; u < s->groups && s->equal; u++) {
        struct group *g = &s->group[u];
        int64_t fair = g->is_short ? all * s->snapshot->users[u].weight / weights : g->due;

        if (fair > g->due - POLICY_CORE_MCPU && fair < g->due + POLICY_CORE_MCPU)
            g->due = fair;
    }
}

/* The same for the jobs of a user whose shares are one level. */
static void find_dues_of_jobs(struct speeds *s, uint32_t user)
{
    int64_t all = 0, weights = 0;

    for (uint32_t i = 0; i < s->n; i++)
        if (s->taker[i].user == user && is_level(s, s->taker[i].job)) {
            all += s->taker[i].due;
            weights += s->snapshot->jobs[s->taker[i].job].weight;
        }
    for (uint32_t i = 0; i < s->n && weights; i++) {
        struct taker *t = &s->taker[i];

        if (t->user == user && is_level(s, t->job))
            t->due = all * s->snapshot->jobs[t->job].weight / weights;
    }
}

static void find_dues(struct speeds *s)
{
    find_dues_of_users(s);
    for (uint32_t u = 0; u < s->groups; u++)
        find_dues_of_jobs(s, u);
    for (uint32_t i = 0; i < s->n; i++) {
        struct taker *t = &s->taker[i];
        const struct group *g = &s->group[t->user];
        uint32_t cores;

        t->due = larger(t->due * g->due / g->has_mcpu, 1);
        cores = (uint32_t)((t->due + POLICY_CORE_MCPU - 1) / POLICY_CORE_MCPU);

        t->efficient = speed_with(&s->snapshot->jobs[t->job], cores) / cores;
    }
}

/* ---- cores, fastest first -------------------------------------------------------------------- */

static bool is_behind(int64_t speed, int64_t due, int64_t other_speed, int64_t other_due)
{
    return speed * other_due < other_speed * due;
}

static bool precedes(const struct speeds *s, const struct taker *a, const struct taker *b)
{
    const struct group *of_a = &s->group[a->user], *of_b = &s->group[b->user];

    if (a->user != b->user && is_behind(of_a->speed, of_a->due, of_b->speed, of_b->due))
        return true;
    if (a->user != b->user && is_behind(of_b->speed, of_b->due, of_a->speed, of_a->due))
        return false;
    if (is_behind(a->speed, a->due, b->speed, b->due))
        return true;
    return !is_behind(b->speed, b->due, a->speed, a->due) && a->efficient > b->efficient;
}

static void give(struct speeds *s, struct taker *t, uint32_t i)
{
    t->has++;
    t->of_speed[i]++;
    t->speed += s->snapshot->speeds[i].permille;
    s->group[t->user].speed += s->snapshot->speeds[i].permille;
}

/* While what is left has to fill minima, nobody else gets a core. */
static struct taker *choose(const struct speeds *s, uint32_t left)
{
    struct taker *best = NULL;
    uint32_t lacking = 0;

    for (uint32_t i = 0; i < s->n; i++)
        if (s->taker[i].has < s->taker[i].least)
            lacking += s->taker[i].least - s->taker[i].has;
    for (uint32_t i = 0; i < s->n; i++) {
        struct taker *t = &s->taker[i];

        if (t->has < (lacking >= left ? t->least : t->most) && (!best || precedes(s, t, best)))
            best = t;
    }
    return best;
}

static void give_all(struct speeds *s)
{
    uint32_t left = s->cores;

    for (uint32_t i = 0; i < s->snapshot->speed_count; i++)
        for (uint32_t c = 0; c < s->snapshot->speeds[i].cores && left; c++, left--) {
            struct taker *t = choose(s, left);

            if (!t)
                return;
            give(s, t, i);
        }
}

/* ---- exchanges ------------------------------------------------------------------------------- */

/* Progress by its curve with @cores whose speeds add up to @speed. */
static int64_t progress(const struct speeds *s, const struct taker *t, uint32_t cores,
                        int64_t speed)
{
    return speed_with(&s->snapshot->jobs[t->job], cores) * speed / cores;
}

static bool may_exchange(const struct speeds *s, const struct taker *t)
{
    return is_level(s, t->job) && s->snapshot->jobs[t->job].curve[POLICY_MCPU].count;
}

/* @few gives @n cores of speed @slow to @many for one of speed @fast, where both gain. */
static bool exchange(struct speeds *s, struct taker *few, struct taker *many, uint32_t fast,
                     uint32_t slow, uint32_t n)
{
    int64_t more = (int64_t)s->snapshot->speeds[fast].permille -
                   (int64_t)n * s->snapshot->speeds[slow].permille;
    int64_t now[2], then[2];

    if (few->of_speed[slow] < n || few->has + 1 < few->least + n || many->of_speed[fast] == 0 ||
        many->has + n > many->most + 1)
        return false;
    now[0] = progress(s, few, few->has, few->speed);
    now[1] = progress(s, many, many->has, many->speed);
    then[0] = progress(s, few, few->has + 1 - n, few->speed + more);
    then[1] = progress(s, many, many->has + n - 1, many->speed - more);
    if (then[0] < now[0] || then[1] < now[1] ||
        then[0] + then[1] < now[0] + now[1] + (now[0] + now[1]) / GAIN_PART)
        return false;
    few->has = few->has + 1 - n;
    few->speed += more;
    few->of_speed[fast]++;
    few->of_speed[slow] -= n;
    many->has = many->has + n - 1;
    many->speed -= more;
    many->of_speed[fast]--;
    many->of_speed[slow] += n;
    return true;
}

/* A job that gains little from more threads rather has few fast cores, another many slow ones. */
static void exchange_all(struct speeds *s)
{
    uint32_t fast = 0, slow = s->snapshot->speed_count - 1;

    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0; k < s->n && s->taker[i].of_speed[slow] > 1; k++) {
            if (i == k || !may_exchange(s, &s->taker[i]) || !may_exchange(s, &s->taker[k]))
                continue;
            for (uint32_t n = 2; n <= SLOW_MOST; n++)
                while (exchange(s, &s->taker[i], &s->taker[k], fast, slow, n))
                    ;
        }
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void set_cores(struct speeds *s, const struct taker *t)
{
    struct policy_decision *d = &s->plan->decisions[t->job];
    struct policy_amount *entry = s->plan->amounts + d->amount_first;

    if (s->snapshot->jobs[t->job].fenced)
        memcpy(d->of_speed, t->of_speed, sizeof(d->of_speed));
    if (policy_decision_total(s->plan, t->job, POLICY_MCPU) == (int64_t)t->has * POLICY_CORE_MCPU)
        return;
    while (entry->amount.of[POLICY_MCPU] == 0)
        entry++;
    entry->amount.of[POLICY_MCPU] = (int64_t)t->has * POLICY_CORE_MCPU;
    if (s->snapshot->jobs[t->job].state == POLICY_RUNNING)
        d->verb = layout_is_unchanged(s->snapshot, s->plan, t->job) ? POLICY_VERB_KEEP
                                                                    : POLICY_VERB_RESIZE;
}

/* More slow cores than its share in number are no more than its share in speed. */
static void raise_users(struct speeds *s)
{
    for (uint32_t u = 0; u < s->groups; u++)
        s->group[u].has_mcpu = 0;
    for (uint32_t i = 0; i < s->n; i++)
        s->group[s->taker[i].user].has_mcpu += (int64_t)s->taker[i].has * POLICY_CORE_MCPU;
    for (uint32_t j = 0; j < s->snapshot->job_count; j++) {
        const struct group *g = &s->group[s->snapshot->user_count ? s->snapshot->jobs[j].user : 0];
        struct policy_decision *d = &s->plan->decisions[j];

        if (d->user_mcpu && d->user_mcpu == g->user_mcpu)
            d->user_mcpu = larger(d->user_mcpu, g->has_mcpu);
    }
}

void speeds_apply(const struct policy *policy, const struct policy_snapshot *snapshot,
                  struct policy_plan *plan)
{
    int hybrid = policy_param_find(policy, "hybrid");
    struct speeds s = {.snapshot = snapshot,
                       .plan = plan,
                       .taker = plan->scratch,
                       .groups = snapshot->user_count ? snapshot->user_count : 1,
                       .equal = hybrid >= 0 && !policy_param(policy, snapshot, (uint32_t)hybrid)};

    if (snapshot->speed_count < 2)
        return;
    s.group = (struct group *)(s.taker + snapshot->job_count);
    memset(s.group, 0, s.groups * sizeof(*s.group));
    if (!find_takers(&s))
        return;
    find_dues(&s);
    give_all(&s);
    exchange_all(&s);
    for (uint32_t i = 0; i < s.n; i++)
        set_cores(&s, &s.taker[i]);
    raise_users(&s);
}
