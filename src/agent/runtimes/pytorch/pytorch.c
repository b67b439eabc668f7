/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for PyTorch with OpenMP, from Python: at a safe point of the main thread the number of
 * threads changes as by torch.set_num_threads(). This part runs on the control thread: it finds
 * PyTorch and puts stubs into its slots, keeps the target, and asks for safe points.
 */
#include "agent/runtimes/pytorch/pytorch.h"
#include "agent/compat.h"
#include "agent/process/number.h"
#include "agent/process/objects.h"
#include "agent/process/python.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <string.h>

#define STUBS_MAX 16
/* torch::autograd::Engine::execute(roots, inputs, keep_graph, create_graph, accumulate, outputs) */
#define BACKWARD                                                                                   \
    "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_"     \
    "EEbbbS7_"
#define TRIES_MAX 100 /* ticks to wait for ld.so to finish PyTorch */

static bool shares(const struct object *o);

struct safe_number pytorch = {
    .name = "pytorch",
    .whose = "PyTorch's",
    .at_safe_point = pytorch_at_safe_point,
    .shares = shares,
};
struct pytorch_real pytorch_real;
char pytorch_path[512];

static _Atomic bool present; /* PyTorch has been loaded */

static const char *const runtimes[] = {"libgomp", "libomp", "libiomp5"};

/* Facts about PyTorch's objects since they were found. */
static struct {
    char folder[sizeof(pytorch_path)];
    char needed[64], soname[64]; /* names of the runtime of OpenMP that it shares with who else */
    uint64_t loads;              /* objects when PyTorch was not among them */
    unsigned tries;
} known;

/* ---- PyTorch's objects ---- */

/* A way through the list for PyTorch. */
struct search {
    struct pytorch_real real;
    uintptr_t openmp; /* what PyTorch's slot for omp_set_num_threads holds */
    uintptr_t openmp_get;
    bool cpu, python;
    bool unfinished, foreign; /* some slot holds what it should not, for the moment, for good */
    struct stub {
        struct object object;
        uintptr_t slot, real, ours;
    } stubs[STUBS_MAX];
    unsigned n;
    struct object object; /* of which imports are read */
};

/* A slot that is to lead to @real gets the stub @ours. */
static void take_slot(struct search *s, uintptr_t slot, uintptr_t real, uintptr_t ours)
{
    const struct object *o = &s->object;
    uintptr_t held = slot_held(slot);
    bool expected = held == real || held == ours;

    if (expected && s->n < STUBS_MAX)
        s->stubs[s->n++] = (struct stub){*o, slot, real, ours};
    else if (!expected && ((held >= o->start && held < o->end) || held < o->end - o->start))
        s->unfinished = true; /* ld.so is at it, or waits for the first call */
    else
        s->foreign = true;
}

static void take_cpu(void *arg, const struct import *import)
{
    struct search *s = arg;

    if (strcmp(import->name, "_ZN2at16init_num_threadsEv") == 0)
        take_slot(s, import->slot, (uintptr_t)s->real.init, (uintptr_t)pytorch_init);
    else if (strcmp(import->name, "omp_set_num_threads") == 0)
        s->openmp = slot_held(import->slot);
}

static void take_python(void *arg, const struct import *import)
{
    struct search *s = arg;

    if (strcmp(import->name, "_ZN2at15get_num_threadsEv") == 0)
        take_slot(s, import->slot, (uintptr_t)s->real.get_number, (uintptr_t)pytorch_get_number);
    else if (strcmp(import->name, "_ZN2at15set_num_threadsEi") == 0)
        take_slot(s, import->slot, (uintptr_t)s->real.set_number, (uintptr_t)pytorch_set_number);
    else if (strcmp(import->name, "_ZN2at16init_num_threadsEv") == 0)
        take_slot(s, import->slot, (uintptr_t)s->real.init, (uintptr_t)pytorch_init);
    else if (strcmp(import->name, BACKWARD) == 0 && s->real.backward && pytorch_backward &&
             slot_held(import->slot) == (uintptr_t)s->real.backward)
        take_slot(s, import->slot, (uintptr_t)s->real.backward, (uintptr_t)pytorch_backward);
}

#define DEFINED(member, symbol)                                                                    \
    ((s->real.member = (__typeof__(s->real.member))pointer_to(object_defines(&o, symbol))) != NULL)

static int find_cpu(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *s = arg;
    struct object o;

    (void)size;
    object_read(&o, info);
    if (!o.dynamic || strcmp(object_file(&o), "libtorch_cpu.so") != 0)
        return 0;
    if (strlen(o.path) >= sizeof(pytorch_path))
        return 1;
    s->cpu = DEFINED(get_number, "_ZN2at15get_num_threadsEv") &&
             DEFINED(set_number, "_ZN2at15set_num_threadsEi") &&
             DEFINED(init, "_ZN2at16init_num_threadsEv") &&
             DEFINED(in_region, "_ZN2at18in_parallel_regionEv");
    s->real.backward = (void *)pointer_to(object_defines(&o, BACKWARD));
    snprintf(pytorch_path, sizeof(pytorch_path), "%s", o.path);
    snprintf(known.folder, sizeof(known.folder), "%.*s", (int)(object_file(&o) - o.path), o.path);
    for (size_t i = 0; i < ARRAY_LEN(runtimes); i++)
        if (object_needs(&o, runtimes[i]))
            snprintf(known.needed, sizeof(known.needed), "%s", object_needs(&o, runtimes[i]));
    s->object = o;
    if (s->cpu)
        object_imports(&o, take_cpu, s);
    return 1;
}

static int find_python(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *s = arg;
    struct object o;

    (void)size;
    object_read(&o, info);
    if (s->openmp >= o.start && s->openmp < o.end) {
        snprintf(known.soname, sizeof(known.soname), "%s", object_soname(&o));
        s->openmp_get = object_defines(&o, "omp_get_max_threads");
    }
    if (!o.dynamic || strcmp(object_file(&o), "libtorch_python.so") != 0)
        return 0;
    s->object = o;
    s->python = true;
    object_imports(&o, take_python, s);
    return 0;
}

/* Finds PyTorch and places its stubs. */
static void find(uint64_t loads)
{
    struct search s = {.openmp = 0};
    uintptr_t has[3] = {(uintptr_t)pytorch_get_number, (uintptr_t)pytorch_set_number,
                        (uintptr_t)pytorch_init};
    unsigned kinds = 0;

    each_object(find_cpu, &s);
    if (!pytorch_path[0]) {
        known.loads = loads;
        return;
    }
    if (s.cpu)
        each_object(find_python, &s);
    if (s.cpu && (!s.python || s.unfinished || !known.soname[0]) && known.tries++ < TRIES_MAX)
        return; /* the rest is being loaded */
    if (safe_number_lacks_gil(&pytorch))
        return;
    for (unsigned i = 0; i < s.n; i++)
        for (unsigned kind = 0; kind < ARRAY_LEN(has); kind++)
            kinds |= (s.stubs[i].ours == has[kind]) << kind;
    if (!s.python || s.unfinished || s.foreign || kinds != 7 || !known.needed[0] ||
        !known.soname[0] || !s.openmp_get) {
        safe_number_fix(&pytorch, s.cpu && !s.python ? "moldable: PyTorch without Python"
                                                     : "moldable: an unknown PyTorch");
        return;
    }
    s.real.set_openmp = (void (*)(int))pointer_to(s.openmp);
    s.real.get_openmp = (int (*)(void))pointer_to(s.openmp_get);
    pytorch_real = s.real;
    atomic_thread_fence(memory_order_seq_cst);
    for (unsigned i = 0; i < s.n; i++)
        if (!slot_write(&s.stubs[i].object, s.stubs[i].slot, s.stubs[i].ours))
            return; /* ld.so is not done: again in a moment */
    for (unsigned i = 0; i < s.n; i++)
        pytorch_real.counts_backward |= s.stubs[i].real == (uintptr_t)s.real.backward;
    python_add_answer(pointer_to(s.openmp), (const void *)pytorch_set_openmp);
    python_add_answer(pointer_to(s.openmp_get), (const void *)pytorch_get_openmp);
    safe_number_free(&pytorch);
}

/*
 * Does @o use PyTorch's copy of OpenMP, so that it would meet the number for PyTorch, too? It may
 * build on the number that it has met first. PyTorch's extensions, among the packages, are written
 * for a number that torch.set_num_threads() changes; code of Inductor, elsewhere, is not.
 */
static bool shares(const struct object *o)
{
    if (!o->dynamic || strncmp(o->path, known.folder, strlen(known.folder)) == 0)
        return false;
    if (!object_needs(o, known.needed) && !object_needs(o, known.soname))
        return false;
    return !strstr(o->path, "-packages/") ||
           (!object_needs(o, "libtorch") && !object_needs(o, "libc10"));
}

static void look(void)
{
    uint64_t loads = objects_loaded();

    if (loads != UINT64_MAX && atomic_load(&present) && /* the first: the program forks */
        atomic_load(&pytorch.may) == NUMBER_UNSEEN && loads != known.loads)
        find(loads);
}

/* PyTorch is being loaded: from now on the control thread looks for it. */
static void begin(void)
{
    if (number_threads_are_bound())
        return;
    objects_watch_forks();
    if (agent_start())
        atomic_store(&present, true);
}

/*
 * A new library that shares PyTorch's OpenMP is to meet the program's own number from the first. It
 * builds on OpenMP's alone; PyTorch's functions, which have locks, are called at the safe point.
 * The control thread may have seen it in the list before.
 */
static void torch_loaded(const struct object *o)
{
    if (!atomic_load(&present)) {
        if (strcmp(object_file(o), "libtorch_python.so") == 0)
            begin();
        return;
    }
    if (!pytorch_is_changed_here())
        return;
    safe_number_meet(&pytorch, o);
    if (atomic_load(&pytorch.may) != NUMBER_FREE &&
        (uint32_t)pytorch_real.get_openmp() == atomic_load(&pytorch.ours))
        pytorch_real.set_openmp((int)atomic_load(&pytorch.own));
}

/* ---- targets ---- */

static bool torch_apply(const struct agent_target *target)
{
    look();
    return safe_number_apply(&pytorch, target);
}

static bool torch_settled(void)
{
    return safe_number_settled(&pytorch);
}

static void torch_watch(uint64_t now_ns)
{
    (void)now_ns;
    look();
    safe_number_watch(&pytorch);
    pytorch_calls_watch();
}

static void torch_measure(struct proto_ack *ack)
{
    agent_measure(ack, atomic_load(&pytorch.placed_ns));
}

static bool torch_describe(struct proto_backend *b)
{
    return safe_number_describe(&pytorch, b);
}

static uint64_t torch_tasks(void)
{
    return atomic_load_explicit(&pytorch_backwards, memory_order_relaxed);
}

static void torch_after_fork(void)
{
    safe_number_after_fork(&pytorch);
    pytorch_calls_after_fork();
    if (!pytorch_is_changed_here()) /* another thread of the parent is the child's main thread */
        atomic_store(&pytorch.ours, atomic_load(&pytorch.own));
}

const struct agent_backend pytorch_backend = {
    .name = "pytorch",
    .needs_safe_point = true,
    .apply = torch_apply,
    .settled = torch_settled,
    .measure = torch_measure,
    .describe = torch_describe,
    .watch = torch_watch,
    .tasks = torch_tasks,
    .loaded = torch_loaded,
    .after_fork = torch_after_fork,
};
