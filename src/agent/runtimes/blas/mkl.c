/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for MKL with OpenMP (libmkl_rt, or the libraries that it loads). A call asks several
 * times for its number of threads, and may build on the first answer. So a thread takes the target
 * where a call of BLAS or LAPACK begins, and gets the same answer until the next one begins.
 * docs/design/59-mkl-blis.md says why.
 *
 *   interface layer --begin_call()--> threading layer     libmkl_intel_lp64 -> libmkl_intel_thread
 *   core, threading layer --max_threads(domain)--> min(the program's own number, the call's limit)
 */
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/process/number.h"
#include "agent/runtimes/blas/blas.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <string.h>

#define MAX_THREADS "mkl_serv_domain_get_max_threads"
/* The only caller is mkl_set_xerbla_interface() of an interface layer; with that each of its
 * functions for BLAS and LAPACK begins which checks its arguments. */
#define BEGINS "mkl_serv_set_xerbla_interface"

/* mkl.h: what a library may be given a number for. Others keep something from call to call
 * (plans of FFT, factors of PARDISO, optimized sparse matrices), and 0 and -1 are queries. */
enum domain { DOMAIN_BLAS = 1, DOMAIN_VML = 3, DOMAIN_LAPACK = 5 };

enum part { LAYER, CORE, INTERFACE, PART_MAX };

/* Beginnings of files. MKL's layers for TBB and for one thread have no number of their own. */
static const struct {
    const char *file;
    enum part part;
} files[] = {
    {"libmkl_intel_thread.so", LAYER},
    {"libmkl_gnu_thread.so", LAYER},
    {"libmkl_core.so", CORE},
    {"libmkl_intel_lp64.so", INTERFACE},
    {"libmkl_intel_ilp64.so", INTERFACE},
    {"libmkl_gf_lp64.so", INTERFACE},
    {"libmkl_gf_ilp64.so", INTERFACE},
};

static struct blas_asks mkl = {.name = "mkl"};

/* Written by threads that load a library, one at a time; the functions before the first slot. */
static struct {
    uintptr_t start; /* of the threading layer; 0: none yet */
    char folder[512];
    bool has[PART_MAX];
    int (*max_threads)(int domain);
    void (*begin_call)(const void *interface);
    void (*get_version)(int *ret_numbers);
} layer;

static _Atomic bool follows; /* all of its slots hold our stubs */

/* For the call that this thread has begun last; 0: none. Threads that never begin one work for
 * others' calls, and are given their numbers there. */
static __thread uint32_t limit __attribute__((tls_model("initial-exec")));

/* ---- stubs: the program's threads ---- */

static void begin_call(const void *interface)
{
    limit = atomic_load_explicit(&follows, memory_order_acquire)
                ? atomic_load_explicit(&mkl.target, memory_order_relaxed)
                : 0;
    layer.begin_call(interface);
}

/* In the first call, before the agent runs. */
static void read_version(void)
{
    int numbers[32] = {0}; /* MKLVersion: 2026, 0, 2 of 2026.2; then some pointers */

    if (mkl.version[0] || !layer.get_version)
        return;
    layer.get_version(numbers);
    snprintf(mkl.version, sizeof(mkl.version), "%d.%d", numbers[0], numbers[2]);
}

static int max_threads(int domain)
{
    int own = layer.max_threads(domain);

    if (own < 2 || (domain != DOMAIN_BLAS && domain != DOMAIN_LAPACK && domain != DOMAIN_VML))
        return own;
    if (atomic_load_explicit(&follows, memory_order_relaxed)) {
        if (__builtin_expect(!atomic_load_explicit(&mkl.begun, memory_order_relaxed), 0))
            read_version();
        blas_meet(&mkl, (uint32_t)own);
    }
    return limit && limit < (uint32_t)own ? (int)limit : own;
}

/* ---- a library is loaded: a thread of the program, in the middle of that ---- */

static enum part part_of(const struct object *o)
{
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (o->dynamic && strncmp(object_file(o), files[i].file, strlen(files[i].file)) == 0)
            return files[i].part;
    return PART_MAX;
}

static void unknown(void)
{
    static const char *const names[] = {"MKL_NUM_THREADS", "OMP_NUM_THREADS", NULL};
    uint32_t n = blas_variable(names);

    blas_fix(&mkl, "moldable: an unknown MKL", n ? n : limit_affinity_cpus());
}

static bool is_in_folder(const struct object *o)
{
    size_t n = (size_t)(object_file(o) - o->path);

    return n == strlen(layer.folder) && strncmp(o->path, layer.folder, n) == 0;
}

/* The first threading layer. It stays loaded. */
static int find_layer(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    (void)arg;
    object_read(&o, info);
    if (part_of(&o) != LAYER)
        return 0;
    if (strlen(o.path) >= sizeof(layer.folder) || !dlopen(o.path, RTLD_LAZY | RTLD_NOLOAD))
        return 1;
    snprintf(layer.folder, sizeof(layer.folder), "%.*s", (int)(object_file(&o) - o.path), o.path);
    layer.max_threads = (int (*)(int))pointer_to(object_defines(&o, MAX_THREADS));
    layer.begin_call = (void (*)(const void *))pointer_to(object_defines(&o, BEGINS));
    layer.start = o.start;
    return 1;
}

/* Its slots, and those of what lies beside it. */
static int take(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;
    enum part part;
    bool taken;

    (void)size;
    (void)arg;
    object_read(&o, info);
    part = part_of(&o);
    if (part == PART_MAX)
        return 0;
    if (!is_in_folder(&o) || (part == LAYER && o.start != layer.start)) {
        atomic_store(&mkl.further, true);
        return 0;
    }
    if (part == INTERFACE)
        taken = slots_take(&o, BEGINS, layer.begin_call, begin_call);
    else
        taken = slots_take(&o, MAX_THREADS, layer.max_threads, max_threads);
    if (part == CORE)
        layer.get_version = (void (*)(int *))pointer_to(object_defines(&o, "mkl_serv_get_version"));
    layer.has[part] = layer.has[part] || taken;
    if (!taken && atomic_load(&follows)) /* a further interface layer: no call begins there */
        atomic_store(&mkl.further, true);
    else if (!taken)
        unknown();
    return 0;
}

static void look(void)
{
    if (atomic_load(&mkl.may) != BLAS_FREE)
        return;
    if (layer.start == 0)
        dl_iterate_phdr(find_layer, NULL);
    if (layer.start)
        dl_iterate_phdr(take, NULL);
    if (atomic_load(&mkl.may) == BLAS_FREE && layer.has[LAYER] && layer.has[CORE] &&
        layer.has[INTERFACE])
        atomic_store_explicit(&follows, true, memory_order_release);
}

static void mkl_loaded(const struct object *o)
{
    if (part_of(o) != PART_MAX && !number_threads_are_bound())
        look();
}

static int is_here(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    (void)arg;
    object_read(&o, info);
    return part_of(&o) == LAYER;
}

/* Libraries that the program is linked with may be initialized before us. */
__attribute__((constructor)) static void look_if_linked(void)
{
    if (agent_config.enabled && dl_iterate_phdr(is_here, NULL) == 1 && !number_threads_are_bound())
        look();
}

/* ---- targets: the control thread ---- */

static bool mkl_apply(const struct agent_target *target)
{
    return blas_asks_apply(&mkl, target);
}

static void mkl_watch(uint64_t now_ns)
{
    (void)now_ns;
    blas_asks_watch(&mkl);
}

static void mkl_measure(struct proto_ack *ack)
{
    blas_asks_measure(&mkl, ack);
}

static bool mkl_describe(struct proto_backend *b)
{
    return blas_asks_describe(&mkl, b);
}

static void mkl_after_fork(void)
{
    limit = 0;
    blas_asks_after_fork(&mkl);
}

const struct agent_backend mkl_backend = {
    .name = "mkl",
    .apply = mkl_apply,
    .settled = blas_asks_settled,
    .measure = mkl_measure,
    .describe = mkl_describe,
    .watch = mkl_watch,
    .tasks = blas_asks_tasks,
    .loaded = mkl_loaded,
    .after_fork = mkl_after_fork,
};
