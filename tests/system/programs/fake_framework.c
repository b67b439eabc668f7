/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libtensorflow_framework.so.2 of no known version: its thread pool has TensorFlow's names, but
 * nothing that the agent could use as a gate.
 */
#include "agent/runtimes/tensorflow/tensorflow_abi.h"

#include <stdio.h>

void TF_THREADPOOL_C1(void *owner, void *env, const void *options, const struct stdstring *name,
                      int threads, _Bool low_latency, void *allocator)
{
    (void)owner;
    (void)env;
    (void)options;
    (void)low_latency;
    (void)allocator;
    printf("pool %s %d\n", name->data, threads);
    fflush(stdout);
}

void TF_THREADPOOL_D1(void *owner)
{
    (void)owner;
    printf("gone\n");
}

const char *TF_Version(void)
{
    return "9.9.9";
}
