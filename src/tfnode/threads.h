/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of TensorFlow's pools, governed by the agent inside this process. Without the agent
 * the node works all the same, with the threads that it was started with. Main thread; the agent
 * calls back on its own.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct agent_program_api;

struct threads {
    const struct agent_program_api *api; /* NULL: no agent */
    int event_fd;                        /* readable after a change of target */
    uint32_t plain;                      /* threads without agent: as asked for, else the CPUs */
};

struct threads_count {
    uint32_t active; /* that were last known to be in place; 0: no pool yet */
    uint32_t max;
    bool settled; /* nothing is under way */
};

/*
 * Loads the agent, before TensorFlow, and orders @threads active ones (0: the own limit's).
 * Returns 0; or 1 without the agent, the reason in *err; or -errno.
 */
int threads_init(struct threads *ret, uint32_t threads, struct error *err);

/*
 * Orders @threads active ones. *ret_generation is what threads_reached() is asked for.
 * Returns 0 or -EOPNOTSUPP (no agent).
 */
int threads_set(const struct threads *t, uint32_t threads, uint64_t *ret_generation);

/* Whether that order, or a newer one, is in place in the pools. */
bool threads_reached(const struct threads *t, uint64_t generation);

/* @running: TensorFlow's server has started. *count keeps ->active while a change is under way. */
void threads_count(const struct threads *t, bool running, struct threads_count *count);
