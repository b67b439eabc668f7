/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of ONNX Runtime that answer requests of a program which tells none (control/requests.c).
 * Nothing is in their way until the daemon wants them. Python's module calls the C++ class of
 * sessions by itself, so calls are seen where Python calls the module: its methods are replaced.
 */
#include "agent/process/python.h"
#include "agent/runtimes/onnx/onnx.h"

#define MODULE "onnxruntime.capi.onnxruntime_pybind11_state"
#define TYPE   "InferenceSession" /* what onnxruntime.InferenceSession has inside */

/* Those that return when the answer is there. */
static const char *const methods[] = {"run", "run_with_iobinding", "run_with_ort_values",
                                      "run_with_ortvaluevector"};

static _Atomic bool tried_python;

static void *run_in_python(void *original, void *const *args, ptrdiff_t n, void *names)
{
    uint64_t began_ns = requests_call_begin();
    void *result = python_call(original, args, n, names); /* NULL: an exception */

    requests_call_end(began_ns);
    return result;
}

bool onnx_calls_python_due(void)
{
    return !atomic_load_explicit(&tried_python, memory_order_relaxed) && requests_want_calls() &&
           atomic_load(&onnx.may) == ONNX_FREE;
}

void onnx_calls_see_python(void)
{
    if (!python_has_module(MODULE))
        return; /* it is being imported */
    atomic_store(&tried_python, true);
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        python_replace(MODULE, TYPE, methods[i], run_in_python);
}
