/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/decision.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/grow.h"
#include "daemon/daemon.h"
#include "daemon/energy/backstop.h"
#include "daemon/energy/cap.h"
#include "daemon/job/apportion.h"
#include "daemon/job/confine.h"
#include "daemon/plan/beyond.h"
#include "daemon/plan/external.h"
#include "daemon/plan/loans.h"
#include "daemon/plan/machine_share.h"
#include "daemon/plan/promises.h"
#include "daemon/plan/resources.h"
#include "daemon/plan/speeds.h"
#include "daemon/plan/users.h"
#include "policy/core/cores.h"
#include "policy/division/worth.h"
#include "policy/model/curve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "no-decision"

struct decision {
    struct policy_spec spec;
    unsigned capacity;
    int64_t reserve_mcpu; /* that the policy keeps unused on purpose */
    uint64_t next_ns;
    /* storage for a decision over at most `room` jobs */
    size_t room;
    uint32_t count;   /* jobs of the last decision */
    struct job **job; /* indexed as in the snapshot */
    struct policy_job *jobs;
    struct policy_user *users;
    struct policy_amount *current;
    uint32_t *tables; /* two for each job, speed-up and envelope, indexed by cores */
    size_t table_room;
    struct policy_decision *decisions;
    struct cores_job *cores;
    struct promise_room **rooms;
    struct policy_amount *amounts;
    size_t amount_room;
    void *scratch, *state;
    size_t scratch_room, state_room, state_size;
    void *state_out;
    struct policy_snapshot snapshot; /* of the last decision; its domain is root */
    struct policy_domain root;
};

/* ---- storage ---- */

int decision_check_policy(const struct daemon *d, const struct policy_spec *spec, struct error *err)
{
    const char *simulated = policy_spec_simulated(spec);
    struct error why = {0};
    int r = external_check(d, spec, err);

    if (r < 0)
        return r;
    if (spec->policy->by_watts && !cap_source_known(d, &why)) {
        error_set(err, r = -ENODATA, "policy %s cannot be used: %s", spec->policy->name, why.text);
        return error_word(err, r, "no-watts");
    }
    if (simulated)
        return error_set(err, -EINVAL, "'%s' is for tide sim: use 'tide power set-cap'", simulated);
    return 0;
}

int decision_parse_policy(const struct daemon *d, const char *text, struct policy_spec *ret,
                          struct error *err)
{
    struct policy_spec spec;
    int r = external_parse(text, &spec, err);

    if (r == 0)
        r = decision_check_policy(d, &spec, err);
    if (r == 0)
        *ret = spec;
    return r;
}

void decision_set_policy(struct decision *d, const struct policy_spec *spec)
{
    d->spec = *spec;
    d->state_size = 0; /* the state belongs to the former policy or parameters */
}

int decision_new(struct decision **ret, struct error *err)
{
    struct decision *d = calloc(1, sizeof(*d));

    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    d->next_ns = POLICY_NEVER;
    policy_spec_parse(policy_at(0)->name, &d->spec, NULL);
    *ret = d;
    return 0;
}

struct decision *decision_free(struct decision *d)
{
    if (!d)
        return NULL;
    free(d->job);
    free(d->jobs);
    free(d->users);
    free(d->current);
    free(d->tables);
    free(d->decisions);
    free(d->cores);
    free(d->rooms);
    free(d->amounts);
    free(d->scratch);
    free(d->state);
    free(d->state_out);
    free(d);
    return NULL;
}

static int reserve_jobs(struct decision *d, size_t n)
{
    if (n <= d->room)
        return 0;
    n += 16;
    if (grow(&d->job, n, sizeof(*d->job)) < 0 || grow(&d->jobs, n, sizeof(*d->jobs)) < 0 ||
        grow(&d->users, n, sizeof(*d->users)) < 0 ||
        grow(&d->current, n, sizeof(*d->current)) < 0 ||
        grow(&d->decisions, n, sizeof(*d->decisions)) < 0 ||
        grow(&d->cores, n, sizeof(*d->cores)) < 0 || grow(&d->rooms, n, sizeof(*d->rooms)) < 0)
        return -ENOMEM;
    d->room = n;
    return 0;
}

static int reserve_tables(struct decision *d, size_t entries)
{
    if (entries <= d->table_room)
        return 0;
    if (grow(&d->tables, entries, sizeof(*d->tables)) < 0)
        return -ENOMEM;
    d->table_room = entries;
    return 0;
}

static int reserve_plan(struct decision *d, const struct policy_snapshot *s)
{
    struct policy_room room;

    policy_room(external_rule(d->spec.policy), s, &room);
    if (room.amounts > d->amount_room) {
        if (grow(&d->amounts, room.amounts, sizeof(*d->amounts)) < 0)
            return -ENOMEM;
        d->amount_room = room.amounts;
    }
    if (room.scratch_bytes > d->scratch_room) {
        if (grow(&d->scratch, room.scratch_bytes, 1) < 0)
            return -ENOMEM;
        d->scratch_room = room.scratch_bytes;
    }
    if (room.state_bytes > d->state_room) {
        if (grow(&d->state, room.state_bytes, 1) < 0 ||
            grow(&d->state_out, room.state_bytes, 1) < 0)
            return -ENOMEM;
        d->state_room = room.state_bytes;
    }
    return 0;
}

const struct policy_spec *decision_policy(const struct decision *d)
{
    return &d->spec;
}

unsigned decision_capacity(const struct decision *d)
{
    return d->capacity;
}

uint64_t decision_next(const struct decision *d)
{
    return d->next_ns;
}

/* ---- snapshot ---- */

/*
 * A new job whose agent has not reported looks like an idle shell: a TensorFlow program imports for
 * some seconds before it has a pool, `tide run -- bash` may sit there for days. So a new job holds
 * a core (or its --min) for half a minute, afterwards only its --min or the cores that it is seen
 * to use. Its processes still run, and once a backend reports, the job counts in full.
 */
bool decision_counts(const struct job *j, uint64_t now)
{
    if (j->observed.frozen || admission_held_back(j))
        return false;
    return job_tells_use(j) || j->admission.submitted || j->asked.attributes.min > 0 ||
           devices_cores(j) > 0 || j->adopted || users_pins_cores(j) ||
           j->observed.usage.cores > 0 || (!j->asked.script && now - j->met_ns < JOB_YOUNG_NS);
}

static uint32_t policy_pin_of(const struct job *j)
{
    switch (j->asked.pinned_by) {
    case PROTO_SOURCE_SIGNAL:
        return POLICY_PIN_SIGNAL;
    case PROTO_SOURCE_API:
        return POLICY_PIN_PROGRAM;
    default:
        return POLICY_PIN_HAND;
    }
}

/*
 * Whether a job counts with the cores that it is measured to use, as no agent reports: others must
 * not get the cores of its threads. Its request stays reserved. A submitted job also keeps its
 * first cores while it is young, since it may just be importing its runtime. Jobs with
 * fenced cores or a quota are not measured: the measurement would only find that limit.
 */
static bool is_measured(const struct job *j, uint64_t now)
{
    bool young = now - j->met_ns < JOB_YOUNG_NS;

    return j->admission.phase == JOB_RUNNING && !job_reported(j) && !j->adopted &&
           !users_pins_cores(j) && j->asked.attributes.placement == PLACEMENT_SHARED &&
           (j->admission.submitted ? !young : j->observed.usage.cores > 0);
}

static uint32_t silent_cores(const struct job *j, uint64_t now)
{
    uint32_t cores = j->admission.cores, asked = devices_least(j);

    if (is_measured(j, now)) {
        if (j->admission.submitted && j->asked.attributes.request > asked)
            asked = j->asked.attributes.request < cores ? j->asked.attributes.request : cores;
        cores = j->observed.usage.cores > asked ? j->observed.usage.cores : asked;
    }
    return cores ? cores : 1;
}

/* Most cores that the job can use: the smallest of its --max, its allowed cores and its pools. */
static uint32_t most_cores(const struct job *j, uint32_t machine, uint64_t now)
{
    uint32_t most = j->asked.attributes.max ? j->asked.attributes.max : machine, pools = job_max(j);
    uint32_t allowed = j->observed.allowed_mcpu / 1000;

    if (j->admission.phase == JOB_RUNNING && !job_tells_use(j) && !j->adopted)
        return silent_cores(j, now);
    if (most > machine)
        most = machine;
    if (job_malleable(j) && pools && pools < most)
        most = pools;
    if (j->observed.allowed_mcpu && allowed < most)
        most = allowed;
    return most ? most : 1;
}

static void fill_terms(const struct job *j, uint64_t now, struct policy_job *ret)
{
    ret->weight = j->asked.attributes.weight;
    ret->priority = j->asked.attributes.priority;
    ret->class = j->asked.attributes.class;
    ret->fenced = j->asked.attributes.placement == PLACEMENT_EXCLUSIVE;
    ret->request.of[POLICY_MCPU] = (int64_t)j->asked.attributes.request * POLICY_CORE_MCPU;
    ret->arrival_ns = j->created_ns;
    admission_describe(j, now, ret);
    ret->wait_ns = admission_waited_ns(j, now);
    if (is_measured(j, now))
        ret->malleability = POLICY_RIGID;
    else if (j->admission.submitted && j->admission.phase != JOB_PAUSED && !job_malleable(j))
        /* Moldable until an agent reports: a waiting job starts with its request. */
        ret->malleability = POLICY_MOLDABLE;
}

/* Fills in the speed-up that was measured while the job ran. */
static void fill_speed(struct job *j, unsigned cores, uint32_t *table, struct policy_job *ret)
{
    struct speed *s = &j->observed.speed;

    ret->change_ns = j->wanted.share_ns;
    ret->cost_ns[POLICY_ACTION_RESIZE] = speed_resize_ns(j);
    ret->remaining_ns = speed_remaining_ns(j);
    s->told = s->model;
    s->told_known = s->known;
    if (!s->known)
        return;
    fit_table(&s->model, cores, table);
    curve_envelope(table, cores, table + cores);
    ret->curve[POLICY_MCPU] =
        (struct policy_curve){.speedup_permille = table,
                              .envelope_permille = table + cores,
                              .count = cores,
                              .confidence_permille = s->model.confidence_permille};
    if (ret->remaining_ns != POLICY_UNKNOWN)
        ret->remaining_error_ns = ret->remaining_ns / 1000 * (1000 - s->model.confidence_permille);
}

static void fill_job(const struct job *j, unsigned machine, uint64_t now,
                     struct policy_amount *current, struct policy_job *ret)
{
    uint32_t min = devices_least(j), max = most_cores(j, machine, now), held = j->wanted.share;

    policy_job_init(ret, j->number);
    fill_terms(j, now, ret);
    ret->lent = j->asked.lent;
    ret->borrowed = j->wanted.borrowed;
    if (is_measured(j, now)) /* resizes itself; the plan can only account for it */
        min = held = max;
    if (max < min)
        max = min;
    if (j->asked.pinned.intra) {
        ret->pinned.of[POLICY_MCPU] = (int64_t)j->asked.pinned.intra * POLICY_CORE_MCPU;
        ret->pinned_by = policy_pin_of(j);
        if (j->asked.pinned.intra > max)
            max = j->asked.pinned.intra;
        if (j->asked.pinned.intra < min)
            min = j->asked.pinned.intra;
    }
    ret->min.of[POLICY_MCPU] = (int64_t)min * POLICY_CORE_MCPU;
    ret->max.of[POLICY_MCPU] = (int64_t)max * POLICY_CORE_MCPU;
    resources_of_job(j, ret);
    if (ret->state == POLICY_PAUSED)
        held = j->admission.cores;
    if (held == 0)
        return;
    *current = (struct policy_amount){.domain = 0};
    current->amount = ret->min;
    current->amount.of[POLICY_MCPU] = (int64_t)held * POLICY_CORE_MCPU;
    ret->current = current;
    ret->current_count = 1;
}

static uint32_t fill_jobs(struct daemon *daemon, uint64_t now)
{
    struct decision *d = daemon->decision;
    unsigned cpus = cpuset_count(&daemon->cpus);
    uint32_t count = 0;

    for (struct job *j = daemon->jobs->first; j; j = j->next)
        if (decision_counts(j, now))
            d->job[count++] = j;
    d->capacity = machine_share_take(daemon->machine_share, count, &daemon->cpus, &daemon->usable);
    daemon->jobs->capacity = d->capacity;
    daemon->jobs->by_curves = d->spec.policy->by_curves;
    for (uint32_t i = 0; i < count; i++)
        fill_job(d->job[i], cpus, now, &d->current[i], &d->jobs[i]);
    for (uint32_t i = 0; i < count; i++)
        fill_speed(d->job[i], cpus, d->tables + (size_t)i * 2 * cpus, &d->jobs[i]);
    return count;
}

/* ---- loans ---- */

/* Cuts a loan that would break a minimum or maximum. Returns true if it cut one. */
static bool loans_cut(struct job *j, const struct policy_reason *reason, uint64_t now)
{
    uint32_t lent = reason->code == POLICY_REASON_LENT ? (uint32_t)(reason->arg[1] / 1000) : 0;
    uint32_t borrowed =
        reason->code == POLICY_REASON_BORROWED ? (uint32_t)(reason->arg[1] / 1000) : 0;
    bool cut = j->asked.lent > lent || j->wanted.borrowed > borrowed;

    if (j->asked.lent > lent)
        j->asked.lent = lent;
    if (j->wanted.borrowed > borrowed)
        j->wanted.borrowed = borrowed;
    if (j->wanted.share >= most_cores(j, cpuset_count(&j->daemon->cpus), now))
        j->asked.wants = j->wanted.borrowed; /* it can use no more: the next borrower's turn */
    return cut;
}

/* ---- what is wanted ---- */

static void want_cores(struct daemon *daemon, uint64_t now)
{
    struct decision *d = daemon->decision;
    struct cores_machine machine;
    size_t count = 0;

    for (struct job *j = daemon->jobs->first; j; j = j->next) {
        struct cores_job *c = &d->cores[count++];

        memset(c, 0, sizeof(*c));
        c->exclusive = j->asked.attributes.placement == PLACEMENT_EXCLUSIVE &&
                       j->admission.wanted && decision_counts(j, now);
        c->count = j->wanted.share;
        if (users_over(j)) /* would keep others from more than the user's share */
            c->exclusive = false;
        if (users_keeps_cores(j)) { /* no other job gets them while it runs */
            c->exclusive = users_pins_cores(j) && j->admission.wanted && !j->observed.frozen &&
                           (j->asked.granted || !users_over(j));
            c->count = cpuset_count(&j->wanted.kept);
            c->current = c->allowed = j->wanted.kept;
            continue;
        }
        memcpy(c->of_speed, j->wanted.of_speed, sizeof(c->of_speed));
        if (!j->wanted.overlaps) /* overlapping cores are not its own to keep */
            c->current = j->placed.cores;
        for (struct process *p = j->processes; p; p = p->next)
            for (unsigned w = 0; w < CPUSET_WORDS; w++)
                c->allowed.word[w] |= p->original.word[w];
        if (daemon->cpus_made_up) /* no affinity names made-up CPUs */
            cpuset_zero(&c->allowed);
    }
    speeds_of_cpus(daemon, &machine);
    cores_assign(&machine, d->cores, count);
    count = 0;
    for (struct job *j = daemon->jobs->first; j; j = j->next) {
        j->wanted.overlaps = d->cores[count].overlaps;
        if (j->placed.unfenceable)
            cpuset_zero(&j->wanted.cores);
        else if (users_keeps_cores(j))
            j->wanted.cores = j->wanted.kept;
        else
            j->wanted.cores = d->cores[count].assigned;
        count++;
    }
}

static void want_limits(struct job *j)
{
    uint32_t cores = j->wanted.share ? j->wanted.share : 1;

    j->wanted.weight = users_weight(j, cores);
    j->wanted.yields = false;
    j->wanted.quota_mcpu = CGROUP_NO_QUOTA;
    if (j->asked.attributes.placement == PLACEMENT_QUOTA && j->confine->can_limit(j) &&
        j->wanted.share)
        j->wanted.quota_mcpu = j->wanted.share * 1000;
}

static bool may_have_extras(const struct job *j)
{
    return beyond_allowed(j) && speed_threads(j) == j->wanted.share;
}

uint32_t decision_most_threads(const struct job *j)
{
    uint32_t most = most_cores(j, cpuset_count(&j->daemon->cpus), clock_now_ns());
    uint32_t has = j->wanted.share + extras_of(&j->extras.loan, j->wanted.share);

    if (!may_have_extras(j) || j->placed.late || beyond_by_promise(j))
        return j->wanted.share;
    if (!job_settled(j) || job_waits(j)) /* first what was asked of it last */
        most = has < most ? has : most;
    return most;
}

static void want_threads(struct job *j)
{
    if (j->asked.pinned.intra)
        j->wanted.threads = users_pinned_threads(j);
    else
        j->wanted.threads = (struct threads){speed_threads(j), 0};
    if (j->wanted.threads.intra < j->wanted.share && j->asked.pinned.intra == 0)
        snprintf(j->wanted.reason, sizeof(j->wanted.reason),
                 "%u of its %u threads for some seconds, to learn its speed-up",
                 j->wanted.threads.intra, j->wanted.share);
    if (j->wanted.threads.intra == j->wanted.share && may_have_extras(j))
        j->wanted.threads.intra += beyond_by_promise(j) + beyond_lent(j);
    if ((!job_malleable(j) && !j->asked.pinned.intra) || !j->admission.wanted)
        j->wanted.threads = (struct threads){0};
    apportion_divide(j);
}

/* Refuses an invalid plan as a whole, before any of it takes effect. */
static int check_verbs(const struct decision *d, uint32_t count, struct error *err)
{
    for (uint32_t i = 0; i < count; i++)
        if (!admission_can(d->job[i], d->decisions[i].verb))
            return error_set(err, -EPROTO,
                             "policy %s: the verb '%s' does not fit job %s, which is %s",
                             d->spec.policy->name, policy_verb_name(d->decisions[i].verb),
                             d->job[i]->id, job_state(d->job[i], clock_now_ns()));
    return 0;
}

static int decide(const struct daemon *daemon, const struct policy_snapshot *s,
                  struct policy_plan *plan, struct error *err)
{
    const struct decision *d = daemon->decision;
    struct policy_fault fault;
    char text[POLICY_TEXT_MAX];
    int r = d->spec.policy == external_policy() ? external_decide(daemon->external, s, plan)
                                                : policy_decide(d->spec.policy, s, plan);

    if (r == 0)
        return check_verbs(d, s->job_count, err);
    snprintf(text, sizeof(text), "%s", strerror(-r));
    if (policy_snapshot_check(s, &fault) < 0)
        policy_fault_text(&fault, text, sizeof(text));
    return error_set(err, r, "policy %s: %s", d->spec.policy->name, text);
}

static void set_share(struct job *j, uint32_t share, uint64_t now)
{
    if (share != j->wanted.share)
        j->wanted.share_ns = now;
    j->wanted.share = share;
}

/* Behind the policy's reason: whose power cap bounds the cores that it divides. */
static void explain_cap(struct job *j)
{
    size_t len = strlen(j->wanted.reason);
    char cap[CAP_TEXT_MAX];

    cap_text(j->daemon, cap);
    if (*cap && len + strlen(cap) + 3 < sizeof(j->wanted.reason))
        snprintf(j->wanted.reason + len, sizeof(j->wanted.reason) - len, "; %s", cap);
}

/* Behind a minimum that nobody asked for: the devices that its threads feed. */
static void explain_devices(struct job *j, const struct policy_reason *reason)
{
    size_t len = strlen(j->wanted.reason);
    char names[DEVICES_NAMES_MAX];

    if (reason->code == POLICY_REASON_MINIMUM && devices_cores(j) > j->asked.attributes.min)
        snprintf(j->wanted.reason + len, sizeof(j->wanted.reason) - len, "; feeds %s",
                 device_set_text(&j->observed.devices, names, sizeof(names)));
}

/* Replaces a job's id in a reason by its name, which people know. */
static void explain(struct job *j, const struct policy_reason *reason, uint32_t share)
{
    const struct job *other = NULL;
    uint64_t id;

    if (policy_reason_job(reason, &id))
        other = job_of_number(j->daemon, id);
    policy_reason_text(reason, other ? other->name : NULL, j->wanted.reason,
                       sizeof(j->wanted.reason));
    explain_devices(j, reason);
    external_explain(j->daemon->external, j->number, share, j->wanted.reason);
    speeds_explain(j);
    explain_cap(j);
    promises_explain(j, decision_keeps_idle(j->daemon));
}

/* Takes up the plan's decision on its @i-th job. Returns true if it cut a loan. */
static bool take_up(struct job *j, const struct policy_plan *plan, uint32_t i, uint64_t now)
{
    const struct policy_decision *decision = &plan->decisions[i];
    int64_t mcpu = policy_decision_total(plan, i, POLICY_MCPU);
    uint32_t share = mcpu < 1000 ? 1 : (uint32_t)(mcpu / 1000);

    j->wanted.place = decision->place;
    users_take_up(j, decision);
    memcpy(j->wanted.of_speed, decision->of_speed, sizeof(j->wanted.of_speed));
    admission_want(j, decision->verb, share);
    set_share(j, j->admission.wanted ? share : 0, now);
    /* Says that the job can use no more, rather than how the policy came to one core. */
    if (share == 1 && j->admission.wanted && !j->asked.pinned.intra && !job_reported_any(j) &&
        !j->adopted)
        snprintf(j->wanted.reason, sizeof(j->wanted.reason), "one core: no thread pool was found");
    else if (j->admission.wanted && !j->asked.pinned.intra && is_measured(j, now))
        snprintf(j->wanted.reason, sizeof(j->wanted.reason),
                 job_reported_any(j) ? "its threads stay: its share is the %u core%s that it uses"
                                     : "no agent reports: its share is the %u core%s that it uses",
                 share, share == 1 ? "" : "s");
    else
        explain(j, &decision->reason, share);
    return loans_cut(j, &decision->reason, now);
}

static void fill_snapshot(struct daemon *daemon, uint64_t now, bool at_once)
{
    struct decision *d = daemon->decision;
    struct policy_snapshot *s = &d->snapshot;

    *s = (struct policy_snapshot){.now_ns = now,
                                  .epoch = daemon->epoch,
                                  .generation = daemon->generation,
                                  .domains = &d->root,
                                  .domain_count = 1,
                                  .seed = daemon->epoch,
                                  .at_once = at_once,
                                  .params = d->spec.params,
                                  .state = d->state_size ? d->state : NULL,
                                  .state_size = d->state_size};
    s->job_count = d->count = fill_jobs(daemon, now);
    policy_machine_init(&d->root, (int64_t)d->capacity * POLICY_CORE_MCPU,
                        (int64_t)daemon->memory_bytes);
    resources_of_machine(daemon, decision_counts, now, &d->root);
    cap_domain(daemon, &d->root);
    s->speed_count = speeds_of_machine(daemon, s->speeds);
    s->jobs = d->jobs;
    promises_bound(d->job, d->rooms, d->jobs, d->count,
                   policy_domain_capacity(s, 0, POLICY_MCPU) - d->reserve_mcpu);
    s->users = d->users;
    s->user_count = users_fill(daemon, d->job, s->job_count, d->jobs, d->users);
}

/* One policy decision over the present jobs. Returns 1 if it cut loans, 0 or -errno. */
static int decide_once(struct daemon *daemon, uint64_t now, bool at_once, struct error *err)
{
    struct decision *d = daemon->decision;
    const struct policy_snapshot *s = &d->snapshot;
    struct policy_domain_use use;
    struct policy_plan plan = {0};
    int r, cut = 0;

    external_begin(daemon->external, d->spec.policy);
    fill_snapshot(daemon, now, at_once);
    r = reserve_plan(d, s);
    if (r < 0)
        return error_set(err, r, "out of memory");
    plan.decisions = d->decisions;
    plan.domains = &use;
    plan.amounts = d->amounts;
    plan.amount_room = d->amount_room;
    plan.scratch = d->scratch;
    plan.scratch_room = d->scratch_room;
    plan.state_out = d->state_out;
    plan.state_room = d->state_room;
    r = decide(daemon, s, &plan, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < s->job_count; i++)
        cut |= take_up(d->job[i], &plan, i, now);
    d->next_ns = plan.next_wakeup_ns;
    d->reserve_mcpu = plan.reserve_mcpu;
    d->state_size = plan.state_size;
    if (plan.state_size) {
        void *swap = d->state;

        d->state = d->state_out;
        d->state_out = swap;
    }
    return cut;
}

static void record_changes(struct job *j, const struct threads *before,
                           const struct cpuset *cores_before)
{
    bool threads = j->wanted.threads.intra &&
                   (!j->placed.commanded || before->intra != j->wanted.threads.intra ||
                    before->inter != j->wanted.threads.inter);
    bool cores = !cpuset_equal(cores_before, &j->wanted.cores);
    uint32_t from = j->placed.commanded ? before->intra : job_target(j);
    const struct change *last = job_last_change(j);

    if (j->adopted && !job_malleable(j) && j->wanted.share != (last ? last->to : 0))
        job_record(j, last ? last->to : 0, j->wanted.share,
                   j->wanted.reason); /* its cores are all that changes */
    if (!job_malleable(j) || (!threads && !cores))
        return;
    if (!j->placed.commanded &&
        from == j->wanted.threads.intra) /* not commanded before: its threads are unknown */
        from = job_max(j);
    job_record(j, from, j->wanted.threads.intra, j->wanted.reason);
    j->placed.commanded = true;
}

void decision_lend(struct job *j, const char *reason)
{
    uint32_t from = j->wanted.threads.intra;

    j->wanted.threads_before = j->wanted.threads;
    j->wanted.cores_before = j->wanted.cores;
    want_threads(j);
    if (j->wanted.threads.intra != from)
        job_record_extras(j, from, j->wanted.threads.intra, reason);
}

bool decision_keeps_idle(const struct daemon *daemon)
{
    return daemon->decision->reserve_mcpu > 0 || daemon->decision->root.cap_uw > 0;
}

int decision_worth(const struct daemon *daemon, uint32_t cores, uint64_t *ret)
{
    const struct decision *d = daemon->decision;
    struct policy_snapshot s = {.jobs = d->jobs, .job_count = d->count};
    _cleanup_free_ uint32_t *scratch = calloc(d->count + 1, sizeof(*scratch));

    if (!scratch)
        return -ENOMEM;
    worth_of_cores(&s, cores, scratch, ret);
    return 0;
}

/*
 * Writes the cores that the policy gives each job of the last decision, resizes counted as free. A
 * decider is not asked: that would take time.
 */
static int cores_under(const struct decision *d, uint64_t cap_uw, uint32_t *ret)
{
    struct policy_domain root = d->root;
    struct policy_domain_use use;
    struct policy_snapshot s = d->snapshot;
    _cleanup_free_ void *decisions = calloc(d->count, sizeof(*d->decisions)), *scratch = NULL;
    _cleanup_free_ void *amounts = NULL, *state = NULL;
    struct policy_room room;
    struct policy_plan plan;
    int r;

    root.cap_uw = cap_uw;
    s.domains = &root;
    s.at_once = true;
    s.state = d->state_size ? d->state : NULL;
    s.state_size = d->state_size;
    policy_room(external_rule(d->spec.policy), &s, &room);
    amounts = calloc(room.amounts + 1, sizeof(*d->amounts));
    scratch = calloc(1, room.scratch_bytes + 1);
    state = calloc(1, room.state_bytes + 1);
    if (!decisions || !amounts || !scratch || !state)
        return -ENOMEM;
    plan = (struct policy_plan){.decisions = decisions,
                                .domains = &use,
                                .amounts = amounts,
                                .amount_room = room.amounts,
                                .scratch = scratch,
                                .scratch_room = room.scratch_bytes,
                                .state_out = state,
                                .state_room = room.state_bytes};
    r = policy_decide(external_rule(d->spec.policy), &s, &plan);
    for (uint32_t i = 0; r == 0 && i < d->count; i++)
        ret[i] = (uint32_t)(policy_decision_total(&plan, i, POLICY_MCPU) / POLICY_CORE_MCPU);
    return r;
}

int decision_shrunk(const struct daemon *daemon, decision_take *take, void *arg)
{
    const struct decision *d = daemon->decision;
    _cleanup_free_ uint32_t *with = calloc(d->count + 1, sizeof(*with));
    _cleanup_free_ uint32_t *without = calloc(d->count + 1, sizeof(*without));
    int r;

    if (!with || !without)
        return -ENOMEM;
    if (d->count == 0 || d->root.cap_uw == 0)
        return 0;
    r = cores_under(d, d->root.cap_uw, with);
    r = r < 0 ? r : cores_under(d, 0, without);
    for (uint32_t i = 0; r == 0 && i < d->count; i++) {
        const struct job *j = job_of_number(daemon, d->jobs[i].id);

        if (j && without[i] > with[i])
            take(arg, j, without[i] - with[i]);
    }
    return r;
}

int decision_make(struct daemon *daemon, uint64_t now, bool at_once, struct error *err)
{
    struct decision *d = daemon->decision;
    int r = reserve_jobs(d, daemon->jobs->n);

    d->count = d->snapshot.job_count = 0; /* what it described may have moved */
    if (r == 0)
        r = reserve_tables(d, (size_t)daemon->jobs->n * 2 * cpuset_count(&daemon->cpus));
    if (r < 0)
        return error_set(err, r, "out of memory");
    for (struct job *j = daemon->jobs->first; j; j = j->next)
        if (!decision_counts(j, now)) {
            j->wanted.share = j->asked.lent = j->wanted.borrowed = j->wanted.place = 0;
            j->promise.room.threads = 0;
            j->promise.room.yields_to = 0;
            memset(&j->wanted.user, 0, sizeof(j->wanted.user));
            snprintf(j->wanted.reason, sizeof(j->wanted.reason), "%s",
                     admission_held_back(j) ? "paused by hand: 'tide release' lets it go on"
                     : j->observed.frozen   ? "paused by hand"
                                            : "no malleable runtime has reported: it gets no share "
                                              "until one does");
        }
    /* Cut loans free or take cores: decides a second time with the new loans, and no third time. */
    for (unsigned i = 0; i < 2; i++) {
        loans_settle(daemon);
        r = decide_once(daemon, now, at_once || i > 0, err);
        if (r <= 0)
            break;
    }
    if (r < 0)
        return r;
    for (struct job *j = daemon->jobs->first; j; j = j->next) {
        j->wanted.threads_before = j->wanted.threads;
        j->wanted.cores_before = j->wanted.cores;
    }
    promises_confirm(d->job, d->count);
    users_add_up(daemon);
    users_keep_cores(daemon);
    want_cores(daemon, now);
    for (struct job *j = daemon->jobs->first; j; j = j->next) {
        want_limits(j);
        want_threads(j);
        record_changes(j, &j->wanted.threads_before, &j->wanted.cores_before);
    }
    promises_weigh(daemon);
    backstop_divide(daemon->backstop);
    external_decided(daemon->external, &d->snapshot);
    return 0;
}
