/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a pool of the fake framework's and waits for the end of its input. */
#include "agent/runtimes/tensorflow/tensorflow_abi.h"

#include <string.h>
#include <unistd.h>

void TF_THREADPOOL_C1(void *owner, void *env, const void *options, const struct stdstring *name,
                      int threads, _Bool low_latency, void *allocator);
void TF_THREADPOOL_D1(void *owner);

int main(void)
{
    static const char text[] = "numa_-1_Eigen";
    struct stdstring name = {.data = text, .size = sizeof(text) - 1};
    void *owner[8] = {0};
    char end;

    TF_THREADPOOL_C1(owner, NULL, NULL, &name, 4, 0, NULL);
    while (read(STDIN_FILENO, &end, 1) > 0)
        ;
    TF_THREADPOOL_D1(owner);
    return 0;
}
