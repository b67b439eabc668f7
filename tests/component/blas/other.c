/* SPDX-License-Identifier: Apache-2.0 */
/* A library that computes with OpenMP. */
void add(int n, double *to, const double *from);

void add(int n, double *to, const double *from)
{
#pragma omp parallel for
    for (int i = 0; i < n; i++)
        to[i] += from[i];
}
