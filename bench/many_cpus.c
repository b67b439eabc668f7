/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded by small_container.py: a program that asks how many processors there are sees MANY_CPUS
 * (64), as on a large host, whatever this machine has. The kernel still runs it on the processors
 * that there are. PyTorch cannot be made to believe it: its MKL counts the processor's cores by
 * itself.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static long many(void)
{
    const char *text = getenv("MANY_CPUS");
    long n = text ? strtol(text, NULL, 10) : 0;

    return n > 0 && n <= CPU_SETSIZE ? n : 64;
}

static int fill(size_t size, cpu_set_t *set)
{
    long n = many();

    if (size * 8 < (size_t)n)
        return EINVAL;
    memset(set, 0, size);
    for (long i = 0; i < n; i++)
        CPU_SET_S((size_t)i, size, set);
    return 0;
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    int r = fill(size, set);

    (void)pid;
    errno = r ? r : errno;
    return r ? -1 : 0;
}

int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *set)
{
    (void)thread;
    return fill(size, set);
}

int get_nprocs(void)
{
    return (int)many();
}

int get_nprocs_conf(void)
{
    return (int)many();
}

long sysconf(int name)
{
    static long (*_Atomic next)(int);
    long (*of_libc)(int) = next;

    if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF)
        return many();
    if (!of_libc) {
        void *found = dlsym(RTLD_NEXT, "sysconf");

        memcpy(&of_libc, &found, sizeof(found));
        next = of_libc;
    }
    return of_libc(name);
}
