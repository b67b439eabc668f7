/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cores shared in proportion to weights.
 *
 * In a domain of C cores, job j of weight w_j gets clamp(L * w_j, min_j, max_j) with the one level
 * L at which the domain is full: floor(C / n) clamped, with the surplus redistributed. Cores that
 * rounding leaves go to the largest remainders, smaller ranks first. L is a fraction, so the result
 * is exact. In a tree, domains are filled from the leaves to the root, and each cuts what the
 * narrower ones allowed: a full domain cuts at one level, so the result is max-min fair.
 * With minima first, the job gets min_j + L * w_j instead, cut at max_j.
 *
 * Pure; used by policies alone, within one decision. Each share says why it is what it is in the
 * reason of its job's decision.
 */
#pragma once

#include "policy/division/layout.h"

/* Shares count whole units, here called cores; bounds in mcpu cut the result. */
struct share {
    int64_t weight;     /* at least 1; the sum times the machine's units stays below 2^61 */
    int64_t least_mcpu; /* kept even where minima exceed the capacity */
    int64_t most_mcpu;
    int64_t min;
    int64_t max;
    int64_t base;    /* the job's minimum where minima come first, else 0 */
    int64_t cores;   /* allowed by the domains filled so far */
    int64_t over;    /* numerator of the fraction that rounding cut off */
    uint32_t rank;   /* unique; smaller goes first where shares are alike */
    uint32_t next;   /* in the list of its domain */
    uint8_t settled; /* held at a bound of its own while a domain is filled */
    bool joined;     /* takes part */
    bool cut;        /* a domain gave less than the maximum */
    bool squeezed;   /* lies in a domain whose minima exceed its capacity */
};

struct sharing {
    struct layout *layout;
    struct share *share;   /* one for each job of the snapshot */
    uint32_t *member;      /* jobs of the domain that is being filled */
    uint32_t *head;        /* first job of each domain's list */
    int64_t capacity_mcpu; /* of the domain that is being filled */
    /* The caller sets these before a job joins. */
    int64_t unit_mcpu; /* one core by default */
    bool minima_first;
};

/* Bytes of scratch (aligned as int64_t). */
size_t sharing_bytes(const struct policy_snapshot *snapshot);

/* Begins without any job; the caller sets the ranks. */
void sharing_init(struct sharing *sharing, struct layout *layout, void *scratch);

/* The job takes part in its place. The layout does not count its cores as used yet. */
void sharing_join(struct sharing *sharing, uint32_t job, int64_t weight, int64_t least_mcpu,
                  int64_t most_mcpu);

/* Shares what each domain has left among the jobs that joined, and uses it. */
void sharing_fill(struct sharing *sharing);

/*
 * Takes lent cores off the lenders' shares, not below their minima. Then adds borrowed cores, as
 * many as were lent and the borrowers' domains have room for. Jobs go in the order of @by_rank.
 */
void sharing_lend(struct sharing *sharing, const uint32_t *by_rank);

/* Returns the job's share. */
int64_t sharing_mcpu(const struct sharing *sharing, uint32_t job);
