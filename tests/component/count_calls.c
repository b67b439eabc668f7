/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a program: counts its calls of strcmp() and of sqlite3_step() in the file that
 * COUNT_CALLS names, as two numbers of 64 bits. Each of the latter takes COUNT_CALLS_US longer.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int strcmp(const char *a, const char *b);
int sqlite3_step(void *statement);

static volatile uint64_t *counts;
static useconds_t longer_us;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("COUNT_CALLS"), *us = getenv("COUNT_CALLS_US");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    void *mapped = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, 2 * sizeof(*counts)) == 0)
        mapped = mmap(NULL, 2 * sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED)
        counts = mapped;
    longer_us = us ? (useconds_t)atoi(us) : 0;
}

int strcmp(const char *a, const char *b)
{
    if (counts)
        counts[0]++;
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return (unsigned char)*a - (unsigned char)*b;
}

int sqlite3_step(void *statement)
{
    static int (*real)(void *);

    void *found;

    if (!real) {
        found = dlsym(RTLD_NEXT, "sqlite3_step");
        memcpy(&real, &found, sizeof(real));
    }
    if (counts)
        counts[1]++;
    if (longer_us)
        usleep(longer_us);
    return real(statement);
}
