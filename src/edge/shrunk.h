/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports of jobs that have fewer cores because of a cap, on the way up (up/shrunk): tided's answer
 * becomes a message, a parent sums up its children's, and the same is sent again only while it
 * holds. Any thread; used by src/unit, and by a hub that is an area of another one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "edge/payload.h"
#include "edge/topic.h"

/*
 * Reads tided's answer to GET /v1/power/shrunk for the machine @node. @users: with jobs and their
 * users, which are personal data. Returns 0, or -EBADMSG: *ret may be half filled in.
 */
int shrunk_read(const char *body, const char *node, bool users, struct payload_shrunk *ret);

/* The newest reports of all children. */
struct shrunk_sum {
    struct payload_shrunk all;
    uint64_t heard_ns[PAYLOAD_NODES_MAX]; /* of each node */
};

/*
 * Takes a child's message in place of its earlier one. The child counts as one node by its own
 * name, which the broker has proved, whatever nodes it names.
 */
void shrunk_take(struct shrunk_sum *s, const char *child, const struct payload_shrunk *told,
                 uint64_t now_ns);

/* Adds what all nodes of a message tell; a sum stays at INT32_MAX, the most that a message holds.
 */
void shrunk_add(struct payload_shrunk_node *sum, const struct payload_shrunk *told);

/* Drops children that have told nothing for PAYLOAD_SHRUNK_OLD_S. */
void shrunk_age(struct shrunk_sum *s, uint64_t now_ns);

/* The last report to the parent; zeros: none yet. */
struct shrunk_told {
    uint64_t hash, told_ns;
};

/* Sends @now if it is new, and again while a job is shrunk. @send takes the text over. */
void shrunk_tell(struct shrunk_told *t, const struct payload_shrunk *now, uint64_t now_ns,
                 int (*send)(void *arg, enum topic_leaf leaf, char *text), void *arg);
