/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plant's counters as files: the powercap class and cpufreq of a sysfs, below a directory of a
 * tmpfs. The files are written in place, so that descriptors which somebody keeps open show new
 * values, as those of a sysfs do.
 *
 * In contrast to a sysfs, a write without O_TRUNC leaves what was longer before it.
 */
#pragma once

#include "plant.h"

#include <stddef.h>

struct tree_options {
    const char *path;  /* must be empty or not there; borrowed as long as the tree lives */
    uint32_t packages; /* the package's energy divided evenly among so many zones; 1… */
    bool dram, psys;
    uint64_t wrap_uj; /* max_energy_range_uj: counters go to 0 after it */
    uint64_t base_khz;
};

struct tree;

/* 0 or -errno; what was made stays. */
int tree_new(const struct tree_options *options, const struct plant *plant, struct tree **ret);
struct tree *tree_free(struct tree *t); /* removes nothing; returns NULL */
/* @speed_permille: of each core. */
int tree_write(struct tree *t, const struct plant *plant, const uint32_t *speed_permille);
/* The sum of the packages' limits, 0 while one of them has none. */
uint64_t tree_limit_uw(const struct tree *t);
