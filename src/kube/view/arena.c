/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that lives as long as the plan. core.error remembers the first allocation that fails, and
 * all later ones fail as well, so that nothing is decided on incomplete data.
 */
#include "kube/view/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (1 << 16)

struct block {
    struct block *next;
    size_t used, size;
    max_align_t bytes[];
};

void *core_alloc(struct core *c, size_t count, size_t size)
{
    struct block *block = c->plan->arena;
    size_t bytes = (count ? count : 1) * size;
    void *memory;

    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!block || block->size - block->used < bytes) {
        size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;

        block = c->error ? NULL : malloc(sizeof(*block) + room);
        if (!block) {
            c->error = -ENOMEM;
            return NULL;
        }
        *block = (struct block){.next = c->plan->arena, .size = room};
        c->plan->arena = block;
    }
    memory = (char *)block->bytes + block->used;
    block->used += bytes;
    return memset(memory, 0, bytes);
}

void core_map(struct core *c, struct name_map *map, size_t count)
{
    uint32_t size = name_map_size(count);

    name_map_init(map, core_alloc(c, size, sizeof(struct name_slot)), size);
}

void kube_plan_done(struct kube_plan *plan)
{
    struct block *block = plan->arena;

    while (block) {
        struct block *next = block->next;

        free(block);
        block = next;
    }
    *plan = (struct kube_plan){.wakeup_ns = FOREVER};
}
