/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From its first poll on the process has a pool of the size that DLB_Init was told, as if it had
 * called tide_declare() itself. A target counts as reached when the program has been told of it,
 * as with DLB.
 */
#include "dlb/poll.h"

#include "dlb/dlb.h"
#include "dlb/process.h"
#include "dlb/result.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define CALLBACKS (dlb_callback_disable_cpu + 1)

static struct {
    pthread_mutex_t lock;
    int ncpus;
    unsigned declared; /* 0: the program has not polled yet */
    unsigned told;     /* the target that the program knows */
    struct {
        dlb_callback_t call;
        void *arg;
    } callback[CALLBACKS];
} poll_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

void poll_begin(int ncpus)
{
    pthread_mutex_lock(&poll_state.lock);
    poll_state.ncpus = ncpus;
    pthread_mutex_unlock(&poll_state.lock);
}

void poll_done(void)
{
    pthread_mutex_lock(&poll_state.lock);
    if (poll_state.declared)
        tide_declare(0);
    poll_state.declared = poll_state.told = 0;
    for (int i = 0; i < CALLBACKS; i++)
        poll_state.callback[i].call = NULL;
    pthread_mutex_unlock(&poll_state.lock);
}

void poll_after_fork(void)
{
    memset(&poll_state, 0, sizeof(poll_state));
    poll_state.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* Under the lock. Returns 0 or a result of DLB. */
static int declare(const cpu_set_t *cpus)
{
    int count = poll_state.ncpus > 0 ? poll_state.ncpus : CPU_COUNT(cpus);
    unsigned n = count > 0 ? (unsigned)count : 1;
    int r;

    if (poll_state.declared)
        return 0;
    n = n > TIDE_THREADS_MAX ? TIDE_THREADS_MAX : n;
    r = tide_declare(n);
    if (r < 0)
        return result_of(r);
    tide_active(n);
    poll_state.declared = poll_state.told = n;
    return 0;
}

/* Returns DLB_SUCCESS with the new number, DLB_NOUPDT, or an error. */
static int poll_target(const cpu_set_t *cpus, unsigned *ret)
{
    struct tide_state state = {.size = sizeof(state)};
    int r;

    pthread_mutex_lock(&poll_state.lock);
    r = declare(cpus);
    if (r == 0)
        r = result_of(tide_get(&state));
    if (r == 0) {
        unsigned target = state.target < poll_state.declared ? state.target : poll_state.declared;

        r = target == poll_state.told ? DLB_NOUPDT : DLB_SUCCESS;
        poll_state.told = *ret = target;
        if (r == DLB_SUCCESS)
            tide_active(target);
    }
    pthread_mutex_unlock(&poll_state.lock);
    return r;
}

/* The first @n of @cpus: a mask for programs that size themselves by one. */
static void cut(cpu_set_t *cpus, unsigned n)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, cpus))
            continue;
        if (n == 0)
            CPU_CLR(cpu, cpus);
        else
            n--;
    }
}

int DLB_PollDROM(int *ncpus, dlb_cpu_set_t mask)
{
    cpu_set_t cpus;
    unsigned target;
    int r = process_check();

    if (r != 0)
        return r;
    process_cpus(&cpus);
    r = poll_target(&cpus, &target);
    if (r != DLB_SUCCESS)
        return r;
    cut(&cpus, target);
    if (ncpus)
        *ncpus = (int)target;
    if (mask)
        *(cpu_set_t *)mask = cpus;
    return DLB_SUCCESS;
}

/* The callback is called without the lock, so that it may call DLB. */
static dlb_callback_t callback_of(int which, void **ret_arg)
{
    dlb_callback_t call;

    pthread_mutex_lock(&poll_state.lock);
    call = poll_state.callback[which].call;
    *ret_arg = poll_state.callback[which].arg;
    pthread_mutex_unlock(&poll_state.lock);
    return call;
}

int DLB_PollDROM_Update(void)
{
    cpu_set_t cpus;
    int ncpus, r = DLB_PollDROM(&ncpus, &cpus);
    dlb_callback_t call;
    void *arg;

    if (r != DLB_SUCCESS)
        return r;
    call = callback_of(dlb_callback_set_process_mask, &arg);
    if (call)
        ((void (*)(const cpu_set_t *, void *))call)(&cpus, arg);
    call = callback_of(dlb_callback_set_num_threads, &arg);
    if (call)
        ((void (*)(int, void *))call)(ncpus, arg);
    return DLB_SUCCESS;
}

static int check_callback(int which)
{
    int r = process_check();

    if (r == DLB_ERR_DISBLD) /* callbacks are set and read while DLB is disabled, too */
        r = 0;
    return r != 0 ? r : which > 0 && which < CALLBACKS ? 0 : DLB_ERR_NOCBK;
}

int DLB_CallbackSet(dlb_callbacks_t which, dlb_callback_t callback, void *arg)
{
    int r = check_callback((int)which);

    if (r != 0)
        return r;
    pthread_mutex_lock(&poll_state.lock);
    poll_state.callback[which].call = callback;
    poll_state.callback[which].arg = arg;
    pthread_mutex_unlock(&poll_state.lock);
    return DLB_SUCCESS;
}

int DLB_CallbackGet(dlb_callbacks_t which, dlb_callback_t *callback, void **arg)
{
    int r = check_callback((int)which);

    if (r != 0)
        return r;
    *callback = callback_of((int)which, arg);
    return DLB_SUCCESS;
}
