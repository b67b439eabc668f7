/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for XGBoost from Python. Each call of its library asks OpenMP anew for the number of
 * threads, so the number may change between two calls: on the main thread, at a safe point of
 * Python with no frame of XGBoost on the stack. docs/design/54-xgboost.md says why.
 *
 *   libxgboost is loaded -> control thread: look() finds its copy of libgomp, and who else uses
 * that
 *   -> target -> safe point: omp_set_num_threads() of this copy, as threadpoolctl calls it
 */
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/number.h"
#include "agent/process/objects.h"
#include "agent/process/python.h"
#include "agent/process/stack.h"

#include "base/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum may { UNSEEN, FREE, FIXED, MAY_MAX }; /* FIXED: moldable for good, and the note says why */

static struct {
    _Atomic int may;
    char needed[64];         /* the name under which it needs its libgomp */
    char soname[64];         /* what that is called by itself */
    uintptr_t start, end;    /* of libxgboost */
    int (*get_number)(void); /* of the calling thread */
    void (*set_number)(int);
    int (*in_region)(void);
    char version[PROTO_SHORT_MAX];
    char note[PROTO_NOTE_MAX];
    bool sized;              /* the user has set OMP_NUM_THREADS */
    _Atomic bool asked;      /* for a safe point */
    _Atomic bool theirs;     /* somebody else has set another number for the moment */
    _Atomic bool forked;     /* the child of a fork, in which the agent does not run */
    _Atomic uint32_t own;    /* the main thread's number for the program; 0: not known yet */
    _Atomic uint32_t ours;   /* the number that it has, unless somebody has changed it */
    _Atomic uint32_t target; /* 0: none */
    _Atomic uint64_t loads;  /* objects loaded when all had been looked at; 0: not all */
    _Atomic uint64_t wanted; /* grows with each change of what is asked for */
    _Atomic uint64_t placed; /* … and what the main thread has last taken */
    _Atomic uint64_t placed_ns;
} xgboost;

static _Atomic bool present;                                             /* it has been loaded */
static __thread bool is_main __attribute__((tls_model("initial-exec"))); /* Python's */

/* ---- the rule ---- */

/* The largest number that a target can give it. */
static uint32_t most(void)
{
    uint32_t own = atomic_load(&xgboost.own);

    return xgboost.sized || agent_config.max < own ? own : agent_config.max;
}

static uint32_t number(void)
{
    uint32_t target = atomic_load(&xgboost.target);

    if (target == 0 || atomic_load(&xgboost.may) != FREE)
        return atomic_load(&xgboost.own);
    return target < most() ? target : most();
}

/* Control thread. */
static void fix(const char *note)
{
    if (atomic_load(&xgboost.may) == FIXED)
        return;
    snprintf(xgboost.note, sizeof(xgboost.note), "%s", note);
    atomic_store(&xgboost.may, FIXED);
    atomic_fetch_add(&xgboost.wanted, 1);
}

/* ---- objects ---- */

static const char *file_of(const struct object *o)
{
    const char *slash = strrchr(o->path, '/');

    return slash ? slash + 1 : o->path;
}

static bool is_xgboost(const struct object *o)
{
    return strncmp(file_of(o), "libxgboost.so", 13) == 0;
}

static int find_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    object_read(&o, info);
    if (!o.dynamic || !is_xgboost(&o))
        return 0;
    *(bool *)arg = true;
    xgboost.start = o.start;
    xgboost.end = o.end;
    if (object_needs(&o, "libgomp"))
        snprintf(xgboost.needed, sizeof(xgboost.needed), "%s", object_needs(&o, "libgomp"));
    return 1;
}

static int find_openmp(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    object_read(&o, info);
    if (!o.dynamic || (strcmp(object_soname(&o), xgboost.needed) != 0 &&
                       strcmp(file_of(&o), xgboost.needed) != 0))
        return 0;
    *(bool *)arg = true;
    snprintf(xgboost.soname, sizeof(xgboost.soname), "%s", object_soname(&o));
    xgboost.get_number = (int (*)(void))pointer_to(object_defines(&o, "omp_get_max_threads"));
    xgboost.set_number = (void (*)(int))pointer_to(object_defines(&o, "omp_set_num_threads"));
    xgboost.in_region = (int (*)(void))pointer_to(object_defines(&o, "omp_in_parallel"));
    return 1;
}

static void find(void)
{
    bool library = false, openmp = false;

    each_object(find_library, &library);
    if (!library)
        return;
    if (xgboost.needed[0])
        each_object(find_openmp, &openmp);
    if (!openmp || !xgboost.get_number || !xgboost.set_number || !xgboost.in_region) {
        fix("moldable: XGBoost without libgomp");
    } else if (!stack_prepare()) {
        fix("moldable: no unwinder tells when XGBoost is at work");
    } else {
        atomic_store(&xgboost.may, FREE);
        atomic_fetch_add(&xgboost.wanted, 1);
    }
}

/*
 * Does @o use XGBoost's copy of libgomp, and may have built on the number that it met there?
 * scikit-learn has not: it asks once for each piece of work, and names the number in each region.
 */
static bool shares(const struct object *o)
{
    if (!o->dynamic || is_xgboost(o) || strstr(o->path, "/sklearn/"))
        return false;
    return object_needs(o, xgboost.needed) || object_needs(o, xgboost.soname);
}

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;
    char note[PROTO_NOTE_MAX];

    (void)size;
    *(uint64_t *)arg = info->dlpi_adds;
    object_read(&o, info);
    if (shares(&o)) {
        snprintf(note, sizeof(note), "moldable: %.40s uses XGBoost's OpenMP, too", file_of(&o));
        fix(note);
    }
    return 0;
}

static void look(void)
{
    uint64_t loads = objects_loaded();

    if (!atomic_load(&present) || loads == UINT64_MAX) /* it forks */
        return;
    if (atomic_load(&xgboost.may) == UNSEEN)
        find();
    if (atomic_load(&xgboost.may) != FREE || atomic_load(&xgboost.loads) == loads)
        return;
    loads = 0;
    each_object(look_at, &loads);
    atomic_store(&xgboost.loads, loads);
}

/* Is the code at @arg XGBoost's? */
static int is_xgboost_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    object_read(&o, info);
    if ((uintptr_t)arg < o.start || (uintptr_t)arg >= o.end)
        return 0;
    return is_xgboost(&o) ? 1 : -1;
}

/* A thread of the program, in the middle of a load. */
static void xgb_loaded(const void *code)
{
    int saved = errno;

    if (!atomic_load(&present) && python_is_here() && !number_threads_are_bound() &&
        dl_iterate_phdr(is_xgboost_at, (void *)code) == 1) {
        number_of_environment(&xgboost.sized);
        objects_watch_forks();
        if (agent_start())
            atomic_store(&present, true);
    }
    errno = saved;
}

/* ---- the safe point: Python's main thread ---- */

/* Returns false when it has to wait. */
static bool take_number(void)
{
    uint32_t held = (uint32_t)xgboost.get_number(), own = atomic_load(&xgboost.own), want;

    if (own == 0) {
        own = held;
        atomic_store(&xgboost.ours, held);
        atomic_store(&xgboost.own, held);
    }
    /* threadpoolctl, until it puts back what it has found. */
    atomic_store(&xgboost.theirs, held != atomic_load(&xgboost.ours) && held != own);
    if (atomic_load(&xgboost.theirs))
        return true;
    want = number();
    if (want == held && want == atomic_load(&xgboost.ours))
        return true;
    /* A new library may build on the number that it has asked for. */
    if (want != own && atomic_load(&xgboost.loads) != objects_loaded())
        return false;
    xgboost.set_number((int)want);
    atomic_store(&xgboost.ours, want);
    return true;
}

static void look_around(void)
{
    uint64_t wanted = atomic_load(&xgboost.wanted);

    if (atomic_load(&xgboost.forked) || !xgboost.set_number)
        return;
    if (!xgboost.version[0] && python_prepare())
        python_text("xgboost", "__version__", xgboost.version, sizeof(xgboost.version));
    /* Python may be called by XGBoost: for rows of a matrix, for a message. */
    if (xgboost.in_region() || !stack_is_free_of(xgboost.start, xgboost.end) || !take_number())
        return;
    atomic_store(&xgboost.placed_ns, clock_now_ns());
    atomic_store(&xgboost.placed, wanted);
}

static int at_safe_point(void *arg)
{
    int saved = errno;

    (void)arg;
    is_main = true;
    atomic_store(&xgboost.asked, false);
    look_around();
    agent_notify();
    errno = saved;
    return 0;
}

/* ---- targets: the control thread ---- */

static void ask(void)
{
    if (!atomic_exchange(&xgboost.asked, true) && !python_call_soon(at_safe_point))
        atomic_store(&xgboost.asked, false);
}

static bool xgb_settled(void)
{
    int may = atomic_load(&xgboost.may);

    if (may == UNSEEN || (may == FIXED && !atomic_load(&xgboost.own)) ||
        atomic_load(&xgboost.placed) == atomic_load(&xgboost.wanted))
        return true;
    ask();
    return python_sleeps_long();
}

static bool xgb_apply(const struct agent_target *target)
{
    atomic_store(&xgboost.target, target->intra);
    atomic_store(&xgboost.forked, false);
    look();
    atomic_fetch_add(&xgboost.wanted, 1);
    return xgb_settled();
}

static void xgb_watch(uint64_t now_ns)
{
    (void)now_ns;
    look();
    xgb_settled(); /* asks again for a safe point */
    if (atomic_load(&xgboost.theirs) && atomic_load(&xgboost.may) == FREE)
        ask(); /* it may have been put back */
}

static void xgb_measure(struct proto_ack *ack)
{
    agent_measure(ack, atomic_load(&xgboost.placed_ns));
}

static bool xgb_describe(struct proto_backend *b)
{
    uint32_t own = atomic_load(&xgboost.own);
    int may = atomic_load(&xgboost.may);

    if (own == 0 || may == UNSEEN)
        return false;
    b->malleable = may == FREE;
    b->max_intra = b->malleable ? most() : own;
    b->target_intra = number();
    b->active_intra = atomic_load(&xgboost.ours);
    snprintf(b->name, sizeof(b->name), "xgboost");
    snprintf(b->version, sizeof(b->version), "%s", xgboost.version);
    snprintf(b->note, sizeof(b->note), "%s",
             !b->malleable                  ? xgboost.note
             : atomic_load(&xgboost.theirs) ? "a library has set the number of threads itself"
                                            : "");
    return true;
}

static uint64_t xgb_tasks(void)
{
    return 0;
}

/* The child has the program's own number: libgomp sets it without a lock. */
static void xgb_after_fork(void)
{
    uint32_t own = atomic_load(&xgboost.own);

    atomic_store(&xgboost.asked, false);
    atomic_store(&xgboost.forked, true);
    atomic_store(&xgboost.target, 0);
    if (is_main && !atomic_load(&xgboost.theirs) && atomic_load(&xgboost.ours) != own)
        xgboost.set_number((int)own);
    atomic_store(&xgboost.ours, own);
}

const struct agent_backend xgboost_backend = {
    .name = "xgboost",
    .needs_safe_point = true,
    .apply = xgb_apply,
    .settled = xgb_settled,
    .measure = xgb_measure,
    .describe = xgb_describe,
    .watch = xgb_watch,
    .tasks = xgb_tasks,
    .loaded = xgb_loaded,
    .after_fork = xgb_after_fork,
};
