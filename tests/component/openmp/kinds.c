/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that may know their number of threads, one for each macro, and two that do not: what the
 * agent must leave alone. Prints "team N" whenever the number of threads has changed.
 */
#include <omp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static int heads;

#ifdef HAS_A_TABLE /* an address of the runtime in the program's own data */
extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
void (*volatile table[])(void (*)(void *), void *, unsigned, unsigned) = {GOMP_parallel};
#endif

#ifdef KEEPS_DATA /* threadprivate: lives as long as a thread of the runtime */
static int own;
#pragma omp threadprivate(own)
#endif

#ifdef KEEPS_DATA_BY_A_KEY
static pthread_key_t key;
#endif

#ifdef HAS_A_BARRIER /* for as many threads as its command line said */
static pthread_barrier_t barrier;
#endif

#ifdef TELLS_BY_A_JUMP /* a function that ends with the call */
__attribute__((noinline, optimize("O2"))) static int number(void)
{
    return omp_get_num_threads();
}
#endif

static void region(void)
{
#ifdef KNOWS_WITHIN /* for later, as LightGBM does */
#pragma omp parallel
#pragma omp single
    heads = omp_get_num_threads();
#elif defined(TELLS_BY_A_JUMP)
    static int marks[64];

#pragma omp parallel
#pragma omp single
    heads = number();
#pragma omp parallel for
    for (int i = 0; i < 64; i++)
        marks[i] = omp_get_thread_num();
    heads = marks[63] + 1;
#elif defined(DIVIDES_BY_HAND) /* with what the region itself tells, as a static loop does */
    int *marks = calloc(64, sizeof(*marks));

#pragma omp parallel
    {
        int n = omp_get_num_threads(), id = omp_get_thread_num();

        for (int i = 64 * id / n; i < 64 * (id + 1) / n; i++)
            marks[i] = id;
    }
    heads = marks[63] + 1;
    free(marks);
#elif defined(STATIC_LOOP)
    static int marks[64];

#pragma omp parallel for
    for (int i = 0; i < 64; i++)
        marks[i] = i;
    heads = 0;
#pragma omp parallel reduction(+ : heads)
    heads += 1 + (marks[63] != 63);
#elif defined(ASKS_FOR_THE_FIRST) /* the compiler's code of master asks for the index */
    static int firsts;

    heads = firsts = 0;
#pragma omp parallel reduction(+ : heads)
    {
        heads++;
#pragma omp master
        firsts++;
    }
    heads += firsts - 1;
#elif defined(ASKS_FOR_ITS_INDEX)
    static volatile int rows[64];

    heads = 0;
#pragma omp parallel reduction(+ : heads)
    heads += rows[omp_get_thread_num()] == 0;
#elif defined(HAS_A_BARRIER)
    heads = 0;
#pragma omp parallel reduction(+ : heads)
    {
        heads++;
        pthread_barrier_wait(&barrier);
    }
#else
    heads = 0;
#pragma omp parallel reduction(+ : heads)
    heads++;
#endif
#ifdef KEEPS_DATA
#pragma omp parallel
    own++;
#endif
}

int main(void)
{
    struct pollfd in = {.fd = 0, .events = POLLIN};
    int had = 0, n = 64;
#ifdef HAS_A_TABLE
    void (*first)(void (*)(void *), void *, unsigned, unsigned) = table[0];
#endif

    prctl(PR_SET_PDEATHSIG, SIGKILL);
#ifdef ASKS
    n = omp_get_max_threads();
#elif defined(SETS)
    omp_set_num_threads(3);
#elif defined(COUNTS_CORES)
    cpu_set_t set;

    n = sched_getaffinity(0, sizeof(set), &set);
#elif defined(READS_THE_VARIABLE)
    n = atoi(getenv("OMP_NUM_THREADS"));
#elif defined(HAS_A_BARRIER)
    pthread_barrier_init(&barrier, NULL, 3);
#elif defined(KEEPS_DATA_BY_A_KEY)
    pthread_key_create(&key, NULL);
    pthread_setspecific(key, &heads);
#elif defined(COUNTS_BY_SYSCONF)
    n = (int)sysconf(_SC_NPROCESSORS_ONLN);
#endif
    while (n >= 0 && poll(&in, 1, 2) == 0) {
        region();
#ifdef HAS_A_TABLE
        if (table[0] != first)
            return 1;
#elif defined(HAS_IT_IN_CODE)
        void *address;

        __asm__ volatile("movabs $GOMP_parallel, %0" : "=r"(address));
        if (!address)
            return 1;
#endif
        if (heads != had)
            printf("team %d\n", had = heads);
        fflush(stdout);
    }
    return 0;
}
