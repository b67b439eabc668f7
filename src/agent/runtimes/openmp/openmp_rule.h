/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which number of threads a top-level region without num_threads(n) gets. Pure. The number that the
 * runtime holds for the thread is never changed, so a query is answered as without the agent.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct openmp_wish {
    uint32_t target;  /* 0: none */
    uint32_t limit;   /* cores of the process; 0: not known yet */
    uint32_t machine; /* most threads, where the runtime has chosen the number itself */
    uint32_t chosen;  /* that number: cores of the process when it was loaded, or tide's choice */
    bool sized;       /* the user has set OMP_NUM_THREADS */
};

/*
 * The number for a region of a thread for which the runtime holds @held. A number that neither the
 * runtime nor OMP_NUM_THREADS has chosen was set by the program (threadpoolctl does so): the region
 * never gets more. Without a target it has the process's limit, as TensorFlow's pools do, or its
 * user's number.
 */
static inline uint32_t openmp_number(uint32_t held, const struct openmp_wish *wish)
{
    bool may_grow = !wish->sized && held == wish->chosen && wish->machine > held;
    uint32_t most = may_grow ? wish->machine : held;
    uint32_t want = wish->target ? wish->target : wish->sized ? held : wish->limit;

    if (want == 0)
        return held;
    return want < most ? want : most;
}
