/* SPDX-License-Identifier: Apache-2.0 */
/* A FunctionDef of TensorFlow, in which the agent looks for operations that write variables. */
#include "agent/runtimes/tensorflow/tensorflow_function.h"
#include "input.h"

static enum tf_effect called(void *arg, const char *name, size_t length)
{
    size_t *most = arg;

    CHECK(length <= *most);
    return tf_effect_of(name, length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CHECK(tf_effect_of_function(data, size, called, &size) < TF_EFFECT_MAX);
    return 0;
}
