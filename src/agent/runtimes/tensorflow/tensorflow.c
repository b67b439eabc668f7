/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for stock TensorFlow (libtensorflow_framework.so.2, 2.12 and newer). It interposes the
 * functions of the thread pools, which that library exports and calls through the PLT or a vtable.
 * C suffices: mangled names are legal identifiers, and arguments are pointers, ints or bools.
 *
 * This half puts targets in place, watches for blocked pools and describes them to the daemon; the
 * hooks are in tensorflow_hooks.c. An unknown TensorFlow is left alone, as not malleable.
 */
#include "agent/runtimes/tensorflow/tensorflow.h"
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/processor.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/minmax.h"

#include <stdio.h>
#include <string.h>

#define BLOCKED_TICKS    2
#define BLOCKED_CPU_NS   NS_PER_MS /* a blocked worker that polls uses less in one tick */
#define GATE_PATIENCE_NS (2 * NS_PER_S)
#define RESCUE_SHORT_NS  (NS_PER_S)
#define RESCUE_LONG_NS   (60 * NS_PER_S)

struct pool pools[POOLS_MAX];
_Atomic unsigned pools_used;
pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;

struct tf_state tf;

struct pool *pool_of_eigen(const void *eigen)
{
    unsigned used = atomic_load_explicit(&pools_used, memory_order_acquire);

    for (unsigned i = 0; i < used; i++) {
        if (atomic_load_explicit(&pools[i].eigen, memory_order_acquire) == eigen)
            return &pools[i];
    }
    return NULL;
}

static struct pool *pool_of_gate(struct gate *gate)
{
    return (struct pool *)((char *)gate - offsetof(struct pool, gate));
}

/* ---- closures of our own ---- */

static bool probe_manage(void *data, const void *source, int operation)
{
    if (operation == STDFUNCTION_CLONE)
        memcpy(data, source, 2 * sizeof(void *));
    else if (operation == STDFUNCTION_POINTER)
        *(const void **)data = source;
    else if (operation == STDFUNCTION_TYPE)
        *(void **)data = NULL;
    return false;
}

static void probe_invoke(const void *data)
{
    (void)data;
}

static void schedule(void *eigen, struct stdfunction *function)
{
    typedef void (*schedule_fn)(void *, struct stdfunction *);
    schedule_fn fn = (*(schedule_fn **)eigen)[EIGEN_VTABLE_SCHEDULE];

    fn(eigen, function);
    if (function->manage)
        function->manage(function, function, STDFUNCTION_DESTROY);
}

void pool_nudge(struct gate *gate)
{
    struct stdfunction function = {.manage = probe_manage, .invoke = probe_invoke};
    void *eigen = atomic_load(&pool_of_gate(gate)->eigen);

    if (eigen)
        schedule(eigen, &function);
}

/* Returns the closure of a Task; NULL while the layout is not proven or the Task is empty. */
static struct stdfunction *task_function(void *task)
{
    switch (atomic_load_explicit(&tf.task_layout, memory_order_relaxed)) {
    case TASK_INLINE:
        return *((char *)task + TASK_INLINE_ENGAGED) ? task : NULL;
    case TASK_BOXED:
        return *(void **)task;
    default:
        return NULL;
    }
}

void task_learn_layout(void *task)
{
    struct stdfunction seen;
    void *box;

    if (atomic_load_explicit(&tf.task_layout, memory_order_relaxed) != TASK_UNKNOWN)
        return;
    if (atomic_load(&tf.mode) == TF_GATE) {
        unsigned char raw[TASK_INLINE_SIZE];

        memcpy(&seen, task, sizeof(seen));
        if (seen.invoke == probe_invoke && seen.manage == probe_manage &&
            resolve_peek(task, raw, sizeof(raw)) && raw[TASK_INLINE_ENGAGED] == 1)
            atomic_store(&tf.task_layout, TASK_INLINE);
        return;
    }
    if (resolve_peek(task, &box, sizeof(box)) && box && resolve_peek(box, &seen, sizeof(seen)) &&
        seen.invoke == probe_invoke && seen.manage == probe_manage)
        atomic_store(&tf.task_layout, TASK_BOXED);
}

void task_give_back(struct gate_worker *worker, void *task)
{
    struct stdfunction *function = task_function(task);
    void *eigen = atomic_load(&pool_of_gate(worker->gate)->eigen);
    struct stdfunction taken;

    if (!function || !eigen || function->invoke == probe_invoke)
        return;
    taken = *function;
    if (atomic_load(&tf.task_layout) == TASK_INLINE) {
        /* libstdc++ marks an empty function by its manager alone. */
        function->manage = NULL;
        *((char *)task + TASK_INLINE_ENGAGED) = 0;
    } else {
        *function = (struct stdfunction){.manage = probe_manage, .invoke = probe_invoke};
    }
    schedule(eigen, &taken);
}

/* ---- targets ---- */

uint32_t pool_target(const struct pool *pool, const struct agent_target *target)
{
    uint32_t k = pool->class == POOL_INTRA ? target->intra : target->inter;

    if (k == 0) /* no target is set: use the program's own number, else the limit */
        k = pool->sized_by_default ? limit_threads(target->allowed_mcpu) : pool->stock;
    return (uint32_t)smaller(k, pool->built);
}

void pool_cut(struct pool *pool, const struct agent_target *target)
{
    uint32_t threads = target->moves ? pool->built : pool_target(pool, target);

    atomic_store_explicit(&pool->cut, threads, memory_order_relaxed);
}

/* Sets the number of threads that ops see. The gate's limit may change before or after it. */
static void show_threads(struct pool *pool, uint32_t k)
{
    atomic_store_explicit(&pool->shown, k, memory_order_relaxed);
    if (pool->device_threads)
        __atomic_store_n(pool->device_threads, (int)k, __ATOMIC_RELAXED);
    if (pool->class == POOL_INTRA && pool->built > 1)
        atomic_store_explicit(&tf.intra_shown, k, memory_order_relaxed);
}

bool pool_apply(struct pool *pool, uint32_t k)
{
    uint32_t idle = 0;
    bool settled;

    pool->wanted = k;
    pool->blocked_ticks = 0;
    pool->extra = 0;
    show_threads(pool, k);
    settled = gate_set(&pool->gate, k);
    /* Idle surplus workers run nothing, but closures would still wake them. The nudges park them.
     */
    for (uint32_t id = k; id < pool->built; id++)
        idle += atomic_load(&pool->gate.worker[id].state) == GATE_IDLE;
    while (idle-- > 0)
        pool_nudge(&pool->gate);
    return settled;
}

static bool tf_apply(const struct agent_target *target)
{
    bool settled = true;

    pthread_mutex_lock(&pools_lock);
    for (unsigned i = 0; i < atomic_load(&pools_used); i++) {
        struct pool *pool = &pools[i];

        if (atomic_load(&pool->eigen) && pool->class != POOL_OTHER) {
            uint32_t k = pool_target(pool, target);

            pool_cut(pool, target);
            if (k != pool->wanted)
                settled &= pool_apply(pool, k);
        }
    }
    pthread_mutex_unlock(&pools_lock);
    return settled;
}

static bool tf_settled(void)
{
    bool settled = true;

    pthread_mutex_lock(&pools_lock);
    for (unsigned i = 0; i < atomic_load(&pools_used); i++) {
        if (atomic_load(&pools[i].eigen))
            settled &= gate_settled(&pools[i].gate) || gate_watch(&pools[i].gate);
    }
    pthread_mutex_unlock(&pools_lock);
    return settled;
}

static void tf_measure(struct proto_ack *ack)
{
    pthread_mutex_lock(&pools_lock);
    for (unsigned i = 0; i < atomic_load(&pools_used); i++) {
        struct gate_timing t;

        if (!atomic_load(&pools[i].eigen))
            continue;
        gate_measure(&pools[i].gate, ack->sent_ns, ack->received_ns, &t);
        ack->surplus_cpu_ns += t.surplus_cpu_ns;
        if (t.closure_end_ns > ack->closure_end_ns)
            ack->closure_end_ns = t.closure_end_ns;
        if (t.placed_ns > ack->placed_ns)
            ack->placed_ns = t.placed_ns;
        if (t.longest_ns > ack->longest_ns)
            ack->longest_ns = t.longest_ns;
        if (t.lag_ns > ack->lag_ns)
            ack->lag_ns = t.lag_ns;
    }
    pthread_mutex_unlock(&pools_lock);
}

/* ---- watchdog: all active workers of a pool may wait for something that a parked one must do ----
 */

/*
 * Returns true if all of the first @limit workers hold a closure, sleep in it and have used hardly
 * any CPU time since the last look. Gates passed do not suffice: older versions of TensorFlow pass
 * none while a worker's own queue has closures.
 */
static bool all_blocked(struct pool *pool, uint32_t limit)
{
    uint64_t before_ns = pool->blocked_cpu_ns;
    uint64_t cpu_ns = 0;

    for (uint32_t id = 0; id < limit; id++) {
        if (!gate_blocked(&pool->gate.worker[id]))
            return false;
        cpu_ns += gate_cpu_ns(&pool->gate.worker[id]);
    }
    pool->blocked_cpu_ns = cpu_ns;
    return pool->blocked_ticks == 0 || cpu_ns - before_ns < limit * BLOCKED_CPU_NS;
}

static void pool_watch(struct pool *pool, uint64_t now_ns)
{
    uint32_t limit = (uint32_t)smaller(pool->wanted + pool->extra, pool->built);
    uint64_t passes = gate_passes(&pool->gate);
    bool blocked = limit < pool->built && passes == pool->last_passes && all_blocked(pool, limit);

    /* Twice in a row, because on a busy machine a worker may wait for a core between two sleeps. */
    pool->blocked_ticks = blocked ? pool->blocked_ticks + 1 : 0;
    pool->last_passes = passes;
    if (pool->blocked_ticks >= BLOCKED_TICKS) {
        pool->blocked_ticks = 0;
        if (pool->extra == 0)
            pool->rescue_hold_ns =
                pool->rescue_hold_ns ? 2 * pool->rescue_hold_ns : RESCUE_SHORT_NS;
        if (pool->rescue_hold_ns > RESCUE_LONG_NS)
            pool->rescue_hold_ns = RESCUE_LONG_NS;
        pool->extra++;
        pool->rescue_until_ns = now_ns + pool->rescue_hold_ns;
        gate_set(&pool->gate, limit + 1);
        pool_nudge(&pool->gate);
    } else if (pool->extra > 0 && now_ns >= pool->rescue_until_ns) {
        pool->extra = 0;
        gate_set(&pool->gate, pool->wanted);
    }
}

static void tf_watch(uint64_t now_ns)
{
    pthread_mutex_lock(&pools_lock);
    for (unsigned i = 0; i < atomic_load(&pools_used); i++) {
        if (atomic_load(&pools[i].eigen) && pools[i].wanted < pools[i].built)
            pool_watch(&pools[i], now_ns);
    }
    pthread_mutex_unlock(&pools_lock);
    tf_calls_watch();
}

/* ---- description ---- */

static void find_version(const void *caller)
{
    typedef const char *(*version_fn)(void);
    version_fn version = (version_fn)resolve_next("TF_Version", caller, TF_SONAME);

    if (!version) {
        static const char *const names[] = {"libtensorflow_cc.so.2", "libtensorflow.so.2"};

        for (size_t i = 0; i < ARRAY_LEN(names) && !version; i++) {
            void *handle = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);

            version = handle ? (version_fn)dlsym(handle, "TF_Version") : NULL;
        }
    }
    snprintf(tf.version, sizeof(tf.version), "%s", version ? version() : "");
}

static enum tf_mode find_mode(const void *caller)
{
    enum tf_mode mode = TF_UNKNOWN;

    find_version(caller);
    if (resolve_next(TF_STRING(TF_WAIT_FOR_WORK), caller, TF_SONAME)) {
        if (resolve_next(TF_STRING(TF_MAYBE_GET_TASK), caller, TF_SONAME))
            mode = TF_GATE;
        else if (resolve_next(TF_STRING(TF_LOCAL_STEAL), caller, TF_SONAME) &&
                 PROCESSOR_RESULT_IS_ARGUMENT)
            mode = TF_STEAL;
    }
    if (mode == TF_UNKNOWN)
        snprintf(tf.note, sizeof(tf.note), "the agent cannot park the threads of TensorFlow %s%s",
                 tf.version[0] ? tf.version : "of unknown version",
                 PROCESSOR_RESULT_IS_ARGUMENT ? "" : " on this processor");
    return mode;
}

enum tf_mode tf_mode(const void *caller)
{
    int mode = atomic_load(&tf.mode);

    if (mode == TF_UNKNOWN && !tf.note[0]) {
        pthread_mutex_lock(&pools_lock);
        if (atomic_load(&tf.mode) == TF_UNKNOWN && !tf.note[0])
            atomic_store(&tf.mode, (int)find_mode(caller));
        mode = atomic_load(&tf.mode);
        pthread_mutex_unlock(&pools_lock);
    }
    return (enum tf_mode)mode;
}

static bool tf_describe(struct proto_backend *b)
{
    int mode = atomic_load(&tf.mode);
    bool seen = mode == TF_UNKNOWN && tf.note[0];

    pthread_mutex_lock(&pools_lock);
    for (unsigned i = 0; i < atomic_load(&pools_used); i++) {
        const struct pool *pool = &pools[i];

        if (!atomic_load(&pool->eigen) || pool->class == POOL_OTHER)
            continue;
        /* A new pool's first worker reaches the gate within milliseconds; wait for it. */
        seen |= atomic_load(&tf.gate_seen) || clock_now_ns() - pool->built_ns > GATE_PATIENCE_NS;
        if (pool->class == POOL_INTRA && pool->built >= b->max_intra) {
            b->max_intra = pool->built;
            b->target_intra = pool->wanted;
            b->active_intra = gate_active(&pool->gate);
        } else if (pool->class == POOL_INTER && pool->built >= b->max_inter) {
            b->max_inter = pool->built;
            b->target_inter = pool->wanted;
            b->active_inter = gate_active(&pool->gate);
        }
    }
    pthread_mutex_unlock(&pools_lock);
    b->malleable = mode != TF_UNKNOWN && b->max_intra > 0 && atomic_load(&tf.gate_seen);
    snprintf(b->name, sizeof(b->name), "tensorflow");
    snprintf(b->version, sizeof(b->version), "%s", tf.version);
    snprintf(b->note, sizeof(b->note), "%s",
             mode != TF_UNKNOWN && b->max_intra > 0 && !b->malleable
                 ? "the agent cannot park the threads of this build of TensorFlow"
                 : tf.note);
    return seen;
}

/*
 * Counts the closures that the program's own threads hand to inter-op pools: the operations that
 * begin a step. Their number per step is constant, whatever the number of threads. Closures from
 * workers are no measure: TensorFlow runs more of them inline as it learns which are cheap, and
 * splits work for the intra-op pool into more closures when more threads are active.
 */
static uint64_t tf_tasks(void)
{
    uint64_t handed = atomic_load(&tf.old_handed);

    pthread_mutex_lock(&pools_lock);
    for (unsigned i = 0; i < atomic_load(&pools_used); i++) {
        if (atomic_load(&pools[i].eigen))
            handed += atomic_load(&pools[i].handed);
    }
    pthread_mutex_unlock(&pools_lock);
    return handed;
}

static void tf_after_fork(void)
{
    pthread_mutex_init(&pools_lock, NULL);
    for (unsigned i = 0; i < POOLS_MAX; i++)
        atomic_store(&pools[i].eigen, NULL);
    atomic_store(&pools_used, 0);
    tf_hooks_after_fork();
    tf_data_after_fork();
}

const struct agent_backend tensorflow_backend = {
    .name = "tensorflow",
    .apply = tf_apply,
    .settled = tf_settled,
    .measure = tf_measure,
    .describe = tf_describe,
    .watch = tf_watch,
    .tasks = tf_tasks,
    .after_fork = tf_after_fork,
};
