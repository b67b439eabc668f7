// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
#include "plant.h"

#define SHARE_BITS 20 /* of busy shares */
#define SHARE_ONE  (1ULL << SHARE_BITS)
#define HEAT_BITS  30
#define HEAT_ONE   (1ULL << HEAT_BITS)
#define HEAT_MAX   (3 * HEAT_ONE)
#define NS_PER_S   1000000000ULL
#define SPEED_MAX  3000 /* turbo_permille's most; beyond it sums would overflow */

/* Mean powers of a step, µW. */
struct power {
    uint64_t core, package, dram, wall;
    uint64_t warming; /* what heat follows */
};

static const struct {
    const char *name;
    uint64_t least, most;
} PARAMS[PLANT_PARAM_COUNT] = {
#define X(name, least, most) {#name, least, most},
    PLANT_PARAMS(X)
#undef X
};

const char *plant_param_name(int index)
{
    return index >= 0 && index < PLANT_PARAM_COUNT ? PARAMS[index].name : (const char *)0;
}

uint64_t *plant_param(struct plant_params *params, int index)
{
    uint64_t *const of[PLANT_PARAM_COUNT] = {
#define X(name, least, most) &params->name,
        PLANT_PARAMS(X)
#undef X
    };

    return index >= 0 && index < PLANT_PARAM_COUNT ? of[index] : (uint64_t *)0;
}

int plant_check(const struct plant_params *params)
{
    struct plant_params copy = *params;
    int i;

    for (i = 0; i < PLANT_PARAM_COUNT; i++) {
        uint64_t value = *plant_param(&copy, i);

        if (value < PARAMS[i].least || value > PARAMS[i].most)
            return i;
    }
    if (params->package_idle_uw + params->dram_idle_uw > params->idle_uw)
        return PLANT_AT_package_idle_uw;
    return -1;
}

void plant_init(struct plant *p, const struct plant_params *params, uint32_t cores, uint64_t seed)
{
    *p = (struct plant){.params = *params, .cores = cores, .seed = seed};
    p->wall_uw = params->idle_uw;
}

/* A number for each seed, row and counter (the finaliser of splitmix64): the same in kernel and
 * user space. */
static uint64_t number(uint64_t seed, uint64_t row, uint64_t counter)
{
    uint64_t z = seed ^ (row * 0xd1342543de82ef95ULL);

    z += (counter + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* Nearly normal with mean 0: the sum of four uniform numbers. GAUSS_ONE is its standard deviation.
 */
#define GAUSS_ONE 37837
static int64_t gauss(uint64_t seed, uint64_t counter)
{
    uint64_t z = number(seed, 1, counter);

    return (int64_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48)) - 131070;
}

/* -2^15…2^15 along straight lines between numbers that are wander_ms apart. */
static int64_t wander(const struct plant *p)
{
    uint64_t period = p->params.wander_ms * 1000000, at = p->time_ns / period;
    int64_t from = (int64_t)(number(p->seed, 2, at) & 0xffff) - 32768;
    int64_t to = (int64_t)(number(p->seed, 2, at + 1) & 0xffff) - 32768;

    return from + (to - from) * (int64_t)((p->time_ns % period) >> 10) / (int64_t)(period >> 10);
}

/* Concave from (0, 0) to (1, 1); @by 0 is the straight line. */
static uint64_t bend(uint64_t share, uint64_t by)
{
    return share * (1000 + by) / (1000 + (share * by >> SHARE_BITS));
}

static uint64_t busy_share(uint64_t ns, const struct plant_load *load)
{
    uint64_t busy = load->busy_ns < ns ? load->busy_ns : ns;

    /* The shift below needs room: hours are shortened, the share stays. */
    while (ns >> 43) {
        ns >>= 1;
        busy >>= 1;
    }
    return ns > 0 ? (busy << SHARE_BITS) / ns : 0;
}

/* A busy core's power against that at base speed, in permille. */
static uint64_t speed_term(uint64_t cubic, uint64_t speed)
{
    uint64_t cube;

    if (speed > SPEED_MAX)
        speed = SPEED_MAX;
    cube = speed * speed / 1000 * speed / 1000;
    return ((1000 - cubic) * speed + cubic * cube) / 1000;
}

static uint64_t full_uw(const struct plant *p)
{
    return p->params.core_uw * p->cores + p->params.uncore_uw;
}

static uint64_t leak_uw(const struct plant *p)
{
    uint64_t straight = p->heat >> 10; /* 2^20: full heat */
    uint64_t square = straight * straight >> SHARE_BITS, by = p->params.leak_bend_permille;
    uint64_t share = (straight * 1000 + square * by) / (1000 + by);

    return full_uw(p) / 1000 * p->params.leak_permille * share >> SHARE_BITS;
}

static void powers(const struct plant *p, uint64_t ns, const struct plant_load *load,
                   struct power *ret)
{
    const struct plant_params *q = &p->params;
    uint64_t core = 0, shares = 0, mean, above;
    uint32_t i;

    for (i = 0; i < p->cores; i++) {
        uint64_t share = busy_share(ns, &load[i]);

        shares += share;
        if (share > 0)
            core += (q->core_uw * bend(share, q->core_bend_permille) >> SHARE_BITS) *
                    speed_term(q->cubic_permille, load[i].speed_permille) / 1000;
    }
    mean = shares / p->cores;
    ret->core = core;
    ret->warming =
        core + (q->uncore_uw * bend(mean, q->uncore_bend_permille) >> SHARE_BITS) + leak_uw(p);
    ret->package = (q->package_idle_uw + ret->warming) * q->rapl_permille / 1000;
    ret->dram = q->dram_idle_uw + (q->dram_uw * mean >> SHARE_BITS);
    above = ret->warming + ret->dram - q->dram_idle_uw + (p->fan ? q->fan_uw : 0);
    ret->wall = q->idle_uw + above * (1000 + q->supply_permille) / 1000;
}

uint64_t plant_package_uw(const struct plant *p, uint64_t ns, const struct plant_load *load)
{
    struct power now;

    powers(p, ns, load, &now);
    return now.package;
}

static void set_speeds(const struct plant *p, struct plant_load *load, uint32_t speed)
{
    uint32_t i;

    for (i = 0; i < p->cores; i++)
        load[i].speed_permille = speed;
}

uint32_t plant_govern(const struct plant *p, uint64_t ns, uint64_t limit_uw,
                      struct plant_load *load)
{
    uint32_t low = PLANT_SPEED_MIN, high, i;
    uint64_t shares = 0;

    for (i = 0; i < p->cores; i++)
        shares += busy_share(ns, &load[i]);
    /* All idle: turbo; all busy: base. */
    high = (uint32_t)(p->params.turbo_permille -
                      ((p->params.turbo_permille - 1000) * (shares / p->cores) >> SHARE_BITS));
    set_speeds(p, load, high);
    if (limit_uw == 0 || plant_package_uw(p, ns, load) <= limit_uw)
        return high;
    while (low + 1 < high) {
        uint32_t middle = (low + high) / 2;

        set_speeds(p, load, middle);
        if (plant_package_uw(p, ns, load) <= limit_uw)
            low = middle;
        else
            high = middle;
    }
    set_speeds(p, load, low);
    return low;
}

static void add(uint64_t *total_uj, uint64_t *rest, uint64_t uw, uint64_t ns)
{
    *rest += uw * ns;
    *total_uj += *rest / NS_PER_S;
    *rest %= NS_PER_S;
}

/* Towards the balance of this power; the implicit step is stable for every length. */
static void warm(struct plant *p, uint64_t ns, uint64_t warming_uw)
{
    const struct plant_params *q = &p->params;
    uint64_t balance = (warming_uw << 20) / (full_uw(p) + 1) << (HEAT_BITS - 20);
    uint64_t step_us = ns / 1000, all_us = q->heat_ms * 1000 + step_us;

    if (balance > HEAT_MAX)
        balance = HEAT_MAX;
    if (balance >= p->heat)
        p->heat += (balance - p->heat) * step_us / all_us;
    else
        p->heat -= (p->heat - balance) * step_us / all_us;
    if (p->heat * 1000 >> HEAT_BITS >= q->fan_heat_permille)
        p->fan = true;
    else if ((p->heat * 1000 >> HEAT_BITS) * 8 < q->fan_heat_permille * 7)
        p->fan = false;
}

static void short_step(struct plant *p, uint64_t ns, uint64_t load_ns,
                       const struct plant_load *load)
{
    const struct plant_params *q = &p->params;
    struct power now;
    int64_t noise;

    powers(p, load_ns, load, &now);
    noise = (int64_t)(now.wall * q->noise_permille / 1000) * gauss(p->seed, p->tick) / GAUSS_ONE +
            (int64_t)q->wander_uw * wander(p) / 32768;
    if (noise >= 0 || (uint64_t)-noise < now.wall)
        now.wall += (uint64_t)noise;
    else
        now.wall = 0;
    add(&p->total.core_uj, &p->rest.core_uj, now.core, ns);
    add(&p->total.package_uj, &p->rest.package_uj, now.package, ns);
    add(&p->total.dram_uj, &p->rest.dram_uj, now.dram, ns);
    add(&p->total.wall_uj, &p->rest.wall_uj, now.wall, ns);
    p->wall_uw = now.wall;
    warm(p, ns, now.warming);
    p->tick++;
    p->time_ns += ns;
}

void plant_step(struct plant *p, uint64_t ns, const struct plant_load *load)
{
    uint64_t left;

    for (left = ns; left > PLANT_STEP_NS; left -= PLANT_STEP_NS)
        short_step(p, PLANT_STEP_NS, ns, load);
    if (left > 0)
        short_step(p, left, ns, load);
}
