/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of TensorFlow's pools, which the agent inside this process governs. Without the agent
 * the number of threads is fixed at the start. Main thread; the agent calls back on a thread of its
 * own.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct agent_program_api;

struct threads {
    const struct agent_program_api *api; /* NULL: no agent */
    int event_fd;                        /* readable after a change of target */
    uint32_t plain;                      /* threads without the agent: --threads, else the CPUs */
};

struct threads_count {
    uint64_t generation; /* the last order whose threads were all in place … */
    uint32_t active;     /* … and its threads; 0: no pool yet */
    uint32_t max;
    bool settled; /* no change is under way */
};

/*
 * Loads the agent, before TensorFlow, and orders @threads active ones (0: the limit's).
 * Returns 0; or 1 without the agent, the reason in *err; or -errno.
 */
int threads_init(struct threads *ret, uint32_t threads, struct error *err);

/*
 * Orders @threads active ones. They are in place when threads_count() says *ret_generation or more.
 * Returns 0 or -EOPNOTSUPP (no agent).
 */
int threads_set(const struct threads *t, uint32_t threads, uint64_t *ret_generation);

/*
 * @running: TensorFlow's server has started. While a change is under way *count keeps its former
 * values.
 */
void threads_count(const struct threads *t, bool running, struct threads_count *count);
