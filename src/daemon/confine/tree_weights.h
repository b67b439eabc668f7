/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel compares weights of control groups among siblings only. These functions compute, for
 * jobs in different branches of the tree, what part of a CPU each gets when all compete, and the
 * weight of the daemon's own group with which its jobs get as much as the others, in proportion to
 * their wanted weights:
 *
 * part of a group = product, from it up to the root, of weight / sum of the siblings' weights
 *
 * An idle group does not count: the kernel gives its part to its siblings. Other groups keep their
 * weights, so our group's is the one number to choose. Pure: no I/O, no allocation, no state.
 * Called by balance.c and tests.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TREE_ROOT UINT32_MAX

struct tree_group {
    uint32_t parent; /* index of an earlier group, or TREE_ROOT */
    uint32_t weight; /* in force, in any unit that is the same for all */
    uint32_t wanted; /* a job's wanted weight; 0: not a job's group */
    bool ours;       /* the daemon's own: the jobs below it are compared with the others */
    bool active;     /* uses processor time, as its ancestors then do */
    double siblings; /* computed: sum of the weights of its active children */
    double part;     /* computed: its weight as if directly below the root */
};

/* Fills in the computed members. */
void tree_parts(struct tree_group *groups, size_t n);

/*
 * The weight that our group needs, not yet rounded to a valid one; 0: one of the two sides has no
 * active job, so there is nothing to compare. Needs tree_parts() of the present weights.
 */
double tree_our_weight(const struct tree_group *groups, size_t n);

/*
 * Processor time of the active job's group @i in thousandths of its part: 1000 is right, 500 half
 * of it. Needs tree_parts().
 */
uint32_t tree_permille(const struct tree_group *groups, size_t n, size_t i);
