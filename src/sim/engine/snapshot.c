/* SPDX-License-Identifier: Apache-2.0 */
/* The policy's view of the jobs alive, the storage for its plan, and how a plan is carried out. */
#include "sim/engine/engine.h"
#include "sim/engine/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "simulation-failed"

#define USER_WEIGHT 100

/* ---- storage --------------------------------------------------------------------------------- */

/* Grows *array to @count elements. Returns 0 or -ENOMEM. */
static int grow(void *array, size_t count, size_t size)
{
    void **p = array;
    void *bigger = reallocarray(*p, count ? count : 1, size);

    if (!bigger)
        return -ENOMEM;
    *p = bigger;
    return 0;
}

static void fill_domains(struct engine *e)
{
    const struct sim_machine *m = &e->machine;
    struct policy_domain *root = &e->domains[0];

    policy_machine_init(root, (int64_t)m->cores * POLICY_CORE_MCPU, m->memory_bytes);
    for (int kind = 0; m->devices && kind < DEVICE_KINDS; kind++)
        root->capacity.of[POLICY_DEVICE + kind] = devices_of(m->devices, kind);
    root->idle_uw = m->idle_uw;
    root->core_uw = m->core_uw;
    root->cap_uw = m->cap_uw;
    for (uint32_t d = 1; d < e->domain_count; d++) {
        policy_machine_init(&e->domains[d], (int64_t)(m->cores / m->numa) * POLICY_CORE_MCPU,
                            m->memory_bytes / m->numa);
        e->domains[d].parent = 0;
        e->domains[d].level = POLICY_NUMA;
        e->domains[d].id = d - 1;
    }
}

int snapshot_init(struct engine *e)
{
    e->domain_count = e->machine.numa > 1 ? 1 + e->machine.numa : 1;
    if (grow(&e->domains, e->domain_count, sizeof(*e->domains)) ||
        grow(&e->book.plan.domains, e->domain_count, sizeof(*e->book.plan.domains)))
        return -ENOMEM;
    fill_domains(e);
    return 0;
}

void snapshot_done(struct engine *e)
{
    struct book *b = &e->book;

    for (uint32_t i = 0; i < e->count; i++)
        live_free(e->live[i]);
    free(e->live);
    free(e->jobs);
    free(e->rooms);
    free(e->users);
    free(e->running);
    free(e->tasks);
    free(e->domains);
    loans_done(e);
    free(b->plan.decisions);
    free(b->plan.domains);
    free(b->plan.amounts);
    free(b->plan.scratch);
    free(b->state[0]);
    free(b->state[1]);
}

static int make_room(struct engine *e)
{
    uint32_t room = e->room ? 2 * e->room : 64;

    if (e->count < e->room)
        return 0;
    if (grow(&e->live, room, sizeof(*e->live)) || grow(&e->running, room, sizeof(*e->running)) ||
        grow(&e->tasks, room, sizeof(*e->tasks)))
        return -ENOMEM;
    if (e->options->policy &&
        (grow(&e->jobs, room, sizeof(*e->jobs)) || grow(&e->users, room, sizeof(*e->users)) ||
         grow(&e->rooms, room, sizeof(*e->rooms)) ||
         grow(&e->book.plan.decisions, room, sizeof(*e->book.plan.decisions))))
        return -ENOMEM;
    if (e->lends && loans_grow(e, room) < 0)
        return -ENOMEM;
    e->room = room;
    return 0;
}

/* Makes room for a plan for this snapshot; half as much again, as the next may need more. */
static int make_plan_room(struct engine *e, const struct policy_snapshot *snapshot)
{
    struct book *b = &e->book;
    struct policy_room need;

    policy_room(e->options->policy, snapshot, &need);
    if (need.amounts > b->plan.amount_room) {
        size_t room = need.amounts + need.amounts / 2;

        if (grow(&b->plan.amounts, room, sizeof(*b->plan.amounts)))
            return -ENOMEM;
        b->plan.amount_room = room;
    }
    if (need.scratch_bytes > b->plan.scratch_room) {
        size_t room = need.scratch_bytes + need.scratch_bytes / 2;

        if (grow(&b->plan.scratch, room, 1))
            return -ENOMEM;
        b->plan.scratch_room = room;
    }
    if (need.state_bytes > b->state_room) {
        size_t room = need.state_bytes + need.state_bytes / 2;

        if (grow(&b->state[0], room, 1) || grow(&b->state[1], room, 1))
            return -ENOMEM;
        b->state_room = room;
    }
    return 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static uint64_t policy_time(uint64_t sim_ns)
{
    return sim_ns == POLICY_NEVER ? POLICY_NEVER : sim_ns + SIM_CLOCK_START_NS;
}

/* A static split: as many as every server holds, as far as it can. */
static uint32_t split_cores(const struct engine *e, const struct live *l)
{
    uint32_t most = l->job.max && l->job.max < e->machine.cores ? l->job.max : e->machine.cores;

    return e->options->split < most ? e->options->split : most;
}

static int64_t least_cores(const struct engine *e, const struct live *l)
{
    if (l->server && e->options->split)
        return split_cores(e, l);
    return l->job.min ? l->job.min : 1;
}

static int64_t most_cores(const struct engine *e, const struct live *l)
{
    const struct sim_job *job = &l->job;
    uint32_t least = job->min ? job->min : 1;

    if (l->server && e->options->split)
        return split_cores(e, l);
    if (l->starting && job->malleability == POLICY_MALLEABLE)
        return least;
    if (job->max)
        return job->max;
    return least > e->machine.cores ? least : e->machine.cores;
}

/* Fills in the fields that never change. */
static void describe(const struct engine *e, const struct live *l, struct policy_job *ret_job)
{
    const struct sim_job *job = &l->job;
    const struct sim_curve *told = job->told_curve;
    int64_t min = job->min ? job->min : 1;

    policy_job_init(ret_job, job->id);
    ret_job->malleability = job->malleability;
    ret_job->class = job->class;
    ret_job->weight = job->weight;
    ret_job->priority = job->priority;
    ret_job->span = POLICY_NODE;
    ret_job->preemptible = job->preemptible;
    ret_job->fenced = e->machine.placement == SIM_EXCLUSIVE;
    ret_job->request.of[POLICY_MCPU] = (int64_t)job->request * POLICY_CORE_MCPU;
    ret_job->min.of[POLICY_MCPU] = min * POLICY_CORE_MCPU;
    ret_job->request.of[POLICY_MEMORY] = ret_job->min.of[POLICY_MEMORY] = job->memory_bytes;
    for (int kind = 0; kind < DEVICE_KINDS; kind++)
        ret_job->request.of[POLICY_DEVICE + kind] = ret_job->min.of[POLICY_DEVICE + kind] =
            devices_of(job->devices, kind);
    ret_job->current = l->held;
    ret_job->arrival_ns = policy_time(job->arrival_ns);
    ret_job->deadline_ns = policy_time(job->deadline_ns);
    if (job->told_ns != POLICY_UNKNOWN)
        ret_job->remaining_error_ns = job->told_error_ns;
    if (told)
        ret_job->curve[POLICY_MCPU] = (struct policy_curve){
            told->speedup_permille, told->envelope_permille, told->count, 1000};
    memcpy(ret_job->cost_ns, job->cost_ns, sizeof(ret_job->cost_ns));
}

/*
 * Returns the work that the policy was told, less the finished part. A job that outlives that is
 * expected to need another tenth of it.
 */
static uint64_t told_remaining(const struct live *l)
{
    uint64_t done = live_done(l);

    if (l->job.told_ns == POLICY_UNKNOWN)
        return POLICY_UNKNOWN;
    return done < l->job.told_ns ? l->job.told_ns - done : 1 + l->job.told_ns / 10;
}

/* Fills in the fields that change. */
static void refresh(struct engine *e, struct live *l, struct policy_job *job)
{
    uint64_t passed = e->now_ns - l->state_ns;

    job->state = l->state;
    job->min.of[POLICY_MCPU] = least_cores(e, l) * POLICY_CORE_MCPU;
    job->max.of[POLICY_MCPU] = most_cores(e, l) * POLICY_CORE_MCPU;
    job->current_count = l->held_count;
    job->wait_ns = l->record.wait_ns + (l->state == POLICY_RUNNING ? 0 : passed);
    if (l->record.start_ns == POLICY_NEVER) {
        job->remaining_ns = l->job.told_ns;
        return;
    }
    live_settle(l, e->now_ns);
    job->start_ns = policy_time(l->record.start_ns);
    job->change_ns = l->change_ns ? policy_time(l->change_ns) : 0;
    job->run_ns = l->record.run_ns + (l->state == POLICY_RUNNING ? passed : 0);
    job->remaining_ns = told_remaining(l);
}

int snapshot_add(struct engine *e, struct live *l)
{
    int r = make_room(e);

    if (r < 0) {
        live_free(l);
        return r;
    }
    e->server_count += l->server != NULL;
    l->index = e->count++;
    e->live[l->index] = l;
    if (e->options->policy)
        describe(e, l, &e->jobs[l->index]);
    e->alive++;
    return 0;
}

/* Moves the jobs behind a gap in one piece: there are few gaps, and entries are large. */
void snapshot_compact(struct engine *e)
{
    uint32_t kept = 0, i = 0;

    while (i < e->count) {
        uint32_t first = i;

        for (; i < e->count && e->live[i]; i++)
            e->live[i]->index = kept + (i - first);
        if (first != kept && e->jobs)
            memmove(&e->jobs[kept], &e->jobs[first], (i - first) * sizeof(*e->jobs));
        if (first != kept)
            memmove(&e->live[kept], &e->live[first], (i - first) * sizeof(*e->live));
        kept += i - first;
        while (i < e->count && !e->live[i])
            i++;
    }
    e->count = kept;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static int bad_plan(struct engine *e, const struct live *l, const char *what)
{
    return error_set(e->err, -EPROTO, "policy %s, job %llu at %llu ns: %s",
                     e->options->policy->name, (unsigned long long)l->job.id,
                     (unsigned long long)e->now_ns, what);
}

static int carry_out(struct engine *e, struct live *l, const struct policy_decision *d)
{
    static const uint32_t fits[POLICY_VERB_MAX] = {
        /* 1 << state */
        [POLICY_VERB_START] = 1 << POLICY_QUEUED,
        [POLICY_VERB_KEEP] = 1 << POLICY_RUNNING,
        [POLICY_VERB_RESIZE] = 1 << POLICY_RUNNING,
        [POLICY_VERB_PAUSE] = 1 << POLICY_RUNNING,
        [POLICY_VERB_RESUME] = 1 << POLICY_PAUSED,
        [POLICY_VERB_HOLD] = 1 << POLICY_QUEUED | 1 << POLICY_PAUSED,
        [POLICY_VERB_INFEASIBLE] = 1 << POLICY_QUEUED | 1 << POLICY_PAUSED,
    };
    const struct policy_amount *amounts = e->book.plan.amounts + d->amount_first;
    bool other;

    if (d->id != l->job.id || d->amount_count > e->domain_count)
        return bad_plan(e, l, "the decision is for another job, or in more places than there are");
    if (d->verb >= POLICY_VERB_MAX || !(fits[d->verb] & 1u << l->state))
        return bad_plan(e, l, "the verb does not fit its state");
    other = memcmp(l->of_speed, d->of_speed, sizeof(l->of_speed)) != 0;
    memcpy(l->of_speed, d->of_speed, sizeof(l->of_speed));
    switch (d->verb) {
    case POLICY_VERB_KEEP:
        if (other)
            live_hold(e, l);
        return 0;
    case POLICY_VERB_HOLD:
        return 0;
    case POLICY_VERB_PAUSE: /* it keeps its former amounts, which the next snapshot needs */
        return live_pause(e, l);
    case POLICY_VERB_INFEASIBLE:
        l->record.infeasible = true;
        l->record.late = d->reason.code == POLICY_REASON_DEADLINE_MISSED;
        return live_end(e, l, false);
    }
    if (policy_amount_total(amounts, d->amount_count, POLICY_MCPU) <= 0)
        return bad_plan(e, l, "it runs without cores");
    memcpy(l->held, amounts, d->amount_count * sizeof(l->held[0]));
    l->held_count = d->amount_count;
    return d->verb == POLICY_VERB_RESIZE ? live_resize(e, l) : live_start(e, l);
}

static int check_plan(struct engine *e, const struct policy_snapshot *snapshot)
{
    struct policy_fault fault;
    char text[POLICY_TEXT_MAX];

    if (!e->options->check || policy_plan_check(snapshot, &e->book.plan, &fault) == 0)
        return 0;
    policy_fault_text(&fault, text, sizeof(text));
    return error_set(e->err, -EPROTO, "policy %s at %llu ns: %s", e->options->policy->name,
                     (unsigned long long)e->now_ns, text);
}

static int decide(struct engine *e, const struct policy_snapshot *snapshot)
{
    uint64_t (*clock_ns)(void) = e->options->clock_ns;
    uint64_t begin = clock_ns ? clock_ns() : 0;
    struct policy_fault fault;
    char text[POLICY_TEXT_MAX] = "a parameter is out of its range, or the state is not its own";
    int r = e->options->decide ? e->options->decide(e->options->decide_arg, snapshot, &e->book.plan)
                               : policy_decide(e->options->policy, snapshot, &e->book.plan);

    e->totals.decisions++;
    e->totals.decide_ns += clock_ns ? clock_ns() - begin : 0;
    if (r == 0)
        return check_plan(e, snapshot);
    if (policy_snapshot_check(snapshot, &fault) < 0)
        policy_fault_text(&fault, text, sizeof(text));
    return error_set(e->err, r, "policy %s at %llu ns, %u jobs alive: %s", e->options->policy->name,
                     (unsigned long long)e->now_ns, snapshot->job_count, text);
}

/* Carries the plan out for every job, and records when the policy wants to be asked again. */
static int apply(struct engine *e)
{
    struct book *b = &e->book;
    bool began = false;

    b->state_at = !b->state_at;
    b->state_size = b->plan.state_size;
    e->reserve_mcpu = b->plan.reserve_mcpu;
    if (b->plan.next_wakeup_ns != POLICY_NEVER && b->plan.next_wakeup_ns <= policy_time(e->now_ns))
        return error_set(e->err, -EPROTO, "policy %s at %llu ns: its next wake-up has passed",
                         e->options->policy->name, (unsigned long long)e->now_ns);
    e->next_wakeup_ns = b->plan.next_wakeup_ns == POLICY_NEVER
                            ? POLICY_NEVER
                            : b->plan.next_wakeup_ns - SIM_CLOCK_START_NS;
    for (uint32_t i = 0; i < e->count; i++) {
        const struct policy_decision *d = &b->plan.decisions[i];
        int r;

        e->live[i]->room.user_mcpu = d->user_mcpu;
        began |= d->verb == POLICY_VERB_START || d->verb == POLICY_VERB_RESUME;
        r = carry_out(e, e->live[i], d);
        if (r < 0)
            return r;
    }
    return servers_apply(e, began);
}

/* Users have equal weights and no limits, as in tided by default. */
static uint32_t fill_users(struct engine *e)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < e->count; i++) {
        uint32_t u = 0, id = e->live[i]->job.user;

        while (u < count && e->users[u].id != id)
            u++;
        if (u == count)
            e->users[count++] = (struct policy_user){
                .id = id, .weight = USER_WEIGHT, .most_mcpu = POLICY_UNLIMITED};
        e->jobs[i].user = u;
    }
    return count;
}

int snapshot_decide(struct engine *e)
{
    struct book *b = &e->book;
    struct policy_snapshot snapshot = {
        .now_ns = policy_time(e->now_ns),
        .epoch = 1,
        .generation = ++b->generation,
        .seed = e->options->seed,
        .domains = e->domains,
        .domain_count = e->domain_count,
        .jobs = e->jobs,
        .job_count = e->count,
        .users = e->users,
        .user_count = fill_users(e),
        .params = e->options->params,
        .state_size = b->state_size,
        .speed_count = e->machine.speed_count,
    };
    int r;

    memcpy(snapshot.speeds, e->machine.speeds, sizeof(snapshot.speeds));
    for (uint32_t i = 0; i < e->count; i++)
        refresh(e, e->live[i], &e->jobs[i]);
    servers_bound(e);
    if (make_plan_room(e, &snapshot) < 0)
        return -ENOMEM;
    snapshot.state = b->state_size ? b->state[b->state_at] : NULL;
    b->plan.state_out = b->state[!b->state_at];
    b->plan.state_room = b->state_room;
    r = decide(e, &snapshot);
    if (r == 0 && e->sink && e->sink->decision)
        r = e->sink->decision(e->sink, &snapshot, &b->plan);
    return r < 0 ? r : apply(e);
}
