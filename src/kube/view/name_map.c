/* SPDX-License-Identifier: Apache-2.0 */
/* Maps names to numbers: open addressing, at most half full. */
#include "kube/view/view.h"

#include "base/fnv.h"

#include <string.h>

uint32_t name_hash(const char *key)
{
    return (uint32_t)fnv_text(FNV_START, key);
}

void name_map_init(struct core *c, struct name_map *map, size_t count)
{
    uint32_t size = 16;

    while (size < 2 * count)
        size *= 2;
    map->key = core_alloc(c, size, sizeof(map->key[0]));
    map->value = core_alloc(c, size, sizeof(map->value[0]));
    if (c->error)
        *map = (struct name_map){0}; /* holds nothing */
    else
        map->mask = size - 1;
}

/* The slot that holds the key or would hold it. */
static uint32_t slot_of(const struct name_map *map, const char *key)
{
    uint32_t i = name_hash(key) & map->mask;

    while (map->key[i] && strcmp(map->key[i], key) != 0)
        i = (i + 1) & map->mask;
    return i;
}

void name_map_put(struct name_map *map, const char *key, uint32_t value)
{
    uint32_t i;

    if (!map->key)
        return;
    i = slot_of(map, key);
    map->key[i] = key;
    map->value[i] = value;
}

uint32_t name_map_get(const struct name_map *map, const char *key)
{
    uint32_t i = map->key ? slot_of(map, key) : 0;

    return map->key && map->key[i] ? map->value[i] : NOWHERE;
}
