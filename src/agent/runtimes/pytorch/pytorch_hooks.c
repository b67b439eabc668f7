/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PyTorch backend on the program's threads: the safe point, and the stubs that libtorch_python
 * and libtorch_cpu call instead of three functions of PyTorch. While the number is the program's
 * own, a stub costs two loads.
 */
#include "agent/compat.h"
#include "agent/process/number.h"
#include "agent/process/python.h"
#include "agent/processor.h"
#include "agent/runtimes/pytorch/pytorch.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Whoever compiles with Inductor has this module; an eager training does not, nor a compiler of
 * another name. */
#define INDUCTOR "torch._inductor.compile_fx"

#define PYTORCH_REAL_BACKWARD "40" /* where struct pytorch_real has it */

static __thread bool is_main __attribute__((tls_model("initial-exec"))); /* Python's */
static _Atomic uint32_t fresh; /* the number of threads that begin to use PyTorch */
static _Atomic bool touched;   /* at::set_num_threads has been called by us */

/* ---- the safe point ---- */

bool pytorch_is_changed_here(void)
{
    return is_main && atomic_load(&pytorch.ours) != atomic_load(&pytorch.own);
}

/* torch.compile's code has the number in it, and is compiled anew, or wrong, with another one. */
static bool compiles(void)
{
    if (atomic_load(&pytorch.may) != NUMBER_FREE || !python_has_module(INDUCTOR))
        return false;
    safe_number_fix(&pytorch, "moldable: torch.compile builds on the number of threads");
    return true;
}

/* PyTorch's libraries stay loaded while we have pointers into them. */
static bool keep_loaded(void)
{
    void *handle = dlopen(pytorch_path, RTLD_LAZY | RTLD_NOLOAD);

    return handle && dlsym(handle, "_ZN2at15set_num_threadsEi") == (void *)pytorch_real.set_number;
}

/*
 * The first time. A program that is still at "import torch" has not chosen a number yet; later it
 * may have, in the moment before our stubs were in place.
 */
static void meet(void)
{
    bool by_user;
    uint32_t given = number_of_environment(&by_user), own;

    if (!keep_loaded()) {
        safe_number_fix(&pytorch, "moldable: an unknown PyTorch");
        return;
    }
    own = (uint32_t)pytorch_real.get_number();
    if (atomic_load(&pytorch.sized)) /* torch.set_num_threads() was first */
        ;
    else if (by_user && given > own) /* MKL gives no more than there are cores */
        atomic_store(&pytorch.sized, given);
    else if (by_user || getenv("MKL_NUM_THREADS") || (own != given && !python_imports("torch")))
        atomic_store(&pytorch.sized, own);
    atomic_store(&pytorch.ours, own);
    atomic_store(&fresh, own);
    atomic_store(&pytorch.own, own);
}

/* The program's own number at once, before it is told to somebody who builds on it. */
static void put_back(void)
{
    uint32_t own = atomic_load(&pytorch.own);

    pytorch_real.set_number((int)own);
    atomic_store(&pytorch.ours, own);
}

/* Gives this thread the number. Returns false when it has to wait. */
static bool take_number(void)
{
    uint32_t own = atomic_load(&pytorch.own), ours = atomic_load(&pytorch.ours);
    uint32_t held = (uint32_t)pytorch_real.get_number(), want;
    bool theirs = atomic_load(&pytorch.limit) || (held != ours && held != own);

    /* threadpoolctl, or a library's omp_set_num_threads(): until it puts back what it has found. */
    atomic_store(&pytorch.held, held);
    atomic_store(&pytorch.theirs, theirs);
    if (theirs)
        return true;
    want = safe_number_wanted(&pytorch);
    if (want == held && want == ours)
        return true;
    if (want != own && compiles())
        want = own;
    /* A new library may build on the number that it has asked for. */
    if (want != own && !safe_number_all_seen(&pytorch))
        return false;
    /* First: the next call also changes new threads' number, which pytorch_init() then corrects. */
    atomic_store(&touched, true);
    pytorch_real.set_number((int)want);
    atomic_store(&pytorch.ours, want);
    return true;
}

bool pytorch_at_safe_point(void)
{
    is_main = true;
    if (atomic_load(&pytorch.forked)) {
        if (pytorch_is_changed_here())
            put_back();
        return false;
    }
    if (!python_prepare()) {
        safe_number_fix(&pytorch, "moldable: an unknown Python");
        return true;
    }
    if (!pytorch.version[0])
        python_text("torch", "__version__", pytorch.version, sizeof(pytorch.version));
    if (pytorch_real.in_region())
        return false;
    if (atomic_load(&pytorch.own) == 0)
        meet();
    return atomic_load(&pytorch.own) == 0 || take_number();
}

/* ---- stubs ---- */

__attribute__((noinline, cold)) static int get_changed(int held)
{
    int saved = errno;
    uint32_t ours = atomic_load(&pytorch.ours), own = atomic_load(&pytorch.own);
    bool again =
        atomic_load(&pytorch.forked) || compiles() || atomic_load(&pytorch.may) == NUMBER_FIXED;

    if (is_main && (uint32_t)held == ours && !atomic_load(&pytorch.limit)) {
        if (again)
            put_back();
        held = (int)own;
    }
    errno = saved;
    return held;
}

int pytorch_get_number(void)
{
    int held = pytorch_real.get_number();

    if (__builtin_expect(atomic_load_explicit(&pytorch.ours, memory_order_relaxed) !=
                             atomic_load_explicit(&pytorch.own, memory_order_relaxed),
                         0))
        return get_changed(held);
    return held;
}

void pytorch_set_number(int n)
{
    int saved;

    pytorch_real.set_number(n);
    saved = errno;
    atomic_store(&fresh, (uint32_t)n);
    if (is_main) {
        atomic_store(&pytorch.ours, (uint32_t)n);
        atomic_store(&pytorch.own, (uint32_t)n);
        atomic_store(&pytorch.sized, (uint32_t)n);
        atomic_store(&pytorch.limit, 0);
        atomic_fetch_add(&pytorch.wanted, 1);
        if (!atomic_load(&pytorch.forked))
            agent_notify();
    } else if (atomic_load(&pytorch.own) == 0) {
        atomic_store(&pytorch.sized, (uint32_t)n); /* perhaps the main thread, before all this */
    }
    errno = saved;
}

/* Threads take the number that was set last, which may be ours for the main thread. */
void pytorch_init(void)
{
    /* Not a thread of OpenMP, which asks within the main one's region. */
    if (!is_main && syscall(SYS_gettid) != getpid() && !pytorch_real.in_region())
        atomic_store(&pytorch.elsewhere, true);
    if (!atomic_load(&touched))
        pytorch_real.init();
    else
        pytorch_real.set_number((int)atomic_load(is_main ? &pytorch.ours : &fresh));
}

int pytorch_get_openmp(void)
{
    int held = pytorch_real.get_openmp();

    return is_main ? (int)safe_number_told(&pytorch, (uint32_t)held) : held;
}

void pytorch_set_openmp(int n)
{
    pytorch_real.set_openmp(is_main ? (int)safe_number_given(&pytorch, (uint32_t)n) : n);
}

/* ---- the unit of work ---- */

_Atomic uint64_t pytorch_backwards;

#if PROCESSOR_CODE_IS_KNOWN
/* Counts, also for requests_serves(), and goes on to the real function with all arguments and the
 * stack as they are. */
void pytorch_count_backward(void) __attribute__((visibility("hidden")));

__asm__(".pushsection .text\n"
        ".hidden pytorch_count_backward\n"
        ".globl pytorch_count_backward\n"
        ".type pytorch_count_backward, @function\n"
        "pytorch_count_backward:\n"
        "    endbr64\n"
        "    lock incq pytorch_backwards(%rip)\n"
        "    movq requests_trained@gottpoff(%rip), %r11\n"
        "    movb $1, %fs:(%r11)\n"
        "    jmp *pytorch_real+" PYTORCH_REAL_BACKWARD "(%rip)\n"
        ".size pytorch_count_backward, . - pytorch_count_backward\n"
        ".popsection\n");
static_assert(offsetof(struct pytorch_real, backward) == 40, PYTORCH_REAL_BACKWARD);

void (*const pytorch_backward)(void) = pytorch_count_backward;
#else
void (*const pytorch_backward)(void) = NULL;
#endif
