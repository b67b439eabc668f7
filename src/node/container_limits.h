/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One container of container.c, and the writing of its limits: what is wanted, what is on its way
 * and what is in place. Private to the two files of containers.
 */
#pragma once

#include "base/container.h"
#include "base/cpuset.h"
#include "host/engine.h"
#include "node/container.h"

struct limits {
    struct cpuset cpus;
    struct engine_quota quota;
    uint32_t shares;
    bool fenced; /* the CPUs are our choice, not its own */
};

struct container {
    struct container *next;
    struct containers *set;
    struct job *job;                 /* NULL: it does not run */
    struct listener *listener;       /* NULL: it has no control directory, or that cannot be used */
    int64_t ticket;                  /* of the call that is under way; 0: none */
    uint64_t called_ms, answered_ms; /* CLOCK_REALTIME: events of between are our own doing */
    struct limits own;               /* what it began with */
    struct limits want, sent, placed;
    uint64_t memory_bytes;
    bool paused, want_paused, by_hand; /* the last: by a person, who may take it back */
    bool stale;        /* whether the last call was carried out is not known: inspect */
    bool stated;       /* own and placed are known */
    bool heard;        /* of since the last list was asked for, or in it */
    bool asked;        /* an inspection is under way */
    bool news;         /* came while a call was under way: inspect behind it */
    unsigned failures; /* of updates, one after another */
    char id[CONTAINER_ID_MAX];
    char key[CONTAINER_KEY_MAX + 1]; /* of its control directory */
};

/* What an inspection found. The first time it is the container's own. */
void container_found(struct container *c, const struct engine_container *seen);

/* Sends what is wanted and not in place, if nothing is under way. */
void container_push(struct container *c);

/* Its job is over: back to what it began with, for its next start. */
void container_reset(struct container *c);

/* ---- container.c ---- */

struct engine *container_engine(const struct container *c); /* NULL while it is away */
struct node *container_node(const struct container *c);
const char *container_engine_path(const struct container *c);
void container_inspect(struct container *c);
