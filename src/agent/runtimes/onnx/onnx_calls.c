/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of ONNX Runtime that answer requests of a program which tells none (control/requests.c).
 * Nothing is in their way until the daemon wants them. Python's module calls the C++ class of
 * sessions by itself, so calls are seen where Python calls the module: its methods are replaced.
 * Other programs call through a table of functions, OrtApi, in which stubs replace three.
 */
#include "agent/process/objects.h"
#include "agent/process/python.h"
#include "agent/runtimes/onnx/onnx.h"

#include <stdlib.h>

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

/* ---- the C API: the program's threads ---- */

typedef void *(*run_fn)(void *session, const void *options, const void *names, const void *inputs,
                        size_t n_inputs, const void *output_names, size_t n_outputs, void *outputs);
typedef void *(*run_bound_fn)(void *session, const void *options, const void *binding);
typedef void (*answer_fn)(void *arg, void **outputs, size_t n_outputs, void *status);
typedef void *(*run_async_fn)(void *session, const void *options, const void *names,
                              const void *inputs, size_t n_inputs, const void *output_names,
                              size_t n_outputs, void *outputs, answer_fn answer, void *arg);

/* What the table of the one library held that has the stubs. */
static struct {
    run_fn run;
    run_bound_fn run_bound;
    run_async_fn run_async;
} real;

static void *run(void *session, const void *options, const void *names, const void *inputs,
                 size_t n_inputs, const void *output_names, size_t n_outputs, void *outputs)
{
    uint64_t began_ns = requests_call_begin();
    void *status = real.run(session, options, names, inputs, n_inputs, output_names, n_outputs,
                            outputs); /* it throws nothing: a status says what went wrong */

    requests_call_end(began_ns);
    return status;
}

static void *run_bound(void *session, const void *options, const void *binding)
{
    uint64_t began_ns = requests_call_begin();
    void *status = real.run_bound(session, options, binding);

    requests_call_end(began_ns);
    return status;
}

struct asked {
    answer_fn answer;
    void *arg;
    uint64_t began_ns;
};

static void answered(void *arg, void **outputs, size_t n_outputs, void *status)
{
    struct asked asked = *(struct asked *)arg;

    free(arg);
    requests_call_answered(asked.began_ns);
    asked.answer(asked.arg, outputs, n_outputs, status);
}

static void *run_async(void *session, const void *options, const void *names, const void *inputs,
                       size_t n_inputs, const void *output_names, size_t n_outputs, void *outputs,
                       answer_fn answer, void *arg)
{
    struct asked *asked = requests_want_calls() && answer ? malloc(sizeof(*asked)) : NULL;
    void *status;

    if (!asked)
        return real.run_async(session, options, names, inputs, n_inputs, output_names, n_outputs,
                              outputs, answer, arg);
    *asked = (struct asked){answer, arg, requests_call_begin()};
    status = real.run_async(session, options, names, inputs, n_inputs, output_names, n_outputs,
                            outputs, answered, asked);
    requests_call_left();
    if (status) { /* nobody will answer */
        requests_call_answered(asked->began_ns);
        free(asked);
    }
    return status;
}

/* ---- the C API: the control thread ---- */

static uintptr_t entry(uintptr_t table, enum onnx_api function)
{
    return table + function * sizeof(uintptr_t);
}

static uintptr_t table_of(struct dl_phdr_info *info, struct object *ret_object)
{
    object_read(ret_object, info);
    return onnx_is_library(ret_object) ? onnx_find_api(info, ret_object) : 0;
}

static int find_stubs(struct dl_phdr_info *info, size_t size, void *arg)
{
    bool *found = arg;
    struct object o;
    uintptr_t table = table_of(info, &o);

    (void)size;
    *found = table && slot_held(entry(table, ONNX_API_RUN)) == (uintptr_t)run;
    return *found;
}

/* The first library's. A second one's would need stubs of its own, and is not read. */
static int put_stubs(struct dl_phdr_info *info, size_t size, void *arg)
{
    bool *put = arg;
    struct object o;
    uintptr_t table = table_of(info, &o);

    (void)size;
    if (!table || !onnx_api_is_stock(info, table))
        return 0;
    real.run = (run_fn)pointer_to(slot_held(entry(table, ONNX_API_RUN)));
    real.run_bound = (run_bound_fn)pointer_to(slot_held(entry(table, ONNX_API_RUN_BOUND)));
    real.run_async = (run_async_fn)pointer_to(slot_held(entry(table, ONNX_API_RUN_ASYNC)));
    *put = slot_write(&o, entry(table, ONNX_API_RUN), (uintptr_t)run);
    if (*put) { /* else ld.so is not done: again in a moment */
        slot_write(&o, entry(table, ONNX_API_RUN_BOUND), (uintptr_t)run_bound);
        slot_write(&o, entry(table, ONNX_API_RUN_ASYNC), (uintptr_t)run_async);
    }
    return 1;
}

void onnx_calls_watch(void)
{
    static uint64_t done; /* objects_loaded() when the stubs were there */
    uint64_t loaded;
    bool there = false;

    if (!atomic_load(&onnx.has_library) || atomic_load(&onnx.may) != ONNX_FREE ||
        !requests_want_calls())
        return;
    loaded = objects_loaded();
    if (loaded == done || !each_object(find_stubs, &there))
        return;
    if (!there)
        each_object(put_stubs, &there);
    if (there)
        done = loaded;
}
