/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table from names to numbers: open addressing, at most half full; single names cannot be
 * removed. A map borrows its keys. Its slots are its own (name_map_reserve) or an arena's
 * (name_map_init). {0} is an empty map. One thread at a time.
 */
#pragma once

#include "base/fnv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAP_NONE UINT32_MAX

struct name_slot {
    const char *key; /* NULL: the slot is free */
    uint32_t value;
};

struct name_map {
    struct name_slot *slot;
    uint32_t size; /* a power of two */
};

/* Returns how many slots @count names need. */
static inline uint32_t name_map_size(size_t count)
{
    uint32_t size = 16;

    while (size < 2 * count)
        size *= 2;
    return size;
}

/* Gives the map @size zeroed slots; NULL: the map stays empty. */
static inline void name_map_init(struct name_map *map, struct name_slot *slot, uint32_t size)
{
    *map = (struct name_map){slot, slot ? size : 0};
}

/* Returns the slot that holds the key, or that would hold it. */
static inline struct name_slot *name_map_slot(const struct name_map *map, const char *key)
{
    uint32_t i = (uint32_t)fnv_text(FNV_START, key) & (map->size - 1);

    while (map->slot[i].key && strcmp(map->slot[i].key, key) != 0)
        i = (i + 1) & (map->size - 1);
    return &map->slot[i];
}

/* Adds the key, for which there must be room. A map without slots ignores it. */
static inline void name_map_put(struct name_map *map, const char *key, uint32_t value)
{
    if (map->slot)
        *name_map_slot(map, key) = (struct name_slot){key, value};
}

/* Returns the value, or NAME_MAP_NONE. */
static inline uint32_t name_map_get(const struct name_map *map, const char *key)
{
    const struct name_slot *slot = map->slot ? name_map_slot(map, key) : NULL;

    return slot && slot->key ? slot->value : NAME_MAP_NONE;
}

static inline void name_map_clear(struct name_map *map)
{
    if (map->slot)
        memset(map->slot, 0, map->size * sizeof(*map->slot));
}

/* Makes room for @count names in all. Returns 0 or -ENOMEM, and the map is as before. */
static inline int name_map_reserve(struct name_map *map, size_t count)
{
    struct name_map larger = {.size = name_map_size(count)};

    if (larger.size <= map->size)
        return 0;
    larger.slot = calloc(larger.size, sizeof(*larger.slot));
    if (!larger.slot)
        return -ENOMEM;
    for (uint32_t i = 0; i < map->size; i++)
        if (map->slot[i].key)
            name_map_put(&larger, map->slot[i].key, map->slot[i].value);
    free(map->slot);
    *map = larger;
    return 0;
}
