/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/division/queue.h"

#include "base/minmax.h"

#include <assert.h>

enum reassignment { STRICT, ALWAYS_ATTEND, MAX_PROP, REASSIGNMENT_MAX };
enum resize { RESIZE_BOTH, RESIZE_GROW, RESIZE_MAX };
enum { VARIANT_AS_IS, VARIANT_MAX = 1 + POLICY_MALLEABILITY_MAX };

const char *const queue_reassignment_names[] = {
    [STRICT] = "strict",
    [ALWAYS_ATTEND] = "always-attend",
    [MAX_PROP] = "max-prop",
};
static_assert(sizeof(queue_reassignment_names) / sizeof(char *) == REASSIGNMENT_MAX,
              "every reassignment has a name");

const char *const queue_variant_names[] = {
    [VARIANT_AS_IS] = "as-is",
    [1 + POLICY_RIGID] = "rigid",
    [1 + POLICY_MOLDABLE] = "moldable",
    [1 + POLICY_MALLEABLE] = "malleable",
};
static_assert(sizeof(queue_variant_names) / sizeof(char *) == VARIANT_MAX,
              "every variant has a name");

const char *const queue_resize_names[] = {
    [RESIZE_BOTH] = "both",
    [RESIZE_GROW] = "grow",
};
static_assert(sizeof(queue_resize_names) / sizeof(char *) == RESIZE_MAX,
              "every way to resize has a name");

/* True if the job's size follows the others' at every decision, down as well as up. */
static bool follows(const struct queue *q, const struct ticket *t)
{
    return t->malleability == POLICY_MALLEABLE && q->param[QUEUE_RESIZE] == RESIZE_BOTH;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static size_t job_bytes(const struct policy_snapshot *snapshot)
{
    return snapshot->job_count * (sizeof(struct ticket) + 2 * sizeof(uint32_t));
}

void queue_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room)
{
    *ret_room = (struct policy_room){
        .amounts = layout_amounts(snapshot),
        .scratch_bytes = layout_bytes(snapshot) + job_bytes(snapshot) + sharing_bytes(snapshot) +
                         snapshot->domain_count,
    };
}

static void write_ticket(const struct queue *q, uint32_t j)
{
    const struct policy_job *job = &q->snapshot->jobs[j];
    struct ticket *t = &q->ticket[j];
    int64_t fixed = policy_job_fixed(job, POLICY_MCPU);
    int64_t variant = q->param[QUEUE_VARIANT];

    *t = (struct ticket){
        .class = job->class,
        .arrival_ns = job->arrival_ns,
        .id = job->id,
        .least = policy_job_least(job, POLICY_MCPU),
        .most = fixed >= 0 ? fixed : policy_job_most(job, POLICY_MCPU),
        .has = policy_amount_total(job->current, job->current_count, POLICY_MCPU),
        .paused_for = QUEUE_NOBODY,
        .malleability = (uint8_t)job->malleability,
        .fixed = fixed >= 0,
    };
    if (variant != VARIANT_AS_IS && variant - 1 < (int64_t)job->malleability)
        t->malleability = (uint8_t)(variant - 1);
    t->request = smaller(larger(job->request.of[POLICY_MCPU], t->least), t->most);
    /* a malleable job that was paused starts afresh; others resume with what they had */
    t->newcomer =
        !t->fixed &&
        (t->has == 0 || (job->state == POLICY_PAUSED && t->malleability == POLICY_MALLEABLE));
}

void queue_init(struct queue *q, const struct policy *policy,
                const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    uint32_t jobs = snapshot->job_count;
    char *rest = plan->scratch;

    *q = (struct queue){
        .snapshot = snapshot, .plan = plan, .head = QUEUE_NOBODY, .next = QUEUE_NOBODY};
    for (uint32_t i = 0; i < QUEUE_PARAM_MAX; i++)
        q->param[i] = policy_param(policy, snapshot, i);
    layout_init(&q->layout, snapshot, plan, rest);
    rest += layout_bytes(snapshot);
    q->ticket = (struct ticket *)rest;
    q->row = (uint32_t *)(q->ticket + jobs);
    q->victim = q->row + jobs;
    rest += job_bytes(snapshot);
    sharing_init(&q->sharing, &q->layout, rest);
    q->child_level = (uint8_t *)rest + sharing_bytes(snapshot);
    for (uint32_t d = 0; d < snapshot->domain_count; d++) {
        const struct policy_domain *domain = &snapshot->domains[d];

        q->child_level[d] = POLICY_LEVEL_MAX;
        if (d > 0 && domain->level < q->child_level[domain->parent])
            q->child_level[domain->parent] = (uint8_t)domain->level;
    }
    for (uint32_t j = 0; j < jobs; j++) {
        write_ticket(q, j);
        q->row[j] = j;
    }
}

static bool goes_first(uint32_t a, uint32_t b, const void *arg)
{
    const struct ticket *x = (const struct ticket *)arg + a, *y = (const struct ticket *)arg + b;

    if (x->major != y->major)
        return x->major < y->major;
    if (x->class != y->class)
        return x->class < y->class;
    if (x->minor != y->minor)
        return x->minor < y->minor;
    if (x->arrival_ns != y->arrival_ns)
        return x->arrival_ns < y->arrival_ns;
    return x->id < y->id;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void take(struct queue *q, uint32_t j, int64_t mcpu)
{
    q->ticket[j].mcpu += mcpu;
    layout_use(&q->layout, layout_place(&q->layout, j), POLICY_MCPU, mcpu);
}

/* Grows the job up to @target, as far as there is room. */
static void raise_to(struct queue *q, uint32_t j, int64_t target)
{
    int64_t more = target - q->ticket[j].mcpu;

    more = smaller(more, layout_left(&q->layout, layout_place(&q->layout, j), POLICY_MCPU));
    if (more > 0)
        take(q, j, more);
}

/*
 * A running job keeps its minimum in any case: the plan has to be possible. Then, in the order of
 * the row, it keeps its cores, if it does not give them up.
 */
static void seat_present(struct queue *q)
{
    const struct policy_job *jobs = q->snapshot->jobs;
    uint32_t count = q->snapshot->job_count;

    for (uint32_t j = 0; j < count; j++) {
        if (jobs[j].state != POLICY_RUNNING && jobs[j].state != POLICY_PAUSED)
            continue;
        layout_present(&q->layout, j);
        if (jobs[j].state == POLICY_PAUSED)
            continue;
        layout_tasks(&q->layout, j, 1);
        take(q, j, q->ticket[j].least);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct ticket *t = &q->ticket[q->row[i]];

        if (t->mcpu == 0)
            continue;
        if (!follows(q, t))
            raise_to(q, q->row[i], smaller(larger(t->has, t->least), t->most));
        else if (q->param[QUEUE_REASSIGNMENT] == STRICT)
            raise_to(q, q->row[i], t->request);
    }
}

/* Grows a running job, or lets it wait for its part of the division. */
static void settle(struct queue *q, uint32_t j)
{
    struct ticket *t = &q->ticket[j];
    bool divides = q->param[QUEUE_REASSIGNMENT] == MAX_PROP && t->malleability != POLICY_RIGID &&
                   (t->newcomer || follows(q, t));

    if (t->fixed)
        return;
    t->sharing = divides || follows(q, t);
    if (!divides && (t->newcomer || t->malleability == POLICY_MALLEABLE))
        raise_to(q, j, t->request);
}

static int64_t request_cores(const struct ticket *t)
{
    return t->request / POLICY_CORE_MCPU + (t->request % POLICY_CORE_MCPU != 0);
}

/* The jobs that take part keep their cores by now, and divide the rest. */
static void divide(struct queue *q)
{
    uint32_t count = q->snapshot->job_count;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = q->row[i];
        struct ticket *t = &q->ticket[j];
        int64_t mcpu = t->mcpu;

        q->sharing.share[j].rank = i;
        t->sharing = t->sharing && t->paused_for == QUEUE_NOBODY;
        if (!t->sharing)
            continue;
        take(q, j, -mcpu);
        t->mcpu = mcpu;
        sharing_join(&q->sharing, j, request_cores(t), mcpu, t->most);
    }
    sharing_fill(&q->sharing);
    if (q->param[QUEUE_RESIZE] == RESIZE_BOTH)
        sharing_lend(&q->sharing, q->row);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Returns the minimum with which the job starts or resumes in @place. */
static void need_in(const struct queue *q, uint32_t j, uint32_t place,
                    struct policy_vector *ret_need)
{
    const struct ticket *t = &q->ticket[j];
    int64_t mcpu = t->least;

    if (!t->newcomer)
        mcpu = larger(t->least, smaller(t->has, t->most));
    else if (q->param[QUEUE_REASSIGNMENT] == STRICT || t->malleability == POLICY_RIGID)
        mcpu = t->request;
    layout_need(&q->layout, j, place, ret_need);
    mcpu = smaller(mcpu, layout_capacity(&q->layout, place, POLICY_MCPU));
    ret_need->of[POLICY_MCPU] = larger(mcpu, t->least);
}

/* True if the job's span lets it lie all over the domain, but in no wider one. */
static bool is_largest_place(const struct queue *q, const struct policy_job *job, uint32_t domain)
{
    return (domain == job->home || q->snapshot->domains[domain].level <= job->span) &&
           q->child_level[domain] > job->span;
}

/*
 * Returns where a queued job would start: where there is room, else where there could be, and of
 * such places the one with most cores left. Without any such place: its home.
 */
static uint32_t choose_place(const struct queue *q, uint32_t j, struct policy_vector *ret_need)
{
    const struct policy_job *job = &q->snapshot->jobs[j];
    uint32_t best = QUEUE_NOBODY;
    int best_rank = -1;
    int64_t best_left = 0;

    for (uint32_t d = job->home; d < q->snapshot->domain_count; d++) {
        struct policy_vector need;
        int64_t left;
        int rank;

        if (!is_largest_place(q, job, d) || !policy_domain_within(q->snapshot, d, job->home))
            continue;
        need_in(q, j, d, &need);
        left = layout_left(&q->layout, d, POLICY_MCPU);
        rank = layout_exceeds(&q->layout, d, &need) != POLICY_RESOURCE_MAX ? 0
               : layout_lacks(&q->layout, d, &need) != POLICY_RESOURCE_MAX ? 1
                                                                           : 2;
        if (rank > best_rank || (rank == best_rank && left > best_left)) {
            best = d;
            best_rank = rank;
            best_left = left;
            *ret_need = need;
        }
        if (d == job->home)
            break; /* takes all of it: no other domain lies beside */
    }
    return best;
}

/* True if a paused job's minimum fits an empty machine, except where its memory lies. */
static bool could_run_elsewhere(const struct queue *q, uint32_t j)
{
    const struct policy_job *job = &q->snapshot->jobs[j];
    struct policy_vector least;

    for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
        least.of[r] = policy_job_least(job, r);
    for (uint32_t d = job->home; d < q->snapshot->domain_count; d++)
        if (is_largest_place(q, job, d) && policy_domain_within(q->snapshot, d, job->home) &&
            layout_exceeds(&q->layout, d, &least) == POLICY_RESOURCE_MAX)
            return true;
    return false;
}

static void give_back(struct queue *q, uint32_t j, int sign)
{
    layout_use(&q->layout, layout_place(&q->layout, j), POLICY_MCPU, -sign * q->ticket[j].mcpu);
    layout_tasks(&q->layout, j, -sign);
}

/*
 * Pauses jobs that yield to @j until it has room, in the order of the victims. A victim that proves
 * unnecessary goes on. If all of them together do not suffice, none is paused.
 */
static bool make_room(struct queue *q, uint32_t j, uint32_t place, const struct policy_vector *need)
{
    uint32_t taken = 0;
    bool enough;

    for (uint32_t i = 0; i < q->victim_count; i++) {
        uint32_t v = q->victim[i];

        if (layout_lacks(&q->layout, place, need) == POLICY_RESOURCE_MAX)
            break;
        if (q->ticket[v].paused_for != QUEUE_NOBODY ||
            q->pausing->yields_ns(q, v, j) > q->snapshot->now_ns)
            continue;
        q->ticket[v].paused_for = j;
        give_back(q, v, 1);
        taken = i + 1;
    }
    enough = layout_lacks(&q->layout, place, need) == POLICY_RESOURCE_MAX;
    while (taken-- > 0) {
        uint32_t v = q->victim[taken];

        if (q->ticket[v].paused_for != j)
            continue;
        give_back(q, v, -1);
        if (enough && layout_lacks(&q->layout, place, need) != POLICY_RESOURCE_MAX)
            give_back(q, v, 1);
        else
            q->ticket[v].paused_for = QUEUE_NOBODY;
    }
    return enough;
}

static void stop_row(struct queue *q, uint32_t j, int lacking)
{
    q->may_pass = q->head == QUEUE_NOBODY && policy_stays(lacking);
    if (q->head == QUEUE_NOBODY)
        q->head = j;
    if (!policy_stays(lacking))
        q->next = j;
}

/* For a waiting job: drops from its entries the resources that a paused job does not hold. */
static void keep_waiting(struct queue *q, uint32_t j)
{
    if (q->snapshot->jobs[j].state == POLICY_PAUSED)
        layout_stop(&q->layout, j, q->plan->decisions[j].verb);
}

static void begin(struct queue *q, uint32_t j, uint32_t place, const struct policy_vector *need)
{
    if (q->snapshot->jobs[j].state == POLICY_PAUSED)
        layout_tasks(&q->layout, j, 1);
    else
        layout_start(&q->layout, j, place, need);
    take(q, j, need->of[POLICY_MCPU]);
    settle(q, j);
}

static void try_to_begin(struct queue *q, uint32_t j, uint32_t place,
                         const struct policy_vector *need)
{
    int lacking = layout_lacks(&q->layout, place, need);

    if (lacking == POLICY_RESOURCE_MAX ||
        (!policy_stays(lacking) && q->pausing && make_room(q, j, place, need))) {
        begin(q, j, place, need);
        return;
    }
    layout_refuse(&q->layout, j, place, need);
    keep_waiting(q, j);
    stop_row(q, j, lacking);
}

static void call_up(struct queue *q, uint32_t j)
{
    bool paused = q->snapshot->jobs[j].state == POLICY_PAUSED;
    struct policy_decision *decision = &q->plan->decisions[j];
    struct policy_vector need;
    uint32_t place;

    if (paused)
        need_in(q, j, place = layout_place(&q->layout, j), &need);
    else
        place = choose_place(q, j, &need);
    if (layout_exceeds(&q->layout, place, &need) != POLICY_RESOURCE_MAX) {
        layout_refuse(&q->layout, j, place, &need);
        if (paused && could_run_elsewhere(q, j))
            decision->verb = POLICY_VERB_HOLD;
        keep_waiting(q, j);
    } else if (q->head != QUEUE_NOBODY && !(paused && q->may_pass)) {
        decision->verb = POLICY_VERB_HOLD;
        layout_reason(&q->layout, j, POLICY_REASON_BEHIND, (int64_t)q->ticket[q->head].id, 0, 0, 0);
        keep_waiting(q, j);
    } else {
        try_to_begin(q, j, place, &need);
    }
}

static void walk_row(struct queue *q)
{
    for (uint32_t i = 0; i < q->snapshot->job_count; i++) {
        uint32_t j = q->row[i];

        switch (q->snapshot->jobs[j].state) {
        case POLICY_RUNNING:
            if (q->ticket[j].paused_for == QUEUE_NOBODY)
                settle(q, j);
            break;
        case POLICY_HELD:
            q->plan->decisions[j].verb = POLICY_VERB_HOLD;
            layout_reason(&q->layout, j, POLICY_REASON_HELD, 0, 0, 0, 0);
            break;
        default:
            call_up(q, j);
        }
    }
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void explain_size(struct queue *q, uint32_t j)
{
    const struct policy_job *job = &q->snapshot->jobs[j];
    const struct ticket *t = &q->ticket[j];
    int64_t asked = job->request.of[POLICY_MCPU];

    if (job->pinned_by != POLICY_PIN_NONE && job->pinned.of[POLICY_MCPU])
        layout_reason(&q->layout, j, POLICY_REASON_PINNED, t->mcpu, job->pinned_by, 0, 0);
    else if (t->malleability == POLICY_RIGID)
        layout_reason(&q->layout, j, POLICY_REASON_RIGID, t->mcpu, 0, 0, 0);
    else if (t->malleability == POLICY_MOLDABLE && !t->newcomer)
        layout_reason(&q->layout, j, POLICY_REASON_MOLDABLE, t->mcpu, 0, 0, 0);
    else if (t->mcpu < t->request)
        layout_reason(&q->layout, j, POLICY_REASON_PART, t->mcpu, t->request, 0, 0);
    else if (t->mcpu == t->request)
        layout_reason(&q->layout, j, POLICY_REASON_REQUEST, t->request, asked, 0, 0);
    else
        layout_reason(&q->layout, j, POLICY_REASON_KEPT, t->mcpu, t->request, asked, 0);
}

/* Says the division's reasons in terms of requests. */
static void explain_share(struct queue *q, uint32_t j)
{
    const struct ticket *t = &q->ticket[j];
    const struct policy_reason *reason = &q->plan->decisions[j].reason;

    switch (reason->code) {
    case POLICY_REASON_WEIGHTED_SHARE:
        layout_reason(&q->layout, j, POLICY_REASON_PROPORTION, reason->arg[0] * POLICY_CORE_MCPU,
                      reason->arg[1] * POLICY_CORE_MCPU, reason->arg[2], reason->arg[3]);
        break;
    case POLICY_REASON_MINIMUM:
    case POLICY_REASON_MINIMA:
        if (t->mcpu > t->least) /* its minimum there is the size that the rule gave it */
            explain_size(q, j);
        break;
    default:
        break;
    }
}

static void conclude(struct queue *q, uint32_t j)
{
    struct ticket *t = &q->ticket[j];

    if (t->paused_for != QUEUE_NOBODY) {
        layout_stop(&q->layout, j, POLICY_VERB_PAUSE);
        q->pausing->explain(q, j, t->paused_for);
    } else if (t->mcpu) {
        int64_t mcpu = t->sharing ? sharing_mcpu(&q->sharing, j) : t->mcpu;

        if (!t->sharing || (mcpu == t->mcpu && q->param[QUEUE_REASSIGNMENT] != MAX_PROP))
            explain_size(q, j);
        else
            explain_share(q, j);
        t->mcpu = mcpu;
        layout_run(&q->layout, j, mcpu);
    }
}

/* The first waiting job, just paused ones included, that a running job could make room for. */
static uint32_t first_waiting(const struct queue *q)
{
    for (uint32_t i = 0; i < q->snapshot->job_count; i++)
        if (q->row[i] == q->next || q->ticket[q->row[i]].paused_for != QUEUE_NOBODY)
            return q->row[i];
    return QUEUE_NOBODY;
}

/* It may begin when a running job, perhaps a new one, has had its time. */
static void ask_again(struct queue *q)
{
    uint32_t waiting = first_waiting(q);

    for (uint32_t j = 0; waiting != QUEUE_NOBODY && j < q->snapshot->job_count; j++) {
        uint64_t ns;

        if (!q->snapshot->jobs[j].preemptible || q->ticket[j].mcpu == 0 ||
            q->ticket[j].paused_for != QUEUE_NOBODY)
            continue;
        ns = q->pausing->yields_ns(q, j, waiting);
        if (ns > q->snapshot->now_ns && ns < q->plan->next_wakeup_ns)
            q->plan->next_wakeup_ns = ns;
    }
}

static void find_victims(struct queue *q)
{
    for (uint32_t j = 0; q->pausing && j < q->snapshot->job_count; j++) {
        const struct policy_job *job = &q->snapshot->jobs[j];

        /* a paused job holds an entry, so a job without one cannot be paused yet */
        if (job->state == POLICY_RUNNING && job->preemptible && job->current_count)
            q->victim[q->victim_count++] = j;
    }
    if (q->pausing)
        order_sort(q->victim, q->victim_count, q->pausing->paused_first, q);
}

/* A job that gives way just now waits from now on. */
static void number_row(struct queue *q)
{
    uint32_t place = 0;

    for (uint32_t i = 0; i < q->snapshot->job_count; i++) {
        uint32_t j = q->row[i];
        struct policy_decision *decision = &q->plan->decisions[j];

        if (q->snapshot->jobs[j].state != POLICY_HELD &&
            (decision->verb == POLICY_VERB_HOLD || decision->verb == POLICY_VERB_PAUSE))
            decision->place = ++place;
    }
}

void queue_decide(struct queue *q)
{
    order_sort(q->row, q->snapshot->job_count, goes_first, q->ticket);
    find_victims(q);
    seat_present(q);
    walk_row(q);
    divide(q);
    for (uint32_t j = 0; j < q->snapshot->job_count; j++)
        conclude(q, j);
    number_row(q);
    if (q->pausing)
        ask_again(q);
}
