/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/topic.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

#define PREFIX "tide/1/"

static const char *const leaves[] = {
    [TOPIC_STATE] = "up/state",       [TOPIC_ENERGY] = "up/energy",
    [TOPIC_DEMAND] = "up/demand",     [TOPIC_ASK] = "up/ask",
    [TOPIC_ACK] = "up/ack",           [TOPIC_EVENT] = "up/event",
    [TOPIC_LEASE] = "down/lease",     [TOPIC_POLICY] = "down/policy",
    [TOPIC_CMD] = "down/cmd",         [TOPIC_RECEIPT] = "down/receipt",
    [TOPIC_REQUEST] = "up/request",   [TOPIC_CERTIFICATE] = "down/certificate",
    [TOPIC_READING] = "down/reading", [TOPIC_SHRUNK] = "up/shrunk",
    [TOPIC_REVOKED] = "down/revoked",
};
static_assert(ARRAY_LEN(leaves) == TOPIC_LEAF_MAX, "a leaf without a name");

/* Returns the length of the valid name at the beginning of @text, 0: none. */
static size_t name_length(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return n >= EDGE_NAME_MAX || n == 0 || text[0] == '-' || text[n - 1] == '-' ? 0 : n;
}

bool edge_name_valid(const char *name)
{
    size_t n = name_length(name);

    return n && name[n] == '\0';
}

const char *topic_make(const char *name, enum topic_leaf leaf, char ret[TOPIC_MAX])
{
    snprintf(ret, TOPIC_MAX, PREFIX "%s/%s", name, leaves[leaf]);
    return ret;
}

int topic_read(const char *topic, char ret_name[EDGE_NAME_MAX], enum topic_leaf *ret_leaf)
{
    const char *name = topic + strlen(PREFIX);
    size_t n;

    if (strncmp(topic, PREFIX, strlen(PREFIX)) != 0)
        return -EINVAL;
    n = name_length(name);
    if (!n || name[n] != '/')
        return -EINVAL;
    for (unsigned leaf = 0; leaf < TOPIC_LEAF_MAX; leaf++)
        if (strcmp(name + n + 1, leaves[leaf]) == 0) {
            memcpy(ret_name, name, n);
            ret_name[n] = '\0';
            *ret_leaf = leaf;
            return 0;
        }
    return -EINVAL;
}
