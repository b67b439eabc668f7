/* SPDX-License-Identifier: Apache-2.0 */
/* Records of trainings, by UID. */
#include "kube/view/view.h"

#include <stdlib.h>
#include <string.h>

struct kube_memory *kube_memory_new(void)
{
    return calloc(1, sizeof(struct kube_memory));
}

static void record_free(struct record *record)
{
    free(record->uid);
    free(record->replicas);
    free(record->sent);
    free(record);
}

struct kube_memory *kube_memory_free(struct kube_memory *memory)
{
    for (size_t i = 0; memory && i < MEMORY_BUCKETS; i++)
        while (memory->bucket[i]) {
            struct record *record = memory->bucket[i];

            memory->bucket[i] = record->next;
            record_free(record);
        }
    free(memory);
    return NULL;
}

struct record *memory_record(struct kube_memory *memory, const char *uid)
{
    struct record **at = &memory->bucket[name_hash(uid) % MEMORY_BUCKETS];
    struct record *record;

    for (record = *at; record; record = record->next)
        if (strcmp(record->uid, uid) == 0)
            return record;
    record = calloc(1, sizeof(*record));
    if (record)
        record->uid = strdup(uid);
    if (!record || !record->uid) {
        free(record);
        return NULL;
    }
    record->next = *at;
    *at = record;
    return record;
}

void memory_sweep(struct kube_memory *memory)
{
    for (size_t i = 0; i < MEMORY_BUCKETS; i++)
        for (struct record **at = &memory->bucket[i]; *at;) {
            struct record *record = *at;

            if (record->seen) {
                record->seen = false;
                at = &record->next;
            } else {
                *at = record->next;
                record_free(record);
            }
        }
}

void kube_memory_doubt(struct kube_memory *memory, const struct kube_etj *etj)
{
    struct record *record = memory_record(memory, etj->meta.uid);
    uint32_t kept = 0;

    if (!record)
        return;
    for (uint32_t i = 0; i < record->replica_count; i++) {
        if (record->replicas[i].state == POD_EXPECTED)
            continue;
        record->replicas[kept] = record->replicas[i];
        record->replicas[kept++].acted_ns = 0;
    }
    record->replica_count = kept;
    record->announced = false;
    record->status_ns = 0;
    record->let_go_ns = 0;
    record->finalizer_ns = 0;
    record->told = 0;
}
