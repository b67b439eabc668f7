/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which number of threads a thread of the program gives to its next piece of work, where the
 * runtime can change it for each (OpenMP, PyTorch, XGBoost). The rule itself is pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct number_wish {
    uint32_t target;  /* 0: none */
    uint32_t limit;   /* cores of the process; 0: not known yet */
    uint32_t machine; /* most threads, where the runtime has chosen the number itself */
    uint32_t chosen;  /* that number: cores of the process when it was loaded, or tide's choice */
    bool sized;       /* the user has set OMP_NUM_THREADS */
};

/* A variable with a number of threads; 0: not set. @ret_by_user: it is no size of tide's, which may
 * grow. Any thread. */
uint32_t number_of_variable(const char *name, bool *ret_by_user);

/* … which is OMP_NUM_THREADS. */
uint32_t number_of_environment(bool *ret_by_user);

/*
 * OpenMP binds its threads. The main thread is then allowed one core, which the agent would take
 * for the process's; and threads that a target makes would share the others' places.
 */
bool number_threads_are_bound(void);

/*
 * The number for a thread for which the runtime holds @held. A number that neither the runtime nor
 * OMP_NUM_THREADS has chosen was set by the program (threadpoolctl does so): it never gets more.
 * Without a target it has the process's limit, as TensorFlow's pools do, or its user's number.
 */
static inline uint32_t thread_number(uint32_t held, const struct number_wish *wish)
{
    bool may_grow = !wish->sized && held == wish->chosen && wish->machine > held;
    uint32_t most = may_grow ? wish->machine : held;
    uint32_t want = wish->target ? wish->target : wish->sized ? held : wish->limit;

    if (want == 0)
        return held;
    return want < most ? want : most;
}
