/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which number of threads the regions of a program's thread get, for one copy of a runtime. Pure.
 * The runtime itself holds the number (its nthreads-var for that thread), so a query and the region
 * behind it agree by construction; num_threads(n) overrides it as ever.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct openmp_number {
    uint32_t generation; /* the target that it follows */
    uint32_t first;      /* before the first change: what the runtime chose; 0: not asked yet */
    uint32_t most;       /* it never gets more */
    uint32_t ours;       /* the last number that we have set, at first `first` */
};

struct openmp_wish {
    uint32_t target;  /* 0: none */
    uint32_t limit;   /* cores of the process */
    uint32_t machine; /* most threads, if the runtime chose the number itself */
    bool sized;       /* by the user, before the start */
};

/*
 * The number for the next region of a thread whose runtime has @seen at present. A number that is
 * neither the runtime's first nor ours was set by the program: it stays, until the program puts
 * ours back (threadpoolctl does so). Without a target a thread has the limit, as TensorFlow's pools
 * do, or its user's number.
 */
static inline uint32_t openmp_number(struct openmp_number *n, uint32_t seen,
                                     const struct openmp_wish *wish)
{
    uint32_t want;

    if (n->first == 0) {
        n->first = n->ours = seen;
        n->most = !wish->sized && wish->machine > seen ? wish->machine : seen;
    }
    if (seen != n->ours)
        return seen;
    want = wish->target ? wish->target : wish->sized ? n->first : wish->limit;
    if (want > n->most)
        want = n->most;
    n->ours = want ? want : 1;
    return n->ours;
}
