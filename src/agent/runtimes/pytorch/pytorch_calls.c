/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of modules from Python that answer requests of a program which tells none
 * (control/requests.c): the outermost of a thread, without gradients. Nothing is in their way until
 * the daemon wants them. All modules are called through one function of Python,
 * torch.nn.Module.__call__; only the pointer by which the interpreter calls it changes, so that
 * torch.compile, which compares the function and its code, finds both as they were.
 */
#include "agent/process/python.h"
#include "agent/runtimes/pytorch/pytorch.h"

#define MODULE "torch.nn.modules.module"

/* Functions of torch._C. */
static void *has_gradients, *has_forward_gradients, *infers;

/*
 * Without gradients, and not since a function of autograd computes its forward (a checkpoint of a
 * training), which ends both kinds of gradients while torch.no_grad() ends one.
 */
static bool is_inference(void)
{
    return python_ask(has_gradients) == 0 &&
           (python_ask(has_forward_gradients) == 1 || python_ask(infers) == 1);
}

static bool answers(void)
{
    return is_inference() && requests_serves(atomic_load(&pytorch_backwards) > 0);
}

static void *call(void *function, void *const *args, size_t n, void *names)
{
    uint64_t began_ns = requests_call_begin(PROTO_REQUESTS_PYTORCH, answers);
    void *result = python_call_function(function, args, n, names); /* NULL: an exception */

    requests_call_returned(began_ns, !result);
    return result;
}

static bool see(void)
{
    if (!python_has_module(MODULE))
        return false;
    if ((has_gradients = python_keep("torch._C", "is_grad_enabled")) &&
        (has_forward_gradients = python_keep("torch._C", "_is_fwd_grad_enabled")) &&
        (infers = python_keep("torch._C", "is_inference_mode_enabled")))
        python_replace_function(MODULE, "Module", "__call__", call);
    return true;
}

static struct python_errand errand = {.package = "torch", .run = see};

void pytorch_calls_watch(void)
{
    if (pytorch_real.counts_backward && requests_want_calls(PROTO_REQUESTS_PYTORCH))
        python_errand(&errand);
}

void pytorch_calls_after_fork(void)
{
    atomic_store(&errand.asked, false);
}
