/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's functions for its own process. libtide.so looks up the one exported symbol
 * `tide_agent_program_api` (dlsym, RTLD_DEFAULT) and finds this table. Without the agent the symbol
 * is missing and libtide's program side answers "no agent". The table grows at the end only; `size`
 * says how much of it the loaded agent has. Any thread; no call blocks longer than a mutex.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define TIDE_AGENT_PROGRAM_API_SYMBOL "tide_agent_program_api"

struct agent_state {
    uint32_t max;          /* threads the largest intra-op pool was built with; 0: no pool yet */
    uint32_t target;       /* active threads wanted */
    uint32_t active;       /* threads not parked */
    uint32_t allowed_mcpu; /* the process's affinity and quota, thousandths of a core */
    uint32_t source;       /* enum proto_source */
    uint32_t frozen;       /* 0 or 1 */
    uint64_t generation;   /* changes with every change of target */
};

typedef void (*agent_change_fn)(const struct agent_state *state, void *arg);

struct agent_program_api {
    size_t size; /* sizeof(struct agent_program_api) of the agent */
    void (*get)(struct agent_state *ret_state);
    /* 0, 0: automatic again. Returns 0, -ERANGE, or 1: accepted, but frozen or no pool yet. */
    int (*set_local)(uint32_t intra, uint32_t inter);
    /* Calls nest: as many thaws as freezes. Returns 0, or -EINVAL for a thaw too many. */
    int (*freeze)(int on);
    /*
     * The agent's thread calls @fn after each change and holds no lock then, so @fn may call every
     * entry of this table. NULL removes the callback. One per process.
     */
    int (*on_change)(agent_change_fn fn, void *arg);
    /* done units of total (0: unknown); unit is copied. Returns 0. Lock-free, no system call. */
    int (*progress)(uint64_t done, uint64_t total, const char *unit);
    /*
     * The program has a pool of its own with @max threads: starts the agent if nothing did yet, and
     * announces a backend "program". A later call replaces @max; 0 withdraws it. Returns 0 or
     * -ERANGE.
     */
    int (*declare)(uint32_t max);
    /*
     * @active threads of that pool are not parked now. The acknowledgement of a target waits until
     * this number has reached it. Returns 0, -ERANGE (above max) or -EINVAL (nothing declared).
     */
    int (*report_active)(uint32_t active);
    /*
     * Returns the newest generation (see agent_state) for which all surplus threads were parked and
     * all wanted ones awake. A change is under way while it is below agent_state's. Lock-free.
     */
    uint64_t (*settled)(void);
    /*
     * A request begins. Starts the agent if nothing did yet. Returns what request_end() takes, 0
     * when the agent is inert. Lock-free; a system call only where far more requests are in flight
     * than the daemon knows, at most every 10 ms.
     */
    uint64_t (*request_begin)(void);
    /* The request ends, on any thread. 0, or what began in the parent of a fork(), is ignored. */
    void (*request_end)(uint64_t began);
};
