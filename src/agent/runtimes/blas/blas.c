/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/runtimes/blas/blas.h"

#include "agent/process/number.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- who else computes ---- */

/* Beginnings of names of files, or of what they are linked with. */
static const char *const others[] = {"libtensorflow", "libtbb",        "libggml",
                                     "polars",        "xla_extension", "libjax_common",
                                     "onnxruntime",   "libllvmlite"};
static const char *const openmps[] = {"libgomp", "libomp", "libiomp5"};

static _Atomic bool beside; /* one of them is here */
static uint64_t seen_loads;

static bool is_blas(const struct object *o)
{
    const char *file = object_file(o);

    return blas_begins_with(file, "libmkl_") || blas_begins_with(file, "libblis") ||
           blas_begins_with(file, "libblas") || strstr(file, "openblas");
}

static void take_region(void *arg, const struct import *import)
{
    if (blas_begins_with(import->name, "GOMP_parallel") ||
        strcmp(import->name, "__kmpc_fork_call") == 0)
        *(bool *)arg = true;
}

/* The runtime of OpenMP may be the BLAS's own. */
static bool begins_regions(const struct object *o)
{
    bool found = false;

    for (size_t i = 0; i < ARRAY_LEN(openmps); i++)
        if (object_needs(o, openmps[i])) {
            object_imports(o, take_region, &found);
            return found;
        }
    return false;
}

static bool is_other(const struct object *o)
{
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (blas_begins_with(object_file(o), others[i]) || object_needs(o, others[i]))
            return true;
    return begins_regions(o);
}

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    *(uint64_t *)arg = info->dlpi_adds;
    object_read(&o, info);
    if (o.dynamic && !is_blas(&o) && is_other(&o))
        atomic_store(&beside, true);
    return atomic_load(&beside);
}

void blas_look_beside(void)
{
    uint64_t loads = atomic_load(&beside) ? UINT64_MAX : objects_loaded();

    if (loads != UINT64_MAX && loads != seen_loads && /* the first: the program forks */
        each_object(look_at, &loads))
        seen_loads = loads;
}

bool blas_shows(_Atomic bool *told, struct proto_backend *b)
{
    if (!atomic_load(&beside)) {
        atomic_store(told, true);
        return true;
    }
    b->malleable = false;
    snprintf(b->note, sizeof(b->note), "moldable: another library computes with threads, too");
    return atomic_load(told);
}

uint32_t blas_variable(const char *const *names)
{
    for (; *names; names++) {
        const char *value = getenv(*names);
        long n = value ? strtol(value, NULL, 10) : 0;

        if (n > 0)
            return n < PROTO_THREADS_MAX ? (uint32_t)n : PROTO_THREADS_MAX;
    }
    return 0;
}

bool blas_chosen(const char *const *names)
{
    bool by_user;

    for (; *names; names++)
        if ((int32_t)number_of_variable(*names, &by_user) > 0)
            return by_user;
    return false;
}

/* ---- libraries that ask ---- */

void blas_begin(struct blas_asks *b)
{
    int saved = errno;

    if (!atomic_exchange(&b->begun, true)) {
        objects_watch_forks();
        agent_start();
    }
    errno = saved;
}

void blas_meet(struct blas_asks *b, uint32_t own)
{
    uint32_t most = atomic_load_explicit(&b->most, memory_order_relaxed);

    while (own > most && own <= PROTO_THREADS_MAX &&
           !atomic_compare_exchange_weak(&b->most, &most, own))
        ;
    if (__builtin_expect(!atomic_load_explicit(&b->begun, memory_order_relaxed), 0))
        blas_begin(b);
}

void blas_fix(struct blas_asks *b, const char *note, uint32_t most)
{
    int may = BLAS_FREE;

    if (!atomic_compare_exchange_strong(&b->may, &may, BLAS_JUDGING))
        return;
    snprintf(b->note, sizeof(b->note), "%s", note);
    atomic_store(&b->most, most);
    atomic_store(&b->may, BLAS_FIXED);
    if (most > 1)
        blas_begin(b);
}

bool blas_asks_settled(void)
{
    return true;
}

bool blas_asks_apply(struct blas_asks *b, const struct agent_target *target)
{
    atomic_store(&b->target, target->intra);
    atomic_store(&b->placed_ns, clock_now_ns());
    return true;
}

void blas_asks_watch(const struct blas_asks *b)
{
    if (atomic_load(&b->begun))
        blas_look_beside();
}

void blas_asks_measure(const struct blas_asks *b, struct proto_ack *ack)
{
    if (atomic_load(&b->most))
        agent_measure(ack, atomic_load(&b->placed_ns));
}

bool blas_asks_describe(struct blas_asks *b, struct proto_backend *ret)
{
    uint32_t most = atomic_load(&b->most);
    int may = atomic_load(&b->may);

    if (most < 2 || may == BLAS_JUDGING)
        return false;
    ret->malleable = may == BLAS_FREE;
    ret->max_intra = most;
    ret->target_intra = ret->active_intra = ret->malleable ? blas_limited(b, most) : most;
    snprintf(ret->name, sizeof(ret->name), "%s", b->name);
    snprintf(ret->version, sizeof(ret->version), "%s", b->version);
    snprintf(ret->note, sizeof(ret->note), "%s",
             !ret->malleable            ? b->note
             : atomic_load(&b->further) ? "a further copy is moldable"
                                        : "");
    return blas_shows(&b->told, ret);
}

uint64_t blas_asks_tasks(void)
{
    return 0;
}

/* The child's first call starts the agent again, and has the program's number. */
void blas_asks_after_fork(struct blas_asks *b)
{
    atomic_store(&b->begun, false);
    atomic_store(&b->target, 0);
}
