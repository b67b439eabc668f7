/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The topics between a child and its parent: tide/1/NAME/up/LEAF from the child,
 * tide/1/NAME/down/LEAF to it. NAME is the common name of the child's certificate, so the broker's
 * whole list of rights is a few patterns. Any thread; used by src/unit and src/hub.
 */
#pragma once

#include <stdbool.h>

#define EDGE_NAME_MAX 64 /* with its NUL: [a-z0-9-], not first or last a dash */
#define TOPIC_MAX     96

enum topic_leaf {
    TOPIC_STATE,
    TOPIC_ENERGY,
    TOPIC_DEMAND,
    TOPIC_ASK,
    TOPIC_ACK,
    TOPIC_EVENT,
    TOPIC_REQUEST, /* for the next certificate */
    TOPIC_SHRUNK,  /* who has fewer cores for a cap */
    TOPIC_LEASE,   /* from here on down */
    TOPIC_POLICY,
    TOPIC_CMD,
    TOPIC_RECEIPT,
    TOPIC_CERTIFICATE,
    TOPIC_READING, /* of a meter that measures the child */
    TOPIC_REVOKED, /* machines of the child that are revoked, and the list of certificates */
    TOPIC_LEAF_MAX
};

bool edge_name_valid(const char *name);

/* Writes the topic of a valid name into @ret, and returns it. */
const char *topic_make(const char *name, enum topic_leaf leaf, char ret[TOPIC_MAX]);

/* Reads a received topic. Returns 0 or -EINVAL: none of ours. */
int topic_read(const char *topic, char ret_name[EDGE_NAME_MAX], enum topic_leaf *ret_leaf);
