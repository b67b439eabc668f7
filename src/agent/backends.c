/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"

#include <assert.h>

/* One row per runtime; and the sockets, which are told what is loaded as runtimes are. */
/* clang-format off */
static const struct agent_backend *const backends[] = {
    &tensorflow_backend, &program_backend,  &openmp_backend, &pytorch_backend,
    &xgboost_backend,    &openblas_backend, &onnx_backend,   &ggml_backend,
    &tbb_backend,        &mkl_backend,      &blis_backend,   &sockets_backend,
    NULL};
/* clang-format on */

static_assert(sizeof(backends) / sizeof(backends[0]) - 1 <= PROTO_BACKENDS_MAX,
              "each has its index in messages");

__attribute__((constructor(101))) static void enter(void)
{
    agent_backends = backends;
}
