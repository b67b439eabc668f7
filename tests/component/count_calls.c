/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a program: counts its calls of strcmp() and of sqlite3_step() in the file that
 * COUNT_CALLS names, as two numbers of 64 bits. Each of the latter takes COUNT_CALLS_US longer;
 * with COUNT_CALLS_OF, each of a statement that has these words.
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

static const char *slow_words; /* NULL: every statement is slow */
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
    slow_words = getenv("COUNT_CALLS_OF");
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

/* SQLite's own statements have no text. */
static int is_slow(const char *text)
{
    return !slow_words || (text && strstr(text, slow_words));
}

int sqlite3_step(void *statement)
{
    static int (*real)(void *);
    static const char *(*sql)(void *);

    void *found;

    if (!real) {
        found = dlsym(RTLD_NEXT, "sqlite3_sql");
        memcpy(&sql, &found, sizeof(sql));
        found = dlsym(RTLD_NEXT, "sqlite3_step");
        memcpy(&real, &found, sizeof(real));
    }
    if (counts)
        counts[1]++;
    if (longer_us && is_slow(sql(statement)))
        usleep(longer_us);
    return real(statement);
}
