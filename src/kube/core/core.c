/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/core/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (1 << 16)
#define TEXT_BYTES  512

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

        block = malloc(sizeof(*block) + room);
        if (!block)
            longjmp(c->out_of_memory, 1);
        *block = (struct block){.next = c->plan->arena, .size = room};
        c->plan->arena = block;
    }
    memory = (char *)block->bytes + block->used;
    block->used += bytes;
    return memset(memory, 0, bytes);
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

void core_wake(struct core *c, int64_t at_ns)
{
    if (at_ns < c->wakeup_ns)
        c->wakeup_ns = at_ns;
}

/* ---- actions --------------------------------------------------------------------------------- */

struct kube_action *core_act(struct core *c, struct job *job, enum kube_action_kind kind,
                             struct seat *seat)
{
    struct kube_plan *plan = c->plan;
    struct kube_action *action;

    if (plan->count == c->action_room) {
        size_t room = c->action_room ? 2 * c->action_room : 64;
        struct kube_action *more = core_alloc(c, room, sizeof(*more));

        if (plan->count)
            memcpy(more, plan->actions, plan->count * sizeof(*more));
        plan->actions = more;
        c->action_room = room;
    }
    action = &plan->actions[plan->count++];
    *action = (struct kube_action){.kind = kind, .etj = job->etj, .pod = seat ? seat->pod : NULL};
    return action;
}

void core_event(struct core *c, struct job *job, bool warning, const char *reason, const char *fmt,
                ...)
{
    char text[TEXT_BYTES];
    struct kube_action *action;
    char *copy;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    copy = core_alloc(c, strlen(text) + 1, 1);
    strcpy(copy, text);
    action = core_act(c, job, KUBE_EVENT, NULL);
    action->note.warning = warning;
    action->note.reason = reason;
    action->note.text = copy;
}

bool core_due(struct core *c, int64_t *acted_ns)
{
    if (*acted_ns && c->now_ns - *acted_ns < ECHO_NS) {
        core_wake(c, *acted_ns + ECHO_NS);
        return false;
    }
    *acted_ns = c->now_ns;
    core_wake(c, c->now_ns + ECHO_NS);
    return true;
}

bool core_once(struct core *c, struct seat *seat)
{
    return core_due(c, &seat->acted_ns);
}

bool core_again(struct core *c, struct job *job, int64_t since_ns, const char *what)
{
    struct record *r = job->record;
    int64_t due;

    if (r->contests && c->now_ns - r->contest_ns >= CEILING_NS)
        r->contests = 0;
    due = since_ns + (ECHO_NS << (r->contests < 6 ? r->contests : 6));
    if (c->now_ns < due) {
        core_wake(c, due);
        return false;
    }
    r->contests++;
    r->contest_ns = c->now_ns;
    r->contested = what;
    return true;
}

const char *kube_action_name(enum kube_action_kind kind)
{
    static const char *const names[] = {
        "add finalizer", "remove finalizer", "create service", "patch status", "create pod",
        "ask to leave",  "resize pod",       "delete pod",     "set members",  "event"};

    _Static_assert(sizeof(names) / sizeof(names[0]) == KUBE_ACTION_MAX, "a name for each");
    return kind < KUBE_ACTION_MAX ? names[kind] : "?";
}

/* ---- names ----------------------------------------------------------------------------------- */

static uint32_t hash_of(const char *key)
{
    uint32_t hash = 2166136261u;

    for (const char *c = key; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return hash;
}

void name_map_init(struct core *c, struct name_map *map, size_t count)
{
    uint32_t size = 16;

    while (size < 2 * count)
        size *= 2;
    map->key = core_alloc(c, size, sizeof(map->key[0]));
    map->value = core_alloc(c, size, sizeof(map->value[0]));
    map->mask = size - 1;
}

/* Where the key is, or would be. */
static uint32_t slot_of(const struct name_map *map, const char *key)
{
    uint32_t i = hash_of(key) & map->mask;

    while (map->key[i] && strcmp(map->key[i], key) != 0)
        i = (i + 1) & map->mask;
    return i;
}

void name_map_put(struct name_map *map, const char *key, uint32_t value)
{
    uint32_t i = slot_of(map, key);

    map->key[i] = key;
    map->value[i] = value;
}

uint32_t name_map_get(const struct name_map *map, const char *key)
{
    uint32_t i = slot_of(map, key);

    return map->key[i] ? map->value[i] : NOWHERE;
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct kube_memory *kube_memory_new(void)
{
    return calloc(1, sizeof(struct kube_memory));
}

static void record_free(struct record *record)
{
    free(record->uid);
    free(record->seats);
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
    struct record **at = &memory->bucket[hash_of(uid) % MEMORY_BUCKETS];
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
    for (uint32_t i = 0; i < record->seat_count; i++) {
        if (record->seats[i].state == POD_EXPECTED)
            continue;
        record->seats[kept] = record->seats[i];
        record->seats[kept++].acted_ns = 0;
    }
    record->seat_count = kept;
    record->announced = false;
    record->status_ns = 0;
    record->let_go_ns = 0;
    record->finalizer_ns = 0;
    record->told = 0;
}
