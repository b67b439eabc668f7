/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with the file's name of a runtime, which is not that runtime as the agent knows it. A
 * call of a function that the agent has no business with ends the program. -DTBB, -DNEXT: oneTBB's
 * functions, of the next major version; -DTORCH: some of PyTorch's; -DOPENBLAS: OpenBLAS's
 * variables, without the functions that say what it computes with.
 */
#include <stdlib.h>

int answer(void);

int answer(void)
{
    return 42;
}

#define NOT_TO_BE_CALLED(name)                                                                     \
    void name(void);                                                                               \
    void name(void)                                                                                \
    {                                                                                              \
        abort();                                                                                   \
    }

#ifdef TBB
int TBB_runtime_interface_version(void);
const char *TBB_runtime_version(void);

int TBB_runtime_interface_version(void)
{
#ifdef NEXT
    return 13000;
#else
    return 12170;
#endif
}

const char *TBB_runtime_version(void)
{
    return "99.1";
}

NOT_TO_BE_CALLED(_ZN3tbb6detail2r16createERNS0_2d114global_controlE)
#ifdef NEXT
NOT_TO_BE_CALLED(_ZN3tbb6detail2r17destroyERNS0_2d114global_controlE)
NOT_TO_BE_CALLED(_ZN3tbb6detail2r127global_control_active_valueEi)
#endif
#endif

#ifdef TORCH
NOT_TO_BE_CALLED(_ZN2at15get_num_threadsEv)
NOT_TO_BE_CALLED(_ZN2at15set_num_threadsEi)
#endif

#ifdef OPENBLAS
int blas_server_avail = 1, blas_num_threads = 8, blas_cpu_number = 8;
NOT_TO_BE_CALLED(openblas_set_num_threads)
#endif
