/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The truth about a plant: what each job's share of the energy above idle is.
 *
 * A job's share is its Shapley value (L. S. Shapley, A Value for n-Person Games, 1953) in the game
 * whose value of a set of jobs is the energy above idle that the plant would have drawn, had these
 * alone run, with the same busy times on the same cores at the same speeds. Each set has a plant of
 * its own, so that heat, leakage and fan are those of its own past. Noise and wander belong to
 * nobody: these plants have none.
 *
 * Work of no job ("system") is a player like the others.
 * One thread, tests and benchmarks only; an estimator never sees any of it.
 */
#pragma once

#include "plant.h"

#include <stddef.h>

#define TRUTH_PLAYERS_MAX 10 /* 2^10 plants, stepped together */

/* @ret[i]: player i's Shapley value of the game @value[2^players], value[0] the empty set's; bit i
 * of an index stands for player i. Exact but for rounding to whole numbers, which keeps the sum:
 * the shares' sum is value[2^players - 1] - value[0], each is less than 1 off, a player who never
 * changes anything gets 0. */
void truth_shapley(const int64_t *value, uint32_t players, int64_t *ret);

struct truth;

/* Returns 0; -EINVAL (players, cores, parameters); -ENOMEM. */
int truth_new(const struct plant_params *params, uint32_t cores, uint32_t players,
              struct truth **ret);
/* One player more, who has done nothing so far; his is the next index. 0; -E2BIG; -ENOMEM. */
int truth_add(struct truth **t);
struct truth *truth_free(struct truth *t); /* returns NULL */

/* The same @ns as the plant's step. @busy_ns[player × cores + core]: a core's sum above @ns counts
 * as @ns.
 * @speed_permille: of each core. */
void truth_step(struct truth *t, uint64_t ns, const uint64_t *busy_ns,
                const uint32_t *speed_permille);

/* Shares of each player since the beginning, µJ. */
enum truth_of { TRUTH_WALL, TRUTH_RAPL /* package + dram, as the counters show them */ };
void truth_shares(const struct truth *t, enum truth_of of, int64_t *ret);
/* The energy that the plant would have drawn with nobody, and with all, without noise. */
int64_t truth_idle_uj(const struct truth *t, enum truth_of of);
int64_t truth_all_uj(const struct truth *t, enum truth_of of);
