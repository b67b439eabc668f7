/* SPDX-License-Identifier: Apache-2.0 */
#include "power/model/watts_fit.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define UNCERTAIN   1e6   /* variance of a weight of which nothing is known */
#define FORGET      0.995 /* what a sample counts after the next: 200 count in each direction */
#define WARM        20    /* samples until weights are worth it */
#define CALM        200   /* samples over which weights are averaged for forecasts */
#define KNOT_MEMORY 64.0  /* samples that a knot's mean remembers */
#define KNOT_SPAN   24    /* loads closer than this part of the range make one knot */
#define ERRORS_MIN  8
#define USUAL       100 /* samples that the usual residual remembers, and that are believed whole */
#define BELIEVED    2   /* usual residuals up to which a sample counts whole */
#define USUAL_LEAST 0.01  /* of the power: what no meter and no model is better than */
#define USUAL_MOST  4     /* usual residuals that one counts as at most when they are averaged */
#define LOADS_APART 20.0  /* the part of the range that tells loads apart */
#define WEIGHT_MAX  1e100 /* a larger one makes forecasts infinite */
#define UW          1e6
#define CORE_MCPU   1000.0

static_assert(sizeof(struct watts_fit) ==
                  sizeof(double) * (WATTS_FIT_FEATURES * (WATTS_FIT_FEATURES + 4) +
                                    3 * WATTS_FIT_KNOTS + WATTS_FIT_ERRORS + WATTS_FIT_RECENT + 5),
              "no padding: it is stored as bytes");

static bool is_finite(double x)
{
    return x - x == 0;
}

static bool is_zeroed(const void *bytes, size_t n)
{
    const unsigned char *byte = bytes;

    for (size_t i = 0; i < n; i++)
        if (byte[i])
            return false;
    return true;
}

static bool is_weight(double x)
{
    return x >= -WEIGHT_MAX && x <= WEIGHT_MAX;
}

int watts_fit_check(const struct watts_fit *f)
{
    const double *number = f->weight;

    if (f->samples == 0)
        return is_zeroed(f, sizeof(*f)) ? 0 : -EINVAL;
    if (f->version != WATTS_FIT_VERSION || f->knots == 0 || f->knots > WATTS_FIT_KNOTS ||
        f->errors > WATTS_FIT_ERRORS || f->stride == 0)
        return -EINVAL;
    if (!(f->usual_w >= 0) || !is_finite(f->usual_w))
        return -EINVAL;
    for (int i = 0; i < WATTS_FIT_FEATURES; i++) {
        if (!is_weight(number[i]) || !is_weight(f->mean[i]) || !is_weight(f->lagged[0][i]) ||
            !is_weight(f->lagged[1][i]) || !(f->covariance[i][i] >= 0))
            return -EINVAL;
        for (int k = 0; k < WATTS_FIT_FEATURES; k++)
            if (!is_finite(f->covariance[i][k]))
                return -EINVAL;
    }
    for (uint32_t i = 0; i < WATTS_FIT_ERRORS; i++)
        if (!(f->error[i] >= 0) || !is_finite(f->error[i]))
            return -EINVAL;
    for (uint32_t i = 0; i < WATTS_FIT_RECENT; i++)
        if (!(f->knot_error[i] >= 0) || !is_finite(f->knot_error[i]))
            return -EINVAL;
    for (uint32_t i = 0; i < f->knots; i++) {
        const struct watts_fit_knot *k = &f->knot[i];

        if (!(k->mcpu >= 0 && k->mcpu <= WATTS_LOAD_MAX) ||
            !(k->uw >= 0 && k->uw <= (double)POWER_UW_MAX) ||
            !(k->weight >= 1 && k->weight <= KNOT_MEMORY) || (i && !(k[-1].mcpu < k->mcpu)))
            return -EINVAL;
    }
    return 0;
}

static double load_of(const struct watts_sample *s)
{
    return (double)s->busy_mcpu * (double)s->speed_permille / 1000;
}

static void features(const struct watts_sample *s, double ret[WATTS_FIT_FEATURES])
{
    ret[0] = 1;
    ret[1] = (double)s->sensor_uw / UW;
    ret[2] = s->busy_mcpu / CORE_MCPU;
    ret[3] = load_of(s) / CORE_MCPU;
    if (s->sensor_uw) /* it tells what grows with the load, but for what the first cores wake up */
        ret[3] /= 1 + ret[3];
}

static double forecast_w(const double weight[WATTS_FIT_FEATURES],
                         const double x[WATTS_FIT_FEATURES])
{
    double w = 0;

    for (int i = 0; i < WATTS_FIT_FEATURES; i++)
        w += weight[i] * x[i];
    return w;
}

/* ---- weights ----------------------------------------------------------------------------------*/

static void begin(struct watts_fit *f)
{
    memset(f, 0, sizeof(*f));
    f->version = WATTS_FIT_VERSION;
    f->stride = 1;
    for (int i = 0; i < WATTS_FIT_FEATURES; i++)
        f->covariance[i][i] = UNCERTAIN;
}

static double clipped(double x, double most)
{
    return x > most ? most : x < -most ? -most : x;
}

/* The weight of a sample, from 0 to 1. A machine that changes for good soon has larger usual
 * residuals, so it is learnt anew. */
static double worth(struct watts_fit *f, double residual, double w)
{
    double size = residual < 0 ? -residual : residual, usual;

    if (f->samples == 0)
        f->usual_w = size;
    usual = f->usual_w > USUAL_LEAST * w ? f->usual_w : USUAL_LEAST * w;
    f->usual_w += (clipped(size, USUAL_MOST * usual) - f->usual_w) / USUAL;
    usual *= BELIEVED;
    return f->samples > USUAL && size > usual ? usual / size : 1;
}

/*
 * Recursive least squares that forgets in the direction of the sample alone (Kulhavy, Restricted
 * exponential forgetting in real-time identification, Automatica 23, 1987): while the load stays
 * the same, what is known of other loads stays too.
 */
static void learn(struct watts_fit *f, const double x[WATTS_FIT_FEATURES], double w)
{
    double px[WATTS_FIT_FEATURES], residual = w - forecast_w(f->weight, x), known = 0, change, part;

    for (int i = 0; i < WATTS_FIT_FEATURES; i++) {
        px[i] = 0;
        for (int k = 0; k < WATTS_FIT_FEATURES; k++)
            px[i] += f->covariance[i][k] * x[k];
    }
    for (int i = 0; i < WATTS_FIT_FEATURES; i++)
        known += px[i] * x[i];
    if (!(known > 0))
        return;
    part = worth(f, residual, w);
    known *= part;
    change = part * (FORGET - (1 - FORGET) / known) / (FORGET * (1 + known));
    for (int i = 0; i < WATTS_FIT_FEATURES; i++) {
        f->weight[i] += part * px[i] * residual / (1 + known);
        for (int k = 0; k <= i; k++)
            f->covariance[i][k] = f->covariance[k][i] -= px[i] * px[k] * change;
        if (f->covariance[i][i] < 0)
            f->covariance[i][i] = 0;
    }
}

/* Relative to the forecast, as the bounds around one are. */
static double error_of(double forecast, double truth)
{
    double off = forecast > truth ? forecast - truth : truth - forecast;

    return off / (forecast > 1 ? forecast : 1);
}

/* Single samples move the weights to and fro; forecasts are by their mean (Polyak and Juditsky,
 * Acceleration of stochastic approximation by averaging, SIAM J. Control 30, 1992). */
static void calm(struct watts_fit *f)
{
    uint32_t n = f->samples < WARM ? 1 : f->samples - WARM + 2;

    for (int i = 0; i < WATTS_FIT_FEATURES; i++)
        f->mean[i] += (f->weight[i] - f->mean[i]) / (n < CALM ? n : CALM);
}

/* Until there are weights of that age, those of now stand in for them. */
static void note_error(struct watts_fit *f, const double x[WATTS_FIT_FEATURES], double w)
{
    const double *weight = f->samples < 2 * WATTS_FIT_LAG ? f->mean : f->lagged[0];

    if (f->samples % f->stride)
        return;
    if (f->errors == WATTS_FIT_ERRORS) { /* every second one goes */
        f->errors /= 2;
        for (uint32_t i = 0; i < f->errors; i++)
            f->error[i] = f->error[2 * i];
        f->stride = f->stride < UINT32_MAX / 2 ? 2 * f->stride : f->stride;
    }
    f->error[f->errors++] = error_of(forecast_w(weight, x), w);
}

static void keep_weights(struct watts_fit *f)
{
    memcpy(f->lagged[0], f->samples < WATTS_FIT_LAG ? f->mean : f->lagged[1], sizeof(f->lagged[0]));
    memcpy(f->lagged[1], f->mean, sizeof(f->lagged[1]));
    if (f->samples + 1 == 2 * WATTS_FIT_LAG) { /* now honest ones follow; few of the others stay */
        memmove(f->error, &f->error[f->errors - ERRORS_MIN], ERRORS_MIN * sizeof(f->error[0]));
        f->errors = ERRORS_MIN;
        f->stride = 1;
    }
}

/* ---- knots ------------------------------------------------------------------------------------*/

static void merge_into(struct watts_fit_knot *k, double mcpu, double uw, double weight)
{
    double part = weight / (k->weight + weight);

    k->mcpu += (mcpu - k->mcpu) * part;
    k->uw += (uw - k->uw) * part;
    k->weight = k->weight + weight < KNOT_MEMORY ? k->weight + weight : KNOT_MEMORY;
}

static void remove_knot(struct watts_fit *f, uint32_t i)
{
    memmove(&f->knot[i], &f->knot[i + 1], (--f->knots - i) * sizeof(f->knot[0]));
}

static void merge_closest(struct watts_fit *f)
{
    uint32_t closest = 0;

    for (uint32_t i = 1; i + 1 < f->knots; i++)
        if (f->knot[i + 1].mcpu - f->knot[i].mcpu <
            f->knot[closest + 1].mcpu - f->knot[closest].mcpu)
            closest = i;
    merge_into(&f->knot[closest], f->knot[closest + 1].mcpu, f->knot[closest + 1].uw,
               f->knot[closest + 1].weight);
    remove_knot(f, closest + 1);
}

/* A sample joins the knot that it lies close to, or becomes one. Order by load stays. */
static void add_knot(struct watts_fit *f, double mcpu, double uw)
{
    double most = f->knots ? f->knot[f->knots - 1].mcpu : 0, near;
    uint32_t at = 0, i;

    near = (mcpu > most ? mcpu : most) / KNOT_SPAN;
    while (at < f->knots && f->knot[at].mcpu < mcpu)
        at++;
    i = at;
    if (at > 0 && (at == f->knots || mcpu - f->knot[at - 1].mcpu < f->knot[at].mcpu - mcpu))
        i = at - 1;
    if (i < f->knots) {
        double off = f->knot[i].mcpu - mcpu;

        if ((off < 0 ? -off : off) <= near) {
            merge_into(&f->knot[i], mcpu, uw, 1);
            return;
        }
    }
    if (f->knots == WATTS_FIT_KNOTS) {
        merge_closest(f);
        for (at = 0; at < f->knots && f->knot[at].mcpu < mcpu; at++)
            ;
    }
    memmove(&f->knot[at + 1], &f->knot[at], (f->knots++ - at) * sizeof(f->knot[0]));
    f->knot[at] = (struct watts_fit_knot){mcpu, uw, 1};
}

/* The line through two knots at another load, not below 0. */
static double extend(const struct watts_fit_knot *a, const struct watts_fit_knot *b, double mcpu)
{
    double uw = a->uw + (b->uw - a->uw) * (mcpu - a->mcpu) / (b->mcpu - a->mcpu);

    return uw > 0 ? uw : 0;
}

/* The power that the knots forecast; at least one is there. */
static double knots_at(const struct watts_fit *f, double mcpu)
{
    uint32_t i = 1;

    while (i + 1 < f->knots && f->knot[i].mcpu < mcpu)
        i++;
    if (f->knots == 1 || !(f->knot[i].mcpu > f->knot[i - 1].mcpu))
        return f->knot[0].uw;
    return extend(&f->knot[i - 1], &f->knot[i], mcpu);
}

void watts_fit_add(struct watts_fit *f, const struct watts_sample *s)
{
    double x[WATTS_FIT_FEATURES];

    if (s->uw > POWER_UW_MAX || s->sensor_uw > POWER_UW_MAX || load_of(s) > WATTS_LOAD_MAX ||
        s->busy_mcpu > WATTS_LOAD_MAX)
        return;
    if (f->samples == 0)
        begin(f);
    features(s, x);
    if (f->samples >= WATTS_FIT_FEATURES) {
        note_error(f, x, (double)s->uw / UW);
        f->knot_error[f->knot_errors % WATTS_FIT_RECENT] =
            error_of(knots_at(f, load_of(s)) / UW, (double)s->uw / UW);
        if (f->knot_errors < UINT32_MAX)
            f->knot_errors++;
    }
    learn(f, x, (double)s->uw / UW);
    calm(f);
    if (f->samples % WATTS_FIT_LAG == WATTS_FIT_LAG - 1)
        keep_weights(f);
    add_knot(f, load_of(s), (double)s->uw);
    if (f->samples < UINT32_MAX)
        f->samples++;
}

/* ---- results ----------------------------------------------------------------------------------*/

/* The quantile of n + 1 errors, of which the next is one (conformal prediction). */
static uint32_t expected_rank(uint32_t n)
{
    uint32_t rank = ((n + 1) * 9 + 9) / 10;

    return rank < n ? rank : n;
}

/* The smallest k for which fewer than k of n errors lie below their p90 with a probability of 95 %;
 * n where none is. */
static uint32_t confident_rank(uint32_t n)
{
    double exactly = 1, least = 0; /* probabilities of exactly, and of at least, k */
    uint32_t k = n;

    for (uint32_t i = 0; i < n; i++)
        exactly *= 0.9;
    while (k > 0 && least + exactly <= 0.05) {
        least += exactly;
        exactly *= (double)k / (n - k + 1) / 9;
        k--;
    }
    return k < n ? k + 1 : n;
}

/* The error of this rank, from 1 on. */
static uint32_t error_permille(const double *error, uint32_t count, uint32_t rank)
{
    double sorted[WATTS_FIT_ERRORS], permille;
    uint32_t n = 0, at;

    for (; n < count; n++) {
        at = n;
        while (at > 0 && sorted[at - 1] > error[n]) {
            sorted[at] = sorted[at - 1];
            at--;
        }
        sorted[at] = error[n];
    }
    permille = n ? sorted[rank - 1] * 1000 + 1 : WATTS_ERROR_MAX;
    return permille < WATTS_ERROR_MAX ? (uint32_t)permille : WATTS_ERROR_MAX;
}

static uint64_t rounded_uw(double uw)
{
    return !(uw > 0) ? 0 : uw >= (double)POWER_UW_MAX ? POWER_UW_MAX : (uint64_t)(uw + 0.5);
}

struct power_range watts_fit_at(const struct watts_fit *f, const struct watts_sample *s)
{
    double x[WATTS_FIT_FEATURES];
    struct watts flat = {.count = 1, .basis = POWER_CALIBRATED};

    if (f->errors < ERRORS_MIN)
        return (struct power_range){0};
    features(s, x);
    flat.point[0].uw = rounded_uw(forecast_w(f->mean, x) * UW);
    flat.error_permille = error_permille(f->error, f->errors, confident_rank(f->errors));
    return watts_at(&flat, 0);
}

/* The knots with power that never falls: neighbours that fall become their mean. */
static uint32_t rising(const struct watts_fit *f, struct watts_fit_knot ret[WATTS_FIT_KNOTS])
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->knots; i++) {
        ret[n++] = f->knot[i];
        while (n > 1 && ret[n - 1].uw < ret[n - 2].uw) {
            merge_into(&ret[n - 2], ret[n - 1].mcpu, ret[n - 1].uw, ret[n - 1].weight);
            n--;
        }
    }
    return n;
}

/* Leaves out the inner knot whose absence bends the line the least, until @most are left. */
static uint32_t reduce(struct watts_fit_knot *k, uint32_t n, uint32_t most)
{
    while (n > most) {
        uint32_t least = 1;
        double least_off = -1;

        for (uint32_t i = 1; i + 1 < n; i++) {
            double line = k[i - 1].uw + (k[i + 1].uw - k[i - 1].uw) * (k[i].mcpu - k[i - 1].mcpu) /
                                            (k[i + 1].mcpu - k[i - 1].mcpu);
            double off = line > k[i].uw ? line - k[i].uw : k[i].uw - line;

            if (least_off < 0 || off < least_off) {
                least = i;
                least_off = off;
            }
        }
        memmove(&k[least], &k[least + 1], (--n - least) * sizeof(*k));
    }
    return n;
}

static bool has_three_apart(const struct watts_fit_knot *k, uint32_t n, double apart)
{
    uint32_t found = 0;
    double last = 0;

    for (uint32_t i = 0; i < n; i++)
        if (found == 0 || k[i].mcpu - last >= apart) {
            found++;
            last = k[i].mcpu;
        }
    return found >= 3;
}

bool watts_fit_knows_idle(const struct watts_fit *f, uint32_t most_mcpu)
{
    const struct watts_fit_knot *low = &f->knot[0];

    return f->knots > 0 && low->weight >= ERRORS_MIN && low->mcpu <= most_mcpu / LOADS_APART;
}

bool watts_fit_solve(const struct watts_fit *f, uint32_t most_mcpu, struct watts *ret)
{
    struct watts_fit_knot k[WATTS_FIT_KNOTS + 2];
    uint32_t n = rising(f, k),
             recent = f->knot_errors < WATTS_FIT_RECENT ? f->knot_errors : WATTS_FIT_RECENT;

    if (!has_three_apart(k, n, most_mcpu / LOADS_APART))
        return false;
    if (k[n - 1].mcpu + 1 < most_mcpu) {
        k[n] = (struct watts_fit_knot){most_mcpu, extend(&k[n - 2], &k[n - 1], most_mcpu), 1};
        n++;
    }
    if (k[0].mcpu >= 1) {
        memmove(&k[1], &k[0], n++ * sizeof(k[0]));
        k[0] = (struct watts_fit_knot){0, extend(&k[1], &k[2], 0), 1};
    }
    n = reduce(k, n, WATTS_POINTS);
    memset(ret, 0, sizeof(*ret));
    ret->basis = POWER_CALIBRATED;
    ret->error_permille = error_permille(f->knot_error, recent, expected_rank(recent));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t load = i ? (uint32_t)(k[i].mcpu + 0.5) : 0;

        if (i && load <= ret->point[ret->count - 1].load_mcpu)
            continue;
        ret->point[ret->count++] = (struct watts_point){load, rounded_uw(k[i].uw)};
    }
    return true;
}
