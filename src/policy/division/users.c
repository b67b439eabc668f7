/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/division/users.h"

#include "base/minmax.h"
#include "policy/core/writer.h"
#include "policy/division/gate.h"
#include "policy/division/order.h"

#include <errno.h>
#include <string.h>

#define STATE_MAGIC UINT64_C(0x7372657375656469)
#define ROUNDS_MAX  4 /* how often cores that users leave idle are divided again */

/* Precedes each user's part of the state. */
struct state_head {
    uint64_t magic;
    uint64_t user; /* its id */
    uint64_t size; /* bytes that follow, padded to eight */
};

typedef __int128 wide;

enum settled { SETTLED_NOT, SETTLED_LOW, SETTLED_HIGH };

/* One user. */
struct part {
    uint32_t user;  /* index in the snapshot */
    uint32_t first; /* of its jobs */
    uint32_t count;
    uint64_t oldest_ns;  /* arrival of the user's oldest job … */
    uint64_t waiting_ns; /* … and of the oldest one that does not run; POLICY_NEVER: none */
    int64_t wants_mcpu;  /* mcpu that its jobs can use */
    int64_t insists_mcpu;
    int64_t granted_mcpu; /* by an administrator, beyond its share */
    int64_t most_mcpu;    /* mcpu of its share that it can use, as known by now */
    int64_t fair_mcpu;    /* its share before it gets others' idle cores */
    int64_t share_mcpu;
    int64_t pool_mcpu; /* to divide; it lends some, so that the share is left */
    int64_t used_mcpu;
    uint8_t settled; /* enum settled, while cores are divided */
    bool lends;
    int64_t over; /* numerator of the fraction that rounding cut off */
};

/* All members lie within the plan's scratch. */
struct users {
    const struct policy *policy;
    const struct policy_snapshot *all;
    struct policy_plan *plan;
    struct policy_job *jobs; /* by user */
    uint32_t *origin;        /* index in the snapshot of each */
    struct policy_decision *decisions;
    struct policy_domain *domains;
    struct policy_domain_use *uses;
    struct policy_vector *held; /* for each domain: the others' amounts that cannot be divided */
    struct part *part;
    uint32_t *order; /* of parts */
    void *scratch;
    size_t scratch_room;
    uint32_t n;
    uint32_t contenders; /* parts that want cores */
    int64_t capacity_mcpu;
    int64_t params[POLICY_PARAMS_MAX];
};

static size_t padded(size_t size)
{
    return (size + 15) / 16 * 16;
}

static bool wants_cores(const struct policy_job *job)
{
    return job->state != POLICY_HELD;
}

bool users_share(const struct policy_snapshot *s, uint32_t *ret_user)
{
    bool found = false, several = false;

    *ret_user = s->job_count ? s->jobs[0].user : 0;
    if (s->user_count == 0)
        return false;
    for (uint32_t j = 0; j < s->job_count; j++) {
        if (!wants_cores(&s->jobs[j]))
            continue;
        several |= found && s->jobs[j].user != *ret_user;
        *ret_user = s->jobs[j].user;
        found = true;
    }
    return several || (found && s->users[*ret_user].most_mcpu != POLICY_UNLIMITED);
}

/* ---- storage --------------------------------------------------------------------------------- */

static size_t own_bytes(const struct policy_snapshot *s)
{
    return padded(s->job_count * sizeof(struct policy_job)) +
           padded(s->job_count * sizeof(uint32_t)) +
           padded(s->job_count * sizeof(struct policy_decision)) +
           padded(s->domain_count * sizeof(struct policy_domain)) +
           padded(s->domain_count * sizeof(struct policy_domain_use)) +
           padded(s->domain_count * sizeof(struct policy_vector)) +
           padded(s->user_count * sizeof(struct part)) + padded(s->user_count * sizeof(uint32_t));
}

void users_room(const struct policy *policy, const struct policy_snapshot *s,
                struct policy_room *room)
{
    struct policy_snapshot none = *s;
    struct policy_room empty;

    none.job_count = 0;
    policy->room(&none, &empty);
    room->scratch_bytes += own_bytes(s);
    if (room->state_bytes)
        room->state_bytes +=
            s->user_count * (empty.state_bytes + sizeof(struct state_head) + sizeof(uint64_t));
}

static void *take(char **at, size_t size)
{
    void *taken = *at;

    *at += padded(size);
    return taken;
}

static void users_init(struct users *u, const struct policy *policy,
                       const struct policy_snapshot *s, struct policy_plan *plan)
{
    char *at = plan->scratch;

    *u = (struct users){.policy = policy, .all = s, .plan = plan};
    u->jobs = take(&at, s->job_count * sizeof(struct policy_job));
    u->origin = take(&at, s->job_count * sizeof(uint32_t));
    u->decisions = take(&at, s->job_count * sizeof(struct policy_decision));
    u->domains = take(&at, s->domain_count * sizeof(struct policy_domain));
    u->uses = take(&at, s->domain_count * sizeof(struct policy_domain_use));
    u->held = take(&at, s->domain_count * sizeof(struct policy_vector));
    u->part = take(&at, s->user_count * sizeof(struct part));
    u->order = take(&at, s->user_count * sizeof(uint32_t));
    u->scratch = at;
    u->scratch_room = plan->scratch_room - own_bytes(s);
}

const void *users_state(const struct policy_snapshot *s, uint32_t user, size_t *ret_size)
{
    const char *state = s->state;
    struct state_head head;

    *ret_size = s->state_size;
    if (!state || s->state_size < sizeof(head))
        return state;
    memcpy(&head, state, sizeof(head));
    if (head.magic != STATE_MAGIC)
        return state;
    *ret_size = 0;
    for (size_t at = 0; at + sizeof(head) <= s->state_size;) {
        memcpy(&head, state + at, sizeof(head));
        at += sizeof(head);
        if (head.magic != STATE_MAGIC || head.size > s->state_size - at)
            return NULL;
        if (s->user_count > user && head.user == s->users[user].id) {
            *ret_size = (size_t)head.size;
            return state + at;
        }
        at += (size_t)(head.size + 7) / 8 * 8;
    }
    return NULL;
}

/* ---- users with jobs ------------------------------------------------------------------------- */

static bool granted(const struct policy_job *job)
{
    return job->granted && job->pinned_by != POLICY_PIN_NONE && job->pinned.of[POLICY_MCPU] &&
           job->state == POLICY_RUNNING;
}

static int64_t most_of(const struct policy_job *job, int64_t machine)
{
    int64_t fixed = policy_job_fixed(job, POLICY_MCPU);

    return fixed >= 0 ? fixed : smaller(policy_job_most(job, POLICY_MCPU), machine);
}

static void count_job(struct users *u, struct part *p, const struct policy_job *job)
{
    if (job->arrival_ns < p->oldest_ns)
        p->oldest_ns = job->arrival_ns;
    if (!wants_cores(job))
        return;
    if (job->state != POLICY_RUNNING && job->arrival_ns < p->waiting_ns)
        p->waiting_ns = job->arrival_ns;
    if (granted(job)) {
        p->granted_mcpu += job->pinned.of[POLICY_MCPU];
        return;
    }
    p->lends |= job->lent > 0;
    p->wants_mcpu += most_of(job, POLICY_CORES_MAX * POLICY_CORE_MCPU);
    if (job->state == POLICY_RUNNING)
        p->insists_mcpu += policy_job_least(job, POLICY_MCPU);
}

/* Sorts jobs by user, in the order of the snapshot; users without a job have no part. */
static void group_jobs(struct users *u)
{
    const struct policy_snapshot *s = u->all;
    uint32_t at = 0;

    for (uint32_t i = 0; i < s->user_count; i++)
        u->part[i] = (struct part){.user = i, .oldest_ns = UINT64_MAX, .waiting_ns = POLICY_NEVER};
    for (uint32_t j = 0; j < s->job_count; j++) {
        u->part[s->jobs[j].user].count++;
        count_job(u, &u->part[s->jobs[j].user], &s->jobs[j]);
    }
    for (uint32_t i = 0; i < s->user_count; i++) {
        u->part[i].first = at;
        at += u->part[i].count;
        u->part[i].count = 0;
    }
    for (uint32_t j = 0; j < s->job_count; j++) {
        struct part *p = &u->part[s->jobs[j].user];

        u->origin[p->first + p->count] = j;
        u->jobs[p->first + p->count++] = s->jobs[j];
    }
    for (uint32_t i = 0; i < s->user_count; i++) {
        if (u->part[i].count)
            u->part[u->n++] = u->part[i];
    }
}

/* ---- dividing -------------------------------------------------------------------------------- */

static int64_t weight_of(const struct users *u, const struct part *p)
{
    return u->all->users[p->user].weight;
}

static bool larger_remainder(uint32_t a, uint32_t b, const void *arg)
{
    const struct users *u = arg;
    const struct part *x = &u->part[a], *y = &u->part[b];

    if (x->over != y->over)
        return x->over > y->over;
    if (x->oldest_ns != y->oldest_ns)
        return x->oldest_ns < y->oldest_ns;
    return a < b;
}

/*
 * Settles users whose part of @rest, by weight, is above their use, or below one unit: whichever of
 * the two sums is larger, as in share.c. True if there were any.
 */
static bool settle(struct users *u, int64_t unit, int64_t rest, int64_t weights)
{
    wide high = 0, low = 0;

    for (uint32_t i = 0; i < u->n; i++) {
        const struct part *p = &u->part[i];
        int64_t quota = rest * weight_of(u, p), most = p->most_mcpu / unit * weights;

        if (p->settled)
            continue;
        high += quota > most ? quota - most : 0;
        low += quota < weights ? weights - quota : 0;
    }
    for (uint32_t i = 0; i < u->n; i++) {
        struct part *p = &u->part[i];
        int64_t quota = rest * weight_of(u, p), most = p->most_mcpu / unit * weights;

        if (p->settled || (high >= low ? quota <= most : quota >= weights))
            continue;
        p->settled = high >= low ? SETTLED_HIGH : SETTLED_LOW;
        p->share_mcpu = high >= low ? p->most_mcpu : unit;
    }
    return high || low;
}

/* Divides @units of @unit mcpu each; a user who wants any gets at least one, if possible. */
static void divide_units(struct users *u, int64_t unit, int64_t units)
{
    int64_t rest, weights;
    uint32_t open;

    do {
        rest = units;
        weights = 0;
        open = 0;
        for (uint32_t i = 0; i < u->n; i++) {
            if (u->part[i].settled) {
                rest -= u->part[i].share_mcpu / unit;
            } else {
                weights += weight_of(u, &u->part[i]);
                u->order[open++] = i;
            }
        }
    } while (open && settle(u, unit, rest, weights));
    for (uint32_t i = 0; i < open; i++) {
        struct part *p = &u->part[u->order[i]];

        p->share_mcpu = rest * weight_of(u, p) / weights * unit;
        p->over = rest * weight_of(u, p) % weights;
    }
    for (uint32_t i = 0; i < open; i++)
        rest -= u->part[u->order[i]].share_mcpu / unit; /* rounding leaves the rest */
    order_sort(u->order, open, larger_remainder, u);
    for (int64_t i = 0; i < rest && i < open; i++)
        u->part[u->order[i]].share_mcpu += unit;
}

/* Divides whole cores; thousandths where there are more users than cores. */
static void divide(struct users *u, int64_t mcpu)
{
    bool whole = mcpu / POLICY_CORE_MCPU >= u->contenders;
    int64_t unit = whole ? POLICY_CORE_MCPU : 1;

    for (uint32_t i = 0; i < u->n; i++) {
        struct part *p = &u->part[i];

        p->settled = p->most_mcpu > 0 ? SETTLED_NOT : SETTLED_HIGH;
        p->share_mcpu = 0;
    }
    divide_units(u, unit, mcpu / unit);
}

/* ---- deciding for one user ------------------------------------------------------------------- */

static bool is_short(const struct part *p)
{
    return p->share_mcpu < p->wants_mcpu;
}

/* Beyond its user's share, a job cannot insist on anything. */
static void soften(struct policy_job *job)
{
    bool others = job->pinned.of[POLICY_PS] || job->pinned.of[POLICY_WORKER];

    if (granted(job) || job->malleability != POLICY_MALLEABLE)
        return;
    if (job->pinned_by != POLICY_PIN_NONE && job->pinned.of[POLICY_MCPU]) {
        job->max.of[POLICY_MCPU] = job->pinned.of[POLICY_MCPU];
        job->pinned.of[POLICY_MCPU] = 0;
        if (!others)
            job->pinned_by = POLICY_PIN_NONE;
    }
    job->min.of[POLICY_MCPU] = smaller(job->min.of[POLICY_MCPU], POLICY_CORE_MCPU);
    if (job->max.of[POLICY_MCPU] < job->min.of[POLICY_MCPU])
        job->max.of[POLICY_MCPU] = job->min.of[POLICY_MCPU];
}

/*
 * Points @ret at the job's amounts and returns their number. A job that began by itself has memory
 * and devices before the first plan has placed it: they are written to @begun.
 */
static uint32_t held_by(const struct policy_job *job, struct policy_amount *begun,
                        const struct policy_amount **ret)
{
    *ret = job->current;
    if (job->current_count || job->state != POLICY_RUNNING)
        return job->current_count;
    *begun = (struct policy_amount){.domain = job->home};
    for (int r = POLICY_MEMORY; r < POLICY_RESOURCE_MAX; r++)
        begun->amount.of[r] = policy_job_least(job, r);
    *ret = begun;
    return 1;
}

/* Others' amounts of an undivided resource are not there for this user. */
static void fill_domains(struct users *u, const struct part *p, int64_t mcpu)
{
    const struct policy_snapshot *s = u->all;

    memcpy(u->domains, s->domains, s->domain_count * sizeof(*u->domains));
    for (uint32_t d = 0; d < s->domain_count; d++)
        for (int r = POLICY_MEMORY; r < POLICY_RESOURCE_MAX; r++) {
            int64_t *capacity = &u->domains[d].capacity.of[r], held = u->held[d].of[r];

            if (*capacity == POLICY_UNLIMITED)
                continue;
            for (uint32_t j = 0; j < p->count; j++) {
                struct policy_amount begun;
                const struct policy_amount *own;
                uint32_t n = held_by(&u->jobs[p->first + j], &begun, &own);

                for (uint32_t i = 0; i < n; i++)
                    if (policy_domain_within(s, own[i].domain, d))
                        held -= own[i].amount.of[r];
            }
            if (held > 0)
                *capacity = *capacity > held ? *capacity - held : 0;
        }
    u->domains[0].capacity.of[POLICY_MCPU] = mcpu;
}

static void hold(struct users *u, const struct policy_amount *amount, int sign)
{
    for (uint32_t d = amount->domain; d != POLICY_NO_PARENT; d = u->all->domains[d].parent)
        for (int r = POLICY_MEMORY; r < POLICY_RESOURCE_MAX; r++)
            u->held[d].of[r] += sign * amount->amount.of[r];
}

static void hold_job(struct users *u, const struct policy_job *job, int sign)
{
    struct policy_amount begun;
    const struct policy_amount *amounts;
    uint32_t n = held_by(job, &begun, &amounts);

    for (uint32_t i = 0; i < n; i++)
        hold(u, &amounts[i], sign);
}

static void hold_all(struct users *u)
{
    memset(u->held, 0, u->all->domain_count * sizeof(*u->held));
    for (uint32_t j = 0; j < u->all->job_count; j++)
        hold_job(u, &u->all->jobs[j], 1);
}

/* Plans for one user with @mcpu beside the granted cores; decisions go to u->decisions. */
static int decide_for(struct users *u, struct part *p, int64_t mcpu, struct policy_plan *ret)
{
    struct policy_snapshot s = *u->all;
    struct policy_decision *decisions = u->decisions + p->first;
    int r;

    fill_domains(u, p, mcpu + p->granted_mcpu);
    s.domains = u->domains;
    s.jobs = u->jobs + p->first;
    s.job_count = p->count;
    s.params = u->policy->param_count ? u->params : NULL;
    s.state = users_state(u->all, p->user, &s.state_size);
    for (uint32_t i = 0; i < p->count; i++) {
        u->jobs[p->first + i] = u->all->jobs[u->origin[p->first + i]];
        if (p->insists_mcpu > mcpu && u->contenders > 1)
            soften(&u->jobs[p->first + i]);
        decisions[i] = (struct policy_decision){.id = u->jobs[p->first + i].id};
    }
    *ret = *u->plan;
    ret->next_wakeup_ns = POLICY_NEVER;
    ret->decisions = decisions;
    ret->domains = u->uses;
    ret->amounts = u->plan->amounts + u->plan->amount_count;
    ret->amount_room = u->plan->amount_room - u->plan->amount_count;
    ret->amount_count = 0;
    ret->scratch = u->scratch;
    ret->scratch_room = u->scratch_room;
    ret->state_size = 0;
    if (ret->state_room) {
        size_t used = u->plan->state_size + sizeof(struct state_head);

        ret->state_out = (char *)u->plan->state_out + used;
        ret->state_room = u->plan->state_room - used;
    }
    r = u->policy->decide(u->policy, &s, ret);
    p->used_mcpu = -p->granted_mcpu;
    for (uint32_t i = 0; r == 0 && i < p->count; i++)
        p->used_mcpu += policy_decision_total(ret, i, POLICY_MCPU);
    return r;
}

/*
 * Lets the policy divide a lender's pool (the share and what its jobs lend) as long as the user's
 * jobs then use no more than the share; otherwise the share.
 */
static int decide_on_share(struct users *u, struct part *p, struct policy_plan *ret)
{
    if (p->pool_mcpu > p->share_mcpu) {
        int r = decide_for(u, p, p->pool_mcpu, ret);

        if (r < 0 || p->used_mcpu <= p->share_mcpu)
            return r;
        p->pool_mcpu = 0;
    }
    return decide_for(u, p, p->share_mcpu, ret);
}

/* ---- idle cores of the shares ---------------------------------------------------------------- */

static bool waits_longer(uint32_t a, uint32_t b, const void *arg)
{
    const struct users *u = arg;
    const struct part *x = &u->part[a], *y = &u->part[b];

    return x->waiting_ns != y->waiting_ns ? x->waiting_ns < y->waiting_ns : a < b;
}

/*
 * Lowers the shares of users who cannot use them, for example because a rigid job does not fit or a
 * job lends cores, and divides the freed cores again. In the end used_mcpu is the yield of the
 * shares, or a little less.
 */
static int divide_unusable(struct users *u, int64_t mcpu)
{
    struct policy_plan trial;

    for (unsigned round = 0;; round++) {
        bool any = false;

        for (uint32_t i = 0; i < u->n; i++) {
            struct part *p = &u->part[i];
            int r = decide_on_share(u, p, &trial);

            if (r < 0)
                return r;
            if (p->used_mcpu < p->share_mcpu && p->most_mcpu >= p->share_mcpu) {
                int64_t cores = (p->used_mcpu + POLICY_CORE_MCPU - 1) / POLICY_CORE_MCPU;

                p->pool_mcpu = p->lends ? larger(p->pool_mcpu, p->share_mcpu) : 0;
                any |= p->most_mcpu != cores * POLICY_CORE_MCPU;
                p->most_mcpu = cores > 0 ? cores * POLICY_CORE_MCPU : 0;
            }
        }
        if (!any || round == ROUNDS_MAX)
            break;
        divide(u, mcpu);
    }
    for (uint32_t i = 0; i < u->n; i++)
        u->part[i].share_mcpu = smaller(u->part[i].share_mcpu, u->part[i].most_mcpu);
    return 0;
}

/* Cores that are still idle go to the user who has waited longest and can use them. */
static int divide_idle(struct users *u, int64_t mcpu)
{
    struct policy_plan trial;
    int64_t left = mcpu;
    int r = divide_unusable(u, mcpu);

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < u->n; i++) {
        u->order[i] = i;
        left -= larger(u->part[i].used_mcpu, u->part[i].share_mcpu);
    }
    order_sort(u->order, u->n, waits_longer, u);
    for (uint32_t i = 0; i < u->n && left > 0; i++) {
        struct part *p = &u->part[u->order[i]];
        int64_t before = p->used_mcpu, most = u->all->users[p->user].most_mcpu;
        int64_t has = larger(before, p->share_mcpu);

        if (p->used_mcpu >= smaller(p->wants_mcpu, most))
            continue;
        r = decide_for(u, p, smaller(has + left, most), &trial);
        if (r < 0)
            return r;
        if (p->used_mcpu > before && p->used_mcpu <= has + left) {
            p->pool_mcpu = p->lends ? smaller(has + left, most) : 0;
            left -= larger(p->used_mcpu, has) - has;
            p->share_mcpu = larger(p->used_mcpu, p->share_mcpu);
        } else {
            p->used_mcpu = before;
        }
    }
    return 0;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void keep_state(struct users *u, const struct part *p, const struct policy_plan *own)
{
    struct state_head head = {STATE_MAGIC, u->all->users[p->user].id, own->state_size};
    size_t end = own->state_size % 8 ? 8 - own->state_size % 8 : 0;

    if (own->state_size == 0)
        return;
    memcpy((char *)u->plan->state_out + u->plan->state_size, &head, sizeof(head));
    memset((char *)own->state_out + own->state_size, 0, end);
    u->plan->state_size += sizeof(head) + own->state_size + end;
}

/* A job that does not fit into a share may fit into the machine, so it waits. */
static void wait_for_others(struct users *u, struct policy_decision *d)
{
    int64_t resource = d->reason.arg[0];

    if (d->verb != POLICY_VERB_INFEASIBLE || d->reason.code != POLICY_REASON_TOO_LARGE ||
        d->reason.arg[1] > policy_domain_capacity(u->all, 0, (enum policy_resource)resource))
        return;
    d->verb = POLICY_VERB_HOLD;
    d->reason.code = POLICY_REASON_NO_ROOM;
}

/* Copies one user's plan. */
static void adopt(struct users *u, const struct part *p, const struct policy_plan *own)
{
    struct policy_plan *plan = u->plan;

    for (uint32_t i = 0; i < p->count; i++) {
        struct policy_decision *d = &plan->decisions[u->origin[p->first + i]];

        hold_job(u, &u->jobs[p->first + i], -1);
        *d = own->decisions[i];
        d->amount_first += (uint32_t)plan->amount_count;
        d->user_mcpu = p->share_mcpu + p->granted_mcpu;
        wait_for_others(u, d);
        if (is_short(p) && wants_cores(&u->jobs[p->first + i])) {
            d->reason.user_mcpu = p->fair_mcpu > p->share_mcpu ? p->fair_mcpu : p->share_mcpu;
            d->reason.machine_mcpu = u->capacity_mcpu;
            d->reason.users = u->contenders;
        }
        for (uint32_t k = 0; k < d->amount_count; k++)
            hold(u, &own->amounts[own->decisions[i].amount_first + k], 1);
    }
    plan->amount_count += own->amount_count;
    if (own->next_wakeup_ns < plan->next_wakeup_ns)
        plan->next_wakeup_ns = own->next_wakeup_ns;
    keep_state(u, p, own);
}

/* Cores that the policy keeps free are taken off once, not off each user's share. */
static int64_t take_reserve(struct users *u)
{
    int reserve = policy_param_find(u->policy, "reserve");
    int64_t mcpu;

    for (uint32_t i = 0; i < u->policy->param_count; i++)
        u->params[i] = policy_param(u->policy, u->all, i);
    if (reserve < 0 || !text_same(u->policy->params[reserve].unit, "mcpu"))
        return 0;
    mcpu = u->params[reserve];
    u->params[reserve] = 0;
    return mcpu;
}

static int64_t prepare(struct users *u)
{
    int64_t left;

    group_jobs(u);
    hold_all(u);
    u->capacity_mcpu = policy_domain_capacity(u->all, 0, POLICY_MCPU);
    left = u->capacity_mcpu - take_reserve(u);
    u->plan->reserve_mcpu = u->capacity_mcpu - left;
    for (uint32_t i = 0; i < u->n; i++) {
        struct part *p = &u->part[i];
        int64_t most = smaller(p->wants_mcpu, u->all->users[p->user].most_mcpu);

        most = smaller(most, u->capacity_mcpu); /* keeps the arithmetic exact */
        u->contenders += p->wants_mcpu > 0;
        left -= p->granted_mcpu;
        p->most_mcpu = (most + POLICY_CORE_MCPU - 1) / POLICY_CORE_MCPU * POLICY_CORE_MCPU;
    }
    return left > 0 ? left : 0;
}

int users_decide(const struct policy *policy, const struct policy_snapshot *s,
                 struct policy_plan *plan)
{
    struct policy_plan own;
    struct users u;
    bool any_short = false;
    int64_t mcpu;
    int r = 0;

    users_init(&u, policy, s, plan);
    mcpu = prepare(&u);
    divide(&u, mcpu);
    for (uint32_t i = 0; i < u.n; i++) {
        u.part[i].fair_mcpu = u.part[i].share_mcpu;
        any_short |= is_short(&u.part[i]);
    }
    if (any_short && u.n > 1)
        r = divide_idle(&u, mcpu);
    for (uint32_t i = 0; i < u.n && r == 0; i++)
        u.order[i] = i;
    order_sort(u.order, u.n, waits_longer, &u);
    for (uint32_t i = 0; i < u.n && r == 0; i++) {
        struct part *p = &u.part[u.order[i]];
        struct policy_snapshot own_view = *s;

        r = decide_on_share(&u, p, &own);
        if (r < 0)
            break;
        own_view.domains = u.domains;
        own_view.jobs = u.jobs + p->first;
        own_view.job_count = p->count;
        own_view.params = policy->param_count ? u.params : NULL;
        gate_apply(policy, &own_view, &own);
        adopt(&u, p, &own);
    }
    return r;
}
