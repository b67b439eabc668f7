/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What pays: rates of a training at each of its sizes, from what its chief reports. Every growth is
 * a trial: the rate before and after decides whether it stays. What did not pay is a ceiling for
 * a while, twice as long each time.
 */
#include "kube/core.h"

#include <string.h>

#define SAMPLE_NS       (2 * NS_PER_S)
#define TRIAL_SAMPLES   2   /* that decide */
#define MUCH_PERMILLE   300 /* of a step's time in communication: one more parameter server */
#define LITTLE_PERMILLE 100 /* one less, if there are fewer workers, too */
#define SPEED_MAX       (1u << 24) /* in thousandths: of one worker's */
#define HOLD_MAX_NS     (3600 * NS_PER_S)

/* ---- samples --------------------------------------------------------------------------------- */

/* Whether all nodes that it has are in the training; and how many that are. */
static bool settled(const struct job *job, uint32_t *ret_worker, uint32_t *ret_ps)
{
    int64_t mcpu = 0, each = job_task(job, KUBE_WORKER)->mcpu;
    uint32_t ps = 0;

    for (uint32_t i = 0; i < job->seat_count; i++) {
        const struct seat *seat = &job->seats[i];

        if (seat->role == KUBE_CHIEF)
            continue;
        if (seat->reported == KUBE_NODE_JOINING || seat->reported == KUBE_NODE_DRAINING)
            return false;
        if (seat->reported != KUBE_NODE_IN)
            continue;
        if (seat->role == KUBE_PS)
            ps++;
        else
            mcpu += seat->pod && seat->pod->actual_mcpu ? seat->pod->actual_mcpu : seat->mcpu;
    }
    *ret_ps = ps;
    *ret_worker = (uint32_t)((mcpu + each / 2) / each);
    return *ret_worker > 0;
}

static void begin_size(struct record *r, uint32_t worker, uint32_t ps)
{
    r->size_worker = worker;
    r->size_ps = ps;
    r->sample_ns = 0;
    r->samples = 0;
    r->rate = 0;
}

static void end_sample(struct core *c, struct record *r, uint64_t rate)
{
    if (rate == 0 || rate > FIT_RATE_MAX)
        return;
    r->samples++;
    r->rate = r->rate ? (r->rate + rate) / 2 : rate;
    fit_add(&r->fit, (uint64_t)c->now_ns, r->size_worker, rate);
}

/* Begins and ends when the count has just moved, so that long steps are measured whole. */
static void sample(struct core *c, struct record *r, const struct kube_report *report)
{
    const struct kube_progress *p = &report->progress;
    bool moved = p->examples != r->last_examples;

    r->last_examples = p->examples;
    if (r->sample_ns && (p->examples < r->sample_examples || report->at_ns <= r->sample_ns))
        r->sample_ns = 0;
    if (p->examples == 0 && p->examples_per_s > 0) {
        if (r->sample_ns == 0)
            r->sample_ns = report->at_ns;
        if (report->at_ns - r->sample_ns < SAMPLE_NS)
            return;
        r->sample_ns = report->at_ns;
        end_sample(c, r, p->examples_per_s < 1e9 ? (uint64_t)(p->examples_per_s * 1000) : 0);
    } else if (moved && r->sample_ns == 0) {
        r->sample_ns = report->at_ns;
        r->sample_examples = p->examples;
    } else if (moved && report->at_ns - r->sample_ns >= SAMPLE_NS) {
        double s = (double)(report->at_ns - r->sample_ns) / NS_PER_S;
        double rate = (double)(p->examples - r->sample_examples) * 1000 / s;

        end_sample(c, r, rate < 1e12 ? (uint64_t)rate : 0);
        r->sample_ns = report->at_ns;
        r->sample_examples = p->examples;
    }
}

/* ---- trials ---------------------------------------------------------------------------------- */

void learn_hold(struct core *c, struct job *job, enum kube_role role, int32_t ceiling)
{
    struct trial *t = &job->record->trial[role];

    t->hold_ns = t->hold_ns ? 2 * t->hold_ns : CEILING_NS;
    t->hold_ns = t->hold_ns < HOLD_MAX_NS ? t->hold_ns : HOLD_MAX_NS;
    t->ceiling = ceiling;
    t->until_ns = c->now_ns + t->hold_ns;
    t->to = 0;
}

/* In thousandths: of a worker's present share, or of the rate. */
static int64_t gain_of(const struct trial *t, enum kube_role role, uint64_t rate, int32_t size)
{
    int64_t more = (int64_t)rate - (int64_t)t->rate;

    if (role == KUBE_PS)
        return more * 1000 / (int64_t)t->rate;
    return more * 1000 / (int64_t)t->rate * t->from / (size - t->from);
}

static void judge(struct core *c, struct job *job, enum kube_role role)
{
    struct record *r = job->record;
    struct trial *t = &r->trial[role];
    int32_t size = (int32_t)(role == KUBE_PS ? r->size_ps : r->size_worker);
    int32_t least =
        role == KUBE_PS ? c->settings->ps_gain_permille : c->settings->worker_gain_permille;

    if (t->to == 0)
        return;
    if (size <= t->from || r->samples < TRIAL_SAMPLES) {
        if (c->now_ns - r->changed_ns >= 2 * PATIENCE_NS)
            t->to = 0;
        return;
    }
    if (gain_of(t, role, r->rate, size) >= least) {
        t->to = 0;
        return;
    }
    learn_hold(c, job, role, t->from);
    job->rolled_back[role] = true;
}

void learn(struct core *c, struct job *job)
{
    struct record *r = job->record;
    uint32_t worker, ps;

    if (job->report && job->report->at_ns > r->report_ns && job->aim == AIM_RUN) {
        r->report_ns = job->report->at_ns;
        if (!settled(job, &worker, &ps))
            r->sample_ns = 0;
        else if (worker != r->size_worker || ps != r->size_ps)
            begin_size(r, worker, ps);
        else
            sample(c, r, job->report);
        judge(c, job, KUBE_WORKER);
        judge(c, job, KUBE_PS);
    }
    job->has_model = fit_solve(&r->fit, (uint64_t)c->now_ns, &job->model);
}

void learn_changed(struct core *c, struct job *job, enum kube_role role, int32_t from, int32_t to)
{
    struct record *r = job->record;
    struct trial *t = &r->trial[role];

    r->changed_ns = c->now_ns;
    r->wished_ns = 0;
    t->to = 0;
    if (to <= from)
        return;
    if (role == KUBE_PS)
        r->ps_basis = job->have[KUBE_WORKER];
    /* a worker may have given its room to the server: what it gave counts, too */
    t->rate = role == KUBE_PS && r->ps_rate ? r->ps_rate : r->rate;
    r->ps_wish = 0;
    r->ps_rate = 0;
    if (t->rate == 0 || from == 0)
        return;
    t->from = from;
    t->to = to;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

int32_t learn_most(struct core *c, struct job *job, enum kube_role role)
{
    const struct trial *t = &job->record->trial[role];
    const struct kube_task *task = job_task(job, role);

    if (t->ceiling == 0 || c->now_ns >= t->until_ns)
        return task->max;
    core_wake(c, t->until_ns);
    return t->ceiling > task->min ? t->ceiling : task->min;
}

static bool on_trial(const struct record *r)
{
    return r->trial[KUBE_WORKER].to || r->trial[KUBE_PS].to;
}

int32_t learn_ps(struct core *c, struct job *job)
{
    const struct kube_task *task = job_task(job, KUBE_PS);
    struct record *r = job->record;
    int32_t have = job->have[KUBE_PS], most = learn_most(c, job, KUBE_PS);
    uint32_t communication = job->report ? job->report->progress.communication_permille : 0;
    int32_t more = have / 2 > 1 ? have / 2 : 1;

    if (have < task->min)
        return task->min;
    if (have > most || have >= r->ps_wish)
        r->ps_wish = 0;
    if (have > most)
        return most;
    if (r->ps_wish && c->now_ns - r->ps_wish_ns < PATIENCE_NS) {
        core_wake(c, r->ps_wish_ns + PATIENCE_NS);
        return r->ps_wish;
    }
    if (r->ps_wish) {
        r->ps_wish = 0;
        learn_hold(c, job, KUBE_PS, have);
        return have;
    }
    if (!job->reports || job->silent || on_trial(r) || r->samples < TRIAL_SAMPLES ||
        job->trouble_reason || c->others_wait)
        return have;
    if (c->now_ns < r->changed_ns + c->settings->settle_ns) {
        core_wake(c, r->changed_ns + c->settings->settle_ns);
        return have;
    }
    if (communication >= MUCH_PERMILLE && have < job->have[KUBE_WORKER] && have < most) {
        r->ps_wish = have + more < most ? have + more : most;
        r->ps_wish_ns = c->now_ns;
        r->ps_rate = r->rate;
        return r->ps_wish;
    }
    if (communication <= LITTLE_PERMILLE && have > task->min &&
        2 * job->have[KUBE_WORKER] <= r->ps_basis)
        return have - 1;
    return have;
}

/* The most workers that were ever measured, lately. */
static int32_t known_size(const struct record *r)
{
    int32_t most = 0;

    for (int i = 0; i < FIT_COUNTS; i++)
        if ((int32_t)r->fit.count[i].threads > most)
            most = (int32_t)r->fit.count[i].threads;
    return most;
}

/* Growth waits for the nodes that are on their way, and for a rate to compare with. */
static bool ready_to_grow(struct core *c, struct job *job)
{
    struct record *r = job->record;
    bool waits = r->samples == 0 || on_trial(r);

    for (uint32_t i = 0; i < job->seat_count; i++)
        waits |= job->seats[i].role != KUBE_CHIEF && seat_stays(&job->seats[i]) &&
                 job->seats[i].reported != KUBE_NODE_IN;
    if (waits && c->now_ns - r->changed_ns < PATIENCE_NS) {
        core_wake(c, r->changed_ns + PATIENCE_NS);
        return false;
    }
    return true;
}

int32_t learn_step(struct core *c, struct job *job, int32_t want)
{
    struct record *r = job->record;
    int32_t have = job->have[KUBE_WORKER], least = job_task(job, KUBE_WORKER)->min, far;
    int64_t due;

    if (want <= have || have < least) {
        r->wished_ns = 0;
        return want <= have ? want : least;
    }
    if (!job->reports || job->silent || job->trouble_reason || c->others_wait)
        return have;
    if (r->wished_ns == 0)
        r->wished_ns = c->now_ns;
    due = r->wished_ns + c->settings->batch_ns;
    if (r->changed_ns && r->changed_ns + c->settings->settle_ns > due)
        due = r->changed_ns + c->settings->settle_ns;
    if (c->now_ns < due) {
        core_wake(c, due);
        return have;
    }
    if (job->etj->replicas)
        return want;
    if (!ready_to_grow(c, job))
        return have;
    far = 2 * have > known_size(r) ? 2 * have : known_size(r);
    return want < far ? want : far;
}

/* Sizes that were measured, in order; @ret has FIT_COUNTS entries. */
static uint32_t measured(const struct fit *fit, struct fit_count *ret)
{
    uint32_t n = 0;

    for (int i = 0; i < FIT_COUNTS; i++) {
        uint32_t at = n;

        if (fit->count[i].threads == 0 || fit->count[i].rate == 0)
            continue;
        for (; at > 0 && ret[at - 1].threads > fit->count[i].threads; at--)
            ret[at] = ret[at - 1];
        ret[at] = fit->count[i];
        n++;
    }
    return n;
}

/*
 * What was measured is taken as it is; between two such sizes a straight line, and beyond them the
 * model's shape: it has few terms, and would see a gain in workers that had none.
 */
void learn_curve(const struct job *job, uint32_t count, uint32_t *ret_table)
{
    struct fit_count at[FIT_COUNTS];
    uint32_t n = measured(&job->record->fit, at), last = 0;
    uint64_t one = n && at[0].threads == 1 ? at[0].rate : job->model.rate_one;
    uint64_t value = 1, model = 1; /* at @last */

    fit_table(&job->model, count, ret_table);
    for (uint32_t i = 0; i < n && at[i].threads <= count && one; i++) {
        uint32_t here = at[i].threads;
        uint64_t before = value;

        value = at[i].rate * 1000 / one;
        value = value < 1 ? 1 : value < SPEED_MAX ? value : SPEED_MAX;
        model = ret_table[here - 1];
        for (uint32_t k = last + 1; k < here; k++)
            ret_table[k - 1] =
                (uint32_t)(last ? (before * (here - k) + value * (k - last)) / (here - last)
                                : ret_table[k - 1] * value / model + 1);
        ret_table[here - 1] = (uint32_t)value;
        last = here;
    }
    for (uint32_t k = last + 1; k <= count && last; k++)
        ret_table[k - 1] = (uint32_t)(ret_table[k - 1] * value / model + 1);
}

int32_t learn_efficiency(struct core *c, const struct job *job)
{
    uint32_t size = job->record->size_worker, *table;

    if (!job->has_model || size == 0 || size > KUBE_TASKS_MAX)
        return -1;
    table = core_alloc(c, size, sizeof(*table));
    learn_curve(job, size, table);
    return (int32_t)(table[size - 1] / (10 * size));
}
