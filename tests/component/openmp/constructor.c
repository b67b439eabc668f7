/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with regions, whose teams it prints as "team N", loads libraries, one for each line on
 * stdin, and prints "loaded TEAM": the team of its next region. With -DLIBRARY such a library: its
 * constructor lets a thread of its own run regions of the program and waits for it, with the
 * loader's lock in its hand. With -DLIBRARY -DASKS one that asks for the number of threads, with
 * -DQUIET one that does nothing, with -DKEEPS_DATA, -DKEEPS_DATA_BY_A_KEY, -DHAS_A_BARRIER or
 * -DREADS_THE_VARIABLE one without OpenMP to which the number may matter.
 */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

int team(void);

#ifdef LIBRARY
#ifdef ASKS
#include <omp.h>

int known;
__attribute__((constructor)) static void ask(void)
{
    known = omp_get_max_threads();
}
#elif defined(KEEPS_DATA) /* a region fills it in, another one rests on it */
static _Thread_local int own;
int *data_of_this_thread(void);
int *data_of_this_thread(void)
{
    return &own;
}
#elif defined(KEEPS_DATA_BY_A_KEY)
int keep(pthread_key_t key, void *data);
int keep(pthread_key_t key, void *data)
{
    return pthread_setspecific(key, data);
}
#elif defined(HAS_A_BARRIER)
int meet(pthread_barrier_t *barrier);
int meet(pthread_barrier_t *barrier)
{
    return pthread_barrier_wait(barrier);
}
#elif defined(READS_THE_VARIABLE)
const char *number(void);
const char *number(void)
{
    return getenv("OMP_NUM_THREADS");
}
#elif !defined(QUIET)
static void *regions(void *arg)
{
    for (int i = 0; i < 100; i++)
        team();
    return arg;
}

__attribute__((constructor)) static void wait_for_a_thread(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, regions, NULL) == 0)
        pthread_join(thread, NULL);
}
#endif
#else
int team(void)
{
    int heads = 0;

#pragma omp parallel reduction(+ : heads)
    heads++;
    return heads;
}

int main(void)
{
    struct pollfd in = {.fd = 0, .events = POLLIN};
    char line[4096];
    int had = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdin, NULL, _IONBF, 0);
    for (;;) {
        int now = team();

        if (now != had)
            printf("team %d\n", had = now);
        if (poll(&in, 1, 2) == 1) {
            if (!fgets(line, sizeof(line), stdin))
                return 0;
            line[strcspn(line, "\n")] = '\0';
            if (!dlopen(line, RTLD_NOW))
                printf("failed %s\n", dlerror());
            else
                printf("loaded %d\n", had = team());
        }
        fflush(stdout);
    }
}
#endif
