/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for OpenMP: libgomp (gcc), libomp (clang) and libiomp5 (Intel), in any number of copies.
 * This part keeps the target and describes the copies; docs/design/52-openmp.md says when the
 * number of threads may change.
 */
#include "agent/runtimes/openmp/openmp.h"
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/process/python.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct openmp_state openmp;

static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool asked; /* for a safe point of Python */

/* ---- copies ---- */

bool openmp_is_runtime(const char *file)
{
    static const char *const prefixes[] = {"libgomp", "libomp", "libiomp5"};
    const char *slash = strrchr(file, '/');

    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(slash ? slash + 1 : file, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* Fills in a copy; copies_lock held. Returns false when this is no runtime that we know. */
static bool copy_fill(struct copy *copy, const Dl_info *info)
{
    /* Kept open: the addresses below must stay valid. */
    void *handle = openmp_is_runtime(info->dli_fname)
                       ? dlopen(info->dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                       : NULL;
    const char *slash = strrchr(info->dli_fname, '/');

    if (!handle)
        return false;
    copy->get_max = (int (*)(void))dlsym(handle, "omp_get_max_threads");
    copy->set_number = (void (*)(int))dlsym(handle, "omp_set_num_threads");
    copy->level = (int (*)(void))dlsym(handle, "omp_get_level");
    copy->base = info->dli_fbase;
    copy->index = (unsigned)(copy - openmp.copies);
    snprintf(copy->name, sizeof(copy->name), "%s", slash ? slash + 1 : info->dli_fname);
    return copy->get_max && copy->set_number && copy->level;
}

static struct copy *copy_find(const void *base)
{
    unsigned n = atomic_load(&openmp.n_copies);

    for (unsigned i = 0; i < n; i++)
        if (openmp.copies[i].base == base)
            return &openmp.copies[i];
    return NULL;
}

struct copy *copy_of(const void *address)
{
    struct copy *copy;
    Dl_info info;

    if (!dladdr(address, &info))
        return NULL;
    pthread_mutex_lock(&copies_lock);
    copy = copy_find(info.dli_fbase);
    if (!copy) {
        unsigned n = atomic_load(&openmp.n_copies);

        if (n == 0) {
            openmp.machine = agent_config.max;
            openmp.sized = getenv("OMP_NUM_THREADS") != NULL;
            openmp.fences =
                syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
        }
        if (n < COPIES_MAX && copy_fill(&openmp.copies[n], &info)) {
            copy = &openmp.copies[n];
            atomic_store(&openmp.n_copies, n + 1);
        }
    }
    pthread_mutex_unlock(&copies_lock);
    return copy;
}

/* ---- targets ---- */

static uint32_t wanted(void)
{
    uint32_t target = atomic_load(&openmp.target);
    uint32_t most = atomic_load(&openmp.most);

    if (target == 0)
        target = openmp.sized ? most : atomic_load(&openmp.limit);
    return most && most < target ? most : target;
}

/* Threads take the number before their next region, from now on. */
static void begin_generation(void)
{
    uint32_t generation = atomic_load(&openmp.generation) + 1;

    atomic_store(&openmp.generation, generation ? generation : 1);
    if (!atomic_load(&openmp.fences))
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

static int at_safe_point(void *arg)
{
    (void)arg;
    atomic_store(&asked, false);
    hooks_at_safe_point();
    return 0;
}

/* Copies that change on Python's main thread are there, or will be before its next call. */
static bool python_settled(void)
{
    unsigned n = atomic_load(&openmp.n_copies);
    bool any = false;

    for (unsigned i = 0; i < n; i++)
        any |= atomic_load(&openmp.copies[i].may) == OPENMP_PYTHON;
    if (!any || atomic_load(&openmp.python) == atomic_load(&openmp.generation))
        return true;
    if (!atomic_exchange(&asked, true) && !python_call_soon(at_safe_point))
        atomic_store(&asked, false);
    return hooks_active() == 0 && python_sleeps();
}

static bool omp_settled(void)
{
    bool settled = python_settled() && hooks_settled();

    if (settled)
        atomic_store(&openmp.watched, false);
    return settled;
}

static bool omp_apply(const struct agent_target *target)
{
    atomic_store(&openmp.target, target->intra);
    atomic_store(&openmp.limit, limit_threads(target->allowed_mcpu));
    if (atomic_load(&openmp.n_copies) == 0)
        return true;
    objects_judge();
    atomic_store(&openmp.watched, true); /* until it is settled */
    begin_generation();
    return omp_settled();
}

static void omp_measure(struct proto_ack *ack)
{
    uint64_t placed_ns = atomic_load(&openmp.placed_ns);

    if (placed_ns <= ack->received_ns)
        return;
    if (placed_ns > ack->placed_ns)
        ack->placed_ns = placed_ns;
    if (placed_ns - ack->received_ns > ack->longest_ns)
        ack->longest_ns = placed_ns - ack->received_ns;
}

/* New copies and new objects are looked at within a tick. */
static void omp_watch(uint64_t now_ns)
{
    (void)now_ns;
    omp_settled(); /* also asks again for a safe point */
    if (atomic_load(&openmp.n_copies) > 0 &&
        (atomic_load(&openmp.loads) != objects_loaded() || atomic_load(&openmp.generation) == 0)) {
        objects_judge();
        begin_generation();
    }
}

static bool omp_describe(struct proto_backend *b)
{
    unsigned n = atomic_load(&openmp.n_copies);
    const struct copy *shown = NULL;
    bool judged = false;

    for (unsigned i = 0; i < n; i++) {
        const struct copy *copy = &openmp.copies[i];
        int may = atomic_load(&copy->may);

        judged |= may != OPENMP_UNJUDGED;
        b->malleable |= may == OPENMP_FREE || may == OPENMP_PYTHON;
        if (!shown || may == OPENMP_NEVER)
            shown = copy;
    }
    if (!judged || atomic_load(&openmp.most) == 0)
        return false; /* no region has begun since the look at the objects */
    b->max_intra = atomic_load(&openmp.most);
    b->target_intra = wanted();
    b->active_intra = hooks_settled() ? wanted() : hooks_active();
    if (!b->malleable)
        b->active_intra = hooks_active();
    snprintf(b->name, sizeof(b->name), "openmp");
    snprintf(b->version, sizeof(b->version), "%s", shown->name);
    snprintf(b->note, sizeof(b->note), "%s",
             shown->note[0]                ? shown->note
             : atomic_load(&openmp.theirs) ? "the program sets its number of threads itself"
                                           : "");
    return true;
}

static uint64_t omp_tasks(void)
{
    return hooks_regions();
}

static void omp_after_fork(void)
{
    pthread_mutex_init(&copies_lock, NULL);
    atomic_store(&openmp.watched, false);
    atomic_store(&asked, false);
    hooks_after_fork();
}

const struct agent_backend openmp_backend = {
    .name = "openmp",
    .needs_safe_point = true,
    .apply = omp_apply,
    .settled = omp_settled,
    .measure = omp_measure,
    .describe = omp_describe,
    .watch = omp_watch,
    .tasks = omp_tasks,
    .after_fork = omp_after_fork,
};
