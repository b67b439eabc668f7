/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LeWI: cores that the process lends and borrows. libtide counts cores and leaves it to the daemon
 * which these are, so a CPU or a mask counts as a number.
 */
#include "dlb/dlb.h"
#include "dlb/process.h"
#include "dlb/result.h"

#include <stdbool.h>

#define ALL TIDE_THREADS_MAX

/* How many of the process's CPUs are in @mask; all of it if it need not be the process's. */
static int count_of(const_dlb_cpu_set_t mask, bool own_only)
{
    cpu_set_t own, both;

    if (!own_only)
        return CPU_COUNT((const cpu_set_t *)mask);
    process_cpus(&own);
    CPU_AND(&both, &own, (const cpu_set_t *)mask);
    return CPU_COUNT(&both);
}

static bool is_own(int cpuid)
{
    cpu_set_t own;

    process_cpus(&own);
    return cpuid >= 0 && cpuid < CPU_SETSIZE && CPU_ISSET(cpuid, &own);
}

static int lend(unsigned cores)
{
    struct tide_result result = {.size = sizeof(result)};
    tide_ctl *ctl;
    int r = process_begin(&ctl);

    if (r != 0)
        return r;
    r = tide_ctl_lend(ctl, NULL, cores, PROCESS_WAIT_MS, &result);
    process_end(r);
    if (r >= 0 && result.to == result.from) /* a job keeps one core */
        return DLB_NOUPDT;
    return r >= 0 ? DLB_SUCCESS : result_of(r);
}

static int reclaim(void)
{
    struct tide_result result = {.size = sizeof(result)};
    tide_ctl *ctl;
    int r = process_begin(&ctl);

    if (r != 0)
        return r;
    r = tide_ctl_reclaim(ctl, NULL, PROCESS_WAIT_MS, &result);
    process_end(r);
    if (r >= 0 && result.from == 0)
        return DLB_NOUPDT;
    return result_of(r);
}

/*
 * Own cores that are lent come first. What nobody has lent is asked for until DLB_Return if
 * @enqueue; else the wish is taken back, unless a part of it was met.
 */
static int borrow(unsigned cores, bool enqueue)
{
    struct tide_result mine = {.size = sizeof(mine)}, others = {.size = sizeof(others)};
    unsigned got;
    tide_ctl *ctl;
    int r = process_begin(&ctl);

    if (r != 0)
        return r;
    r = enqueue ? tide_ctl_reclaim(ctl, NULL, PROCESS_WAIT_MS, &mine) : 0;
    if (r < 0 || mine.from >= cores) {
        process_end(r);
        return result_of(r);
    }
    cores -= mine.from;
    r = tide_ctl_borrow(ctl, NULL, cores, PROCESS_WAIT_MS, &others);
    if (r >= 0 && !enqueue && others.to == 0)
        tide_ctl_return(ctl, NULL, PROCESS_WAIT_MS, NULL);
    process_end(r);
    if (r < 0)
        return result_of(r);
    got = others.to > others.from ? others.to - others.from : 0;
    if (enqueue)
        return got >= cores ? DLB_SUCCESS : DLB_NOTED;
    return got > 0 ? DLB_SUCCESS : DLB_NOUPDT;
}

static int give_back(void)
{
    struct tide_result result = {.size = sizeof(result)};
    tide_ctl *ctl;
    int r = process_begin(&ctl);

    if (r != 0)
        return r;
    r = tide_ctl_return(ctl, NULL, PROCESS_WAIT_MS, &result);
    process_end(r);
    if (r >= 0 && result.from == 0)
        return DLB_NOUPDT;
    return result_of(r);
}

/* The result for a number of CPUs that is none, or whose CPUs are not the process's. */
static int refuse(int cores, int result)
{
    int r = process_check();

    return r != 0 ? r : cores > 0 ? 0 : result;
}

int DLB_Lend(void)
{
    return lend(ALL);
}

int DLB_LendCpus(int ncpus)
{
    int r = refuse(ncpus, DLB_NOUPDT);

    return r != 0 ? r : lend((unsigned)ncpus);
}

int DLB_LendCpu(int cpuid)
{
    int r = refuse(is_own(cpuid), DLB_ERR_PERM);

    return r != 0 ? r : lend(1);
}

int DLB_LendCpuMask(const_dlb_cpu_set_t mask)
{
    int cores = count_of(mask, true), r = refuse(cores, DLB_ERR_PERM);

    return r != 0 ? r : lend((unsigned)cores);
}

int DLB_Reclaim(void)
{
    return reclaim();
}

int DLB_ReclaimCpus(int ncpus)
{
    int r = refuse(ncpus, DLB_NOUPDT);

    return r != 0 ? r : reclaim();
}

int DLB_ReclaimCpu(int cpuid)
{
    int r = refuse(is_own(cpuid), DLB_ERR_PERM);

    return r != 0 ? r : reclaim();
}

int DLB_ReclaimCpuMask(const_dlb_cpu_set_t mask)
{
    int r = refuse(count_of(mask, true), DLB_ERR_PERM);

    return r != 0 ? r : reclaim();
}

int DLB_AcquireCpus(int ncpus)
{
    int r = refuse(ncpus, DLB_NOUPDT);

    return r != 0 ? r : borrow((unsigned)ncpus, true);
}

int DLB_AcquireCpu(int cpuid)
{
    return is_own(cpuid) ? DLB_ReclaimCpu(cpuid) : DLB_AcquireCpus(1);
}

int DLB_AcquireCpuMask(const_dlb_cpu_set_t mask)
{
    return DLB_AcquireCpus(count_of(mask, false));
}

int DLB_Borrow(void)
{
    return borrow(ALL, false);
}

int DLB_BorrowCpus(int ncpus)
{
    int r = refuse(ncpus, DLB_NOUPDT);

    return r != 0 ? r : borrow((unsigned)ncpus, false);
}

int DLB_BorrowCpu(int cpuid)
{
    return DLB_BorrowCpus(1);
}

int DLB_BorrowCpuMask(const_dlb_cpu_set_t mask)
{
    return DLB_BorrowCpus(count_of(mask, false));
}

int DLB_Return(void)
{
    return give_back();
}

int DLB_ReturnCpu(int cpuid)
{
    return give_back();
}

int DLB_ReturnCpuMask(const_dlb_cpu_set_t mask)
{
    return give_back();
}

int DLB_CheckCpuAvailability(int cpuid)
{
    int r = process_check();

    return r != 0 ? r : is_own(cpuid) ? DLB_SUCCESS : DLB_ERR_PERM;
}

/* ---- what has no counterpart ---- */

int DLB_SetMaxParallelism(int max)
{
    return refuse(0, DLB_ERR_NOPOL);
}

int DLB_UnsetMaxParallelism(void)
{
    return refuse(0, DLB_ERR_NOPOL);
}

int DLB_Barrier(void)
{
    return refuse(0, DLB_ERR_NOCOMP);
}

int DLB_SetVariable(const char *variable, const char *value)
{
    return refuse(0, DLB_ERR_NOENT);
}

int DLB_GetVariable(const char *variable, char *value)
{
    return refuse(0, DLB_ERR_NOENT);
}
