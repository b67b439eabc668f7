/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of DLB 3.7 that Threadtide's libdlb.so answers, written after DLB's user guide so that
 * programs for DLB compile and run. docs/dlb.md says what each does here, and what is not there.
 *
 * Any thread. Without a daemon or an agent the calls fail with the codes below, and the program
 * keeps its cores and threads.
 */
#ifndef TIDE_DLB_DLB_H
#define TIDE_DLB_DLB_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TIDE_DLB_API __attribute__((visibility("default")))
#else
#define TIDE_DLB_API
#endif

#define DLB_VERSION 0x30700

typedef void *dlb_cpu_set_t; /* a cpu_set_t */
typedef const void *const_dlb_cpu_set_t;

enum {
    DLB_NOUPDT = 2, /* nothing to do */
    DLB_NOTED = 1,  /* not now; it follows when it can */
    DLB_SUCCESS = 0,
    DLB_ERR_UNKNOWN = -1,
    DLB_ERR_NOINIT = -2,
    DLB_ERR_INIT = -3,
    DLB_ERR_DISBLD = -4,
    DLB_ERR_NOSHMEM = -5, /* no daemon */
    DLB_ERR_NOPROC = -6,
    DLB_ERR_PDIRTY = -7,
    DLB_ERR_PERM = -8,
    DLB_ERR_TIMEOUT = -9,
    DLB_ERR_NOCBK = -10,
    DLB_ERR_NOENT = -11,
    DLB_ERR_NOCOMP = -12,
    DLB_ERR_REQST = -13,
    DLB_ERR_NOMEM = -14,
    DLB_ERR_NOPOL = -15, /* not mapped */
};

typedef void (*dlb_callback_t)(void);

typedef enum {
    dlb_callback_set_num_threads = 1, /* void (*)(int threads, void *arg) */
    dlb_callback_set_active_mask =
        2, /* this and the next two: void (*)(const cpu_set_t *, void *) */
    dlb_callback_set_process_mask = 3,
    dlb_callback_add_active_mask = 4,
    dlb_callback_add_process_mask = 5,
    dlb_callback_enable_cpu = 6, /* void (*)(int cpu, void *arg) */
    dlb_callback_disable_cpu = 7,
} dlb_callbacks_t;

TIDE_DLB_API int DLB_Init(int ncpus, const_dlb_cpu_set_t mask, const char *dlb_args);
TIDE_DLB_API int DLB_Finalize(void);
TIDE_DLB_API int DLB_Enable(void);
TIDE_DLB_API int DLB_Disable(void);
TIDE_DLB_API int DLB_SetMaxParallelism(int max);
TIDE_DLB_API int DLB_UnsetMaxParallelism(void);
TIDE_DLB_API int DLB_CallbackSet(dlb_callbacks_t which, dlb_callback_t callback, void *arg);
TIDE_DLB_API int DLB_CallbackGet(dlb_callbacks_t which, dlb_callback_t *callback, void **arg);

TIDE_DLB_API int DLB_Lend(void);
TIDE_DLB_API int DLB_LendCpu(int cpuid);
TIDE_DLB_API int DLB_LendCpus(int ncpus);
TIDE_DLB_API int DLB_LendCpuMask(const_dlb_cpu_set_t mask);
TIDE_DLB_API int DLB_Reclaim(void);
TIDE_DLB_API int DLB_ReclaimCpu(int cpuid);
TIDE_DLB_API int DLB_ReclaimCpus(int ncpus);
TIDE_DLB_API int DLB_ReclaimCpuMask(const_dlb_cpu_set_t mask);
TIDE_DLB_API int DLB_AcquireCpu(int cpuid);
TIDE_DLB_API int DLB_AcquireCpus(int ncpus);
TIDE_DLB_API int DLB_AcquireCpuMask(const_dlb_cpu_set_t mask);
TIDE_DLB_API int DLB_Borrow(void);
TIDE_DLB_API int DLB_BorrowCpu(int cpuid);
TIDE_DLB_API int DLB_BorrowCpus(int ncpus);
TIDE_DLB_API int DLB_BorrowCpuMask(const_dlb_cpu_set_t mask);
TIDE_DLB_API int DLB_Return(void);
TIDE_DLB_API int DLB_ReturnCpu(int cpuid);
TIDE_DLB_API int DLB_ReturnCpuMask(const_dlb_cpu_set_t mask);

TIDE_DLB_API int DLB_PollDROM(int *ncpus, dlb_cpu_set_t mask);
TIDE_DLB_API int DLB_PollDROM_Update(void);
TIDE_DLB_API int DLB_CheckCpuAvailability(int cpuid);
TIDE_DLB_API int DLB_Barrier(void);
TIDE_DLB_API int DLB_SetVariable(const char *variable, const char *value);
TIDE_DLB_API int DLB_GetVariable(const char *variable, char *value);
TIDE_DLB_API const char *DLB_Strerror(int errnum);

#ifdef __cplusplus
}
#endif
#endif
