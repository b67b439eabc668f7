/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/proc.h"

#include "base/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>

#define PASSES_MAX 64 /* beyond this, a program starts threads faster than we list them */

static_assert(CPUSET_MAX_CPUS <= CPU_SETSIZE, "cpu_set_t is too small");

static int set_one(pid_t tid, const struct cpuset *set)
{
    cpu_set_t mask;

    CPU_ZERO(&mask);
    for (int cpu = cpuset_next(set, 0); cpu >= 0; cpu = cpuset_next(set, (unsigned)cpu + 1))
        CPU_SET((size_t)cpu, &mask);
    return sched_setaffinity(tid, sizeof(mask), &mask) < 0 ? -errno : 0;
}

static bool contains(const pid_t *sorted, size_t n, pid_t tid)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (sorted[middle] == tid)
            return true;
        if (sorted[middle] < tid)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

int proc_set_affinity(int root, pid_t pid, const struct cpuset *set, unsigned *ret_threads)
{
    _cleanup_free_ pid_t *before = NULL;
    size_t n_before = 0;
    unsigned done = 0;

    for (int pass = 0; pass < PASSES_MAX; pass++) {
        _cleanup_free_ pid_t *now = NULL;
        size_t n;
        bool new_one = false;
        int r = proc_list_threads(root, pid, &now, &n);

        if (r < 0)
            return r;
        for (size_t i = 0; i < n; i++) {
            if (contains(before, n_before, now[i]))
                continue;
            new_one = true;
            r = set_one(now[i], set);
            if (r == 0)
                done++;
            else if (r != -ESRCH)
                return r;
        }
        if (!new_one) {
            if (ret_threads)
                *ret_threads = done;
            return 0;
        }
        free(before);
        before = TAKE_PTR(now);
        n_before = n;
    }
    return -EAGAIN;
}

int proc_get_affinity(pid_t tid, struct cpuset *ret)
{
    cpu_set_t mask;

    if (sched_getaffinity(tid, sizeof(mask), &mask) < 0)
        return -errno;
    cpuset_zero(ret);
    for (unsigned cpu = 0; cpu < CPUSET_MAX_CPUS; cpu++) {
        if (CPU_ISSET(cpu, &mask))
            cpuset_add(ret, cpu);
    }
    return 0;
}

int proc_get_affinity_all(int root, pid_t pid, struct cpuset *ret, bool *ret_uniform)
{
    _cleanup_free_ pid_t *tids = NULL;
    struct cpuset all, first;
    bool uniform = true, any = false;
    size_t n;
    int r = proc_list_threads(root, pid, &tids, &n);

    if (r < 0)
        return r;
    cpuset_zero(&all);
    for (size_t i = 0; i < n; i++) {
        struct cpuset one;

        r = proc_get_affinity(tids[i], &one);
        if (r == -ESRCH)
            continue;
        if (r < 0)
            return r;
        if (!any)
            first = one;
        uniform = uniform && cpuset_equal(&first, &one);
        any = true;
        for (size_t w = 0; w < CPUSET_WORDS; w++)
            all.word[w] |= one.word[w];
    }
    if (!any)
        return -ESRCH;
    *ret = all;
    if (ret_uniform)
        *ret_uniform = uniform;
    return 0;
}
