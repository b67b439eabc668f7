/* SPDX-License-Identifier: Apache-2.0 */
/* A libblis of another kind: its numbers are elsewhere than the agent knows. */
#include <string.h>

static long numbers[16] = {0, 3};

const char *bli_info_get_version_str(void)
{
    return "AOCL-BLAS 5.0.0 Build 20241030";
}

void bli_rntm_init_from_global(long *ret)
{
    memcpy(ret, numbers, sizeof(numbers));
}

long bli_thread_get_num_threads(void)
{
    long found[16];

    bli_rntm_init_from_global(found);
    return found[1];
}

void cblas_dgemm(void)
{
}

double cblas_ddot(void)
{
    return 0;
}
