/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TensorFlow backend's hooks, which LD_PRELOAD puts before libtensorflow_framework.so.2:
 *
 *   ThreadPool ctor     builds the pool with the machine's maximum, so that it can grow
 *   Eigen pool ctor     registers the pool's object before its workers start
 *   WorkerLoop          tells which worker a thread is
 *   MaybeGetTask        2.21 and newer: the gate between two closures
 *   LocalSteal          before 2.21: the gate when the worker's own queue is empty
 *   WaitForWork         the pool's own sleep, all versions
 *   ScheduleWithHint    sends closures from outside only to the queues of active workers; counts
 *                       those for inter-op pools as the measure of work
 *   NumThreads, GetPerThreadMaxParallelism, num_threads of the device: ops shard for the active
 *                       count; without it k of N threads use up to 40 % more CPU. oneDNN
 *                       makes its primitives for all N at first (docs/design/03-pool-sizes.md)
 *
 * They run on the program's threads. For a pool that is not governed, a hook calls the real
 * function with unchanged arguments.
 */
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/process/room.h"
#include "agent/processor.h"
#include "agent/runtimes/tensorflow/tensorflow.h"

#include "base/clock.h"
#include "base/minmax.h"

#include <errno.h>
#include <string.h>

/* The hooks' prototypes are TensorFlow's. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define PRIMITIVES_CALLS 2048 /* of a thread: it has come to each op of some hundred by then */

static __thread struct pool *building __attribute__((tls_model("initial-exec")));
static __thread struct gate_worker *self __attribute__((tls_model("initial-exec")));
/* The number that a thread's ops were told last, valid until its closure ends; NULL: none was. */
static __thread struct told {
    const struct pool *pool;
    uint32_t threads;
    uint64_t since_ns;
} told __attribute__((tls_model("initial-exec")));
static __thread uint32_t asked __attribute__((tls_model("initial-exec"))); /* for the number */

void tf_hooks_after_fork(void)
{
    building = NULL;
    self = NULL;
    told.pool = NULL;
}

/* ---- pools ---- */

static enum pool_class classify(const char *name)
{
    size_t len = strlen(name);

    if (len >= 5 && strcmp(name + len - 5, "Eigen") == 0)
        return POOL_INTRA; /* numa_-1_Eigen, XLAEigen */
    if (strcmp(name, "Compute") == 0 || strncmp(name, "data_", 5) == 0)
        return POOL_INTER;
    return POOL_OTHER;
}

/* Reserves a slot for a pool that is about to be built with @built threads. NULL: none is free. */
static struct pool *pool_reserve(enum pool_class class, uint32_t stock, uint32_t built)
{
    struct pool *pool = NULL;

    pthread_mutex_lock(&pools_lock);
    for (unsigned i = 0; i < POOLS_MAX && !pool; i++) {
        if (!pools[i].owner)
            pool = &pools[i];
    }
    if (pool && gate_init(&pool->gate, built, pool_nudge, agent_notify) == 0) {
        pool->owner = pool; /* marks the slot as taken until the real owner is known */
        pool->device_threads = NULL;
        pool->class = class;
        pool->stock = stock;
        pool->built = pool->wanted = built;
        pool->built_ns = clock_now_ns();
        pool->sized_by_default = stock == limit_affinity_cpus();
        pool->extra = 0;
        pool->rescue_hold_ns = 0;
        atomic_store(&pool->handed, 0);
        atomic_store(&pool->shown, built);
        atomic_store(&pool->cut, built);
    } else {
        pool = NULL;
    }
    pthread_mutex_unlock(&pools_lock);
    return pool;
}

/* Finds the pool's own ThreadPoolDevice: the constructor leaves {eigen, eigen, device} in a row. */
static int *find_device_threads(void *owner, const void *eigen, uint32_t built)
{
    for (unsigned i = 0; i < TF_THREADPOOL_WORDS; i++) {
        struct eigen_device device;
        void *word[3];

        if (!resolve_peek((void **)owner + i, word, sizeof(word)) || word[0] != eigen ||
            word[1] != eigen)
            continue;
        if (word[2] && resolve_peek(word[2], &device, sizeof(device)) && device.pool == eigen &&
            device.num_threads == (int)built)
            return &((struct eigen_device *)word[2])->num_threads;
    }
    return NULL;
}

static void pool_ready(struct pool *pool, void *owner)
{
    struct agent_target target;
    void *eigen = atomic_load(&pool->eigen);

    pthread_mutex_lock(&pools_lock);
    pool->owner = eigen ? owner : NULL;
    if (eigen && pool->class != POOL_OTHER) {
        pool->device_threads = find_device_threads(owner, eigen, pool->built);
        core_target(&target);
        pool_cut(pool, &target);
        pool_nudge(&pool->gate); /* task_learn_layout() gets this closure from a worker */
        /* The control thread may wait for this gate, and no worker reports one already settled. */
        if (pool_apply(pool, pool_target(pool, &target)))
            agent_notify();
    }
    pthread_mutex_unlock(&pools_lock);
}

/* Sets the threads that ops see from the remaining pools; 0: no pool, TensorFlow's own number. */
static void show_intra(void)
{
    uint32_t shown = 0;

    for (unsigned i = 0; i < atomic_load(&pools_used); i++) {
        if (atomic_load(&pools[i].eigen) && pools[i].class == POOL_INTRA && pools[i].built > 1)
            shown = atomic_load(&pools[i].shown);
    }
    atomic_store(&tf.intra_shown, shown);
}

static void pool_forget(void *owner, bool destroyed)
{
    pthread_mutex_lock(&pools_lock);
    for (unsigned i = 0; i < POOLS_MAX; i++) {
        struct pool *pool = &pools[i];

        if (pool->owner != owner)
            continue;
        if (destroyed) {
            pool->owner = NULL; /* frees the slot: the pool's threads have been joined */
            continue;
        }
        atomic_fetch_add(&tf.old_handed, atomic_load(&pool->handed));
        gate_set(&pool->gate, pool->built);
        atomic_store(&pool->eigen, NULL);
        agent_notify(); /* an acknowledgement may have waited for this pool */
    }
    show_intra();
    pthread_mutex_unlock(&pools_lock);
}

/* ---- interposed: construction and destruction ---- */

typedef void (*threadpool_ctor_fn)(void *, void *, const void *, const struct stdstring *, int,
                                   bool, void *);

/*
 * A pool for which the program wants @threads is built with so many, so that it can grow. But
 * TensorFlow ends a program for which it cannot make a thread: where limits leave no room, the pool
 * has the program's own size.
 */
static uint32_t with_room_to_grow(uint32_t threads)
{
    uint32_t most = agent_config.max, room;

    if (most <= threads)
        return threads;
    room = room_for_threads("/", room_stack_bytes());
    if (most > room)
        most = room;
    return most > threads ? most : threads;
}

static void threadpool_ctor(threadpool_ctor_fn real, const void *caller, void *owner, void *env,
                            const void *options, const struct stdstring *name, int threads,
                            bool low_latency, void *allocator)
{
    enum pool_class class = threads > 0 ? classify(name->data) : POOL_OTHER;
    struct pool *outer = building;
    struct pool *pool = NULL;
    uint32_t built = (uint32_t)threads;
    int saved = errno;

    if (class != POOL_OTHER && agent_start() && tf_mode(caller) != TF_UNKNOWN) {
        /* Intra-op and inter-op pools get room to grow; tf.data sizes its pools itself. */
        if (class == POOL_INTRA || strcmp(name->data, "Compute") == 0)
            built = with_room_to_grow(built);
        pool = pool_reserve(class, (uint32_t)threads, built);
    }
    if (!pool)
        built = (uint32_t)threads;
    building = pool;
    errno = saved;
    real(owner, env, options, name, (int)built, low_latency, allocator);
    building = outer;
    if (pool)
        pool_ready(pool, owner);
}

TF_EXPORT void TF_THREADPOOL_C1(void *owner, void *env, const void *options,
                                const struct stdstring *name, int threads, bool low_latency,
                                void *allocator)
{
    threadpool_ctor(TF_REAL(threadpool_ctor_fn, TF_THREADPOOL_C1), __builtin_return_address(0),
                    owner, env, options, name, threads, low_latency, allocator);
}

TF_EXPORT void TF_THREADPOOL_C2(void *owner, void *env, const void *options,
                                const struct stdstring *name, int threads, bool low_latency,
                                void *allocator)
{
    threadpool_ctor(TF_REAL(threadpool_ctor_fn, TF_THREADPOOL_C2), __builtin_return_address(0),
                    owner, env, options, name, threads, low_latency, allocator);
}

typedef void (*dtor_fn)(void *);

TF_EXPORT void TF_THREADPOOL_D1(void *owner)
{
    dtor_fn real = TF_REAL(dtor_fn, TF_THREADPOOL_D1);

    pool_forget(owner, false);
    real(owner);
    pool_forget(owner, true);
}

TF_EXPORT void TF_THREADPOOL_D2(void *owner)
{
    dtor_fn real = TF_REAL(dtor_fn, TF_THREADPOOL_D2);

    pool_forget(owner, false);
    real(owner);
    pool_forget(owner, true);
}

typedef void (*eigen_ctor_fn)(void *, int, bool, void *);

static void eigen_ctor(eigen_ctor_fn real, void *eigen, int threads, bool spin, void *env)
{
    if (building && threads == (int)building->built && !atomic_load(&building->eigen)) {
        unsigned index = (unsigned)(building - pools) + 1;
        unsigned used = atomic_load(&pools_used);

        atomic_store_explicit(&building->eigen, eigen, memory_order_release);
        while (used < index && !atomic_compare_exchange_weak(&pools_used, &used, index))
            ;
    }
    real(eigen, threads, spin, env);
}

TF_EXPORT void TF_EIGEN_C1(void *eigen, int threads, bool spin, void *env)
{
    eigen_ctor(TF_REAL(eigen_ctor_fn, TF_EIGEN_C1), eigen, threads, spin, env);
}

TF_EXPORT void TF_EIGEN_C2(void *eigen, int threads, bool spin, void *env)
{
    eigen_ctor(TF_REAL(eigen_ctor_fn, TF_EIGEN_C2), eigen, threads, spin, env);
}

/* ---- interposed: the workers ---- */

TF_EXPORT void TF_WORKER_LOOP(void *eigen, int id)
{
    typedef void (*worker_fn)(void *, int);
    worker_fn real = TF_REAL(worker_fn, TF_WORKER_LOOP);
    struct pool *pool = pool_of_eigen(eigen);

    if (pool && pool->class != POOL_OTHER)
        self = gate_enter(&pool->gate, (uint32_t)id);
    real(eigen, id);
    if (self)
        gate_leave(self);
    self = NULL;
}

TF_EXPORT void TF_MAYBE_GET_TASK(void *eigen, void *task)
{
    typedef void (*get_fn)(void *, void *);
    get_fn real = TF_REAL(get_fn, TF_MAYBE_GET_TASK);

    told.pool = NULL;
    if (self) {
        gate_pass(self);
        if (__builtin_expect(!task_layout_known(), 0)) {
            real(eigen, task);
            task_learn_layout(task);
            return;
        }
    }
    real(eigen, task); /* nothing follows: the compiler jumps there, and keeps no frame */
}

#if PROCESSOR_RESULT_IS_ARGUMENT
/* Returns a Task by value: the caller's hidden pointer comes first. */
TF_EXPORT void *TF_LOCAL_STEAL(void *ret_task, void *eigen)
{
    typedef void *(*steal_fn)(void *, void *);
    steal_fn real = TF_REAL(steal_fn, TF_LOCAL_STEAL);

    told.pool = NULL;
    if (self && atomic_load_explicit(&tf.mode, memory_order_relaxed) == TF_STEAL)
        gate_pass(self);
    return real(ret_task, eigen);
}
#endif

TF_EXPORT bool TF_WAIT_FOR_WORK(void *eigen, void *waiter, void *task)
{
    typedef bool (*wait_fn)(void *, void *, void *);
    wait_fn real = TF_REAL(wait_fn, TF_WAIT_FOR_WORK);
    bool more;

    if (!self)
        return real(eigen, waiter, task);
    told.pool = NULL;
    if (__builtin_expect(!atomic_load_explicit(&tf.gate_seen, memory_order_relaxed), 0))
        atomic_store(&tf.gate_seen, true);
    gate_idle_enter(self);
    more = real(eigen, waiter, task);
    if (__builtin_expect(gate_idle_leave(self), 1)) {
        if (more && !task_layout_known())
            task_learn_layout(task);
        return more;
    }
    if (more)
        task_learn_layout(task);
    /* Without a proven layout the worker runs this one closure and parks at the next gate. */
    if (more && task_layout_known()) {
        task_give_back(self, task);
        gate_park(self);
    }
    return more;
}

/*
 * oneDNN hands all pieces of an op to the pool's first worker, and waits, where it was told one
 * thread. The op's own thread computes them instead, as it does in a program that was started with
 * one thread: no thread has to wake up for it, or to wait for a core. With more than one thread
 * built, others in TensorFlow give nothing to the first worker alone.
 */
static bool computes_itself(const struct pool *pool, int start, int limit)
{
    return pool && pool == told.pool && told.threads == 1 && start == 0 && limit == 1 &&
           pool->built > 1 && self && self->gate != &pool->gate;
}

TF_EXPORT void TF_SCHEDULE_WITH_HINT(void *eigen, struct stdfunction *function, int start,
                                     int limit)
{
    typedef void (*hint_fn)(void *, struct stdfunction *, int, int);
    hint_fn real = TF_REAL(hint_fn, TF_SCHEDULE_WITH_HINT);
    struct pool *pool = pool_of_eigen(eigen);

    if (computes_itself(pool, start, limit)) {
        function->invoke(function->data);
        return;
    }
    if (pool && pool->class == POOL_INTER && !self)
        atomic_fetch_add_explicit(&pool->handed, 1, memory_order_relaxed);
    if (pool && start == 0 && limit > 1 && limit == (int)pool->built)
        limit = (int)atomic_load_explicit(&pool->shown, memory_order_relaxed);
    real(eigen, function, start, limit);
}

/* ---- interposed: how many threads an op counts on ---- */

TF_EXPORT int TF_PER_THREAD_MAX_PARALLELISM(void)
{
    typedef int (*max_fn)(void);
    max_fn real = TF_REAL(max_fn, TF_PER_THREAD_MAX_PARALLELISM);
    int stock = real();
    uint32_t shown = atomic_load_explicit(&tf.intra_shown, memory_order_relaxed);

    return shown > 0 && (int)shown < stock ? (int)shown : stock;
}

/*
 * An op's primitive of oneDNN is made when a thread comes to the op for the first time, and keeps
 * as the number of its pieces what NumThreads() said then: made for a single thread it would stay
 * serial after a grow. So where a policy moves the target, a thread's first calls get the number
 * that was built. Later ones get the active number, which decides into how many closures the pieces
 * go.
 */
static uint32_t threads_for_op(const struct pool *pool)
{
    if (self && asked < PRIMITIVES_CALLS) { /* others have no place to change the number again */
        asked++;
        return atomic_load_explicit(&pool->cut, memory_order_relaxed);
    }
    return atomic_load_explicit(&pool->shown, memory_order_relaxed);
}

/*
 * oneDNN and Eigen's contractions ask here. A contraction asks several times, and takes an array's
 * size from one answer and indices into it from an earlier one: within a closure the number may
 * only rise. Closures that run whole loops see a lower number a second later.
 *
 * tsl's NumThreads() always returns how many were built, because ops size arrays with it and index
 * them with a worker's id.
 */
TF_EXPORT int TF_EIGEN_NUM_THREADS(const void *eigen)
{
    typedef int (*num_fn)(const void *);
    num_fn real = TF_REAL(num_fn, TF_EIGEN_NUM_THREADS);
    int stock = real(eigen);
    struct pool *pool = pool_of_eigen(eigen);
    uint32_t threads;

    if (!pool || pool->class != POOL_INTRA)
        return stock;
    threads = (uint32_t)smaller((uint32_t)stock, threads_for_op(pool));
    if (!self)
        return (int)threads;
    if (told.pool == pool && threads < told.threads && clock_now_ns() - told.since_ns < NS_PER_S)
        return (int)told.threads;
    if (told.pool != pool || threads != told.threads)
        told = (struct told){.pool = pool, .threads = threads, .since_ns = clock_now_ns()};
    return (int)threads;
}

TF_EXPORT int TF_THREADPOOL_NUM_THREADS(const void *owner)
{
    typedef int (*num_fn)(const void *);
    num_fn real = TF_REAL(num_fn, TF_THREADPOOL_NUM_THREADS);
    unsigned used = atomic_load_explicit(&pools_used, memory_order_acquire);

    for (unsigned i = 0; i < used; i++) {
        if (pools[i].owner == owner)
            return (int)pools[i].built;
    }
    return real(owner);
}

/*
 * A device learns its pool's size here. It gets the size that was built, so that an op can have 1
 * to that many shards. CpuWorkerThreads.num_threads is changed before any op can read it and never
 * again, because ops read it more than once.
 */
TF_EXPORT void TF_SET_EIGEN_CPU_DEVICE(void *device_base, struct eigen_device *device)
{
    typedef void (*set_fn)(void *, struct eigen_device *);
    set_fn real = TF_REAL(set_fn, TF_SET_EIGEN_CPU_DEVICE);
    struct pool *pool = pool_of_eigen(device->pool);

    if (pool && pool->class == POOL_INTRA && (uint32_t)device->num_threads < pool->built &&
        pool->built > 1) {
        struct cpu_worker_threads *workers = NULL;
        struct cpu_worker_threads seen;

        if (resolve_peek((char *)device_base + TF_DEVICE_WORKERS_OFFSET, &workers,
                         sizeof(workers)) &&
            resolve_peek(workers, &seen, sizeof(seen)) && seen.workers == pool->owner)
            workers->num_threads = (int)pool->built;
        device->num_threads = (int)pool->built;
    }
    real(device_base, device);
}
