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
#include "agent/process/limit.h"
#include "agent/process/number.h"
#include "agent/process/objects.h"
#include "agent/process/python.h"
#include "agent/process/stack.h"

#include "base/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum may {
    UNSEEN,
    FREE,    /* may change at safe points */
    JUDGING, /* a thread writes the note */
    FIXED,   /* moldable for good, and the note says why */
    MAY_MAX
};

static struct {
    _Atomic int may;         /* UNSEEN: what stands up to in_region is still to be found */
    char path[512];          /* of the libgomp that it uses */
    char needed[64];         /* the name under which it needs that */
    char soname[64];         /* what that is called by itself */
    uintptr_t start, end;    /* of libxgboost */
    int (*get_number)(void); /* of the calling thread */
    void (*set_number)(int);
    int (*in_region)(void);
    char version[PROTO_SHORT_MAX];
    char note[PROTO_NOTE_MAX];
    uint32_t chosen;         /* what the environment or the cores make it */
    bool by_user;            /* OMP_NUM_THREADS is the user's */
    int tid;                 /* of Python's main thread, once it has been at a safe point */
    _Atomic bool sized;      /* the user's or the program's choice: never more */
    _Atomic bool asked;      /* for a safe point */
    _Atomic bool forked;     /* the child of a fork, in which the agent does not run */
    _Atomic uint32_t own;    /* the main thread's number for the program; 0: not known yet */
    _Atomic uint32_t ours;   /* the number that it was given */
    _Atomic uint32_t held;   /* … and that it had at the last safe point: another is somebody's */
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

    return atomic_load(&xgboost.sized) || agent_config.max < own ? own : agent_config.max;
}

static uint32_t number(void)
{
    uint32_t target = atomic_load(&xgboost.target);

    if (target == 0 || atomic_load(&xgboost.may) != FREE)
        return atomic_load(&xgboost.own);
    return target < most() ? target : most();
}

/* Any thread; the first note stays. */
static void fix(const char *note)
{
    int may = atomic_load(&xgboost.may);

    do {
        if (may == JUDGING || may == FIXED)
            return;
    } while (!atomic_compare_exchange_weak(&xgboost.may, &may, JUDGING));
    snprintf(xgboost.note, sizeof(xgboost.note), "%s", note);
    atomic_store(&xgboost.may, FIXED);
    atomic_fetch_add(&xgboost.wanted, 1);
}

/* ---- objects ---- */

static bool is_xgboost(const struct object *o)
{
    return strncmp(object_file(o), "libxgboost.so", 13) == 0;
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
    if (!o.dynamic || strlen(o.path) >= sizeof(xgboost.path) ||
        (strcmp(object_soname(&o), xgboost.needed) != 0 &&
         strcmp(object_file(&o), xgboost.needed) != 0))
        return 0;
    *(bool *)arg = true;
    snprintf(xgboost.path, sizeof(xgboost.path), "%s", o.path);
    snprintf(xgboost.soname, sizeof(xgboost.soname), "%s", object_soname(&o));
    xgboost.get_number = (int (*)(void))pointer_to(object_defines(&o, "omp_get_max_threads"));
    xgboost.set_number = (void (*)(int))pointer_to(object_defines(&o, "omp_set_num_threads"));
    xgboost.in_region = (int (*)(void))pointer_to(object_defines(&o, "omp_in_parallel"));
    return 1;
}

static void find(void)
{
    bool library = false, openmp = false;
    int unseen = UNSEEN;

    if (!each_object(find_library, &library) || !library)
        return;
    if (xgboost.needed[0] && !each_object(find_openmp, &openmp))
        return; /* the program forks: again in a moment */
    if (!openmp || !xgboost.get_number || !xgboost.set_number || !xgboost.in_region)
        fix("moldable: XGBoost without libgomp");
    else if (!stack_prepare())
        fix("moldable: nothing tells when XGBoost is at work");
    else if (atomic_compare_exchange_strong(&xgboost.may, &unseen, FREE))
        atomic_fetch_add(&xgboost.wanted, 1);
}

/*
 * Does @o use XGBoost's copy of libgomp, and may build on the number that it meets there?
 * scikit-learn does not: it asks once for each piece of work, and names the number in each region.
 */
static bool shares(const struct object *o)
{
    if (!o->dynamic || o->start == xgboost.start || strstr(o->path, "-packages/sklearn/"))
        return false;
    return object_needs(o, xgboost.needed) || object_needs(o, xgboost.soname);
}

static void fix_shared(const struct object *o)
{
    char note[PROTO_NOTE_MAX];

    snprintf(note, sizeof(note), "moldable: %.40s uses XGBoost's OpenMP, too", object_file(o));
    fix(note);
}

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    *(uint64_t *)arg = info->dlpi_adds;
    object_read(&o, info);
    if (shares(&o))
        fix_shared(&o);
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

/* ---- an object is loaded: a thread of the program, in the middle of that ---- */

static void begin(void)
{
    xgboost.chosen = number_of_environment(&xgboost.by_user);
    if (xgboost.chosen == 0)
        xgboost.chosen = limit_affinity_cpus();
    objects_watch_forks();
    if (agent_start())
        atomic_store(&present, true);
}

/* A library that shares its OpenMP is to meet the program's own number from the first. */
static void xgb_loaded(const void *code)
{
    int saved = errno;
    struct object o;

    if (!atomic_load(&present)) {
        if (object_at(code, &o) && is_xgboost(&o) && python_is_here() &&
            !number_threads_are_bound())
            begin();
    } else if (is_main && atomic_load(&xgboost.may) == FREE &&
               atomic_load(&xgboost.ours) != atomic_load(&xgboost.own)) {
        if (object_at(code, &o) && shares(&o))
            fix_shared(&o);
        if (atomic_load(&xgboost.may) == FIXED &&
            (uint32_t)xgboost.get_number() == atomic_load(&xgboost.ours)) {
            xgboost.set_number((int)atomic_load(&xgboost.own));
            atomic_store(&xgboost.ours, atomic_load(&xgboost.own));
        }
    }
    errno = saved;
}

/* ---- the safe point: Python's main thread ---- */

/* The first time. Its libgomp stays loaded while we have pointers into it. */
static bool meet(void)
{
    uint32_t own = (uint32_t)xgboost.get_number();

    if (!dlopen(xgboost.path, RTLD_LAZY | RTLD_NOLOAD)) {
        fix("moldable: an unknown libgomp");
        return false;
    }
    xgboost.tid = (int)syscall(SYS_gettid);
    atomic_store(&xgboost.sized, xgboost.by_user || own != xgboost.chosen);
    atomic_store(&xgboost.ours, own);
    atomic_store(&xgboost.own, own);
    return true;
}

/* Returns false when it has to wait. */
static bool take_number(void)
{
    uint32_t held = (uint32_t)xgboost.get_number(), want;

    atomic_store(&xgboost.held, held);
    if (held !=
        atomic_load(&xgboost.ours)) /* threadpoolctl, until it puts back what it has found */
        return true;
    want = number();
    if (want == held)
        return true;
    /* A new library may build on the number that it has asked for. */
    if (want != atomic_load(&xgboost.own) && atomic_load(&xgboost.loads) != objects_loaded())
        return false;
    xgboost.set_number((int)want);
    atomic_store(&xgboost.ours, want);
    atomic_store(&xgboost.held, want);
    return true;
}

/* Returns true if what is wanted is in place. */
static bool look_around(void)
{
    if (atomic_load(&xgboost.forked) || !python_prepare() || python_imports("xgboost"))
        return false;
    if (!xgboost.version[0])
        python_text("xgboost", "__version__", xgboost.version, sizeof(xgboost.version));
    /* Python may be called by XGBoost: for parts of a matrix, for a message. */
    if (xgboost.in_region() || !stack_is_free_of(xgboost.start, xgboost.end))
        return false;
    return (atomic_load(&xgboost.own) || meet()) && take_number();
}

static int at_safe_point(void *arg)
{
    uint64_t wanted = atomic_load(&xgboost.wanted);
    int saved = errno;

    (void)arg;
    is_main = true;
    atomic_store(&xgboost.asked, false);
    if (look_around()) {
        atomic_store(&xgboost.placed_ns, clock_now_ns());
        atomic_store(&xgboost.placed, wanted);
        agent_notify();
    }
    errno = saved;
    return 0;
}

/* ---- targets: the control thread ---- */

static void ask(void)
{
    if (!atomic_exchange(&xgboost.asked, true) && !python_call_soon(at_safe_point))
        atomic_store(&xgboost.asked, false);
}

static bool is_theirs(void)
{
    return atomic_load(&xgboost.held) != atomic_load(&xgboost.ours);
}

static bool xgb_settled(void)
{
    int may = atomic_load(&xgboost.may);

    if (may == UNSEEN || (may == FIXED && !atomic_load(&xgboost.own)) ||
        atomic_load(&xgboost.placed) == atomic_load(&xgboost.wanted))
        return true;
    ask();
    return atomic_load(&xgboost.own) && python_sleeps_long() &&
           stack_of_sleeper_is_free_of(xgboost.tid, xgboost.start, xgboost.end);
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
    if (is_theirs())
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

    if (may != FIXED && (may != FREE || own == 0))
        return false;
    if (own == 0)
        own = limit_affinity_cpus();
    b->malleable = may == FREE;
    b->max_intra = b->malleable ? most() : own;
    b->target_intra = b->malleable ? number() : own;
    b->active_intra = atomic_load(&xgboost.own) ? atomic_load(&xgboost.held) : own;
    snprintf(b->name, sizeof(b->name), "xgboost");
    snprintf(b->version, sizeof(b->version), "%s", xgboost.version);
    snprintf(b->note, sizeof(b->note), "%s",
             !b->malleable ? xgboost.note
             : is_theirs() ? "a library has set the number of threads itself"
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
    uint32_t own = atomic_load(&xgboost.own), ours = atomic_load(&xgboost.ours);

    atomic_store(&xgboost.asked, false);
    atomic_store(&xgboost.forked, true);
    atomic_store(&xgboost.target, 0);
    if (is_main && ours != own && (uint32_t)xgboost.get_number() == ours)
        xgboost.set_number((int)own);
    atomic_store(&xgboost.ours, own);
    atomic_store(&xgboost.held, own);
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
