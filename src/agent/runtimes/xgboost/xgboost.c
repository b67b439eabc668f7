/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for XGBoost from Python. Each call of its library asks OpenMP anew for the number of
 * threads, so the number may change between two calls: on the main thread, at a safe point of
 * Python with no frame of XGBoost on the stack. docs/design/54-xgboost.md says why.
 *
 *   libxgboost is loaded -> control thread, look(): its copy of libgomp, and who else uses it
 *   target -> safe point: omp_set_num_threads() of this copy, as threadpoolctl does
 */
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/process/number.h"
#include "agent/process/objects.h"
#include "agent/process/python.h"
#include "agent/process/safe_number.h"
#include "agent/process/stack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool at_safe_point(void), sleeper_is_safe(void), shares(const struct object *o);
static int told_number(void);
static void give_number(int n);

static struct safe_number xgboost = {
    .name = "xgboost",
    .whose = "XGBoost's",
    .at_safe_point = at_safe_point,
    .sleeper_is_safe = sleeper_is_safe,
    .shares = shares,
};

/* Facts about XGBoost's objects since they were found. */
static struct {
    char path[512];          /* of the libgomp that it uses */
    char needed[64];         /* the name under which it needs that */
    char soname[64];         /* what that is called by itself */
    uintptr_t start, end;    /* of libxgboost */
    int (*get_number)(void); /* of the calling thread */
    void (*set_number)(int);
    int (*in_region)(void);
    uint32_t chosen; /* what the environment or the cores make it */
    bool by_user;    /* OMP_NUM_THREADS is the user's */
    int tid;         /* of Python's main thread, once it has been at a safe point */
} known;

static _Atomic bool present;                                             /* it has been loaded */
static __thread bool is_main __attribute__((tls_model("initial-exec"))); /* Python's */

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
    known.start = o.start;
    known.end = o.end;
    if (object_needs(&o, "libgomp"))
        snprintf(known.needed, sizeof(known.needed), "%s", object_needs(&o, "libgomp"));
    return 1;
}

static int find_openmp(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    object_read(&o, info);
    if (!o.dynamic || strlen(o.path) >= sizeof(known.path) ||
        (strcmp(object_soname(&o), known.needed) != 0 &&
         strcmp(object_file(&o), known.needed) != 0))
        return 0;
    *(bool *)arg = true;
    snprintf(known.path, sizeof(known.path), "%s", o.path);
    snprintf(known.soname, sizeof(known.soname), "%s", object_soname(&o));
    known.get_number = (int (*)(void))pointer_to(object_defines(&o, "omp_get_max_threads"));
    known.set_number = (void (*)(int))pointer_to(object_defines(&o, "omp_set_num_threads"));
    known.in_region = (int (*)(void))pointer_to(object_defines(&o, "omp_in_parallel"));
    return 1;
}

static void find(void)
{
    bool library = false, openmp = false;

    if (!each_object(find_library, &library) || !library)
        return;
    if (safe_number_lacks_gil(&xgboost))
        return;
    if (known.needed[0] && !each_object(find_openmp, &openmp))
        return; /* the program forks: again in a moment */
    if (!openmp || !known.get_number || !known.set_number || !known.in_region)
        safe_number_fix(&xgboost, "moldable: XGBoost without libgomp");
    else if (!stack_prepare())
        safe_number_fix(&xgboost, "moldable: nothing tells when XGBoost is at work");
    else {
        python_add_answer((const void *)known.get_number, (const void *)told_number);
        python_add_answer((const void *)known.set_number, (const void *)give_number);
        safe_number_free(&xgboost);
    }
}

/*
 * Does @o use XGBoost's copy of libgomp, and may build on the number that it meets there?
 * scikit-learn does not: it asks once for each piece of work, and names the number in each region.
 */
static bool shares(const struct object *o)
{
    if (!o->dynamic || o->start == known.start || strstr(o->path, "-packages/sklearn/"))
        return false;
    return object_needs(o, known.needed) || object_needs(o, known.soname);
}

static void look(void)
{
    if (!atomic_load(&present) || objects_loaded() == UINT64_MAX) /* it forks */
        return;
    if (atomic_load(&xgboost.may) == NUMBER_UNSEEN)
        find();
}

/* ---- an object is loaded: a thread of the program, in the middle of that ---- */

static void begin(void)
{
    known.chosen = number_of_environment(&known.by_user);
    if (known.chosen == 0)
        known.chosen = limit_affinity_cpus();
    objects_watch_forks();
    if (agent_start())
        atomic_store(&present, true);
}

/* A library that shares its OpenMP is to meet the program's own number from the first. */
static void xgb_loaded(const struct object *o)
{
    if (!atomic_load(&present)) {
        if (is_xgboost(o) && python_is_here() && !number_threads_are_bound())
            begin();
    } else if (is_main && atomic_load(&xgboost.ours) != atomic_load(&xgboost.own)) {
        safe_number_meet(&xgboost, o); /* the control thread may have met it before */
        if (atomic_load(&xgboost.may) != NUMBER_FREE &&
            (uint32_t)known.get_number() == atomic_load(&xgboost.ours)) {
            known.set_number((int)atomic_load(&xgboost.own));
            atomic_store(&xgboost.ours, atomic_load(&xgboost.own));
        }
    }
}

/* ---- the safe point: Python's main thread ---- */

/* The first time. Its libgomp stays loaded while we have pointers into it. */
static bool meet(void)
{
    uint32_t own = (uint32_t)known.get_number();

    if (!dlopen(known.path, RTLD_LAZY | RTLD_NOLOAD)) {
        safe_number_fix(&xgboost, "moldable: an unknown libgomp");
        return false;
    }
    known.tid = (int)syscall(SYS_gettid);
    atomic_store(&xgboost.sized, known.by_user || own != known.chosen ? own : 0);
    atomic_store(&xgboost.ours, own);
    atomic_store(&xgboost.own, own);
    return true;
}

/* Returns false when it has to wait. */
static bool take_number(void)
{
    uint32_t held = (uint32_t)known.get_number(), want;

    bool theirs = atomic_load(&xgboost.limit) || held != atomic_load(&xgboost.ours);

    atomic_store(&xgboost.held, held);
    atomic_store(&xgboost.theirs, theirs); /* threadpoolctl's, until that puts back what was here */
    if (theirs)
        return true;
    want = safe_number_wanted(&xgboost);
    if (want == held)
        return true;
    /* A new library may build on the number that it has asked for. */
    if (want != atomic_load(&xgboost.own) && !safe_number_all_seen(&xgboost))
        return false;
    known.set_number((int)want);
    atomic_store(&xgboost.ours, want);
    return true;
}

static bool at_safe_point(void)
{
    is_main = true;
    if (atomic_load(&xgboost.forked) || !python_prepare() || python_imports("xgboost"))
        return false;
    if (!xgboost.version[0])
        python_text("xgboost", "__version__", xgboost.version, sizeof(xgboost.version));
    /* Python may be called by XGBoost: for parts of a matrix, for a message. */
    if (known.in_region() || !stack_is_free_of(known.start, known.end))
        return false;
    return (atomic_load(&xgboost.own) || meet()) && take_number();
}

/* ctypes gets these in place of libgomp's functions. */
static int told_number(void)
{
    int held = known.get_number();

    return is_main ? (int)safe_number_told(&xgboost, (uint32_t)held) : held;
}

static void give_number(int n)
{
    known.set_number(is_main ? (int)safe_number_given(&xgboost, (uint32_t)n) : n);
}

/* ---- targets: the control thread ---- */

static bool sleeper_is_safe(void)
{
    return atomic_load(&xgboost.own) &&
           stack_of_sleeper_is_free_of(known.tid, known.start, known.end);
}

static bool xgb_apply(const struct agent_target *target)
{
    look();
    return safe_number_apply(&xgboost, target);
}

static bool xgb_settled(void)
{
    return safe_number_settled(&xgboost);
}

static void xgb_watch(uint64_t now_ns)
{
    (void)now_ns;
    look();
    safe_number_watch(&xgboost);
}

static void xgb_measure(struct proto_ack *ack)
{
    agent_measure(ack, atomic_load(&xgboost.placed_ns));
}

static bool xgb_describe(struct proto_backend *b)
{
    return safe_number_describe(&xgboost, b);
}

static uint64_t xgb_tasks(void)
{
    return 0;
}

/* The child has the program's own number: libgomp sets it without a lock. */
static void xgb_after_fork(void)
{
    uint32_t own = atomic_load(&xgboost.own), ours = atomic_load(&xgboost.ours);

    safe_number_after_fork(&xgboost);
    if (is_main && ours != own && (uint32_t)known.get_number() == ours)
        known.set_number((int)own);
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
