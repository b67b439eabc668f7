/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of DLB's DROM for programs that steer others: see dlb.h. */
#ifndef TIDE_DLB_DROM_H
#define TIDE_DLB_DROM_H

#include "dlb.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    DLB_DROM_FLAGS_NONE = 0,
    DLB_STEAL_CPUS = 1 << 0,
    DLB_RETURN_STOLEN = 1 << 1,
    DLB_SYNC_QUERY = 1 << 2, /* wait until the process has acknowledged */
} dlb_drom_flags_t;

TIDE_DLB_API int DLB_DROM_Attach(void);
TIDE_DLB_API int DLB_DROM_Detach(void);
TIDE_DLB_API int DLB_DROM_GetNumCpus(int *ncpus);
TIDE_DLB_API int DLB_DROM_GetPidList(int *pidlist, int *nelems, int max_len);
TIDE_DLB_API int DLB_DROM_GetProcessMask(int pid, dlb_cpu_set_t mask, dlb_drom_flags_t flags);
TIDE_DLB_API int DLB_DROM_SetProcessMask(int pid, const_dlb_cpu_set_t mask, dlb_drom_flags_t flags);
TIDE_DLB_API int DLB_DROM_SetProcessMaskStr(int pid, const char *mask, dlb_drom_flags_t flags);
TIDE_DLB_API int DLB_DROM_PreInit(int pid, const_dlb_cpu_set_t mask, dlb_drom_flags_t flags,
                                  char ***next_environ);
TIDE_DLB_API int DLB_DROM_PostFinalize(int pid, dlb_drom_flags_t flags);

#ifdef __cplusplus
}
#endif
#endif
