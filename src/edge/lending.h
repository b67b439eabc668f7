/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parent that lends power to its children: divides the cap by what each would do with the watts
 * (power/division), keeps the book of leases on the disk, and offers each child its part. Each
 * offer is on the disk before it is sent, so that a restart gives nothing away twice. The event
 * loop's thread; used by tide-power for the machines of an area, by tide-hub for its areas.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "edge/topic.h"
#include "power/division/demand.h"
#include "power/division/divide_tree.h"
#include "power/division/lease.h"

#define LENDING_LEASE_S (LEASE_TTL_MS / 1000) /* a message of a lease is of no use any more */

struct lending;

struct lending_child {
    char name[EDGE_NAME_MAX];
    uint64_t floor_uw, most_uw; /* most 0: no bound of its own */
    uint32_t kind;              /* enum cap_kind */
    uint32_t group;             /* index */
};

struct lending_options {
    const char *path; /* of the book; copied */
    /* Sends down/lease. Returns 0; -EAGAIN: later, lending_send() will be called; or -errno. */
    int (*send)(void *arg, const char *child, const char *text);
    void (*say)(void *arg, const char *child, const char *text); /* child NULL: of all */
    void *arg;
};

/*
 * Reads the book. Without it, or if it cannot be read, nothing is lent until any lease of before
 * has ended. No children yet. Returns 0, -ENOMEM or -ENAMETOOLONG.
 */
int lending_new(const struct lending_options *options, struct lending **ret);
struct lending *lending_free(struct lending *l);

/*
 * Replaces the children and their caps. Group 0 holds all; parents stand before what is in them.
 * Both are copied. A child that is gone counts as long as its lease may be in force. Returns 0 or
 * -ENOMEM: as before.
 */
int lending_set(struct lending *l, const struct divide_group *group, uint32_t groups,
                const struct lending_child *child, uint32_t children);

/* The cap of group 0 alone; DEMAND_MAX and more: none. */
void lending_cap(struct lending *l, uint64_t cap_uw);

/* up/ask, up/ack, up/demand of a child; others are ignored. Returns false: it is no child. */
bool lending_got(struct lending *l, const char *child, enum topic_leaf leaf, const void *bytes,
                 size_t len);

/*
 * At least once a second, and after news. A child's curve counts at once when it is clearly another
 * one, by a quarter, and within ten seconds when it is hardly another.
 */
void lending_tick(struct lending *l);
void lending_send(struct lending *l); /* goes on after -EAGAIN */

/* The child's newest lease. Returns false: none is in force. */
bool lending_told(const struct lending *l, const char *child, uint64_t *ret_uw, bool *ret_kept);

/*
 * The draw to assume of a child that is not heard: its newest lease, and when that has ended, a
 * breaker's floor. A child of another kind goes on by the lease that has ended. Returns false: it
 * never had one.
 */
bool lending_unheard(const struct lending *l, const char *child, uint64_t *ret_uw);

/*
 * Whether the child falls to its floor once its newest lease has ended: it has had one, and has not
 * acknowledged one of another kind than a breaker's since.
 */
bool lending_binds(const struct lending *l, const char *child);

/* The watts that count for the child in the sums (lease_counts()); 0: it is no child. */
uint64_t lending_counts(const struct lending *l, const char *child);

/* Sums of all children: the watts that they may draw now, their floors, and their demand (no
 * points: none has sent one). */
uint64_t lending_sum(const struct lending *l);
uint64_t lending_floor(const struct lending *l);
const struct demand *lending_demand(const struct lending *l);
