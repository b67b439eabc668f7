/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the parts of the TensorFlow backend: tensorflow.c (targets, watchdog, description;
 * control thread), tensorflow_hooks.c (life of the pools, interposed functions; the program's
 * threads, which read atomics and take pools_lock only while a pool is built or destroyed) and
 * tensorflow_data.c (the end of tf.data's iterators).
 */
#pragma once

#include "agent/agent.h"
#include "agent/gate/gate.h"
#include "agent/runtimes/tensorflow/tensorflow_abi.h"

#include <pthread.h>

#define POOLS_MAX 64 /* the agent governs no further pool */

enum pool_class {
    POOL_INTRA,
    POOL_INTER, /* inter-op pools, and tf.data's, which get the same target */
    POOL_OTHER, /* not governed */
    POOL_CLASS_MAX
};

enum tf_mode {
    TF_UNKNOWN,
    TF_GATE,  /* MaybeGetTask */
    TF_STEAL, /* LocalSteal */
    TF_MODE_MAX
};

struct pool {
    struct gate gate;
    _Atomic(void *) eigen; /* NULL: this slot is free */
    _Atomic(void *) owner; /* the tsl::thread::ThreadPool */
    int *device_threads;   /* num_threads of the pool's own ThreadPoolDevice; NULL: not found */
    uint64_t built_ns;
    _Atomic uint64_t handed; /* closures from threads outside the pool; inter-op pools only */
    enum pool_class class;
    uint32_t stock; /* threads that stock TensorFlow would have built */
    uint32_t built;
    bool sized_by_default;  /* stock equalled the limit: the program itself set no number */
    _Atomic uint32_t shown; /* active threads that ops see */
    _Atomic uint32_t cut;   /* for how many threads oneDNN's primitives are made */
    /* for the watchdog; control thread */
    uint32_t wanted;
    uint32_t extra;          /* threads awake above the target because others block */
    uint32_t blocked_ticks;  /* ticks in a row at which all active workers were blocked */
    uint64_t blocked_cpu_ns; /* CPU time of the blocked workers at the last such tick */
    uint64_t last_passes;
    uint64_t rescue_until_ns;
    uint64_t rescue_hold_ns;
};

struct tf_state {
    _Atomic int mode;             /* enum tf_mode */
    _Atomic uint32_t intra_shown; /* threads that ops see; 0: TensorFlow's own number */
    _Atomic int task_layout;      /* enum task_layout, proven by a probe closure */
    _Atomic bool gate_seen;       /* a worker called a hook, so the hooks are in place */
    _Atomic uint64_t old_handed;  /* sum over destroyed pools */
    char version[PROTO_SHORT_MAX];
    char note[PROTO_NOTE_MAX];
};

extern struct tf_state tf;
extern struct pool pools[POOLS_MAX];
extern _Atomic unsigned pools_used; /* high-water mark */
extern pthread_mutex_t pools_lock;  /* guards pools[]; never held while the program's code runs */

/* The real function behind a hook, looked up once from the caller's point of view. */
#define TF_REAL(type, symbol)                                                                      \
    ({                                                                                             \
        static _Atomic(void *) _real;                                                              \
        void *_f = atomic_load_explicit(&_real, memory_order_acquire);                             \
        if (__builtin_expect(!_f, 0)) {                                                            \
            _f = resolve_next(TF_STRING(symbol), __builtin_return_address(0), TF_SONAME);          \
            atomic_store_explicit(&_real, _f, memory_order_release);                               \
        }                                                                                          \
        (type) _f;                                                                                 \
    })

/* The governed pool around an Eigen pool, or NULL. Any thread, lock-free. */
struct pool *pool_of_eigen(const void *eigen);

/* Returns the active threads for a pool while @target is in force. */
uint32_t pool_target(const struct pool *pool, const struct agent_target *target);
/* Sets for how many threads oneDNN's primitives are made from now on. */
void pool_cut(struct pool *pool, const struct agent_target *target);

/* Limits the pool to @k active threads; pools_lock held. True: the others are parked by now. */
bool pool_apply(struct pool *pool, uint32_t k);

/* Adds an empty closure: it wakes a worker, and the worker looks at all queues. Any thread. */
void pool_nudge(struct gate *gate);

/* Returns where this TensorFlow's workers can park. The first call looks it up, as @caller sees it.
 */
enum tf_mode tf_mode(const void *caller);

/* Learns where a Task keeps its closure, from a Task that may hold one of ours. Worker's thread. */
void task_learn_layout(void *task);
static inline bool task_layout_known(void)
{
    return atomic_load_explicit(&tf.task_layout, memory_order_relaxed) != TASK_UNKNOWN;
}

/* Puts back the closure with which a surplus worker woke up, so that another worker runs it. */
void task_give_back(struct gate_worker *worker, void *task);

/* Sees to it that calls of functions and sessions are seen where they are wanted. Control thread.
 */
void tf_calls_watch(void);

/* Called in the child of a fork, whose only thread belongs to no pool. */
void tf_hooks_after_fork(void);
void tf_data_after_fork(void);
