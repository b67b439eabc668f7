/* SPDX-License-Identifier: Apache-2.0 */
#include "hook_target.h"

#include "agent/runtimes/tensorflow/tensorflow_abi.h"
#include "base/clock.h"

#include <stdbool.h>

#define CALLS 2000

/* TensorFlow's names, which no header declares. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

struct hook_times hook_times;

/* Not inlined, not known to do nothing. */
#define NOTHING() __asm__ volatile("" ::: "memory")

void hook_target_stock(void *eigen, void *task)
{
    NOTHING();
}

void TF_MAYBE_GET_TASK(void *eigen, void *task)
{
    NOTHING();
}

bool TF_WAIT_FOR_WORK(void *eigen, void *waiter, void *task)
{
    NOTHING();
    return true;
}

#define MEASURE(ret_ps, call)                                                                      \
    do {                                                                                           \
        uint64_t begin = clock_now_ns();                                                           \
        for (unsigned i = 0; i < CALLS; i++)                                                       \
            (call);                                                                                \
        *(ret_ps) = (clock_now_ns() - begin) * 1000 / CALLS;                                       \
    } while (0)

/* In turn: what disturbs the machine meets all three. */
void TF_WORKER_LOOP(void *eigen, int id)
{
    for (unsigned r = 0; r < HOOK_ROUNDS; r++) {
        MEASURE(&hook_times.stock[r], hook_target_stock(eigen, eigen));
        MEASURE(&hook_times.pass[r], TF_MAYBE_GET_TASK(eigen, eigen));
        MEASURE(&hook_times.idle[r], TF_WAIT_FOR_WORK(eigen, eigen, eigen));
    }
}
