/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how many workers each training should have: builds a snapshot for policy_decide(), and
 * turns its plan into pods. The policy shares cores; a "core" of it is one unit, the request of the
 * group's smallest worker, so that one more core is one more worker. The root domain is what the
 * cluster has for workers beside everything else; its children are namespaces with a quota.
 *
 * Trainings that name the same policy form a group. The group with the highest priority decides
 * first. Each group gets what the earlier ones leave, less the minima of later running trainings.
 *
 * Workers are dear: each new one prepares TensorFlow's functions before it is of use. So a training
 * whose size has just changed keeps its workers for a while, also from those who wait to begin.
 */
#include "kube/grow/grow.h"

#include "base/minmax.h"

#include "policy/model/curve.h"

#include <stdio.h>
#include <string.h>

#define UNITS_MAX      (1 << 15)       /* in the cluster; a larger cluster gets larger units */
#define CURVE_MAX      4096            /* units */
#define CHANGE_COST_NS NS_PER_S        /* a pause, and idle cores while pods start */
#define DWELL_NS       (30 * NS_PER_S) /* of a policy, for pods instead of threads */
#define RESIZE_STEP    50              /* mcpu */

/* After a change a training keeps its workers for so long; and no other waits longer for them. */
#define KEEP_NS (120 * NS_PER_S)

struct group {
    struct policy_spec policy;
    struct job **jobs;
    struct policy_job *policy_jobs;
    uint32_t count;
    int64_t unit_mcpu;
};

struct counts {
    struct core *c;
    struct group *groups;
    uint32_t group_count;
    int64_t pool_mcpu;  /* free cores, and the cores of all workers */
    int64_t later_mcpu; /* the minima of running trainings whose group has yet to decide */
};

/* ---- what a training needs ------------------------------------------------------------------- */

/* The request of one worker's pod whose container requests @mcpu. */
static int64_t pod_mcpu(const struct job *job, int64_t mcpu)
{
    const struct kube_task *task = job_task(job, KUBE_WORKER);

    return task->request.mcpu - task->mcpu + mcpu;
}

/* The request of the chief and of the parameter servers that the training still lacks. */
static int64_t fixed_mcpu(const struct job *job)
{
    int64_t ps = larger(job->want[KUBE_PS] - job->have[KUBE_PS], 0);

    return ps * job_task(job, KUBE_PS)->request.mcpu +
           (job->chief ? 0 : job_task(job, KUBE_CHIEF)->request.mcpu);
}

/* The part of a start that is not for workers. */
static int64_t not_for_workers(const struct job *job)
{
    const struct kube_task *task = job_task(job, KUBE_WORKER);

    return job->start_mcpu ? job->start_mcpu - task->min * task->request.mcpu : fixed_mcpu(job);
}

/* The number of workers if a person pinned it or the chief is not heard; -1: the policy decides. */
static int64_t fixed_workers(const struct job *job)
{
    int32_t least = job_task(job, KUBE_WORKER)->min, have = job->have[KUBE_WORKER];

    if (job->etj->replicas)
        return quota_workers(job, job->etj->replicas);
    if (job->runs && job->begins)
        return job->silent ? least : -1;
    if (job->runs && (!job->reports || job->silent))
        return have > least ? have : least;
    return -1;
}

static int64_t least_mcpu(const struct job *job)
{
    int64_t fixed = fixed_workers(job), held = job->held_mcpu;
    int64_t least = job_task(job, KUBE_WORKER)->min;

    if (fixed >= 0)
        return job->have[KUBE_WORKER] == fixed ? held
                                               : fixed * job_task(job, KUBE_WORKER)->request.mcpu;
    least = job->keeps ? larger(job->have[KUBE_WORKER], least) : least;
    return least * pod_mcpu(job, job->etj->worker_mcpu_min);
}

/* The most workers that its limits allow, the cluster has room for, and that make it faster. */
static int64_t most_workers(struct core *c, struct job *job)
{
    int64_t have = job->have[KUBE_WORKER], most = learn_most(c, job, KUBE_WORKER);

    most = quota_workers(job, most);
    if (most > have && !refused_allow(c, job, KUBE_WORKER))
        most = have;
    if (most > have)
        most = have + room_count(c, job, KUBE_WORKER, most - have);
    return larger(learn_useful(job, (int32_t)most), job_task(job, KUBE_WORKER)->min);
}

/* The most that so many workers may request together once they have grown in place. */
static int64_t most_mcpu(const struct job *job, int64_t workers)
{
    int64_t most = smaller(workers * pod_mcpu(job, job->etj->worker_mcpu_max), quota_mcpu(job));
    int64_t more = quota_more_mcpu(job);

    return more < most - job->held_mcpu ? job->held_mcpu + more : most;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Raises the default dwell time: rates of pods take longer to measure than those of threads. */
static void dwell(struct policy_spec *policy)
{
    int i = policy_param_find(policy->policy, "dwell");

    if (i >= 0 && policy->params[i] == policy->policy->params[i].def)
        policy->params[i] = DWELL_NS;
}

static void join(struct counts *s, struct job *job)
{
    struct core *c = s->c;
    struct policy_spec policy = c->settings->policy;
    uint32_t g = 0;

    if (*job->etj->policy && policy_spec_parse(job->etj->policy, &policy, NULL))
        policy = c->settings->policy;
    dwell(&policy);
    while (g < s->group_count &&
           (s->groups[g].policy.policy != policy.policy ||
            memcmp(s->groups[g].policy.params, policy.params,
                   policy.policy->param_count * sizeof(policy.params[0])) != 0))
        g++;
    if (g == s->group_count) {
        struct job **jobs = core_alloc(c, c->job_count, sizeof(struct job *));

        if (!jobs)
            return;
        s->groups[s->group_count++] = (struct group){.policy = policy, .jobs = jobs};
    }
    s->groups[g].jobs[s->groups[g].count++] = job;
}

/*
 * Counts the cores of pods that leave: they are as good as free. Otherwise a second training would
 * give workers to whom the first has already given some. A pod that never goes counts for a while.
 */
static void find_leaving(struct core *c, const struct job *job)
{
    for (uint32_t i = 0; i < job->replica_count; i++) {
        const struct replica *replica = &job->replicas[i];

        if ((replica->state == POD_LEAVING || replica->state == POD_GOING) &&
            replica->node != NOWHERE && replica->pod->phase <= KUBE_POD_RUNNING &&
            c->now_ns - replica->since_ns < c->settings->drain_ns)
            c->nodes[replica->node].leaving_mcpu += replica->pod->request.mcpu;
    }
}

/*
 * The nodes' free cores, as far as whole workers (@unit) fill them. On nodes with resizable
 * workers, free cores plus those of the workers must not depend on how they are shared now: else
 * they would be shared anew for ever. The sum has all such cores, or whole units (@whole) when a
 * training waits for these.
 */
static int64_t free_mcpu(const struct core *c, int64_t unit, bool whole)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < c->node_count; i++) {
        const struct node_capacity *node = &c->nodes[i];
        int64_t left = node->free.mcpu + node->leaving_mcpu - node->unpowered_mcpu;
        int64_t all = larger(left, 0) + node->elastic_mcpu;

        if (node->elastic_mcpu)
            sum += (whole ? all / unit * unit : all) - node->elastic_mcpu;
        else if (node->usable && left >= unit && node->free.pods > 0)
            sum += left / unit * unit;
    }
    return sum;
}

/*
 * Measures what the start of each waiting training takes from free_mcpu(), pod by pod on the nodes
 * and in the quotas. A chief and servers may fit where no worker does: they then take nothing.
 */
static void find_starts(struct core *c, int64_t unit)
{
    uint32_t **nodes = core_alloc(c, c->job_count, sizeof(*nodes));
    int64_t before = free_mcpu(c, unit, true), after;

    for (uint32_t j = 0; j < c->job_count && nodes; j++) {
        struct job *job = &c->jobs[j];

        if (job->aim != AIM_RUN || job->failed || job->runs ||
            !(nodes[j] = scale_take_least(c, job)))
            continue;
        after = free_mcpu(c, unit, true);
        job->start_mcpu = before - after;
        before = after;
    }
    for (uint32_t j = 0; j < c->job_count && nodes; j++)
        if (nodes[j])
            scale_give_back(c, &c->jobs[j], nodes[j], UINT32_MAX);
}

static void find_elastic(struct core *c, const struct job *job)
{
    if (!job_is_resized(job) || c->now_ns < job->record->growth.no_resize_ns)
        return;
    for (uint32_t i = 0; i < job->replica_count; i++) {
        const struct replica *replica = &job->replicas[i];

        if (replica->role == KUBE_WORKER && replica->node != NOWHERE && replica->pod &&
            replica_stays(replica))
            c->nodes[replica->node].elastic_mcpu +=
                replica->pod->request.mcpu - replica->gives_mcpu;
    }
}

static int64_t memory_there_is(const struct core *c)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < c->node_count; i++)
        if (c->nodes[i].usable && c->nodes[i].elastic.bytes > 0)
            sum += c->nodes[i].elastic.bytes;
    return sum;
}

static void find_unit(struct group *g, int64_t pool_mcpu)
{
    g->unit_mcpu = INT64_MAX;
    for (uint32_t i = 0; i < g->count; i++)
        g->unit_mcpu = smaller(g->unit_mcpu, job_task(g->jobs[i], KUBE_WORKER)->request.mcpu);
    g->unit_mcpu = larger(g->unit_mcpu, pool_mcpu / UNITS_MAX + 1);
}

/* @mcpu in thousandths of a unit. */
static int64_t units(const struct group *g, int64_t mcpu, bool up)
{
    int64_t scaled = mcpu * POLICY_CORE_MCPU;

    return (scaled + (up ? g->unit_mcpu - 1 : 0)) / g->unit_mcpu;
}

static int64_t whole_units(const struct group *g, int64_t mcpu)
{
    return (units(g, mcpu, true) + POLICY_CORE_MCPU - 1) / POLICY_CORE_MCPU * POLICY_CORE_MCPU;
}

/* ---- who keeps its workers ------------------------------------------------------------------- */

/* Whether somebody wants workers at once: a person, or a training that could begin long since. */
static bool wants_now(struct core *c, struct job *job)
{
    int64_t until = c->now_ns + KEEP_NS - (c->world->wall_ns - job->etj->meta.created_ns), lack;

    if (job->runs) {
        lack = job->etj->replicas ? fixed_workers(job) - job->have[KUBE_WORKER] : 0;
        return lack > 0 && room_count(c, job, KUBE_WORKER, lack) == lack;
    }
    for (int role = 0; role < KUBE_ROLE_MAX; role++)
        if (!refused_allow(c, job, role) ||
            room_count(c, job, role, job_task(job, role)->min) < job_task(job, role)->min)
            return false;
    if (c->now_ns < until)
        core_wake(c, until);
    return c->now_ns >= until;
}

/* Whether the training keeps its workers: it has changed lately. Before it begins it has no loss.
 */
static bool keeps(struct core *c, const struct job *job)
{
    int64_t changed_ns = job->record->growth.changed_ns, until = changed_ns + KEEP_NS;

    if (!job->runs || job->begins || changed_ns == 0 || c->now_ns >= until)
        return false;
    core_wake(c, until);
    return true;
}

static void find_keepers(struct counts *s)
{
    struct core *c = s->c;

    for (uint32_t g = 0; g < s->group_count; g++)
        for (uint32_t i = 0; i < s->groups[g].count; i++)
            if (wants_now(c, s->groups[g].jobs[i]))
                return;
    for (uint32_t g = 0; g < s->group_count; g++)
        for (uint32_t i = 0; i < s->groups[g].count; i++)
            s->groups[g].jobs[i]->keeps = keeps(c, s->groups[g].jobs[i]);
}

/* ---- the snapshot ---------------------------------------------------------------------------- */

/*
 * Corrects the curve: workers without use add nothing, and no worker adds more than a whole one.
 * Rates from a training's begin may promise more; then no newcomer, counted as one, would start.
 * Where workers are resized, cores of no use as one more worker make those that there are larger.
 */
static void by_use(const struct job *job, uint32_t count, uint32_t *table)
{
    for (uint32_t k = count; k > 1; k--) {
        uint32_t whole = k * 1000 - (k - 1);

        if (!job_is_resized(job))
            table[k - 1] = table[learn_useful(job, (int32_t)k) - 1];
        table[k - 1] = table[k - 1] < whole ? table[k - 1] : whole;
    }
}

/* Sets the speed by units, in thousandths of what one unit gives to a single worker. */
static void set_curve(struct core *c, const struct group *g, const struct job *job,
                      struct policy_job *to)
{
    const struct kube_task *task = job_task(job, KUBE_WORKER);
    int64_t count = smaller(to->max.of[POLICY_MCPU] / POLICY_CORE_MCPU, CURVE_MAX);
    int64_t workers = count * g->unit_mcpu / task->request.mcpu + 2;
    struct policy_curve by_worker = {.count = (uint32_t)smaller(workers, CURVE_MAX)};
    uint32_t *table, *speed, *envelope;

    if (!job->has_model || !job->runs || count < 1)
        return;
    table = core_alloc(c, by_worker.count, sizeof(*table));
    speed = core_alloc(c, (size_t)count, sizeof(*speed));
    envelope = core_alloc(c, (size_t)count, sizeof(*envelope));
    if (c->error)
        return;
    learn_curve(job, by_worker.count, table);
    by_use(job, by_worker.count, table);
    by_worker.speedup_permille = table;
    for (int64_t k = 0; k < count; k++) {
        int64_t mcpu = (k + 1) * g->unit_mcpu * POLICY_CORE_MCPU / task->request.mcpu;
        uint64_t of =
            curve_speed(&by_worker, mcpu) * (uint64_t)task->request.mcpu / (uint64_t)g->unit_mcpu;

        speed[k] = of < UINT32_MAX / 2 ? (uint32_t)of + (of == 0) : UINT32_MAX / 2;
    }
    curve_envelope(speed, (uint32_t)count, envelope);
    to->curve[POLICY_MCPU] = (struct policy_curve){
        .speedup_permille = speed,
        .envelope_permille = envelope,
        .count = (uint32_t)count,
        .confidence_permille = job->model.confidence_permille,
    };
}

static void set_running(struct core *c, const struct group *g, struct job *job,
                        struct policy_job *to, struct policy_amount *current)
{
    int64_t fixed = fixed_workers(job), most = most_workers(c, job);

    to->state = POLICY_RUNNING;
    to->min.of[POLICY_MCPU] = units(g, least_mcpu(job), true);
    to->max.of[POLICY_MCPU] =
        larger(units(g, most_mcpu(job, most), false), to->min.of[POLICY_MCPU]);
    if (fixed >= 0) {
        to->max.of[POLICY_MCPU] = to->min.of[POLICY_MCPU];
        to->pinned_by = POLICY_PIN_HAND;
        to->pinned.of[POLICY_MCPU] = to->min.of[POLICY_MCPU];
    }
    if (job->held_mcpu == 0)
        return;
    *current = (struct policy_amount){.domain = to->home};
    current->amount.of[POLICY_MCPU] = units(g, job->held_mcpu, false);
    to->current = current;
    to->current_count = 1;
}

static void set_queued(struct core *c, const struct group *g, struct job *job,
                       struct policy_job *to)
{
    const struct kube_etj *etj = job->etj;
    int64_t least = 0, bytes = 0, each = etj->task[KUBE_WORKER].request.mcpu, more;

    for (int role = 0; role < KUBE_ROLE_MAX; role++) {
        least += etj->task[role].min * etj->task[role].request.mcpu;
        bytes += etj->task[role].min * etj->task[role].request.bytes;
    }
    to->state = POLICY_QUEUED;
    more = (most_workers(c, job) - etj->task[KUBE_WORKER].min) * each;
    if (job->start_mcpu) {
        to->min.of[POLICY_MCPU] = units(g, job->start_mcpu, true);
        to->max.of[POLICY_MCPU] = units(g, job->start_mcpu + more, true);
    } else {
        to->min.of[POLICY_MCPU] = whole_units(g, least);
        to->max.of[POLICY_MCPU] = whole_units(g, least + more);
    }
    to->request.of[POLICY_MCPU] = to->min.of[POLICY_MCPU];
    to->min.of[POLICY_MEMORY] = to->request.of[POLICY_MEMORY] = bytes;
}

static void set_job(struct core *c, const struct group *g, struct job *job, uint32_t home,
                    struct policy_job *to, struct policy_amount *current)
{
    int64_t age = c->world->wall_ns - job->etj->meta.created_ns;
    int64_t run_ns = record_since(job->record, LIFE_RUNS);

    policy_job_init(to, (uint64_t)(job - c->jobs) + 1);
    to->home = home;
    to->priority = job->priority;
    age = age > 0 && age < c->now_ns ? age : 0;
    to->arrival_ns = (uint64_t)(c->now_ns - age);
    to->start_ns = (uint64_t)run_ns;
    to->change_ns = (uint64_t)job->record->growth.changed_ns;
    to->run_ns = run_ns ? (uint64_t)(c->now_ns - run_ns) : 0;
    to->wait_ns = job->runs ? 0 : (uint64_t)age;
    to->remaining_ns = POLICY_UNKNOWN;
    to->communication_permille = job->report ? job->report->progress.communication_permille : 0;
    to->cost_ns[POLICY_ACTION_RESIZE] = to->cost_ns[POLICY_ACTION_ADD_WORKER] = CHANGE_COST_NS;
    to->cost_ns[POLICY_ACTION_MOVE_PS] = CHANGE_COST_NS;
    if (job->runs)
        set_running(c, g, job, to, current);
    else
        set_queued(c, g, job, to);
    set_curve(c, g, job, to);
}

/* Sets the root, then for each namespace with a quota what that leaves and its trainings have. */
static uint32_t set_domains(struct counts *s, const struct group *g, int64_t capacity,
                            struct policy_domain *domains)
{
    struct core *c = s->c;
    struct policy_vector all = {
        {POLICY_UNLIMITED, POLICY_UNLIMITED, POLICY_UNLIMITED, POLICY_UNLIMITED}};

    domains[0] = (struct policy_domain){
        .parent = POLICY_NO_PARENT, .level = POLICY_CLUSTER, .capacity = all};
    domains[0].capacity.of[POLICY_MCPU] = units(g, larger(capacity, 0), false);
    domains[0].capacity.of[POLICY_MEMORY] = memory_there_is(c);
    for (uint32_t i = 0; i < c->quota_scope_count; i++) {
        int64_t left = c->quota_scopes[i].request_left.mcpu;

        domains[1 + i] =
            (struct policy_domain){.parent = 0, .level = POLICY_NODE, .id = i, .capacity = all};
        /* a domain needs a capacity in cores, even where no quota bounds them */
        domains[1 + i].capacity.of[POLICY_MCPU] = domains[0].capacity.of[POLICY_MCPU];
        if (left >= UNITS_MAX * g->unit_mcpu)
            continue;
        for (uint32_t k = 0; k < g->count; k++)
            left += g->jobs[k]->quota_scope == &c->quota_scopes[i] ? g->jobs[k]->held_mcpu : 0;
        domains[1 + i].capacity.of[POLICY_MCPU] = units(g, larger(left, 0), false);
    }
    return 1 + c->quota_scope_count;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* A mask of the arguments of a reason that are mcpu: in this file thousandths of units. */
static uint32_t mcpu_arguments(uint32_t code)
{
    static const uint8_t masks[POLICY_REASON_MAX] = {
        [POLICY_REASON_EQUAL_SHARE] = 5,   [POLICY_REASON_WEIGHTED_SHARE] = 4,
        [POLICY_REASON_MINIMUM] = 3,       [POLICY_REASON_MAXIMUM] = 3,
        [POLICY_REASON_ONE_THREAD] = 6,    [POLICY_REASON_MINIMA] = 15,
        [POLICY_REASON_PINNED] = 1,        [POLICY_REASON_RIGID] = 1,
        [POLICY_REASON_MOLDABLE] = 1,      [POLICY_REASON_DEADLINE] = 1,
        [POLICY_REASON_SPARE] = 1,         [POLICY_REASON_REQUEST] = 3,
        [POLICY_REASON_PART] = 3,          [POLICY_REASON_KEPT] = 7,
        [POLICY_REASON_PROPORTION] = 7,    [POLICY_REASON_SWITCH_COST] = 1,
        [POLICY_REASON_DWELL] = 1,         [POLICY_REASON_FREE_CORES] = 3,
        [POLICY_REASON_ABOVE_MINIMUM] = 9, [POLICY_REASON_GAIN] = 1,
        [POLICY_REASON_NO_CURVE] = 3,      [POLICY_REASON_GIVES_WAY] = 1,
        [POLICY_REASON_SIZE_RANK] = 1,     [POLICY_REASON_ENDS] = 1,
    };

    return code < POLICY_REASON_MAX ? masks[code] : 0;
}

static void explain(struct core *c, const struct group *g, struct job *job,
                    const struct policy_reason *reason)
{
    uint32_t mask = mcpu_arguments(reason->code);
    const char *other = NULL;
    uint64_t id;

    job->why = *reason;
    if ((reason->code == POLICY_REASON_NO_ROOM || reason->code == POLICY_REASON_TOO_LARGE) &&
        reason->arg[0] == POLICY_MCPU)
        mask = 6;
    for (int i = 0; i < POLICY_REASON_ARGS; i++)
        if (mask & 1u << i)
            job->why.arg[i] = job->why.arg[i] * g->unit_mcpu / POLICY_CORE_MCPU;
    job->why.used_mcpu = job->why.capacity_mcpu = 0;
    /* the policy sees only what others leave, so "too large" means no room now */
    if (reason->code == POLICY_REASON_TOO_LARGE)
        job->why.code = POLICY_REASON_NO_ROOM;
    if (policy_reason_job(reason, &id) && id >= 1 && id <= c->job_count)
        other = c->jobs[id - 1].etj->meta.name;
    policy_reason_text(&job->why, other, job->why_text, sizeof(job->why_text));
}

/* Turns cores into workers. Returns the remainder, too little for one more worker. */
static int64_t set_workers(struct core *c, struct job *job, int64_t mcpu)
{
    const struct kube_task *task = job_task(job, KUBE_WORKER);
    int64_t fixed = fixed_workers(job), most = most_workers(c, job), n, each;

    job->want_mcpu = mcpu;
    job->worker_mcpu = task->mcpu;
    /* rounding to units may have lost a thousandth */
    n = (mcpu + 1 + mcpu / 1000) / task->request.mcpu;
    n = larger(learn_useful(job, (int32_t)smaller(n, most)), task->min);
    if (fixed >= 0)
        n = fixed;
    else if (job->keeps && n < job->have[KUBE_WORKER])
        n = smaller(job->have[KUBE_WORKER], most);
    job->want[KUBE_WORKER] = (int32_t)n;
    if (job_is_resized(job)) {
        each = (mcpu / n - pod_mcpu(job, 0)) / RESIZE_STEP * RESIZE_STEP;
        job->worker_mcpu =
            larger(job->etj->worker_mcpu_min, smaller(each, job->etj->worker_mcpu_max));
        return 0;
    }
    return n < most && fixed < 0 ? larger(mcpu - n * task->request.mcpu, 0) : 0;
}

/* The cores that the next useful number of workers needs beyond the present wish. */
static int64_t next_mcpu(const struct job *job)
{
    int32_t want = job->want[KUBE_WORKER];

    return (learn_next_useful(job, want) - (int64_t)want) *
           job_task(job, KUBE_WORKER)->request.mcpu;
}

/* Several remainders together may make a worker: the training that lacks least gets it. */
static void use_remainders(struct group *g, int64_t *remainder)
{
    for (;;) {
        int64_t sum = 0, least = INT64_MAX;
        uint32_t best = g->count;

        for (uint32_t i = 0; i < g->count; i++) {
            sum += remainder[i];
            if (remainder[i] > 0 && next_mcpu(g->jobs[i]) - remainder[i] < least) {
                least = next_mcpu(g->jobs[i]) - remainder[i];
                best = i;
            }
        }
        if (best == g->count || sum < least + remainder[best])
            return;
        g->jobs[best]->want[KUBE_WORKER] =
            learn_next_useful(g->jobs[best], g->jobs[best]->want[KUBE_WORKER]);
        for (uint32_t i = 0; i < g->count && least > 0; i++) {
            int64_t part = i == best ? 0 : smaller(remainder[i], least);

            remainder[i] -= part;
            least -= part;
        }
        remainder[best] = 0;
    }
}

static void apply(struct counts *s, struct group *g, const struct policy_plan *plan)
{
    struct core *c = s->c;
    int64_t *remainder = core_alloc(c, g->count, sizeof(*remainder));

    if (!remainder)
        return;
    for (uint32_t i = 0; i < g->count; i++) {
        struct job *job = g->jobs[i];
        const struct policy_decision *decision = &plan->decisions[i];
        int64_t mcpu =
            policy_decision_total(plan, i, POLICY_MCPU) * g->unit_mcpu / POLICY_CORE_MCPU;

        explain(c, g, job, &decision->reason);
        if (!job->runs && decision->verb != POLICY_VERB_START) {
            job->lack = room_lack(job);
            continue;
        }
        s->pool_mcpu -= mcpu;
        job->starts = !job->runs;
        if (!job->runs)
            mcpu -= not_for_workers(job);
        remainder[i] = set_workers(c, job, mcpu);
    }
    use_remainders(g, remainder);
}

static void keep_all(struct group *g, const char *why)
{
    for (uint32_t i = 0; i < g->count; i++) {
        struct job *job = g->jobs[i];

        job->want[KUBE_WORKER] = larger(job->have[KUBE_WORKER], job_task(job, KUBE_WORKER)->min);
        job->worker_mcpu = job_task(job, KUBE_WORKER)->mcpu;
        job->lack = job->runs ? NULL : "NoDecision";
        snprintf(job->why_text, sizeof(job->why_text), "%s", why);
    }
}

static void decide(struct counts *s, struct group *g)
{
    struct core *c = s->c;
    uint32_t domain_room = 1 + c->quota_scope_count;
    struct policy_domain *domains = core_alloc(c, domain_room, sizeof(*domains));
    struct policy_job *jobs = core_alloc(c, g->count, sizeof(*jobs));
    struct policy_amount *current = core_alloc(c, g->count, sizeof(*current));
    struct policy_snapshot snapshot = {.now_ns = (uint64_t)c->now_ns,
                                       .epoch = 1,
                                       .generation = 1,
                                       .domains = domains,
                                       .jobs = jobs,
                                       .job_count = g->count,
                                       .params = g->policy.params};
    struct policy_plan plan = {.next_wakeup_ns = POLICY_NEVER};
    struct policy_room room;

    if (c->error)
        return;
    find_unit(g, s->pool_mcpu);
    for (uint32_t i = 0; i < g->count; i++)
        if (g->jobs[i]->runs)
            s->later_mcpu -= least_mcpu(g->jobs[i]);
    snapshot.domain_count = set_domains(s, g, s->pool_mcpu - s->later_mcpu, domains);
    for (uint32_t i = 0; i < g->count; i++) {
        const struct job *job = g->jobs[i];
        uint32_t home = job->quota_scope ? 1 + (uint32_t)(job->quota_scope - c->quota_scopes) : 0;

        set_job(c, g, g->jobs[i], home, &jobs[i], &current[i]);
        /* without a model no gain is known, and the gate would keep newcomers small for ever */
        snapshot.at_once |= job->runs && (job->reports || job->begins) && !job->has_model;
    }
    if (c->error)
        return;
    policy_room(g->policy.policy, &snapshot, &room);
    plan.decisions = core_alloc(c, g->count, sizeof(*plan.decisions));
    plan.domains = core_alloc(c, snapshot.domain_count, sizeof(*plan.domains));
    plan.amounts = core_alloc(c, room.amounts, sizeof(*plan.amounts));
    plan.amount_room = room.amounts;
    plan.scratch = core_alloc(c, room.scratch_bytes, 1);
    plan.scratch_room = room.scratch_bytes;
    plan.state_out = core_alloc(c, room.state_bytes, 1);
    plan.state_room = room.state_bytes;
    if (c->error)
        return;
    if (policy_decide(g->policy.policy, &snapshot, &plan)) {
        struct policy_fault fault = {0};
        char text[POLICY_TEXT_MAX] = "the policy cannot decide";

        if (policy_snapshot_check(&snapshot, &fault))
            policy_fault_text(&fault, text, sizeof(text));
        keep_all(g, text);
        return;
    }
    apply(s, g, &plan);
    if (plan.next_wakeup_ns != POLICY_NEVER)
        core_wake(c, (int64_t)plan.next_wakeup_ns);
}

void counts_decide(struct core *c)
{
    struct counts s = {.c = c};
    int64_t unit = INT64_MAX;
    bool waits = false;

    s.groups = core_alloc(c, c->job_count, sizeof(*s.groups));
    if (!s.groups)
        return;
    for (uint32_t j = 0; j < c->job_count; j++) {
        struct job *job = &c->jobs[j];

        if (job->aim != AIM_RUN || job->failed)
            continue;
        job->want[KUBE_CHIEF] = 1;
        if (job->runs)
            learn_judge(c, job);
        job->want[KUBE_PS] = job_task(job, KUBE_PS)->min;
        if (job->runs)
            job->want[KUBE_PS] = quota_servers(job, learn_ps(c, job));
        join(&s, job);
        unit = smaller(unit, job_task(job, KUBE_WORKER)->request.mcpu);
        s.pool_mcpu += job->held_mcpu;
        find_elastic(c, job);
        waits |= !job->runs;
        if (job->runs)
            s.pool_mcpu -= fixed_mcpu(job);
    }
    find_keepers(&s);
    for (uint32_t j = 0; j < c->job_count; j++) {
        struct job *job = &c->jobs[j];

        find_leaving(c, job);
        if (job->aim == AIM_RUN && !job->failed && job->runs)
            s.later_mcpu += least_mcpu(job);
    }
    if (waits)
        find_starts(c, unit);
    s.pool_mcpu += free_mcpu(c, unit, waits);
    for (uint32_t g = 0; g < s.group_count; g++)
        decide(&s, &s.groups[g]);
}
