/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/model/prior.h"

#define LEARNT    (2 * FIT_SAMPLE)          /* evidence with which a count teaches later runs */
#define CERTAIN   (FIT_RECENT * FIT_SAMPLE) /* evidence with which it may contradict earlier ones */
#define ERROR_MAX (FIT_FAR_PERMILLE / 2)    /* a curve with a larger one teaches nothing */
#define Q         16                        /* bits behind the binary point of a ratio of rates */
#define RATIO_MAX (UINT64_C(1) << 26)       /* times FIT_RATE_MAX fits in 64 bits */

bool prior_valid(const struct prior *prior)
{
    if (prior->count < 2 || prior->count > FIT_COUNTS || prior->parallel > FIT_ONE ||
        prior->contention > FIT_ONE || prior->error_permille > ERROR_MAX ||
        prior->confidence_permille > 1000)
        return false;
    for (uint32_t i = 0; i < prior->count; i++)
        if (prior->threads[i] <= (i ? prior->threads[i - 1] : 0) ||
            prior->threads[i] > FIT_THREADS_MAX)
            return false;
    return true;
}

static struct fit_model model_of(const struct prior *prior)
{
    return (struct fit_model){.parallel = prior->parallel,
                              .contention = prior->contention,
                              .counts = prior->count,
                              .error_permille = prior->error_permille,
                              .confidence_permille = prior->confidence_permille};
}

/* How many times as fast @to threads are as @from, in Q; RATIO_MAX: too many times. */
static uint64_t ratio_of(const struct prior *prior, uint32_t from, uint32_t to)
{
    const struct fit_model model = model_of(prior);
    uint64_t time = fit_time(&model, to);
    uint64_t ratio = (fit_time(&model, from) << Q) / (time ? time : 1);

    return ratio < RATIO_MAX ? ratio : RATIO_MAX;
}

/* The count of this run with the most evidence; NULL: none has any. */
static const struct fit_count *best_known(const struct fit *fit, uint64_t now_ns)
{
    const struct fit_count *best = NULL;
    uint32_t most = 0;

    for (unsigned i = 0; i < FIT_COUNTS; i++) {
        uint32_t evidence = fit_evidence(&fit->count[i], now_ns);

        if (evidence > most) {
            best = &fit->count[i];
            most = evidence;
        }
    }
    return best;
}

/* ---- what is believed ------------------------------------------------------------------------ */

/* A place for another count; NULL: none is free, or the run itself knows one of so many threads. */
static struct fit_count *place_for(struct fit *fit, uint32_t threads, uint64_t now_ns)
{
    struct fit_count *place = NULL;

    for (unsigned i = 0; i < FIT_COUNTS; i++) {
        if (fit_evidence(&fit->count[i], now_ns) == 0)
            place = &fit->count[i];
        else if (fit->count[i].threads == threads)
            return NULL;
    }
    return place;
}

/* Adds the prior's counts, with the rates that they would have in this run. */
static void add_prior(struct fit *fit, const struct prior *prior, uint64_t now_ns)
{
    const struct fit_count base = *best_known(fit, now_ns);

    for (uint32_t i = 0; i < prior->count; i++) {
        struct fit_count *place = place_for(fit, prior->threads[i], now_ns);
        uint64_t ratio = ratio_of(prior, base.threads, prior->threads[i]);
        uint64_t rate = (base.rate * ratio) >> Q;

        if (place && ratio < RATIO_MAX && rate > 0 && rate <= FIT_RATE_MAX)
            *place = (struct fit_count){.rate = rate,
                                        .last_ns = now_ns,
                                        .threads = prior->threads[i],
                                        .evidence = FIT_SAMPLE};
    }
}

/* As long as the run agrees, it takes nothing from the confidence of the earlier ones. */
void prior_solve(const struct fit *fit, const struct prior *prior, uint64_t now_ns,
                 struct fit_model *ret_model)
{
    struct fit both = *fit;
    struct fit_model model;

    if (!best_known(fit, now_ns)) {
        *ret_model = model_of(prior);
        return;
    }
    add_prior(&both, prior, now_ns);
    if (!fit_solve(&both, now_ns, &model))
        model = model_of(prior);
    if (model.confidence_permille < prior->confidence_permille && model.error_permille <= ERROR_MAX)
        model.confidence_permille = prior->confidence_permille;
    *ret_model = model;
}

/* Noise of this run, and what the earlier runs' counts lay off their own curve. */
bool prior_disagrees(const struct fit *fit, const struct prior *prior, uint64_t now_ns)
{
    const struct fit_count *base = best_known(fit, now_ns);
    uint64_t allowed = 4 * (uint64_t)fit->noise_permille;

    allowed = (allowed > FIT_FAR_PERMILLE ? allowed : FIT_FAR_PERMILLE) + prior->error_permille;
    if (!base || fit_evidence(base, now_ns) < CERTAIN)
        return false;
    for (unsigned i = 0; i < FIT_COUNTS; i++) {
        const struct fit_count *here = &fit->count[i];
        uint64_t said, less, more;

        if (here == base || fit_evidence(here, now_ns) < CERTAIN)
            continue;
        said = (base->rate * ratio_of(prior, base->threads, here->threads)) >> Q;
        less = said < here->rate ? said : here->rate;
        more = said < here->rate ? here->rate : said;
        if ((more - less) * 1000 > less * allowed)
            return true;
    }
    return false;
}

/* ---- what is handed down --------------------------------------------------------------------- */

/* Adds a number of threads in its place; the largest make room, as they differ the least. */
static void add_threads(struct prior *prior, uint32_t threads)
{
    uint32_t at = 0;

    while (at < prior->count && prior->threads[at] < threads)
        at++;
    if (at == FIT_COUNTS || (at < prior->count && prior->threads[at] == threads))
        return;
    if (prior->count < FIT_COUNTS)
        prior->count++;
    for (uint32_t i = prior->count - 1; i > at; i--)
        prior->threads[i] = prior->threads[i - 1];
    prior->threads[at] = threads;
}

bool prior_learn(const struct fit *fit, const struct prior *before, uint64_t now_ns,
                 struct prior *ret)
{
    struct prior prior = {0};
    struct fit_model model;

    for (unsigned i = 0; i < FIT_COUNTS; i++)
        if (fit_evidence(&fit->count[i], now_ns) >= LEARNT)
            add_threads(&prior, fit->count[i].threads);
    if (prior.count < 2)
        return false;
    if (before) {
        prior_solve(fit, before, now_ns, &model);
        for (uint32_t i = 0; i < before->count; i++)
            add_threads(&prior, before->threads[i]);
    } else if (!fit_solve(fit, now_ns, &model)) {
        return false;
    }
    prior.parallel = model.parallel;
    prior.contention = model.contention;
    prior.error_permille = model.error_permille;
    prior.confidence_permille = model.confidence_permille;
    if (!prior_valid(&prior))
        return false;
    *ret = prior;
    return true;
}
