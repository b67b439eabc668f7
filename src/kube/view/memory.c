/* SPDX-License-Identifier: Apache-2.0 */
/* The records of trainings by UID. */
#include "kube/view/view.h"

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
    for (size_t i = 0; memory && i < MEMORY_BUCKETS; i++)
        while (memory->bucket[i]) {
            struct memory_entry *entry = memory->bucket[i];

            memory->bucket[i] = entry->next;
            entry_free(entry);
        }
    free(memory);
    return NULL;
}

struct memory_entry *memory_entry(struct kube_memory *memory, const char *uid)
{
    struct memory_entry **at = &memory->bucket[name_hash(uid) % MEMORY_BUCKETS];
    struct memory_entry *entry;

    for (entry = *at; entry; entry = entry->next)
        if (strcmp(entry->uid, uid) == 0)
            return entry;
    entry = calloc(1, sizeof(*entry));
    if (entry)
        entry->uid = strdup(uid);
    if (!entry || !entry->uid) {
        free(entry);
        return NULL;
    }
    record_init(&entry->record);
    entry->next = *at;
    *at = entry;
    return entry;
}

void memory_sweep(struct kube_memory *memory)
{
    for (size_t i = 0; i < MEMORY_BUCKETS; i++)
        for (struct memory_entry **at = &memory->bucket[i]; *at;) {
            struct memory_entry *entry = *at;

            if (entry->seen) {
                entry->seen = false;
                at = &entry->next;
            } else {
                *at = entry->next;
                entry_free(entry);
            }
        }
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
