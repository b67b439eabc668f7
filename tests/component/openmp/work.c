/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with a parallel region, for programs that load it later. With ASKS it asks for its
 * number of threads first, anew for each region.
 */
#ifdef ASKS
#include <omp.h>
#define CLAUSE num_threads(omp_get_max_threads())
#else
#define CLAUSE
#endif

int team(void);
int team(void)
{
    int heads = 0;

#pragma omp parallel CLAUSE reduction(+ : heads)
    heads++;
    return heads;
}
