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

static void *run_in_python(void *original, void *const *args, ptrdiff_t n, void *names)
{
    uint64_t began_ns = requests_call_begin(PROTO_REQUESTS_ONNX, NULL);
    void *result = python_call(original, args, n, names); /* NULL: an exception */

    requests_call_returned(began_ns, !result);
    return result;
}

static bool see_python(void)
{
    if (!python_has_module(MODULE)) /* it is being imported */
        return false;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        python_replace(MODULE, TYPE, methods[i], run_in_python);
    return true;
}

static struct python_errand errand = {.package = "onnxruntime", .run = see_python};

/* ---- the C API: the program's threads ---- */

typedef void *(*run_fn)(void *session, const void *options, const void *names, const void *inputs,
                        size_t n_inputs, const void *output_names, size_t n_outputs, void *outputs);
typedef void *(*run_bound_fn)(void *session, const void *options, const void *binding);
typedef void (*answer_fn)(void *arg, void **outputs, size_t n_outputs, void *status);
typedef void *(*run_async_fn)(void *session, const void *options, const void *names,
                              const void *inputs, size_t n_inputs, const void *output_names,
                              size_t n_outputs, void *outputs, answer_fn answer, void *arg);

/* Entries of the table before the stubs. */
static struct {
    run_fn run;
    run_bound_fn run_bound;
    run_async_fn run_async;
} real;

static void *run(void *session, const void *options, const void *names, const void *inputs,
                 size_t n_inputs, const void *output_names, size_t n_outputs, void *outputs)
{
    uint64_t began_ns = requests_call_begin(PROTO_REQUESTS_ONNX, NULL);
    void *status = real.run(session, options, names, inputs, n_inputs, output_names, n_outputs,
                            outputs); /* it throws nothing: a status says what went wrong */

    requests_call_returned(began_ns, status);
    return status;
}

static void *run_bound(void *session, const void *options, const void *binding)
{
    uint64_t began_ns = requests_call_begin(PROTO_REQUESTS_ONNX, NULL);
    void *status = real.run_bound(session, options, binding);

    requests_call_returned(began_ns, status);
    return status;
}

/* A call with two owners: the thread that asked, and the one that answers, perhaps earlier. */
struct asked {
    _Atomic unsigned owners;
    _Atomic bool ended;
    answer_fn answer;
    void *arg;
    uint64_t began_ns;
};

/* Returns whether it had not ended. */
static bool end(struct asked *asked, bool failed)
{
    bool first = !atomic_exchange(&asked->ended, true);

    if (first)
        (failed ? requests_call_failed : requests_call_answered)(asked->began_ns);
    return first;
}

static void drop(struct asked *asked)
{
    if (atomic_fetch_sub(&asked->owners, 1) == 1)
        free(asked);
}

static void answered(void *arg, void **outputs, size_t n_outputs, void *status)
{
    struct asked *asked = arg;
    answer_fn answer = asked->answer;
    void *programs = asked->arg;

    end(asked, status);
    drop(asked);
    answer(programs, outputs, n_outputs, status);
}

static void *run_async(void *session, const void *options, const void *names, const void *inputs,
                       size_t n_inputs, const void *output_names, size_t n_outputs, void *outputs,
                       answer_fn answer, void *arg)
{
    struct asked *asked =
        requests_want_calls(PROTO_REQUESTS_ONNX) && answer ? malloc(sizeof(*asked)) : NULL;
    void *status;

    if (!asked)
        return real.run_async(session, options, names, inputs, n_inputs, output_names, n_outputs,
                              outputs, answer, arg);
    *asked = (struct asked){2, false, answer, arg, requests_call_begin(PROTO_REQUESTS_ONNX, NULL)};
    status = real.run_async(session, options, names, inputs, n_inputs, output_names, n_outputs,
                            outputs, answered, asked);
    requests_call_left();
    if (status &&
        end(asked, true)) /* nobody will answer; else the answer itself has failed, in this call */
        drop(asked);
    drop(asked);
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

enum stubs { STUBS_NOWHERE, STUBS_AWAITED, STUBS_PUT, STUBS_NEVER };

/*
 * In the first library of the process. A second one's would need stubs of its own, and is not read;
 * nor is the first one once it was unloaded and comes again.
 */
static int put_stubs(struct dl_phdr_info *info, size_t size, void *arg)
{
    enum stubs *stubs = arg;
    struct object o;
    uintptr_t table = table_of(info, &o);

    (void)size;
    if (!table)
        return 0;
    *stubs = STUBS_NEVER;
    if (!onnx_api_is_stock(info, table))
        return 1;
    real.run = (run_fn)pointer_to(slot_held(entry(table, ONNX_API_RUN)));
    real.run_bound = (run_bound_fn)pointer_to(slot_held(entry(table, ONNX_API_RUN_BOUND)));
    real.run_async = (run_async_fn)pointer_to(slot_held(entry(table, ONNX_API_RUN_ASYNC)));
    if (slot_write(&o, entry(table, ONNX_API_RUN_BOUND), (uintptr_t)run_bound) &&
        slot_write(&o, entry(table, ONNX_API_RUN_ASYNC), (uintptr_t)run_async) &&
        slot_write(&o, entry(table, ONNX_API_RUN), (uintptr_t)run))
        *stubs = STUBS_PUT;
    else if (slot_held(entry(table, ONNX_API_RUN_BOUND)) != (uintptr_t)run_bound)
        *stubs = STUBS_AWAITED; /* ld.so is not done: again in a moment */
    return 1;
}

static void watch_library(void)
{
    static enum stubs stubs;
    static uint64_t looked; /* objects_loaded() when no table was found */
    uint64_t loaded;

    if (stubs == STUBS_PUT || stubs == STUBS_NEVER)
        return;
    loaded = objects_loaded();
    if (loaded == looked)
        return;
    stubs = STUBS_NOWHERE;
    if (each_object(put_stubs, &stubs) && stubs == STUBS_NOWHERE)
        looked = loaded;
}

void onnx_calls_watch(void)
{
    if (atomic_load(&onnx.may) != ONNX_FREE || !requests_want_calls(PROTO_REQUESTS_ONNX))
        return;
    if (atomic_load(&onnx.in_python))
        python_errand(&errand);
    if (atomic_load(&onnx.has_library))
        watch_library();
}

void onnx_calls_after_fork(void)
{
    atomic_store(&errand.asked, false);
}
