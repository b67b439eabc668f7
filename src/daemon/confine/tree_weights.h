/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of control groups compare siblings only. This computes, for jobs that lie in different
 * parts of the tree, what each gets of a processor for which all of them compete, and which weight
 * the daemon's own group must have for its jobs to get as much as those elsewhere, in proportion
 * to what is wanted for each:
 *
 *     part of a group = product, from it up to the root, of weight / sum of the siblings' weights
 *
 * A group that does not use its part does not count: the kernel gives that to its siblings.
 * The groups of others keep their weights; so the one number to choose is our group's. Pure: no
 * I/O, no allocation, no state. Called by balance.c and tests.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TREE_ROOT UINT32_MAX

struct tree_group {
    uint32_t parent; /* index of one before it, or TREE_ROOT */
    uint32_t weight; /* in any unit, the same for all; as it is in force */
    uint32_t wanted; /* of a job's group: in proportion to other jobs'; 0: it is no job's */
    bool ours;       /* the daemon's own: the jobs below it are what is compared with the others */
    bool active;     /* uses processor time; so do its ancestors then */
    double siblings; /* computed: sum of the weights of its active children */
    double part;     /* computed: its weight as if it lay directly below the root */
};

/* Fills in the computed members. */
void tree_parts(struct tree_group *groups, size_t n);

/*
 * The weight that our group needs, not rounded to what can be written; 0: nothing to compare, no
 * job is active on one of the two sides. Needs tree_parts() of the present weights.
 */
double tree_our_weight(const struct tree_group *groups, size_t n);

/*
 * How far group @i, of an active job, is from what its wanted weight says, in thousandths: 1000 is
 * right, 500 means half as much as it should get against the other jobs. Needs tree_parts().
 */
uint32_t tree_permille(const struct tree_group *groups, size_t n, size_t i);
