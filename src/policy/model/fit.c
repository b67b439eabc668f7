/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/model/fit.h"

#include <string.h>

#define SAMPLE       FIT_SAMPLE
#define EVIDENCE_MAX (16 * SAMPLE) /* further samples of one count add nothing */
#define NOISE_FIRST  30            /* permille, assumed at first */
#define FEW          3             /* samples whose median stands for a count without history */
#define SETTLED      8             /* samples of a visit: later differences are drift */
#define FAR_PERMILLE FIT_FAR_PERMILLE
#define MANY         4  /* this many far samples in a row are no outliers */
#define Q            20 /* bits behind the binary point in the least squares */
#define Q_ONE        (INT64_C(1) << Q)
#define Q_LIMIT      (INT64_C(1) << 31) /* of a coefficient: products of two fit in 63 bits */
#define SLOWEST      (Q_ONE >> 10)      /* relative to the fastest count */
#define MISS_PPM     20000              /* a larger error of Amdahl's law alone means contention */

/* ---- samples --------------------------------------------------------------------------------- */

uint32_t fit_evidence(const struct fit_count *count, uint64_t now_ns)
{
    uint64_t halvings = now_ns > count->last_ns ? (now_ns - count->last_ns) / FIT_HALF_LIFE_NS : 0;

    return count->threads && halvings < 32 ? count->evidence >> halvings : 0;
}

static struct fit_count *find_count(struct fit *fit, uint32_t threads)
{
    for (unsigned i = 0; i < FIT_COUNTS; i++)
        if (fit->count[i].threads == threads)
            return &fit->count[i];
    return NULL;
}

static struct fit_count *least_known(struct fit *fit, uint64_t now_ns)
{
    struct fit_count *least = &fit->count[0];

    for (unsigned i = 1; i < FIT_COUNTS; i++)
        if (fit_evidence(&fit->count[i], now_ns) < fit_evidence(least, now_ns))
            least = &fit->count[i];
    return least;
}

static uint64_t median_of_recent(const struct fit *fit)
{
    uint64_t sorted[FIT_RECENT];
    uint32_t n = fit->visit < FIT_RECENT ? fit->visit : FIT_RECENT;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;

        for (; at > 0 && sorted[at - 1] > fit->recent[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = fit->recent[i];
    }
    return sorted[(n - 1) / 2];
}

static uint64_t deviation_permille(uint64_t a, uint64_t b)
{
    return (a > b ? a - b : b - a) * 1000 / b;
}

/* True if the rate lies so far from the count's known rate that noise does not explain it. */
static bool is_far(const struct fit *fit, uint64_t rate, uint64_t known)
{
    uint64_t noise = 4 * (uint64_t)fit->noise_permille;

    return deviation_permille(rate, known) > (noise > FAR_PERMILLE ? noise : FAR_PERMILLE);
}

/* The program got faster or slower by @after / @before, and all of its counts with it. */
static void scale_others(struct fit *fit, const struct fit_count *here, uint64_t before,
                         uint64_t after)
{
    uint64_t ratio = (after << Q) / before;

    for (unsigned i = 0; i < FIT_COUNTS; i++) {
        struct fit_count *other = &fit->count[i];

        if (other == here || other->threads == 0)
            continue;
        /* True if two counts are so far apart that neither tells anything about the other. */
        if (ratio < Q_ONE >> 5 || ratio > Q_ONE << 5)
            other->rate = 0;
        else
            other->rate = (other->rate * ratio + Q_ONE / 2) >> Q;
        if (other->rate == 0 || other->rate > FIT_RATE_MAX)
            *other = (struct fit_count){0};
    }
}

static void doubt_others(struct fit *fit, const struct fit_count *here)
{
    for (unsigned i = 0; i < FIT_COUNTS; i++)
        if (&fit->count[i] != here)
            fit->count[i].evidence /= 4;
}

/* The count's rate has changed, and the sample is no outlier. */
static void jump(struct fit *fit, struct fit_count *here)
{
    here->rate = median_of_recent(fit);
    here->evidence = FEW * SAMPLE;
    fit->far = 0;
    doubt_others(fit, here);
}

static void refine(struct fit *fit, struct fit_count *here, uint64_t rate)
{
    uint64_t off = deviation_permille(rate, here->rate);
    /* A late sample of a visit shows drift, which is followed sooner than noise is averaged. */
    uint64_t keep = fit->visit > SETTLED ? 3 : here->evidence / SAMPLE;

    keep = keep < 7 ? keep : 7;
    here->rate = (keep * here->rate + rate + keep / 2) / (keep + 1);
    here->evidence += SAMPLE;
    if (here->evidence > EVIDENCE_MAX)
        here->evidence = EVIDENCE_MAX;
    fit->far = 0;
    fit->noise_permille = (uint32_t)((15 * fit->noise_permille + off + 8) / 16);
}

/* A difference soon after arrival concerns this count; a later one, the program. */
static void update(struct fit *fit, struct fit_count *here, uint64_t rate)
{
    uint64_t before = here->rate;

    if (here->evidence < FEW * SAMPLE) {
        here->rate = median_of_recent(fit);
        here->evidence += SAMPLE;
        return;
    }
    if (!is_far(fit, rate, here->rate))
        refine(fit, here, rate);
    else if (++fit->far >= MANY)
        jump(fit, here);
    if (fit->visit > SETTLED && here->rate != before)
        scale_others(fit, here, before, here->rate);
}

void fit_add(struct fit *fit, uint64_t now_ns, uint32_t threads, uint64_t rate)
{
    struct fit_count *here;
    uint32_t evidence;

    if (threads == 0 || threads > FIT_THREADS_MAX || rate == 0 || rate > FIT_RATE_MAX)
        return;
    if (fit->first_ns == 0) {
        fit->first_ns = now_ns;
        fit->noise_permille = fit->noise_permille ? fit->noise_permille : NOISE_FIRST;
    }
    if (threads != fit->threads) {
        fit->threads = threads;
        fit->visit = fit->far = 0;
    }
    fit->recent[fit->visit % FIT_RECENT] = rate;
    if (++fit->visit == UINT32_MAX)
        fit->visit = 2 * FIT_RECENT; /* well into the visit; only that matters */
    here = find_count(fit, threads);
    evidence = here ? fit_evidence(here, now_ns) : 0;
    if (evidence) {
        here->evidence = evidence;
        update(fit, here, rate);
    } else {
        here = here ? here : least_known(fit, now_ns);
        *here = (struct fit_count){.rate = rate, .threads = threads, .evidence = SAMPLE};
    }
    here->last_ns = now_ns;
}

void fit_forget(struct fit *fit)
{
    *fit = (struct fit){.noise_permille = fit->noise_permille};
}

/* ---- least squares ----------------------------------------------------------------------------
 */

enum term { SERIAL, PARALLEL, CONTENTION, TERMS };

/*
 * One equation per count: rate (serial + parallel / k + contention (k − 1)) = 1, with rates
 * relative to the fastest. Its error is relative, too. The terms are scaled to at most 1: parallel
 * is the time at the smallest count, contention that at the largest.
 */
struct system {
    unsigned n;
    uint32_t threads[FIT_COUNTS];
    int64_t weight[FIT_COUNTS]; /* of evidence, at most EVIDENCE_MAX */
    int64_t pull[FIT_COUNTS];   /* weight in force: less for what lies far off */
    int64_t term[TERMS][FIT_COUNTS];
    uint32_t least, most; /* threads */
    uint64_t fastest;     /* rate */
};

struct solution {
    int64_t time[TERMS];
    int64_t error_ppm; /* mean, relative */
};

/* Divides a / b as a coefficient; |a| < 2^62. A result at the limit is invalid. */
static int64_t quotient(int64_t a, int64_t b)
{
    int64_t size = a < 0 ? -a : a, result;

    while (size >= INT64_C(1) << 42) {
        size >>= 1;
        b >>= 1;
    }
    if (b <= 0)
        return a ? Q_LIMIT : 0;
    result = (size << Q) / b;
    if (result > Q_LIMIT)
        result = Q_LIMIT;
    return a < 0 ? -result : result;
}

static int64_t dot(const struct system *s, const int64_t *a, const int64_t *b)
{
    int64_t sum = 0;

    for (unsigned i = 0; i < s->n; i++)
        sum += s->pull[i] * a[i] * b[i];
    return sum;
}

/* Keeps every entry small enough for dot(); larger ones come from counts that tell nothing. */
static bool take_off(const struct system *s, int64_t *vector, int64_t factor, const int64_t *other)
{
    if (factor >= Q_LIMIT || factor <= -Q_LIMIT)
        return false;
    for (unsigned i = 0; i < s->n; i++) {
        vector[i] -= factor * other[i] / Q_ONE;
        if (vector[i] >= 16 * Q_ONE || vector[i] <= -16 * Q_ONE)
            return false;
    }
    return true;
}

/*
 * Solves for the terms in @mask by Gram and Schmidt (modified, without square roots). Unlike normal
 * equations, this does not square the condition number. False where the counts cannot tell the
 * terms apart, or a time would be negative.
 */
static bool solve_for(const struct system *s, unsigned mask, struct solution *ret)
{
    int64_t own[TERMS][FIT_COUNTS], shared[TERMS][TERMS] = {{0}}, rest[FIT_COUNTS];
    int64_t along[TERMS] = {0};
    struct solution solution = {{0}, 0};

    for (unsigned i = 0; i < s->n; i++)
        rest[i] = Q_ONE;
    for (unsigned t = 0; t < TERMS; t++) {
        if (!(mask & 1u << t))
            continue;
        memcpy(own[t], s->term[t], sizeof(own[t]));
        for (unsigned e = 0; e < t; e++) {
            if (!(mask & 1u << e))
                continue;
            shared[e][t] = quotient(dot(s, own[e], own[t]), dot(s, own[e], own[e]));
            if (!take_off(s, own[t], shared[e][t], own[e]))
                return false;
        }
        if (dot(s, own[t], own[t]) <= dot(s, s->term[t], s->term[t]) >> 12)
            return false;
        along[t] = quotient(dot(s, own[t], rest), dot(s, own[t], own[t]));
        if (!take_off(s, rest, along[t], own[t]))
            return false;
    }
    for (unsigned t = TERMS; t-- > 0;) {
        if (!(mask & 1u << t))
            continue;
        solution.time[t] = along[t];
        for (unsigned later = t + 1; later < TERMS; later++)
            solution.time[t] -= shared[t][later] * solution.time[later] / Q_ONE;
        if (solution.time[t] < 0 || solution.time[t] >= Q_LIMIT)
            return false;
    }
    *ret = solution;
    return true;
}

/* Returns the relative error of one count, in Q. */
static int64_t error_at(const struct system *s, const struct solution *solution, unsigned i)
{
    int64_t sum = -Q_ONE;

    for (unsigned t = 0; t < TERMS; t++)
        sum += solution->time[t] * s->term[t][i] / Q_ONE;
    return sum < 0 ? -sum : sum;
}

static void judge(const struct system *s, struct solution *solution)
{
    int64_t errors = 0, weights = 0;

    for (unsigned i = 0; i < s->n; i++) {
        int64_t error = error_at(s, solution, i);

        errors += s->weight[i] * (error < 16 * Q_ONE ? error : 16 * Q_ONE);
        weights += s->weight[i];
    }
    solution->error_ppm = weights ? errors / weights * 1000000 / Q_ONE : 0;
}

/* Chooses the best of the masks (0 ends them) whose times are all possible. */
static bool best_of(const struct system *s, const unsigned *masks, struct solution *best)
{
    bool found = false;

    for (; *masks; masks++) {
        struct solution solution;

        if (!solve_for(s, *masks, &solution))
            continue;
        judge(s, &solution);
        if (!found || solution.error_ppm < best->error_ppm)
            *best = solution;
        found = true;
    }
    return found;
}

#define BIT(term) (1u << (term))

/* Contention only where Amdahl's law alone misses by more than noise explains. */
static bool solve_once(const struct system *s, int64_t noise_ppm, struct solution *ret)
{
    static const unsigned plain[] = {BIT(SERIAL) | BIT(PARALLEL), BIT(SERIAL), BIT(PARALLEL), 0};
    static const unsigned with_contention[] = {BIT(SERIAL) | BIT(PARALLEL) | BIT(CONTENTION),
                                               BIT(PARALLEL) | BIT(CONTENTION),
                                               BIT(SERIAL) | BIT(CONTENTION), 0};
    struct solution contended;

    if (!best_of(s, plain, ret))
        return false;
    if (s->n > 2 && ret->error_ppm > (noise_ppm > MISS_PPM ? noise_ppm : MISS_PPM) &&
        best_of(s, with_contention, &contended) && contended.error_ppm < ret->error_ppm / 2)
        *ret = contended;
    return true;
}

/*
 * Least squares would follow a count that was measured in a bad moment. With weights divided by the
 * error they approach least absolute errors, which as a median lets the majority win.
 */
static bool solve_robustly(struct system *s, int64_t noise_ppm, struct solution *ret)
{
    const int64_t floor = Q_ONE / 100;

    for (unsigned round = 0; round < 4; round++) {
        if (!solve_once(s, noise_ppm, ret))
            return false;
        if (s->n < 4)
            break;
        for (unsigned i = 0; i < s->n; i++) {
            int64_t error = error_at(s, ret, i);

            s->pull[i] = s->weight[i] * floor / (error > floor ? error : floor);
            s->pull[i] += s->pull[i] == 0;
        }
    }
    return true;
}

static void set_up(const struct fit *fit, uint64_t now_ns, struct system *ret)
{
    struct system s = {.least = FIT_THREADS_MAX};

    for (unsigned i = 0; i < FIT_COUNTS; i++) {
        const struct fit_count *count = &fit->count[i];
        uint32_t evidence = fit_evidence(count, now_ns);

        if (evidence == 0)
            continue;
        s.fastest = count->rate > s.fastest ? count->rate : s.fastest;
        s.least = count->threads < s.least ? count->threads : s.least;
        s.most = count->threads > s.most ? count->threads : s.most;
        s.threads[s.n] = count->threads;
        s.weight[s.n] = s.pull[s.n] = evidence;
        s.term[SERIAL][s.n++] = (int64_t)count->rate;
    }
    for (unsigned i = 0; i < s.n; i++) {
        int64_t rate = (int64_t)(((uint64_t)s.term[SERIAL][i] << Q) / s.fastest);

        rate = rate > SLOWEST ? rate : SLOWEST;
        s.term[SERIAL][i] = rate;
        s.term[PARALLEL][i] = rate * s.least / s.threads[i];
        s.term[CONTENTION][i] = rate * (s.threads[i] - 1) / (s.most > 1 ? s.most - 1 : 1);
    }
    *ret = s;
}

/* ---- the model ------------------------------------------------------------------------------- */

/*
 * Two counts define a curve, but only a third can contradict it; counts that lie close together say
 * little about the others; few samples and large errors speak for themselves.
 */
static uint32_t confidence_of(const struct system *s, int64_t error_ppm)
{
    static const uint64_t by_counts[] = {0, 0, 600, 850};
    uint64_t confidence = s->n < 4 ? by_counts[s->n] : 1000;
    uint64_t spread = 1000ull * (s->most - s->least) / s->least;
    uint64_t error_permille = (uint64_t)error_ppm / 1000;
    uint64_t samples = 0;

    for (unsigned i = 0; i < s->n; i++)
        samples += (uint64_t)s->weight[i];
    if (spread < 500)
        confidence = confidence * spread / 500;
    confidence = confidence * samples / (samples + 4 * SAMPLE);
    /* 5 % of error halve it */
    return (uint32_t)(confidence * 2500 / (2500 + error_permille * error_permille));
}

/* @part / @whole in units of 1 / FIT_ONE; @part is the smaller one. */
static uint64_t fraction(uint64_t part, uint64_t whole)
{
    while (whole >= UINT64_C(1) << 33) {
        whole >>= 1;
        part >>= 1;
    }
    return part * FIT_ONE / whole;
}

bool fit_solve(const struct fit *fit, uint64_t now_ns, struct fit_model *ret_model)
{
    struct system s;
    struct solution solution;
    uint64_t serial, parallel, whole, contention;

    set_up(fit, now_ns, &s);
    if (s.n < 2 || !solve_robustly(&s, (int64_t)fit->noise_permille * 1000 / 2, &solution))
        return false;
    serial = (uint64_t)solution.time[SERIAL];
    parallel = (uint64_t)solution.time[PARALLEL] * s.least;
    whole = serial + parallel;
    if (whole == 0)
        return false;
    contention = (uint64_t)solution.time[CONTENTION] * FIT_ONE / (s.most - 1) / whole;
    *ret_model = (struct fit_model){
        .parallel = fraction(parallel, whole),
        .contention = contention < FIT_ONE ? contention : FIT_ONE,
        .rate_one = (s.fastest << Q) / whole,
        .counts = s.n,
        .error_permille = (uint32_t)(solution.error_ppm / 1000),
        .confidence_permille = confidence_of(&s, solution.error_ppm),
    };
    return true;
}

uint64_t fit_time(const struct fit_model *model, uint64_t threads)
{
    return FIT_ONE - model->parallel + model->parallel / threads +
           model->contention * (threads - 1);
}

void fit_table(const struct fit_model *model, uint32_t count, uint32_t *ret_table)
{
    for (uint32_t k = 1; k <= count; k++) {
        uint64_t time = fit_time(model, k);
        uint64_t speed = 1000 * FIT_ONE / (time ? time : 1);

        speed = speed < 1000ull * k ? speed : 1000ull * k; /* rounding down made it too large */
        ret_table[k - 1] = speed ? (uint32_t)speed : 1;
    }
}

/* ---- exploration ----------------------------------------------------------------------------- */

#define EXPLORE_NS      (UINT64_C(8) * 1000000000)  /* the longest exploration */
#define EXPLORE_SAMPLES 4                           /* enough samples end it */
#define EXPLORE_REST_NS (UINT64_C(60) * 1000000000) /* between two, and before the first */
#define EXPLORE_LOSS    500 /* permille of the speed: the most that one may cost */
#define KNOWN           (2 * SAMPLE)
#define SURE_PERMILLE   900 /* a model this sure needs no exploration */

/* The loss with @to threads instead of @have; without a model, as if all work were parallel. */
static uint32_t loss_permille(const struct fit_model *model, uint32_t have, uint32_t to)
{
    uint64_t fast, slow;

    if (!model)
        return 1000 * (have - to) / have;
    fast = fit_time(model, have);
    slow = fit_time(model, to);
    return slow > fast ? (uint32_t)(1000 - 1000 * fast / slow) : 0;
}

/* The least known of a few smaller counts that do not cost too much; 0: none. */
static uint32_t choose(struct fit *fit, const struct fit_model *model, uint64_t now_ns,
                       uint32_t have, uint32_t least)
{
    const uint32_t candidates[] = {have * 3 / 4, have / 2, have / 4, 1};
    uint32_t best = 0, best_evidence = KNOWN;

    for (unsigned i = 0; i < 4; i++) {
        const struct fit_count *count;
        uint32_t evidence;

        if (candidates[i] == 0 || candidates[i] < least ||
            loss_permille(model, have, candidates[i]) > EXPLORE_LOSS)
            continue;
        count = find_count(fit, candidates[i]);
        evidence = count ? fit_evidence(count, now_ns) : 0;
        if (evidence < best_evidence) {
            best = candidates[i];
            best_evidence = evidence;
        }
    }
    return best;
}

static bool goes_on(const struct fit *fit, uint64_t now_ns, uint32_t have, uint32_t least)
{
    bool enough = fit->threads == fit->explore_to && fit->visit >= EXPLORE_SAMPLES;

    return fit->explore_from == have && fit->explore_to >= least && !enough &&
           now_ns - fit->explore_ns < EXPLORE_NS;
}

/* The time without an exploration that follows makes up for its loss. */
static bool may_begin(const struct fit *fit, uint64_t now_ns, uint32_t loss)
{
    uint64_t since = fit->explore_ns ? fit->explore_ns : fit->first_ns;
    uint32_t last = fit->explore_loss_permille;
    uint64_t rest = EXPLORE_NS * (loss > last ? loss : last) / FIT_BUDGET_PERMILLE;

    return now_ns - since >= (rest > EXPLORE_REST_NS ? rest : EXPLORE_REST_NS);
}

uint32_t fit_explore(struct fit *fit, uint64_t now_ns, uint32_t have, uint32_t least)
{
    struct fit_model model;
    bool known;
    uint32_t to, loss;

    if (fit->explore_from) {
        if (goes_on(fit, now_ns, have, least))
            return fit->explore_to;
        fit->explore_from = 0;
        fit->explore_ns = now_ns;
        return 0;
    }
    if (have < 2 || have > FIT_THREADS_MAX || fit->threads != have || fit->visit < FIT_RECENT)
        return 0;
    known = fit_solve(fit, now_ns, &model);
    if (known && model.confidence_permille >= SURE_PERMILLE)
        return 0;
    to = choose(fit, known ? &model : NULL, now_ns, have, least);
    loss = to ? loss_permille(known ? &model : NULL, have, to) : 0;
    if (to == 0 || !may_begin(fit, now_ns, loss))
        return 0;
    fit->explore_from = have;
    fit->explore_to = to;
    fit->explore_loss_permille = loss;
    fit->explore_ns = now_ns;
    return to;
}
