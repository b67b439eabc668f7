/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/input/random.h"

#include "base/fnv.h"

#include <math.h>
#include <stdlib.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t rng_next(struct rng *rng)
{
    return mix(rng->state += 0x9e3779b97f4a7c15u);
}

struct rng rng_at(uint64_t seed, const char *attribute, uint64_t index)
{
    uint64_t name = fnv_text(FNV_START, attribute);

    return (struct rng){mix(mix(seed + 0x9e3779b97f4a7c15u) ^ mix(name)) ^ mix(index + 1)};
}

double rng_unit(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

void dist_done(struct dist *dist)
{
    free(dist->value);
    free(dist->share);
    *dist = (struct dist){0};
}

/* Box and Muller without their second number: draws are independent of each other. */
static double normal(struct rng *rng)
{
    double radius = sqrt(-2 * log(1 - rng_unit(rng)));

    return radius * cos(2 * M_PI * rng_unit(rng));
}

/* Inverts the distribution function F(x) = (1 - (L/x)^a) / (1 - (L/H)^a). */
static double pareto(double low, double high, double alpha, double u)
{
    return low / pow(1 - u * (1 - pow(low / high, alpha)), 1 / alpha);
}

static double pick(const struct dist *dist, double u)
{
    double at = u * dist->share[dist->count - 1];
    size_t i = 0;

    while (i + 1 < dist->count && dist->share[i] <= at)
        i++;
    return dist->value[i];
}

static double uniform(const struct dist *dist, bool whole, double u)
{
    return whole ? floor(dist->a + u * (dist->b - dist->a + 1)) : dist->a + u * (dist->b - dist->a);
}

int64_t dist_draw(const struct dist *dist, const struct value_type *type, struct rng *rng)
{
    double x = dist->a;

    switch (dist->kind) {
    case DIST_UNIFORM:
        x = uniform(dist, type->kind == VALUE_COUNT, rng_unit(rng));
        break;
    case DIST_LIST: /* also of words: no rounding */
        return (int64_t)pick(dist, rng_unit(rng));
    case DIST_NORMAL:
        x = dist->a + dist->b * normal(rng);
        break;
    case DIST_LOGNORMAL: /* exp(mu + sigma·z) has the mean exp(mu + sigma²/2) */
        x = dist->a * exp(dist->b * normal(rng) - dist->b * dist->b / 2);
        break;
    case DIST_EXPONENTIAL:
        x = -dist->a * log(1 - rng_unit(rng));
        break;
    case DIST_PARETO:
        x = pareto(dist->a, dist->b, dist->c, rng_unit(rng));
        break;
    case DIST_FIXED:
    case DIST_KIND_MAX:
        return (int64_t)x;
    }
    return value_round(type, x);
}
