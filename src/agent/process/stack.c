/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/stack.h"

#include "agent/process/objects.h"
#include "agent/processor.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The part of the unwinder's interface that is used. Source: itanium-cxx-abi, "Unwind Library". */
struct unwind_context;
typedef int (*unwind_fn)(struct unwind_context *context, void *arg);

#define UNWIND_GOES_ON 0
#define UNWIND_AT_END  5

static struct {
    int (*backtrace)(unwind_fn, void *);
    uintptr_t (*address)(struct unwind_context *);
} unwinder;

static int find(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    struct object o;

    (void)size;
    (void)arg;
    if (!slash || strncmp(slash, "/libgcc_s.so", 12) != 0)
        return 0;
    object_read(&o, info);
    unwinder.backtrace =
        (int (*)(unwind_fn, void *))pointer_to(object_defines(&o, "_Unwind_Backtrace"));
    unwinder.address =
        (uintptr_t(*)(struct unwind_context *))pointer_to(object_defines(&o, "_Unwind_GetIP"));
    return 1;
}

bool stack_prepare(void)
{
    if (!unwinder.backtrace || !unwinder.address)
        each_object(find, NULL);
    return unwinder.backtrace && unwinder.address;
}

struct search {
    uintptr_t start, end, last;
    bool found;
};

static int look_at(struct unwind_context *context, void *arg)
{
    struct search *s = arg;

    s->last = unwinder.address(context);
    s->found |= s->last >= s->start && s->last < s->end;
    return UNWIND_GOES_ON;
}

/* The unwinder also ends at code that it knows nothing of; at the thread's beginning it says 0. */
bool stack_is_free_of(uintptr_t start, uintptr_t end)
{
    struct search s = {.start = start, .end = end, .last = 1};

    return unwinder.backtrace(look_at, &s) == UNWIND_AT_END && !s.found && s.last == 0;
}

/* ---- another thread's ---- */

static ssize_t read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n;
}

/* The thread's stack pointer; 0: it runs. "NUMBER ARGUMENT… SP PC", Linux, proc_pid_syscall(5). */
static uintptr_t sleepers_pointer(int tid)
{
    char path[64], text[256], *last, *before;

    snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
    if (read_text(path, text, sizeof(text)) <= 0 || text[0] < '0' || text[0] > '9')
        return 0;
    last = strrchr(text, ' ');
    if (!last)
        return 0;
    *last = '\0';
    before = strrchr(text, ' ');
    return before ? (uintptr_t)strtoull(before, NULL, 16) : 0;
}

bool stack_of_sleeper_is_free_of(int tid, uintptr_t start, uintptr_t end)
{
    uintptr_t pointer = sleepers_pointer(tid), top = pointer ? object_mapping_end(pointer) : 0;

    if (top == 0)
        return false;
    for (uintptr_t at = (pointer + 7) & ~(uintptr_t)7; at + sizeof(uintptr_t) <= top;
         at += sizeof(uintptr_t)) {
        uintptr_t word = slot_held(at) & PROCESSOR_CODE_MASK;

        if (word >= start && word < end)
            return false;
    }
    return sleepers_pointer(tid) == pointer; /* it has slept all the time */
}
