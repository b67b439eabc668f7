/* SPDX-License-Identifier: Apache-2.0 */
#include "dlb/process.h"

#include "base/clock.h"
#include "dlb/dlb.h"
#include "dlb/poll.h"
#include "dlb/result.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#define TIMEOUT_MS                                                                                 \
    2000 /* DLB's calls do not wait; a daemon that hangs must not hold up a program */

#define QUIET_NS (2 * NS_PER_S) /* after an answer that did not come, which takes half a second */

static struct {
    pthread_mutex_t lock;
    tide_ctl *ctl;           /* NULL: not connected */
    uint64_t quiet_until_ns; /* the daemon has not answered */
    cpu_set_t cpus;
    bool init, enabled;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int check_locked(void)
{
    if (!process.init)
        return DLB_ERR_NOINIT;
    return process.enabled ? 0 : DLB_ERR_DISBLD;
}

int process_check(void)
{
    int r;

    pthread_mutex_lock(&process.lock);
    r = check_locked();
    pthread_mutex_unlock(&process.lock);
    return r;
}

/* Under the lock. */
static void note(int result)
{
    if (result == -ETIMEDOUT)
        process.quiet_until_ns = clock_now_ns() + QUIET_NS;
}

int process_begin(tide_ctl **ret)
{
    struct tide_ctl_options options = {.size = sizeof(options), .timeout_ms = TIMEOUT_MS};
    int r;

    pthread_mutex_lock(&process.lock);
    r = check_locked();
    if (r == 0 && clock_now_ns() < process.quiet_until_ns)
        r = DLB_ERR_TIMEOUT;
    if (r == 0 && !process.ctl) {
        r = tide_ctl_open(&options, &process.ctl);
        note(r);
        r = result_of(r);
    }
    if (r != 0) {
        pthread_mutex_unlock(&process.lock);
        return r;
    }
    *ret = process.ctl;
    return 0;
}

void process_end(int result)
{
    note(result);
    pthread_mutex_unlock(&process.lock);
}

void process_cpus(cpu_set_t *ret)
{
    pthread_mutex_lock(&process.lock);
    *ret = process.cpus;
    pthread_mutex_unlock(&process.lock);
}

/* ---- DLB's calls ---- */

/* A child of fork() has nothing to lend or to give back: the connection and all loans are its
 * parent's. */
static void after_fork(void)
{
    process.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    process.ctl = tide_ctl_close(process.ctl);
    process.init = process.enabled = false;
    poll_after_fork();
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

/* @dlb_args and $DLB_ARGS are not read: what a job may do is decided by its daemon. */
int DLB_Init(int ncpus, const_dlb_cpu_set_t mask, const char *dlb_args)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int r = DLB_ERR_INIT;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&process.lock);
    if (!process.init) {
        CPU_ZERO(&process.cpus);
        if (mask)
            process.cpus = *(const cpu_set_t *)mask;
        else
            sched_getaffinity(0, sizeof(process.cpus), &process.cpus);
        process.init = process.enabled = true;
        r = DLB_SUCCESS; /* also without a daemon: one may come */
    }
    pthread_mutex_unlock(&process.lock);
    if (r == DLB_SUCCESS)
        poll_begin(ncpus);
    return r;
}

/* Under the lock. */
static void give_all_back(void)
{
    if (process.ctl && tide_ctl_return(process.ctl, NULL, PROCESS_WAIT_MS, NULL) != -ETIMEDOUT)
        tide_ctl_reclaim(process.ctl, NULL, PROCESS_WAIT_MS, NULL);
}

int DLB_Finalize(void)
{
    int r = DLB_NOUPDT;

    pthread_mutex_lock(&process.lock);
    if (process.init) {
        give_all_back();
        process.ctl = tide_ctl_close(process.ctl);
        process.init = process.enabled = false;
        r = DLB_SUCCESS;
    }
    pthread_mutex_unlock(&process.lock);
    if (r == DLB_SUCCESS)
        poll_done();
    return r;
}

static int enable(bool enabled)
{
    int r = DLB_ERR_NOINIT;

    pthread_mutex_lock(&process.lock);
    if (process.init) {
        r = process.enabled == enabled ? DLB_NOUPDT : DLB_SUCCESS;
        if (!enabled)
            give_all_back();
        process.enabled = enabled;
    }
    pthread_mutex_unlock(&process.lock);
    return r;
}

int DLB_Enable(void)
{
    return enable(true);
}

int DLB_Disable(void)
{
    return enable(false);
}
