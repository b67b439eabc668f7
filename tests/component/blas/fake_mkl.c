/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MKL's layers as far as the agent knows them: one for each of LAYER, CORE and INTERFACE. A product
 * asks for its number several times, as MKL's do, and waits in between.
 */
#include <unistd.h>

int mkl_serv_domain_get_max_threads(int domain);
void mkl_serv_set_xerbla_interface(const void *interface);
int mkl_blas_ask(int domain);

#ifdef LAYER
static int number = 3;

int mkl_serv_domain_get_max_threads(int domain)
{
    return domain == 2 ? 2 : number;
}

void mkl_serv_set_xerbla_interface(const void *interface)
{
    (void)interface;
}

void mkl_serv_set_num_threads(int n)
{
    number = n;
}

int mkl_blas_ask(int domain)
{
    return mkl_serv_domain_get_max_threads(domain);
}
#endif

#ifdef CORE
/* With ASKS_NOTHING it is another MKL. */
int mkl_lapack_ask(int domain)
{
#ifdef ASKS_NOTHING
    return domain - 2;
#else
    return mkl_serv_domain_get_max_threads(domain);
#endif
}

void mkl_serv_get_version(int *numbers)
{
    numbers[0] = 2026;
    numbers[1] = 0;
    numbers[2] = 4;
}
#endif

#ifdef INTERFACE
int mkl_lapack_ask(int domain);
void mkl_serv_set_num_threads(int n);
static _Thread_local int last;

static void product(void)
{
    last = mkl_blas_ask(1);
    for (int i = 0; i < 4; i++) {
        usleep(500);
        if (mkl_lapack_ask(5) != last || mkl_blas_ask(1) != last)
            last = -1; /* it would write behind a buffer's end */
    }
}

void cblas_dgemm(void)
{
    mkl_serv_set_xerbla_interface("checks its arguments");
    product();
}

double cblas_ddot(void)
{
    product();
    return 0;
}

/* The answer to the last call of this thread; -1: not always the same. */
int last_number(void)
{
    return last;
}

int of_fft(void)
{
    mkl_serv_set_xerbla_interface("checks its arguments");
    return mkl_blas_ask(2);
}

int MKL_Get_Max_Threads(void)
{
    return mkl_serv_domain_get_max_threads(-1);
}

void MKL_Set_Num_Threads(int n)
{
    mkl_serv_set_num_threads(n);
}
#endif
