/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends the stall with which tf.data's iterators end.
 *
 * CancellationManager::StartCancel() calls its callbacks first and marks itself as cancelled
 * afterwards. The callback of tf.data's tuning thread (Model::OptimizeLoop) wakes that thread,
 * which asks whether it is cancelled. Where it asks before the mark is set, it sleeps for the rest
 * of its period: up to a minute, and never longer than the iterator has lived. The program's thread
 * waits for it, at the end of an epoch. On a busy machine with few cores that is the usual case.
 *
 * So the agent keeps a copy of that callback, and calls it once more when StartCancel() has set the
 * mark. The callback takes the lock under which the tuning thread asks and falls asleep, so the
 * second call is never lost. docs/tensorflow-stall.md has the measurements.
 *
 * Read off the wheels 2.15.0, 2.18.0 and 2.21.0. All on the program's threads.
 */
#include "agent/compat.h"
#include "agent/processor.h"
#include "agent/runtimes/tensorflow/tensorflow.h"

#include <errno.h>
#include <string.h>

#if PROCESSOR_RESULT_IS_ARGUMENT /* absl::Status is returned by value, as a Task is */
/* The hooks' prototypes are TensorFlow's. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define TUNERS_MAX 64 /* iterators that tune at the same time; further ones end as without us */
#define SITES_MAX  64
#define TUNER      "_ZN10tensorflow4data5model5Model12OptimizeLoop"

struct tuner {
    const void *manager; /* its CancellationManager; NULL: this entry is free */
    struct stdfunction callback;
    bool busy; /* its callback is being called */
};

/* A place that registers callbacks, and whether that is the tuning thread's. */
struct site {
    _Atomic(const void *) address;
    _Atomic int is_tuner; /* 0: not known yet, 1: yes, -1: no */
};

static struct tuner tuners[TUNERS_MAX];
static _Atomic unsigned n_tuners;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* not held while TensorFlow's code runs */
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;
static struct site sites[SITES_MAX];

/* ---- who registers ---- */

static bool names_tuner(const void *address)
{
    Dl_info info;

    return dladdr((const char *)address - 1, &info) && info.dli_sname &&
           strncmp(info.dli_sname, TUNER, sizeof(TUNER) - 1) == 0;
}

/* dladdr() takes a millisecond in a library of this size: once for each place. */
static bool is_tuner(const void *address)
{
    for (unsigned i = 0; i < SITES_MAX; i++) {
        const void *found = atomic_load(&sites[i].address);

        if (!found && atomic_compare_exchange_strong(&sites[i].address, &found, address))
            found = address;
        if (found != address)
            continue;
        if (atomic_load(&sites[i].is_tuner) == 0)
            atomic_store(&sites[i].is_tuner, names_tuner(address) ? 1 : -1);
        return atomic_load(&sites[i].is_tuner) > 0;
    }
    return false;
}

/* ---- the copies ---- */

static void destroy(struct stdfunction *f)
{
    f->manage(f, f, STDFUNCTION_DESTROY);
}

static struct tuner *find(const void *manager)
{
    for (unsigned i = 0; i < TUNERS_MAX; i++)
        if (tuners[i].manager == manager)
            return &tuners[i];
    return NULL;
}

/* Takes the copy out of the table, when nobody calls it. False: there is none. */
static bool take(const void *manager, struct stdfunction *ret)
{
    struct tuner *t;
    bool found;

    if (atomic_load(&n_tuners) == 0)
        return false;
    pthread_mutex_lock(&lock);
    while ((t = find(manager)) && t->busy)
        pthread_cond_wait(&called, &lock);
    found = t;
    if (t) {
        *ret = t->callback;
        t->manager = NULL;
        atomic_fetch_sub(&n_tuners, 1);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void forget(const void *manager)
{
    struct stdfunction copy;

    if (take(manager, &copy))
        destroy(&copy);
}

static void keep(const void *manager, const struct stdfunction *callback)
{
    struct stdfunction copy = {.manage = callback->manage, .invoke = callback->invoke};
    struct tuner *t;

    if (!callback->manage)
        return;
    forget(manager);
    callback->manage(&copy, callback, STDFUNCTION_CLONE);
    pthread_mutex_lock(&lock);
    t = find(NULL);
    if (t) {
        *t = (struct tuner){.manager = manager, .callback = copy};
        atomic_fetch_add(&n_tuners, 1);
    }
    pthread_mutex_unlock(&lock);
    if (!t)
        destroy(&copy);
}

/*
 * A manager may be cancelled by its parent, too, while the iterator's thread cancels it and then
 * frees what the callback uses: that thread waits here until the call has ended.
 */
static void call_again(const void *manager)
{
    struct tuner *t;

    if (atomic_load(&n_tuners) == 0)
        return;
    pthread_mutex_lock(&lock);
    while ((t = find(manager)) && t->busy)
        pthread_cond_wait(&called, &lock);
    if (t) {
        t->busy = true;
        pthread_mutex_unlock(&lock);
        t->callback.invoke(&t->callback);
        destroy(&t->callback);
        pthread_mutex_lock(&lock);
        *t = (struct tuner){.manager = NULL};
        atomic_fetch_sub(&n_tuners, 1);
        pthread_cond_broadcast(&called);
    }
    pthread_mutex_unlock(&lock);
}

void tf_data_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&called, NULL);
    memset(tuners, 0, sizeof(tuners));
    atomic_store(&n_tuners, 0);
}

/* ---- interposed ---- */

/* Returns an absl::Status by value: the caller's hidden pointer comes first. */
TF_EXPORT void *TF_REGISTER_CANCELLATION(void *ret_status, void *manager,
                                         struct stdfunction *callback,
                                         struct stdfunction *ret_deregister)
{
    typedef void *(*register_fn)(void *, void *, struct stdfunction *, struct stdfunction *);
    register_fn real = TF_REAL(register_fn, TF_REGISTER_CANCELLATION);
    int saved = errno;

    if (agent_config.enabled && !agent_config.stalls && manager &&
        is_tuner(__builtin_return_address(0)))
        keep(manager, callback);
    errno = saved;
    return real(ret_status, manager, callback, ret_deregister);
}

typedef void (*manager_fn)(void *);

TF_EXPORT void TF_START_CANCEL(void *manager)
{
    manager_fn real = TF_REAL(manager_fn, TF_START_CANCEL);

    real(manager);
    call_again(manager);
}

TF_EXPORT void TF_CANCELLATION_D1(void *manager)
{
    manager_fn real = TF_REAL(manager_fn, TF_CANCELLATION_D1);

    forget(manager);
    real(manager);
}

TF_EXPORT void TF_CANCELLATION_D2(void *manager)
{
    manager_fn real = TF_REAL(manager_fn, TF_CANCELLATION_D2);

    forget(manager);
    real(manager);
}
#else
void tf_data_after_fork(void)
{
}
#endif
