/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DROM for programs that steer others. A process is a job whose first process it is; its mask is
 * the first of the job's cores, as many as it has threads. Setting a mask pins the job's threads
 * to the number of CPUs in it: the daemon decides which cores these are.
 */
#include "base/cpuset.h"
#include "dlb/dlb_drom.h"
#include "dlb/process.h"
#include "dlb/result.h"

#include <tide/tide.h>

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#define TIMEOUT_MS 5000
#define NO_WAIT_MS 1 /* long enough to hear a refusal; an acknowledgement may come later */

static struct {
    pthread_mutex_t lock;
    tide_ctl *ctl; /* NULL: not connected */
    bool attached;
} third = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock may have been held, and the connection is its parent's. */
static void after_fork(void)
{
    third.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    third.ctl = tide_ctl_close(third.ctl);
    third.attached = false;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

/* Under the lock. */
static int connect_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct tide_ctl_options options = {.size = sizeof(options), .timeout_ms = TIMEOUT_MS};

    pthread_once(&once, watch_forks);
    return third.ctl ? 0 : result_of(tide_ctl_open(&options, &third.ctl));
}

/* Locks; returns 0, or DLB_ERR_NOINIT (not locked). */
static int begin(void)
{
    pthread_mutex_lock(&third.lock);
    if (third.attached)
        return 0;
    pthread_mutex_unlock(&third.lock);
    return DLB_ERR_NOINIT;
}

/* The same for a call about @pid, for which a process that is initialized need not be attached if
 * it is its own. */
static int begin_for(int pid)
{
    int r = begin();

    if (r == 0 || pid != 0 || process_check() == DLB_ERR_NOINIT)
        return r;
    pthread_mutex_lock(&third.lock);
    r = connect_once();
    if (r != 0)
        pthread_mutex_unlock(&third.lock);
    return r;
}

static void end(void)
{
    pthread_mutex_unlock(&third.lock);
}

int DLB_DROM_Attach(void)
{
    int r;

    pthread_mutex_lock(&third.lock);
    r = connect_once();
    third.attached |= r == 0;
    pthread_mutex_unlock(&third.lock);
    return r;
}

int DLB_DROM_Detach(void)
{
    int r = begin();

    if (r != 0)
        return r;
    third.ctl = tide_ctl_close(third.ctl);
    third.attached = false;
    end();
    return DLB_SUCCESS;
}

int DLB_DROM_GetNumCpus(int *ncpus)
{
    int r = begin();

    if (r != 0)
        return r;
    end();
    *ncpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return DLB_SUCCESS;
}

struct pids {
    int *list;
    int n, room;
};

static int note_pid(const struct tide_job *job, void *arg)
{
    struct pids *p = arg;

    if (p->n < p->room)
        p->list[p->n++] = (int)job->pid;
    return 0;
}

int DLB_DROM_GetPidList(int *pidlist, int *nelems, int max_len)
{
    struct pids pids = {.list = pidlist, .room = max_len};
    int r = begin();

    if (r != 0)
        return r;
    r = tide_ctl_list(third.ctl, note_pid, &pids);
    end();
    if (r < 0)
        return result_of(r);
    *nelems = pids.n;
    return DLB_SUCCESS;
}

struct wanted {
    uint32_t pid;
    bool found;
    int parsed;
    unsigned threads;
    struct cpuset cores;
};

static int look(const struct tide_job *job, void *arg)
{
    struct wanted *w = arg;

    if (job->pid != w->pid)
        return 0;
    w->found = true;
    w->threads = job->target;
    w->parsed = cpuset_parse(job->cores, &w->cores); /* a list that was cut is none */
    return 0;
}

int DLB_DROM_GetProcessMask(int pid, dlb_cpu_set_t mask, dlb_drom_flags_t flags)
{
    struct wanted w = {.pid = (uint32_t)(pid ? pid : getpid())};
    cpu_set_t *set = mask;
    int r = begin_for(pid);

    if (r != 0)
        return r;
    r = tide_ctl_list(third.ctl, look, &w);
    end();
    if (r < 0)
        return result_of(r);
    if (!w.found)
        return DLB_ERR_NOPROC;
    if (w.parsed < 0)
        return DLB_ERR_UNKNOWN;
    if (w.threads > 0) /* 0: its threads are not known */
        cpuset_cut(&w.cores, w.threads);
    CPU_ZERO(set);
    for (int cpu = cpuset_next(&w.cores, 0); cpu >= 0 && cpu < CPU_SETSIZE;
         cpu = cpuset_next(&w.cores, (unsigned)cpu + 1))
        CPU_SET(cpu, set);
    return DLB_SUCCESS;
}

static int set_threads(int pid, unsigned threads, dlb_drom_flags_t flags)
{
    bool sync = flags & DLB_SYNC_QUERY;
    char job[16];
    int r;

    if (threads == 0)
        return DLB_ERR_NOCOMP; /* a job keeps a thread */
    r = begin_for(pid);
    if (r != 0)
        return r;
    snprintf(job, sizeof(job), "%d", pid ? pid : (int)getpid());
    r = tide_ctl_set(third.ctl, job, threads, 0, sync ? 0 : NO_WAIT_MS, NULL);
    end();
    if (r == TIDE_PARTIAL)
        return sync ? DLB_ERR_TIMEOUT : DLB_SUCCESS; /* it is set, and not acknowledged yet */
    return result_of(r);
}

int DLB_DROM_SetProcessMask(int pid, const_dlb_cpu_set_t mask, dlb_drom_flags_t flags)
{
    return set_threads(pid, (unsigned)CPU_COUNT((const cpu_set_t *)mask), flags);
}

int DLB_DROM_SetProcessMaskStr(int pid, const char *mask, dlb_drom_flags_t flags)
{
    struct cpuset cores;

    if (cpuset_parse(mask, &cores) < 0)
        return DLB_ERR_NOENT;
    return set_threads(pid, cpuset_count(&cores), flags);
}

/* Nothing is reserved before a program starts: `tide run` or `tide submit` start it. */
int DLB_DROM_PreInit(int pid, const_dlb_cpu_set_t mask, dlb_drom_flags_t flags,
                     char ***next_environ)
{
    int r = begin();

    if (r != 0)
        return r;
    end();
    return DLB_ERR_NOCOMP;
}

int DLB_DROM_PostFinalize(int pid, dlb_drom_flags_t flags)
{
    int r = begin();

    if (r != 0)
        return r;
    end();
    return DLB_NOUPDT;
}
