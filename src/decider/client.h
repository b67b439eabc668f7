/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to a decider's Unix socket that waits for each answer, for at most a deadline. For
 * programs that may wait: tide-sim. One thread a connection.
 */
#pragma once

#include "decider/answer.h"

#define DECIDER_PATH_MAX 108 /* of a Unix socket, with NUL */

struct decider_client {
    int fd;               /* -1: none, or given up */
    uint64_t deadline_ns; /* from question to the end of its answer */
    uint64_t asked, answered;
    char first_fault[ERROR_TEXT_MAX]; /* why `equal` decided first; "": never */
    char *line;                       /* of the answer; its room grows as needed */
    size_t room;
};

/* Connects. The peer must be root or this process's user. 0, or -errno with *err. */
int decider_open(const char *path, uint64_t deadline_ns, struct decider_client *ret_client,
                 struct error *err);
void decider_close(struct decider_client *client);

/*
 * Decides by the decider's answer, or as `equal` where it is wrong. An answer that is late or
 * missing ends the connection: what follows it could not be told from it; `equal` decides then.
 * Returns 0, or as policy_decide().
 */
int decider_decide(struct decider_client *client, const struct policy_snapshot *snapshot,
                   struct policy_plan *plan);
