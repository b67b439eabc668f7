/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with parallel regions, for programs that load it later. With ASKS it asks for its
 * number of threads first, anew for each region. With PAD=N it has N bytes of code more.
 *
 *   team()  how many threads a region has
 *   whole() iterations of a loop that threads share out: 1000, or a multiple of it if the region
 *           began in one copy of the runtime and the loop is in another
 *   ends()  sections of a region which is the last that a function does, so it is a jump: 3
 */
#ifdef ASKS
#include <omp.h>
#define CLAUSE num_threads(omp_get_max_threads())
#else
#define CLAUSE
#endif

int team(void);
int whole(void);
int ends(void);

static int marks[3];
#ifdef PAD /* bytes of other code, and a static loop: all of it has to be read */
#define TEXT(n)  #n
#define BYTES(n) TEXT(n)
int pad(int n);
int pad(int n)
{
#pragma omp parallel for
    for (int i = 0; i < 3; i++)
        marks[i] = n;
    __asm__ volatile(".skip " BYTES(PAD) ", 0x90");
    return n;
}
#endif

int team(void)
{
    int heads = 0;

#pragma omp parallel CLAUSE reduction(+ : heads)
    heads++;
    return heads;
}

int whole(void)
{
    int sum = 0;

#pragma omp parallel CLAUSE reduction(+ : sum)
    {
#pragma omp for schedule(dynamic, 7)
        for (int i = 0; i < 1000; i++)
            sum++;
    }
    return sum;
}

__attribute__((noinline, optimize("O2"))) static void jumps(void)
{
#pragma omp parallel sections CLAUSE
    {
#pragma omp section
        marks[0] = 1;
#pragma omp section
        marks[1] = 1;
#pragma omp section
        marks[2] = 1;
    }
}

__attribute__((optimize("O2"))) void region_at_the_end(void);
void region_at_the_end(void)
{
    marks[0] = marks[1] = marks[2] = 0;
    jumps();
}

int ends(void)
{
    return marks[0] + marks[1] + marks[2];
}
