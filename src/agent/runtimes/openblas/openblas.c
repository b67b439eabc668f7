/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for OpenBLAS: the copies that NumPy's and SciPy's wheels bring, and the distribution's.
 * Each has a function for its number of threads, which a program may call at any time: a call of
 * BLAS keeps the number with which it began. docs/design/55-openblas.md says why.
 *
 *   a copy is loaded -> control thread: look() finds it -> target -> its openblas_set_num_threads()
 */
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/process/objects.h"
#include "agent/process/python.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPIES_MAX 8
#define HISTORY    64 /* numbers up to this one are remembered as ours */
#define BACK_TICKS 20 /* two seconds: then a number of ours that somebody has put back is old */

/* The names under which builds have the functions: prefix, suffix. */
static const char *const spellings[][2] = {
    {"scipy_", "64_"}, {"scipy_", ""}, {"", "64_"}, {"", ""}};

enum parallel { SEQUENTIAL, PTHREADS, OPENMP, PARALLEL_MAX }; /* openblas_get_parallel() */

static struct copy {
    uintptr_t start; /* 0: free */
    int (*get_number)(void);
    void (*set_number)(int);
    const char *(*get_config)(void);
    uint32_t own;   /* the number that it began with, and the most */
    uint32_t ours;  /* the number that it was given */
    uint64_t given; /* a bit for each number that it has had from us */
    unsigned back;  /* ticks since an older one of them was put back */
    bool fixed;     /* computes with OpenMP, whose number is another backend's */
} copies[COPIES_MAX];

static char version[PROTO_SHORT_MAX];
static uint64_t seen_loads;
static uint32_t target; /* 0: none */
static uint64_t placed_ns;
static _Atomic bool present;   /* a copy has been loaded */
static _Atomic uint32_t shown; /* the largest copy's number; 0: none */
static _Atomic uint32_t most;  /* … and the most that it can have */
static _Atomic bool theirs, any_free, any_fixed;

/* ---- copies ---- */

static bool is_openblas(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strstr(slash ? slash : path, "openblas") ||
           (strstr(path, "/openblas") && slash && strncmp(slash, "/libblas.so", 11) == 0);
}

static uintptr_t function(const struct object *o, size_t spelling, const char *name)
{
    char symbol[64];

    snprintf(symbol, sizeof(symbol), "%s%s%s", spellings[spelling][0], name,
             spellings[spelling][1]);
    return object_defines(o, symbol);
}

/* "OpenBLAS 0.3.31 …" -> "0.3.31" */
static void take_version(const char *config)
{
    const char *number = strchr(config, ' ');

    if (number && !version[0])
        snprintf(version, sizeof(version), "%.*s", (int)strcspn(number + 1, " "), number + 1);
}

/* Fills in the functions of a copy; false when it does not have them all. */
static bool find(const struct object *o, struct copy *copy, bool *ret_pthreads)
{
    for (size_t s = 0; s < ARRAY_LEN(spellings); s++) {
        int (*get_parallel)(void) =
            (int (*)(void))pointer_to(function(o, s, "openblas_get_parallel"));

        copy->get_number = (int (*)(void))pointer_to(function(o, s, "openblas_get_num_threads"));
        copy->set_number = (void (*)(int))pointer_to(function(o, s, "openblas_set_num_threads"));
        copy->get_config = (const char *(*)(void))pointer_to(function(o, s, "openblas_get_config"));
        if (!copy->get_number || !copy->set_number || !copy->get_config || !get_parallel)
            continue;
        *ret_pthreads = get_parallel() == PTHREADS;
        return get_parallel() != SEQUENTIAL;
    }
    return false;
}

/* Returns false when the copy is not ready: its constructor makes its threads, after its loading.
 */
static bool meet(const struct object *o)
{
    const int *ready = pointer_to(object_variable(o, "blas_server_avail"));
    struct copy *copy = copies;
    bool pthreads;

    for (; copy < copies + COPIES_MAX && copy->start; copy++)
        if (copy->start == o->start)
            return true;
    if (copy == copies + COPIES_MAX || !find(o, copy, &pthreads) || (pthreads && !ready))
        return true;
    if (pthreads && !__atomic_load_n(ready, __ATOMIC_ACQUIRE))
        return false;
    copy->fixed = !pthreads;
    copy->own = copy->ours = pthreads ? (uint32_t)copy->get_number() : limit_affinity_cpus();
    take_version(copy->get_config());
    copy->start = o->start;
    return true;
}

struct look {
    uint64_t loads;
    bool unfinished;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct look *look = arg;
    struct object o;

    (void)size;
    look->loads = info->dlpi_adds;
    if (!info->dlpi_name || !is_openblas(info->dlpi_name))
        return 0;
    object_read(&o, info);
    if (o.dynamic && !meet(&o))
        look->unfinished = true;
    return 0;
}

/* ---- targets: the control thread ---- */

static uint32_t number(const struct copy *copy)
{
    return target && target < copy->own ? target : copy->own;
}

static bool was_ours(const struct copy *copy, uint32_t held)
{
    return held == copy->own || (held < HISTORY && copy->given >> held & 1);
}

/*
 * Gives a copy its number. Another one that it has is somebody's (threadpoolctl's) until that is
 * put back. What is put back may be an older number of ours: it counts as such if it stays.
 */
static void place(struct copy *copy, bool changed)
{
    uint32_t held = (uint32_t)copy->get_number(), want = number(copy);

    copy->back = held != copy->ours && was_ours(copy, held) ? copy->back + 1 : 0;
    if (held != copy->ours && !(was_ours(copy, held) && (changed || copy->back > BACK_TICKS))) {
        atomic_store(&theirs, true);
        return;
    }
    if (want != held)
        copy->set_number((int)want);
    copy->ours = want;
    copy->given |= want < HISTORY ? UINT64_C(1) << want : 0;
    copy->back = 0;
}

static void place_all(bool changed)
{
    uint32_t largest = 0, can = 0;

    atomic_store(&theirs, false);
    for (struct copy *copy = copies; copy < copies + COPIES_MAX && copy->start; copy++) {
        if (!copy->fixed)
            place(copy, changed);
        atomic_store(copy->fixed ? &any_fixed : &any_free, true);
        largest = copy->ours > largest ? copy->ours : largest;
        can = copy->own > can ? copy->own : can;
    }
    atomic_store(&shown, largest);
    atomic_store(&most, can);
    if (changed)
        placed_ns = clock_now_ns();
}

static void look(bool changed)
{
    uint64_t loads = objects_loaded();
    struct look look = {.loads = 0};

    if (!atomic_load(&present) || loads == UINT64_MAX) /* it forks */
        return;
    if (loads != seen_loads && each_object(look_at, &look))
        seen_loads = look.unfinished ? 0 : look.loads;
    place_all(changed);
}

static bool blas_apply(const struct agent_target *t)
{
    target = t->intra;
    look(true);
    return true;
}

static bool blas_settled(void)
{
    return true;
}

static void blas_watch(uint64_t now_ns)
{
    (void)now_ns;
    look(false);
}

static void blas_measure(struct proto_ack *ack)
{
    if (atomic_load(&any_free))
        agent_measure(ack, placed_ns);
}

static bool blas_describe(struct proto_backend *b)
{
    bool malleable = atomic_load(&any_free);
    uint32_t can = atomic_load(&most);

    if (can == 0)
        return false;
    b->malleable = malleable;
    b->max_intra = can;
    b->target_intra = b->active_intra = atomic_load(&shown);
    snprintf(b->name, sizeof(b->name), "openblas");
    snprintf(b->version, sizeof(b->version), "%s", version);
    snprintf(b->note, sizeof(b->note), "%s",
             !malleable                ? "moldable: OpenBLAS with OpenMP"
             : atomic_load(&theirs)    ? "a library has set the number of threads itself"
             : atomic_load(&any_fixed) ? "a further copy, with OpenMP, is moldable"
                                       : "");
    return true;
}

static uint64_t blas_tasks(void)
{
    return 0;
}

/* ---- a copy is loaded: a thread of the program, in the middle of that ---- */

/* Is the code at @arg OpenBLAS's? NULL: any. */
static int is_openblas_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    if (!info->dlpi_name || !is_openblas(info->dlpi_name))
        return 0;
    object_read(&o, info);
    return !arg || ((uintptr_t)arg >= o.start && (uintptr_t)arg < o.end);
}

/* With one thread there is nothing to govern. How many it will have, its own code says later. */
static bool has_threads(void)
{
    static const char *const names[] = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS",
                                        "OMP_NUM_THREADS"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *value = getenv(names[i]);
        long n = value ? strtol(value, NULL, 10) : 0;

        if (n > 0)
            return n > 1;
    }
    return limit_affinity_cpus() > 1;
}

static void begin(void)
{
    int saved = errno;

    if (!has_threads())
        return;
    objects_watch_forks();
    if (agent_start())
        atomic_store(&present, true);
    errno = saved;
}

/* Python never unloads what it has loaded; another program may. */
static void blas_loaded(const void *code)
{
    if (!atomic_load(&present) && dl_iterate_phdr(is_openblas_at, (void *)code) == 1 &&
        python_is_here())
        begin();
}

/* What the program is linked with stays, too. */
__attribute__((constructor)) static void begin_if_linked(void)
{
    if (agent_config.enabled && !atomic_load(&present) &&
        dl_iterate_phdr(is_openblas_at, NULL) == 1)
        begin();
}

/* The child keeps the number: setting one could make threads. */
static void blas_after_fork(void)
{
    target = 0;
}

const struct agent_backend openblas_backend = {
    .name = "openblas",
    .apply = blas_apply,
    .settled = blas_settled,
    .measure = blas_measure,
    .describe = blas_describe,
    .watch = blas_watch,
    .tasks = blas_tasks,
    .loaded = blas_loaded,
    .after_fork = blas_after_fork,
};
