/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for OpenBLAS: the copies that NumPy's and SciPy's wheels bring, and the distribution's.
 * A call of BLAS reads the number of threads as it begins, from a variable that the library
 * exports; the agent writes that. docs/design/55-openblas.md says why.
 *
 *   a copy is loaded -> control thread: look() finds its variables -> target -> its number
 */
#include "agent/process/limit.h"
#include "agent/process/number.h"
#include "agent/process/python.h"
#include "agent/runtimes/blas/blas.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
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
    int *number;     /* blas_cpu_number: what a call that begins will use */
    const int *pool; /* blas_num_threads: how many threads have been made, with the caller's */
    uint32_t own;    /* the pool, and the most */
    uint32_t ours;   /* the number that it was given */
    uint64_t given;  /* a bit for each number that it has had from us */
    unsigned back;   /* ticks since an older one of them was put back */
    bool sized;      /* by the program, which has made more threads */
    bool fixed;      /* computes with OpenMP, whose number is another backend's */
} copies[COPIES_MAX];

static char version[PROTO_SHORT_MAX];
static uint64_t seen_loads;
static uint32_t target;        /* 0: none */
static uint32_t allowed;       /* threads for the process's CPUs and quota; 0: not known yet */
static _Atomic bool sized;     /* by a variable of the user's */
static _Atomic uint32_t usual; /* threads that a copy makes which nobody has told a number */
static uint64_t placed_ns;
static _Atomic bool present;   /* a copy has been loaded */
static _Atomic bool told;      /* it has been shown */
static _Atomic bool stays;     /* what is loaded later stays, too: Python unloads nothing */
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

/* Asks a copy that has begun what it computes with. */
static enum parallel parallel_of(const struct object *o)
{
    for (size_t s = 0; s < ARRAY_LEN(spellings); s++) {
        int (*get_parallel)(void) =
            (int (*)(void))pointer_to(function(o, s, "openblas_get_parallel"));
        const char *(*get_config)(void) =
            (const char *(*)(void))pointer_to(function(o, s, "openblas_get_config"));

        if (get_parallel && get_config) {
            take_version(get_config());
            return (enum parallel)get_parallel();
        }
    }
    return SEQUENTIAL;
}

static int load(const int *variable)
{
    return __atomic_load_n(variable, __ATOMIC_RELAXED);
}

/* Returns false when a copy's constructor, which makes its threads, is not done. */
static bool meet(const struct object *o)
{
    const int *ready = pointer_to(object_variable(o, "blas_server_avail"));
    const int *pool = pointer_to(object_variable(o, "blas_num_threads"));
    int *number = (int *)pointer_to(object_variable(o, "blas_cpu_number"));
    struct copy *copy = copies;
    enum parallel parallel;

    for (; copy < copies + COPIES_MAX && copy->start; copy++)
        if (copy->start == o->start)
            return true;
    if (!ready || !pool || !number || copy == copies + COPIES_MAX)
        return true;
    if (!__atomic_load_n(ready, __ATOMIC_ACQUIRE))
        return false;
    parallel = parallel_of(o);
    if (parallel == SEQUENTIAL)
        return true;
    *copy = (struct copy){.number = number, .pool = pool, .fixed = parallel != PTHREADS};
    copy->own = copy->ours = (uint32_t)load(pool);
    copy->sized = copy->own > atomic_load(&usual) && copy->own > limit_affinity_cpus();
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
    object_read(&o, info);
    if (!o.dynamic)
        return 0;
    if (is_openblas(o.path) && !meet(&o))
        look->unfinished = true;
    return 0;
}

/* ---- targets: the control thread ---- */

static uint32_t number(const struct copy *copy)
{
    uint32_t limit = target || copy->sized || atomic_load(&sized) ? target : allowed;

    return limit && limit < copy->own ? limit : copy->own;
}

static bool was_ours(const struct copy *copy, uint32_t held)
{
    return held == copy->own || (held < HISTORY && copy->given >> held & 1);
}

/*
 * Gives a copy its number. Another one that it has is somebody's (threadpoolctl's) until that is
 * put back. The number put back may be an older one of ours: it counts as such if it stays.
 */
static void place(struct copy *copy, bool changed)
{
    uint32_t pool = (uint32_t)load(copy->pool), want;
    int held = load(copy->number);

    if (pool > copy->own) { /* the program has made more threads: its own choice */
        copy->own = pool;
        copy->sized = true;
        copy->ours = (uint32_t)held;
    }
    want = number(copy);
    copy->back =
        (uint32_t)held != copy->ours && was_ours(copy, (uint32_t)held) ? copy->back + 1 : 0;
    if ((uint32_t)held != copy->ours &&
        !(was_ours(copy, (uint32_t)held) && (changed || copy->back > BACK_TICKS))) {
        atomic_store(&theirs, true);
        return;
    }
    if (want != (uint32_t)held &&
        !__atomic_compare_exchange_n(copy->number, &held, (int)want, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return; /* somebody was faster: again in a moment */
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

    if (!atomic_load(&present))
        return;
    if (loads != UINT64_MAX && loads != seen_loads && (!seen_loads || atomic_load(&stays)) &&
        each_object(look_at, &look)) /* the first: the program forks */
        seen_loads = look.unfinished ? 0 : look.loads;
    blas_look_beside();
    place_all(changed);
}

static bool blas_apply(const struct agent_target *t)
{
    target = t->intra;
    allowed = limit_threads(t->allowed_mcpu);
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

    if (can < 2)
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
    return blas_shows(&told, b);
}

static uint64_t blas_tasks(void)
{
    return 0;
}

/* ---- a copy is loaded: a thread of the program, in the middle of that ---- */

static int is_openblas_here(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    return info->dlpi_name && is_openblas(info->dlpi_name);
}

/* With one thread there is nothing to govern. How many it has, its own code says only later. */
static bool has_threads(void)
{
    static const char *const names[] = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS",
                                        "OMP_NUM_THREADS", "OPENBLAS_DEFAULT_NUM_THREADS", NULL};
    uint32_t n = blas_variable(names);

    atomic_store(&sized, blas_chosen(names));
    n = n ? n : limit_affinity_cpus();
    atomic_store(&usual, n);
    return n > 1;
}

static void begin(void)
{
    int saved = errno;

    if (has_threads() && !number_threads_are_bound()) {
        objects_watch_forks();
        if (agent_start())
            atomic_store(&present, true);
    }
    errno = saved;
}

static void blas_loaded(const struct object *o)
{
    if (atomic_load(&stays) || !is_openblas(o->path) || !python_is_here())
        return;
    atomic_store(&stays, true);
    if (!atomic_load(&present))
        begin();
}

/* A library that the program is linked with stays, too. */
__attribute__((constructor)) static void begin_if_linked(void)
{
    if (agent_config.enabled && !atomic_load(&present) &&
        dl_iterate_phdr(is_openblas_here, NULL) == 1)
        begin();
}

/* The child is not governed: it has the program's own number. */
static void blas_after_fork(void)
{
    target = allowed = 0;
    for (struct copy *copy = copies; copy < copies + COPIES_MAX && copy->start; copy++) {
        if (!copy->fixed && (uint32_t)load(copy->number) == copy->ours)
            __atomic_store_n(copy->number, (int)copy->own, __ATOMIC_RELAXED);
        copy->ours = copy->own;
    }
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
