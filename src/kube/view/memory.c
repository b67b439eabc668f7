/* SPDX-License-Identifier: Apache-2.0 */
/* The records of trainings by UID. */
#include "kube/view/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct kube_memory *kube_memory_new(void)
{
    return calloc(1, sizeof(struct kube_memory));
}

static void entry_free(struct memory_entry *entry)
{
    free(entry->uid);
    free(entry->replicas);
    free(entry);
}

struct kube_memory *kube_memory_free(struct kube_memory *memory)
{
    if (!memory)
        return NULL;
    while (memory->count > 0)
        entry_free(memory->entry[--memory->count]);
    free(memory->entry);
    free(memory->by_uid.slot);
    free(memory);
    return NULL;
}

static int reserve(struct kube_memory *memory)
{
    uint32_t room = memory->room ? 2 * memory->room : 16;
    struct memory_entry **more;

    if (memory->count < memory->room)
        return 0;
    more = realloc(memory->entry, room * sizeof(struct memory_entry *));
    if (!more)
        return -ENOMEM;
    memory->entry = more;
    if (name_map_reserve(&memory->by_uid, room) < 0)
        return -ENOMEM;
    memory->room = room;
    return 0;
}

struct memory_entry *memory_entry(struct kube_memory *memory, const char *uid)
{
    uint32_t at = name_map_get(&memory->by_uid, uid);
    struct memory_entry *entry;

    if (at != NOWHERE)
        return memory->entry[at];
    entry = reserve(memory) == 0 ? calloc(1, sizeof(*entry)) : NULL;
    if (entry)
        entry->uid = strdup(uid);
    if (!entry || !entry->uid) {
        free(entry);
        return NULL;
    }
    record_init(&entry->record);
    name_map_put(&memory->by_uid, entry->uid, memory->count);
    memory->entry[memory->count++] = entry;
    return entry;
}

void memory_sweep(struct kube_memory *memory)
{
    uint32_t kept = 0;

    name_map_clear(&memory->by_uid);
    for (uint32_t i = 0; i < memory->count; i++) {
        struct memory_entry *entry = memory->entry[i];

        if (!entry->seen) {
            entry_free(entry);
            continue;
        }
        entry->seen = false;
        name_map_put(&memory->by_uid, entry->uid, kept);
        memory->entry[kept++] = entry;
    }
    memory->count = kept;
}

void kube_memory_doubt(struct kube_memory *memory, const struct kube_etj *etj)
{
    struct memory_entry *entry = memory_entry(memory, etj->meta.uid);
    uint32_t kept = 0;

    if (!entry)
        return;
    for (uint32_t i = 0; i < entry->replica_count; i++) {
        if (entry->replicas[i].state == POD_EXPECTED)
            continue;
        entry->replicas[kept] = entry->replicas[i];
        entry->replicas[kept++].acted_ns = 0;
    }
    entry->replica_count = kept;
    entry->record.sent = (struct sent){0};
}
