/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns which sizes of a training pay, from the rates that its chief reports at each size.
 *
 * A training starts and grows straight to the size that there is room for: free cores earn nothing,
 * and workers leave as quickly as they come. Such a growth is a trial, which the rate decides. If
 * no earlier rate exists, the split of a step into computing and communication decides; if that is
 * unclear, a trial with half of the workers. If the new workers bring less than half of what the
 * old ones do, the last of them may be useless. The training then returns to the size where the
 * curve would bend if all workers before brought their full share, and the loss shows whether they
 * were useful. If communication takes much of a step, servers are tried first. A size that did not
 * pay is a ceiling for a while, twice as long each time. A size that paid needs no second trial.
 */
#include "kube/grow/grow.h"

#include "base/minmax.h"

#include <string.h>

#define SAMPLE_NS       (2 * NS_PER_S)
#define PAUSE_MAX_NS    (15 * NS_PER_S) /* a longer pause makes samples no longer */
#define TRIAL_SAMPLES   2               /* decide a trial if they are clear */
#define TRIAL_ENOUGH    8               /* decide a trial in any case */
#define GOOD_PERMILLE   500 /* gain, as part of a worker's share, with which all workers stay */
#define NOISE_PERMILLE  30  /* assumed difference of rates, until some are measured */
#define MUCH_PERMILLE   300 /* a step's time in communication that calls for one more server */
#define LITTLE_PERMILLE 100 /* with which a server leaves, if workers have left, too */
#define SPEED_MAX       (1u << 24) /* thousandths of one worker's speed */

static bool is_tried(const struct trial *t)
{
    return t->state != TRIAL_RESTING;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* While a pod is resized, its status may show the old size: a new rate would count for that one. */
static bool is_being_resized(const struct job *job, const struct replica *replica)
{
    const struct kube_pod *pod = replica->pod;

    return pod &&
           ((pod->actual_mcpu && pod->actual_mcpu != pod->mcpu) || start_lasts(job, replica) ||
            (pod->start_mcpu && pod->actual_limit_mcpu > pod->limit_mcpu));
}

/* Whether all of its replicas are in the training at their size; counts them. */
static bool settled(const struct job *job, uint32_t *ret_worker, uint32_t *ret_ps)
{
    int64_t mcpu = 0, each = job_task(job, KUBE_WORKER)->mcpu;
    uint32_t ps = 0;

    for (uint32_t i = 0; i < job->replica_count; i++) {
        const struct replica *replica = &job->replicas[i];

        if (replica->role == KUBE_CHIEF)
            continue;
        if (replica->reported == KUBE_NODE_JOINING || replica->reported == KUBE_NODE_DRAINING ||
            is_being_resized(job, replica))
            return false;
        if (replica->reported != KUBE_NODE_IN)
            continue;
        if (replica->role == KUBE_PS)
            ps++;
        else
            mcpu += replica->pod && replica->pod->actual_mcpu ? replica->pod->actual_mcpu
                                                              : replica->mcpu;
    }
    *ret_ps = ps;
    *ret_worker = (uint32_t)((mcpu + each / 2) / each);
    return *ret_worker > 0;
}

static void begin_size(struct core *c, struct record *r, uint32_t worker, uint32_t ps)
{
    r->rates.size_worker = worker;
    r->rates.size_ps = ps;
    r->rates.samples = 0;
    r->rates.rate = 0;
    record_move(r, ON_NEW_SIZE, c->now_ns);
}

/*
 * Adds a sample to the mean of the last few. A size on trial enters the curve only when it is
 * judged: else one slow sample and a trial that ended early would tell the policy for long that
 * more workers are useless.
 */
static void add_sample(struct core *c, struct record *record, uint64_t rate)
{
    const struct trial *t = &record->trial[KUBE_WORKER];
    struct rates *r = &record->rates;
    uint64_t n = ++r->samples < 4 ? r->samples : 4, off;

    if (n > 1) {
        off = (rate > r->rate ? rate - r->rate : r->rate - rate) * 1000 / r->rate;
        if (r->noise_permille == 0)
            r->noise_permille = NOISE_PERMILLE;
        r->noise_permille = (uint32_t)((7 * r->noise_permille + (off < 1000 ? off : 1000)) / 8);
    }
    r->rate = n > 1 ? ((n - 1) * r->rate + rate) / n : rate;
    if (!is_tried(t) || t->rate == 0 || (int32_t)r->size_worker <= t->from)
        fit_add(&r->fit, (uint64_t)c->now_ns, r->size_worker, rate);
}

/* Ends a sample, and begins the next. One without a possible rate was none. */
static void end_sample(struct core *c, struct record *r, int64_t at_ns, uint64_t rate)
{
    bool counts = rate > 0 && rate <= FIT_RATE_MAX;

    if (counts && record_since(r, SAMPLE_OPEN))
        add_sample(c, r, rate);
    record_move(r, counts ? ON_END_SAMPLE : ON_BEGIN_SAMPLE, at_ns);
}

/* When the present sample began; 0: there is none. */
static int64_t sample_since(const struct record *r)
{
    int64_t first_ns = record_since(r, SAMPLE_FIRST);

    return first_ns ? first_ns : record_since(r, SAMPLE_OPEN);
}

static void note_move(struct rates *r, int64_t at_ns)
{
    if (r->moved_ns)
        r->pause_ns = larger(r->pause_ns, smaller(at_ns - r->moved_ns, PAUSE_MAX_NS));
    r->moved_ns = at_ns;
    r->moves++;
}

/*
 * Whether a sample of this length may end. A training that saves or validates now and then, or
 * waits for its data, works in bursts: a sample within one would tell the burst's rate. So where
 * moves come unevenly, a sample covers their pause twice.
 */
static bool is_long_enough(const struct rates *r, int64_t length_ns)
{
    return length_ns >= SAMPLE_NS &&
           (r->pause_ns * r->moves <= 2 * length_ns || length_ns >= 2 * r->pause_ns);
}

static void begin_examples(struct rates *r, uint64_t examples)
{
    r->begin_examples = examples;
    r->pause_ns = r->pause_ns * 3 / 4; /* the next sample finds it anew */
    r->moves = 0;
}

/* A sample begins and ends when the count of examples moves, so that it covers whole steps. */
static void sample(struct core *c, struct record *record, const struct kube_report *report)
{
    const struct kube_progress *p = &report->progress;
    struct rates *r = &record->rates;
    bool moved = p->examples != r->last_examples;
    int64_t since_ns = sample_since(record), at_ns = report->at_ns;

    r->last_examples = p->examples;
    if (moved)
        note_move(r, at_ns);
    if (since_ns && (p->examples < r->begin_examples || at_ns <= since_ns)) {
        record_move(record, ON_VOID_SAMPLE, at_ns);
        since_ns = 0;
    }
    if (p->examples == 0 && p->examples_per_s > 0) {
        if (since_ns == 0)
            record_move(record, ON_BEGIN_SAMPLE, at_ns);
        else if (at_ns - since_ns >= SAMPLE_NS)
            end_sample(c, record, at_ns,
                       p->examples_per_s < 1e9 ? (uint64_t)(p->examples_per_s * 1000) : 0);
    } else if (moved && since_ns == 0) {
        record_move(record, ON_BEGIN_SAMPLE, at_ns);
        begin_examples(r, p->examples);
    } else if (moved && is_long_enough(r, at_ns - since_ns)) {
        double s = (double)(at_ns - since_ns) / NS_PER_S;
        double rate = (double)(p->examples - r->begin_examples) * 1000 / s;

        end_sample(c, record, at_ns, rate < 1e12 ? (uint64_t)rate : 0);
        begin_examples(r, p->examples);
    }
}

/* ---- useful sizes ---------------------------------------------------------------------------- */

/* How many micro-batches of a step the busiest of so many workers has. */
static int32_t rounds(const struct job *job, int32_t workers)
{
    return (job->etj->slots + workers - 1) / workers;
}

/*
 * A synchronous step ends with its last micro-batch: with 8 micro-batches, seven workers need two
 * rounds, just as four do.
 */
int32_t learn_useful(const struct job *job, int32_t workers)
{
    if (job->etj->mode != KUBE_SYNC || workers < 1)
        return workers;
    return rounds(job, rounds(job, workers));
}

int32_t learn_next_useful(const struct job *job, int32_t workers)
{
    int32_t most = workers < 1 ? 1 : rounds(job, workers);

    if (job->etj->mode != KUBE_SYNC)
        return workers + 1;
    return workers < 1 ? 1 : most > 1 ? rounds(job, most - 1) : INT32_MAX;
}

/* ---- trials ---------------------------------------------------------------------------------- */

void learn_hold(struct core *c, struct job *job, enum kube_role role, int32_t ceiling)
{
    trial_move(&job->record->trial[role], TRIAL_CAPPED,
               &(struct trial_news){.to = ceiling, .now_ns = c->now_ns});
}

/* Forgets the findings about more than @size workers: they do not hold any more. */
static void try_again(struct record *r, int32_t size)
{
    trial_move(&r->trial[KUBE_WORKER], TRIAL_CEILING_OVER, NULL);
    for (int i = 0; i < FIT_COUNTS; i++)
        if ((int32_t)r->rates.fit.count[i].threads > size)
            r->rates.fit.count[i] = (struct fit_count){0};
}

/* The gain of each added worker in thousandths of an old one's share; of a server, of the rate. */
static int64_t gain_of(enum kube_role role, uint64_t before, uint64_t after, int32_t from,
                       int32_t to)
{
    int64_t more = ((int64_t)after - (int64_t)before) * 1000 / (int64_t)before;

    return (role == KUBE_PS ? more : more * from) / (to - from);
}

/*
 * Forgets old rates of larger sizes. Workers that grow in place have no ceiling that ends, so a
 * rate of more cores counts only as long as a ceiling would last: else one that was low for another
 * reason would keep the workers small for ever.
 */
static void forget_larger(struct core *c, struct record *r)
{
    for (int i = 0; i < FIT_COUNTS; i++) {
        struct fit_count *known = &r->rates.fit.count[i];

        if (known->threads <= r->rates.size_worker)
            continue;
        if (c->now_ns - (int64_t)known->last_ns >= CEILING_NS)
            *known = (struct fit_count){0};
        else
            core_wake(c, (int64_t)known->last_ns + CEILING_NS);
    }
}

enum verdict {
    TOO_LITTLE,
    SOME,
    GOOD,
    UNCLEAR /* yet */
};

/*
 * Judges the change from one size to another. Rates are noisy: while their usual difference could
 * change the verdict, it stays UNCLEAR, and more samples are awaited.
 */
static enum verdict weigh(const struct rates *r, enum kube_role role, const uint64_t rate[2],
                          int32_t from, int32_t to, const int32_t least[2])
{
    uint32_t n = r->samples < TRIAL_ENOUGH ? r->samples : TRIAL_ENOUGH;
    uint64_t margin = (uint64_t)r->noise_permille * (TRIAL_ENOUGH + 6 - n) / 6;
    uint64_t after[3];
    enum verdict of[3];

    margin = margin < 900 ? margin : 900;
    after[0] = rate[1];
    after[1] = rate[1] * (1000 - margin) / 1000;
    after[2] = rate[1] * (1000 + margin) / 1000;
    for (int i = 0; i < 3; i++) {
        int64_t gain = gain_of(role, rate[0], after[i], from, to);

        of[i] = gain < least[0] ? TOO_LITTLE : gain < least[1] ? SOME : GOOD;
    }
    return of[1] == of[2] || r->samples >= TRIAL_ENOUGH ? of[0] : UNCLEAR;
}

/* Whether all replicas that stay are in the training, or have had long enough to join. */
static bool complete(struct core *c, const struct job *job)
{
    int64_t changed_ns = job->record->growth.changed_ns;

    for (uint32_t i = 0; i < job->replica_count; i++) {
        const struct replica *replica = &job->replicas[i];

        if (replica->role == KUBE_CHIEF || !replica_stays(replica) ||
            replica->reported == KUBE_NODE_IN || c->now_ns - changed_ns >= PATIENCE_NS)
            continue;
        return false;
    }
    return true;
}

/* Whether the size on trial is measured; gives up a trial that lasts too long without samples. */
static bool is_measured(struct core *c, struct job *job, struct trial *t, int32_t size)
{
    const struct record *r = job->record;

    bool sampled = size > t->from && r->rates.samples >= TRIAL_SAMPLES;

    if (is_tried(t) && c->now_ns - r->growth.changed_ns >= 2 * PATIENCE_NS && !sampled)
        trial_move(t, TRIAL_BROKEN, NULL);
    return is_tried(t) && sampled && complete(c, job);
}

static void judge_servers(struct core *c, struct job *job)
{
    struct record *r = job->record;
    struct trial *t = &r->trial[KUBE_PS];
    int32_t size = (int32_t)r->rates.size_ps, gain = c->settings->ps_gain_permille;
    enum verdict verdict;

    if (!is_measured(c, job, t, size))
        return;
    verdict = weigh(&r->rates, KUBE_PS, (uint64_t[]){t->rate, r->rates.rate}, t->from, size,
                    (int32_t[]){gain, gain});
    if (verdict == UNCLEAR)
        return;
    if (verdict == TOO_LITTLE) {
        trial_move(t, TRIAL_WORSE,
                   &(struct trial_news){.from = size, .to = t->from, .now_ns = c->now_ns});
        job->rolled_back[KUBE_PS] = true;
        return;
    }
    trial_move(t, TRIAL_PAID, NULL);
    /* workers may have waited for the servers, so larger numbers of them may pay now */
    try_again(r, (int32_t)r->rates.size_worker);
}

/* The part of a step that is communication, in thousandths; 0: not known. */
static uint32_t communication(const struct job *job)
{
    uint32_t permille = job->report ? job->report->progress.communication_permille : 0;

    return permille < 1000 ? permille : 0; /* a step without computing is no real measurement */
}

/*
 * The number of servers with which communication, divided among them, is no longer much. At most
 * twice the present number, since something else may take the time.
 */
static int32_t servers_for(const struct job *job, int32_t most)
{
    int64_t have = job->have[KUBE_PS], part = communication(job);
    int64_t to = have * part * (1000 - MUCH_PERMILLE) / (MUCH_PERMILLE * (1000 - part));

    to = to < 2 * have ? to : 2 * have;
    to = to > have ? to : have + 1;
    to = to < job->have[KUBE_WORKER] ? to : job->have[KUBE_WORKER];
    return (int32_t)(to < most ? to : most);
}

/* Whether, by the split of a step, so many servers gain more than one worker less costs. */
static bool worth_a_worker(const struct job *job, int32_t servers)
{
    int64_t part = communication(job), have = job->have[KUBE_WORKER], longer;

    if (have < 2 || servers < 1)
        return false;
    longer = job->etj->mode == KUBE_SYNC
                 ? rounds(job, (int32_t)have - 1) * INT64_C(1000) / rounds(job, (int32_t)have)
                 : have * 1000 / (have - 1);
    return (1000 - part) * longer / 1000 + part * job->have[KUBE_PS] / servers < 1000;
}

static bool servers_may_help(struct core *c, struct job *job)
{
    int32_t have = job->have[KUBE_PS], most = learn_most(c, job, KUBE_PS);
    uint32_t node;

    if (communication(job) < MUCH_PERMILLE || have >= job->have[KUBE_WORKER] || have >= most ||
        job->trouble_reason || c->others_wait)
        return false;
    if (room_take(c, job, KUBE_PS, &node)) {
        room_give_back(c, job, KUBE_PS, node);
        return true;
    }
    return room_count(c, job, KUBE_PS, 1) > 0 && worth_a_worker(job, servers_for(job, most));
}

/* The size to which a training returns from @size. */
static int32_t retreat(const struct job *job, const struct trial *t, enum verdict verdict,
                       uint64_t rate, int32_t size)
{
    int32_t more = size - t->from, to;
    int64_t gain;

    /* the speed may peak in between; only in this case may the rate before be unknown */
    if (verdict == TOO_LITTLE)
        return learn_useful(job, t->from + more / 2);
    gain = gain_of(KUBE_WORKER, t->rate, rate, t->from, size);
    to = t->from + (int32_t)((gain * more + 999) / 1000);
    return learn_useful(job, to) == to ? to : learn_next_useful(job, to);
}

/* Compares with the largest smaller size measured since, as there was no rate before the trial. */
static void find_rate(const struct record *r, struct trial *t, int32_t size)
{
    const struct fit_count *best = NULL;

    for (int i = 0; i < FIT_COUNTS; i++) {
        const struct fit_count *known = &r->rates.fit.count[i];

        if (known->rate && (int32_t)known->threads < size &&
            (!best || known->threads > best->threads))
            best = known;
    }
    if (best) {
        t->rate = best->rate;
        t->from = (int32_t)best->threads;
    }
}

/*
 * Judges workers that came before anything was measured, by the part of a step that is computing.
 * If that is less than half or unknown, half of them may be as good. The verdict waits a while:
 * workers that had to return would cost a short training more than it could gain.
 */
static enum verdict weigh_split(struct core *c, const struct job *job, int32_t from, int32_t size)
{
    const struct kube_progress *p = &job->report->progress;
    bool computes = p->compute_permille > 0 || communication(job) > 0;
    int64_t until = job->record->growth.changed_ns + PATIENCE_NS;

    if (size == from + 1 || (computes && communication(job) <= 1000 - GOOD_PERMILLE))
        return GOOD;
    if (c->now_ns >= until)
        return TOO_LITTLE;
    core_wake(c, until);
    return UNCLEAR;
}

static void judge_workers(struct core *c, struct job *job)
{
    struct record *r = job->record;
    struct trial *t = &r->trial[KUBE_WORKER];
    struct rates *rates = &r->rates;
    int32_t size = (int32_t)r->rates.size_worker, least = c->settings->worker_gain_permille, back;
    enum verdict verdict;
    bool between;

    if (!is_measured(c, job, t, size) || is_tried(&r->trial[KUBE_PS]) ||
        record_since(r, SERVERS_ORDERED))
        return;
    if (t->state == TRIAL_RETURNED && t->top > size) {
        verdict = weigh(rates, KUBE_WORKER, (uint64_t[]){rates->rate, t->top_rate}, size, t->top,
                        (int32_t[]){least, least});
        if (verdict == GOOD) {
            r->growth.proven = t->top;
            trial_move(t, TRIAL_TOP_PAID, NULL);
        }
        if (verdict == GOOD || verdict == UNCLEAR)
            return;
    }
    if (t->rate == 0)
        find_rate(r, t, size);
    between = learn_next_useful(job, t->from) < size;
    verdict = t->rate == 0 ? weigh_split(c, job, t->from, size)
                           : weigh(rates, KUBE_WORKER, (uint64_t[]){t->rate, rates->rate}, t->from,
                                   size, (int32_t[]){least, between ? GOOD_PERMILLE : least});
    job->wants_servers =
        verdict != GOOD && (verdict != UNCLEAR || t->rate == 0) && servers_may_help(c, job);
    if (verdict == UNCLEAR || job->wants_servers)
        return;
    fit_add(&rates->fit, (uint64_t)c->now_ns, rates->size_worker, rates->rate);
    back = verdict == GOOD ? size : retreat(job, t, verdict, rates->rate, size);
    if (back >= size) {
        r->growth.proven = size > r->growth.proven ? size : r->growth.proven;
        trial_move(t, TRIAL_PAID, NULL);
        return;
    }
    trial_move(t, TRIAL_WORSE,
               &(struct trial_news){.from = size,
                                    .to = back > t->from ? back : t->from,
                                    .rate = rates->rate,
                                    .now_ns = c->now_ns});
    job->rolled_back[KUBE_WORKER] = true;
}

void learn_judge(struct core *c, struct job *job)
{
    if (!job->reports)
        return;
    judge_servers(c, job);
    judge_workers(c, job);
}

void learn(struct core *c, struct job *job)
{
    struct record *r = job->record;
    const struct trial *t = &r->trial[KUBE_WORKER];
    uint32_t worker, ps;

    if (t->ceiling && c->now_ns >= t->until_ns)
        try_again(r, t->ceiling);
    if (job->report && job->report->at_ns > r->rates.report_ns && job->aim == AIM_RUN) {
        r->rates.report_ns = job->report->at_ns;
        if (!settled(job, &worker, &ps)) {
            record_move(r, ON_VOID_SAMPLE, c->now_ns);
            r->rates.moved_ns = 0;
        } else if (worker != r->rates.size_worker || ps != r->rates.size_ps) {
            begin_size(c, r, worker, ps);
            r->rates.moved_ns = 0;
        } else {
            sample(c, r, job->report);
        }
    }
    if (job_is_resized(job) && r->rates.size_worker)
        forget_larger(c, r);
    job->has_model = fit_solve(&r->rates.fit, (uint64_t)c->now_ns, &job->model);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* The training's rate with so many workers; 0: not known. */
static uint64_t rate_of(const struct job *job, int32_t workers)
{
    const struct rates *r = &job->record->rates;

    if (r->rate && ((int32_t)r->size_worker == workers || job_is_resized(job)))
        return r->rate;
    for (int i = 0; i < FIT_COUNTS; i++)
        if ((int32_t)r->fit.count[i].threads == workers)
            return r->fit.count[i].rate;
    return 0;
}

static void servers_changed(struct core *c, struct job *job, int32_t from, int32_t to)
{
    struct record *r = job->record;
    struct trial *t = &r->trial[KUBE_PS];
    struct growth *growth = &r->growth;
    uint64_t rate;

    trial_move(t, TRIAL_BROKEN, NULL);
    if (to <= from)
        return;
    trial_move(&r->trial[KUBE_WORKER], TRIAL_TOP_STALE, NULL); /* measured with fewer servers */
    growth->basis = job->have[KUBE_WORKER];
    /* a worker may have left for the server: the rate before that counts its loss, too */
    rate = growth->rate ? growth->rate : r->rates.rate;
    if (rate && from)
        trial_move(t, TRIAL_BEGUN, &(struct trial_news){.from = from, .to = to, .rate = rate});
    record_move(r, ON_HAVE_SERVERS, c->now_ns);
    growth->rate = 0;
}

static void workers_changed(struct job *job, int32_t from, int32_t to)
{
    struct record *r = job->record;
    struct trial *t = &r->trial[KUBE_WORKER];
    struct trial_news news = {.from = from, .to = to};

    if (to > from) /* the rate no longer judges the servers */
        trial_move(&r->trial[KUBE_PS], TRIAL_BROKEN, NULL);
    if (is_tried(t)) { /* the trial goes on with the present size */
        bool over = to < from && job_is_resized(job);

        trial_move(t, over ? TRIAL_BROKEN : TRIAL_RESIZED, &(struct trial_news){.to = to});
    } else if (to > from && to > r->growth.proven) {
        news.rate = rate_of(job, from);
        if (job_is_resized(job) && news.rate)
            news.from = (int32_t)r->rates.size_worker;
        news.from -= news.rate == 0; /* the last old worker is on trial, too */
        trial_move(t, TRIAL_BEGUN, &news);
    }
}

void learn_changed(struct core *c, struct job *job, enum kube_role role, int32_t from, int32_t to)
{
    struct record *r = job->record;

    r->growth.changed_ns = c->now_ns;
    if (to < from)
        r->growth.calm_ns = c->now_ns + c->settings->settle_ns;
    if (role == KUBE_PS)
        servers_changed(c, job, from, to);
    else
        workers_changed(job, from, to);
    r->rates.samples = 0;
    record_move(r, ON_CHANGE, c->now_ns);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

int32_t learn_most(struct core *c, const struct job *job, enum kube_role role)
{
    const struct trial *t = &job->record->trial[role];
    const struct kube_task *task = job_task(job, role);

    if (t->ceiling == 0 || c->now_ns >= t->until_ns)
        return task->max;
    core_wake(c, t->until_ns);
    return t->ceiling > task->min ? t->ceiling : task->min;
}

/* Whether to add servers now. The split must be of the present size; due workers come first. */
static bool servers_are_due(struct core *c, struct job *job)
{
    struct record *r = job->record;
    int64_t workers_ns = record_since(r, WORKERS_DUE), until;
    bool waits = workers_ns && c->now_ns - workers_ns < PATIENCE_NS;

    if (!job->reports || job->silent || waits || is_tried(&r->trial[KUBE_PS]) ||
        (is_tried(&r->trial[KUBE_WORKER]) && !job->wants_servers) ||
        r->rates.samples < TRIAL_SAMPLES || c->now_ns < r->growth.calm_ns ||
        !servers_may_help(c, job)) {
        record_move(r, ON_DROP_SERVERS, c->now_ns);
        return false;
    }
    record_move(r, ON_LACK_SERVERS, c->now_ns);
    until = record_since(r, SERVERS_DUE) + c->settings->batch_ns;
    if (c->now_ns >= until)
        return true;
    core_wake(c, until);
    return false;
}

/* Whether one server can leave: communication takes little, and half of the workers have left. */
static bool server_is_useless(const struct job *job)
{
    const struct record *r = job->record;

    return job->reports && !job->silent && !is_tried(&r->trial[KUBE_PS]) &&
           !is_tried(&r->trial[KUBE_WORKER]) && r->rates.samples >= TRIAL_SAMPLES &&
           job->have[KUBE_PS] > job_task(job, KUBE_PS)->min && communication(job) &&
           communication(job) <= LITTLE_PERMILLE && 2 * job->have[KUBE_WORKER] <= r->growth.basis;
}

int32_t learn_ps(struct core *c, struct job *job)
{
    const struct kube_task *task = job_task(job, KUBE_PS);
    struct record *r = job->record;
    int32_t have = job->have[KUBE_PS], most = learn_most(c, job, KUBE_PS);
    int64_t ordered_ns;

    if (have < task->min)
        return task->min;
    if (have > most || have >= r->growth.servers)
        record_move(r, ON_HAVE_SERVERS, c->now_ns);
    if (have > most)
        return most;
    ordered_ns = record_since(r, SERVERS_ORDERED);
    if (ordered_ns && c->now_ns - ordered_ns < PATIENCE_NS) {
        core_wake(c, ordered_ns + PATIENCE_NS);
        return r->growth.servers;
    }
    if (ordered_ns) {
        record_move(r, ON_HAVE_SERVERS, c->now_ns);
        learn_hold(c, job, KUBE_PS, have);
        return have;
    }
    if (servers_are_due(c, job)) {
        r->growth.servers = servers_for(job, most);
        r->growth.rate = r->rates.rate;
        record_move(r, ON_ORDER_SERVERS, c->now_ns);
        return r->growth.servers;
    }
    return server_is_useless(job) ? have - 1 : have;
}

/* Whether the scheduler has placed all of its pods, so that the room left is known. */
static bool placed(const struct job *job)
{
    for (uint32_t i = 0; i < job->replica_count; i++)
        if (job->replicas[i].state <= POD_WAITING)
            return false;
    return true;
}

int32_t learn_step(struct core *c, struct job *job, int32_t want)
{
    struct record *r = job->record;
    int32_t have = job->have[KUBE_WORKER], least = job_task(job, KUBE_WORKER)->min;
    int64_t due;

    if (want <= have || have < least) {
        record_move(r, ON_HAVE_WORKERS, c->now_ns);
        return want <= have ? want : least;
    }
    if ((!job->reports && !job->begins) || job->silent || job->trouble_reason || c->others_wait)
        return have;
    record_move(r, ON_LACK_WORKERS, c->now_ns);
    due = record_since(r, WORKERS_DUE) + c->settings->batch_ns;
    if (r->growth.calm_ns > due)
        due = r->growth.calm_ns;
    if (c->now_ns >= due && (!job->begins || placed(job)))
        return want;
    if (c->now_ns < due)
        core_wake(c, due);
    return have;
}

/* The measured sizes in ascending order; @ret has FIT_COUNTS entries. */
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
 * Measured sizes keep their speed, a straight line joins two of them, and beyond them the model
 * gives the shape. The model alone has few terms: it would see a gain in workers that had none.
 */
void learn_curve(const struct job *job, uint32_t count, uint32_t *ret_table)
{
    struct fit_count at[FIT_COUNTS];
    uint32_t n = measured(&job->record->rates.fit, at), last = 0;
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
    uint32_t size = job->record->rates.size_worker, *table;

    if (!job->has_model || size == 0 || size > KUBE_TASKS_MAX)
        return -1;
    table = core_alloc(c, size, sizeof(*table));
    if (!table)
        return -1;
    learn_curve(job, size, table);
    return (int32_t)(table[size - 1] / (10 * size));
}
