// SPDX-License-Identifier: Apache-2.0
#include "truth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct truth {
    uint32_t cores, players;
    struct plant_load *load; /* of one set at a time */
    struct plant of[];       /* 2^players, the index is the set */
};

static uint32_t sets(uint32_t players)
{
    return UINT32_C(1) << players;
}

static int64_t factorial(uint32_t n)
{
    return n < 2 ? 1 : n * factorial(n - 1);
}

/* Hands out the whole numbers that rounding down has left over, one each, the largest remainder
 * first. */
static void give_rest(int64_t left, uint32_t players, __int128 *rest, int64_t *ret)
{
    for (; left > 0; left--) {
        uint32_t most = 0;

        for (uint32_t i = 1; i < players; i++)
            if (rest[i] > rest[most])
                most = i;
        rest[most] = -1;
        ret[most]++;
    }
}

void truth_shapley(const int64_t *value, uint32_t players, int64_t *ret)
{
    __int128 rest[TRUTH_PLAYERS_MAX];
    int64_t orders = factorial(players), given = 0;

    for (uint32_t i = 0; i < players; i++) {
        __int128 sum = 0; /* of what it adds, over all orders of coming */

        for (uint32_t set = 0; set < sets(players); set++) {
            if (set >> i & 1)
                continue;
            uint32_t before = (uint32_t)__builtin_popcount(set);
            int64_t weight = factorial(before) * factorial(players - 1 - before);

            sum += (__int128)weight * (value[set | UINT32_C(1) << i] - value[set]);
        }
        ret[i] = (int64_t)(sum / orders);
        rest[i] = sum % orders;
        if (rest[i] < 0) {
            rest[i] += orders;
            ret[i]--;
        }
        given += ret[i];
    }
    give_rest(value[sets(players) - 1] - value[0] - given, players, rest, ret);
}

int truth_new(const struct plant_params *params, uint32_t cores, uint32_t players,
              struct truth **ret)
{
    struct plant_params quiet = *params;
    struct truth *t;

    if (players < 1 || players > TRUTH_PLAYERS_MAX || cores < 1 || cores > PLANT_CORES_MAX ||
        plant_check(params) >= 0)
        return -EINVAL;
    t = calloc(1, sizeof *t + sets(players) * sizeof t->of[0]);
    if (t)
        t->load = calloc(cores, sizeof *t->load);
    if (!t || !t->load) {
        truth_free(t);
        return -ENOMEM;
    }
    t->cores = cores;
    t->players = players;
    quiet.noise_permille = 0;
    quiet.wander_uw = 0;
    for (uint32_t set = 0; set < sets(players); set++)
        plant_init(&t->of[set], &quiet, cores, 0);
    *ret = t;
    return 0;
}

int truth_add(struct truth **t)
{
    struct truth *more;
    uint32_t before = sets((*t)->players);

    if ((*t)->players == TRUTH_PLAYERS_MAX)
        return -E2BIG;
    more = realloc(*t, sizeof *more + 2 * (size_t)before * sizeof more->of[0]);
    if (!more)
        return -ENOMEM;
    /* With and without him a set has drawn the same. */
    memcpy(&more->of[before], more->of, before * sizeof more->of[0]);
    more->players++;
    *t = more;
    return 0;
}

struct truth *truth_free(struct truth *t)
{
    if (t)
        free(t->load);
    free(t);
    return NULL;
}

void truth_step(struct truth *t, uint64_t ns, const uint64_t *busy_ns,
                const uint32_t *speed_permille)
{
    for (uint32_t set = 0; set < sets(t->players); set++) {
        for (uint32_t core = 0; core < t->cores; core++) {
            uint64_t sum = 0;

            for (uint32_t i = 0; i < t->players; i++)
                if (set >> i & 1)
                    sum += busy_ns[i * t->cores + core];
            t->load[core] = (struct plant_load){sum, speed_permille[core]};
        }
        plant_step(&t->of[set], ns, t->load);
    }
}

static int64_t energy(const struct truth *t, uint32_t set, enum truth_of of)
{
    const struct plant_energy *total = &t->of[set].total;

    return (int64_t)(of == TRUTH_WALL ? total->wall_uj : total->package_uj + total->dram_uj);
}

void truth_shares(const struct truth *t, enum truth_of of, int64_t *ret)
{
    int64_t value[UINT32_C(1) << TRUTH_PLAYERS_MAX];

    for (uint32_t set = 0; set < sets(t->players); set++)
        value[set] = energy(t, set, of);
    truth_shapley(value, t->players, ret);
}

int64_t truth_idle_uj(const struct truth *t, enum truth_of of)
{
    return energy(t, 0, of);
}

int64_t truth_all_uj(const struct truth *t, enum truth_of of)
{
    return energy(t, sets(t->players) - 1, of);
}
