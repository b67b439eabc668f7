/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cores shared in proportion to weights.
 *
 * In a domain of C cores, job j of weight w_j gets clamp(L * w_j, min_j, max_j) with the one level
 * L at which the domain is full: that is floor(C / n) clamped, its surplus redistributed. What
 * rounding leaves goes to the largest remainders, smaller ranks first. Exact, as L is kept as a
 * fraction. In a tree, domains are filled from the leaves to the root, each cutting what the
 * narrower ones had allowed: a full domain cuts at one level, so the result is max-min fair.
 * With minima first, it is min_j + L * w_j instead, cut at max_j.
 *
 * Pure; used by policies alone, within one decision. Each share says why it is what it is in the
 * reason of its job's decision.
 */
#pragma once

#include "policy/division/layout.h"

/* Counted in whole units, here called cores; bounds in mcpu cut what was counted in whole ones. */
struct share {
    int64_t weight;     /* at least 1; all of them, times the units of the machine, below 2^61 */
    int64_t least_mcpu; /* kept even where minima add up to more than there is */
    int64_t most_mcpu;
    int64_t min;
    int64_t max;
    int64_t base;    /* beside what its weight gives: its minimum, where minima come first, or 0 */
    int64_t cores;   /* allowed by the domains filled so far */
    int64_t over;    /* numerator of what rounding cut off */
    uint32_t rank;   /* unique; smaller goes first where shares are alike */
    uint32_t next;   /* in the list of its domain */
    uint8_t settled; /* held at a bound of its own while a domain is filled */
    bool joined;     /* takes part */
    bool cut;        /* a domain gave less than the maximum */
    bool squeezed;   /* in a domain whose minima are above its capacity */
};

struct sharing {
    struct layout *layout;
    struct share *share;   /* of every job of the snapshot */
    uint32_t *member;      /* of the domain that is being filled */
    uint32_t *head;        /* first job of each domain's list */
    int64_t capacity_mcpu; /* of the domain that is being filled */
    /* the caller's to set, before anyone joins */
    int64_t unit_mcpu; /* one core, if nothing else was set */
    bool minima_first;
};

/* Bytes of scratch (aligned as int64_t). */
size_t sharing_bytes(const struct policy_snapshot *snapshot);

/* Nobody takes part yet; ranks are the caller's to set. */
void sharing_init(struct sharing *sharing, struct layout *layout, void *scratch);

/* The job takes part in its place. Nothing of the cores that it will get is in use yet. */
void sharing_join(struct sharing *sharing, uint32_t job, int64_t weight, int64_t least_mcpu,
                  int64_t most_mcpu);

/* Shares what is left in each domain among those who joined, and uses it. */
void sharing_fill(struct sharing *sharing);

/*
 * Cores lent are taken off a share, not below the minimum; then cores borrowed are added, as many
 * as were lent and the borrower's domains have room for. Jobs in the order of @by_rank.
 */
void sharing_lend(struct sharing *sharing, const uint32_t *by_rank);

/* What the job got. */
int64_t sharing_mcpu(const struct sharing *sharing, uint32_t job);
