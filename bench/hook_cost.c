/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of the agent's hooks to a worker of TensorFlow when nothing changes. The agent is linked
 * in, and interposes the members of bench/hook_target from here as it does TensorFlow's when
 * preloaded: the real hooks on the real way, worker 3 of 8 with a limit of 4. Prints the lists of
 * hook_times as JSON.
 */
#include "hook_target.h"

#include "agent/runtimes/tensorflow/tensorflow.h"

#include <inttypes.h>
#include <stdio.h>

void TF_WORKER_LOOP(void *eigen, int id); /* the hook */

static void nudge(struct gate *gate)
{
    (void)gate;
}

static void settled(void)
{
}

static void print(const char *before, const char *name, const uint64_t *ps)
{
    printf("%s\"%s\": [", before, name);
    for (unsigned r = 0; r < HOOK_ROUNDS; r++)
        printf("%s%" PRIu64, r ? "," : "", ps[r]);
    printf("]");
}

int main(void)
{
    static char eigen;
    struct pool *pool = &pools[0];

    if (gate_init(&pool->gate, 8, nudge, settled) != 0)
        return 1;
    gate_set(&pool->gate, 4);
    pool->class = POOL_INTRA;
    atomic_store(&pool->eigen, &eigen);
    atomic_store(&pools_used, 1);
    atomic_store(&tf.task_layout, TASK_INLINE); /* as after the first closures */
    TF_WORKER_LOOP(&eigen, 3);
    if (gate_passes(&pool->gate) == 0) {
        fprintf(stderr, "hook_cost: the hooks were not called\n");
        return 1;
    }
    print("{", "stock", hook_times.stock);
    print(", ", "pass", hook_times.pass);
    print(", ", "idle", hook_times.idle);
    printf("}\n");
    return 0;
}
