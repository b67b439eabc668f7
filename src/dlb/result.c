/* SPDX-License-Identifier: Apache-2.0 */
#include "dlb/result.h"

#include "dlb/dlb.h"

#include <errno.h>
#include <stddef.h>

int result_of(int r)
{
    if (r >= 0)
        return r == 0 ? DLB_SUCCESS : DLB_NOTED;
    switch (r) {
    case -ECONNREFUSED:
        return DLB_ERR_NOSHMEM;
    case -ENOENT: /* no agent */
        return DLB_ERR_DISBLD;
    case -ESRCH:
        return DLB_ERR_NOPROC;
    case -EACCES:
        return DLB_ERR_PERM;
    case -ETIMEDOUT:
        return DLB_ERR_TIMEOUT;
    case -EBUSY: /* pinned, which DROM does: it neither lends nor borrows */
        return DLB_ERR_NOCOMP;
    case -ENOMEM:
        return DLB_ERR_NOMEM;
    default:
        return DLB_ERR_UNKNOWN;
    }
}

const char *DLB_Strerror(int errnum)
{
    static const char *const texts[] = {
        [DLB_NOUPDT + 15] = "nothing had to be done",
        [DLB_NOTED + 15] = "not possible now; it follows when it is",
        [DLB_SUCCESS + 15] = "done",
        [DLB_ERR_UNKNOWN + 15] =
            "unexpected failure; tide_ctl_message() of libtide has words for it",
        [DLB_ERR_NOINIT + 15] = "DLB_Init or DLB_DROM_Attach was not called",
        [DLB_ERR_INIT + 15] = "DLB_Init was called before",
        [DLB_ERR_DISBLD + 15] = "disabled, or the program was not started by tide run",
        [DLB_ERR_NOSHMEM + 15] = "no tided runs",
        [DLB_ERR_NOPROC + 15] = "no job has this process as its first",
        [DLB_ERR_PDIRTY + 15] = "the last change is under way",
        [DLB_ERR_PERM + 15] = "not allowed: another user's job, or a CPU that is not the process's",
        [DLB_ERR_TIMEOUT + 15] = "not acknowledged in time",
        [DLB_ERR_NOCBK + 15] = "there is no such callback",
        [DLB_ERR_NOENT + 15] = "there is no such entry",
        [DLB_ERR_NOCOMP + 15] =
            "not compatible: the job is pinned, or Threadtide has nothing of the kind",
        [DLB_ERR_REQST + 15] = "too many requests",
        [DLB_ERR_NOMEM + 15] = "out of memory",
        [DLB_ERR_NOPOL + 15] = "Threadtide does not map this call",
    };

    if (errnum < DLB_ERR_NOPOL || errnum > DLB_NOUPDT)
        return "no result of DLB";
    return texts[errnum + 15];
}
