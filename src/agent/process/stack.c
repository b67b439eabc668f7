/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/stack.h"

#include "agent/process/objects.h"

#include <string.h>

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
    uintptr_t start, end;
    bool found;
};

static int look_at(struct unwind_context *context, void *arg)
{
    struct search *s = arg;
    uintptr_t address = unwinder.address(context);

    s->found |= address >= s->start && address < s->end;
    return UNWIND_GOES_ON;
}

bool stack_is_free_of(uintptr_t start, uintptr_t end)
{
    struct search s = {.start = start, .end = end};

    return unwinder.backtrace(look_at, &s) == UNWIND_AT_END && !s.found;
}
