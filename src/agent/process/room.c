/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/room.h"

#include "agent/process/limit.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARENA_BYTES   (128ull << 20) /* of addresses that malloc takes for a thread, for a moment */
#define STACK_DEFAULT (8ull << 20)
#define LEAVES        16 /* threads, to others, however often we ask */

static void lower(uint64_t *most, uint64_t to)
{
    *most = to < *most ? to : *most;
}

static uint64_t above(uint64_t limit, uint64_t used)
{
    return limit > used ? limit - used : 0;
}

/* ---- memory ---- */

static void lower_to_memory(uint64_t *most, const char *root, uint64_t stack)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), pages[6] = {0};
    char text[LIMIT_FILE_MAX], *at = text;
    struct rlimit limit;

    if (limit_read_text(root, "proc/self/statm", text, sizeof(text)) <= 0)
        return;
    for (unsigned i = 0; i < 6; i++)
        pages[i] = strtoull(at, &at, 10);
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        lower(most, above(limit.rlim_cur, pages[0] * page) / (stack + ARENA_BYTES));
    if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        lower(most, above(limit.rlim_cur, pages[5] * page) / (stack + ARENA_BYTES));
}

static uint64_t kilobytes(const char *text, const char *name)
{
    const char *line = strstr(text, name);

    return line ? strtoull(line + strlen(name), NULL, 10) : 0;
}

static void lower_to_promises(uint64_t *most, const char *root, uint64_t stack)
{
    char text[LIMIT_FILE_MAX];
    uint64_t limit;

    if (limit_read_text(root, "proc/sys/vm/overcommit_memory", text, sizeof(text)) <= 0 ||
        text[0] != '2' || limit_read_text(root, "proc/meminfo", text, sizeof(text)) <= 0)
        return;
    limit = kilobytes(text, "\nCommitLimit:");
    if (limit)
        lower(most, above(limit, kilobytes(text, "\nCommitted_AS:")) * 1024 / stack);
}

/* ---- processes of this user ---- */

struct entry { /* getdents64(2) */
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

/* A process's folder belongs to its user, and "task" has a folder for each thread. */
static uint64_t threads_of(int proc, const char *name, uid_t user)
{
    char path[32];
    struct stat st;

    snprintf(path, sizeof(path), "%.16s/task", name);
    if (name[0] < '0' || name[0] > '9' || syscall(SYS_newfstatat, proc, path, &st, 0) != 0 ||
        st.st_uid != user || st.st_nlink < 2)
        return 0;
    return st.st_nlink - 2;
}

static uint64_t threads_of_user(const char *root, uid_t user)
{
    char buf[4096] __attribute__((aligned(8)));
    char path[64];
    uint64_t threads = 0;
    long n;

    snprintf(path, sizeof(path), "%.50sproc", root);
    _cleanup_fd_ int proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    while (proc >= 0 && (n = syscall(SYS_getdents64, proc, buf, sizeof(buf))) > 0)
        for (long i = 0; i < n;) {
            const struct entry *entry = (const struct entry *)(buf + i);

            threads += threads_of(proc, entry->name, user);
            i += entry->length;
        }
    return threads;
}

static void lower_to_processes(uint64_t *most, const char *root)
{
    struct rlimit limit;
    uid_t user = getuid();

    if (user != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        lower(most, above(limit.rlim_cur, threads_of_user(root, user)));
}

uint32_t room_for_threads(const char *root, uint64_t stack_bytes)
{
    uint64_t most = UINT32_MAX;

    lower(&most, limit_pids_left(root));
    lower_to_memory(&most, root, stack_bytes);
    lower_to_promises(&most, root, stack_bytes);
    lower_to_processes(&most, root);
    return (uint32_t)(most <= LEAVES ? 0 : most / 2 < most - LEAVES ? most / 2 : most - LEAVES);
}

/* ---- stacks ---- */

/* OMP_STACKSIZE: kilobytes, where no unit is named. */
static uint64_t stack_size(const char *text)
{
    static const char units[] = "bkmgt";
    char *end;
    uint64_t size = strtoull(text, &end, 10);
    const char *unit;

    end += strspn(end, " \t");
    unit = *end ? strchr(units, *end | 0x20) : NULL;
    return size > UINT32_MAX ? UINT32_MAX : size << (unit ? 10 * (unit - units) : 10);
}

uint64_t room_stack_bytes(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
                   limit.rlim_cur > STACK_DEFAULT
               ? limit.rlim_cur
               : STACK_DEFAULT;
}

uint64_t room_openmp_stack_bytes(void)
{
    static const char *const names[] = {"OMP_STACKSIZE", "GOMP_STACKSIZE", "KMP_STACKSIZE"};
    uint64_t largest = room_stack_bytes();

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *text = getenv(names[i]);
        uint64_t size = text ? stack_size(text) : 0;

        largest = size > largest ? size : largest;
    }
    return largest;
}
