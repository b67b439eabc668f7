/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/units.h"

#include "base/fnv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS (2 * UNITS_MAX) /* so a free one is always near */

struct units {
    struct unit **unit; /* in the order of their coming */
    size_t count, room;
    uint32_t *slot; /* number of a unit + 1, by the hash of its name; 0: free */
};

int units_new(struct units **ret)
{
    struct units *u = calloc(1, sizeof(*u));

    if (u)
        u->slot = calloc(SLOTS, sizeof(*u->slot));
    if (!u || !u->slot) {
        units_free(u);
        return -ENOMEM;
    }
    *ret = u;
    return 0;
}

struct units *units_free(struct units *u)
{
    if (!u)
        return NULL;
    for (size_t i = 0; i < u->count; i++) {
        free(u->unit[i]->shrunk);
        free(u->unit[i]);
    }
    free(u->unit);
    free(u->slot);
    free(u);
    return NULL;
}

/* The slot of the name, or the free one that would be its. */
static size_t slot_of(const struct units *u, const char *name)
{
    size_t i = (size_t)(fnv_text(FNV_START, name) % SLOTS);

    while (u->slot[i] && strcmp(u->unit[u->slot[i] - 1]->name, name) != 0)
        i = (i + 1) % SLOTS;
    return i;
}

const struct unit *units_find(const struct units *u, const char *name)
{
    uint32_t found = u->slot[slot_of(u, name)];

    return found ? u->unit[found - 1] : NULL;
}

struct unit *units_make(struct units *u, const char *name)
{
    size_t slot = slot_of(u, name);
    struct unit *made;

    if (u->slot[slot])
        return u->unit[u->slot[slot] - 1];
    if (u->count == UNITS_MAX || strlen(name) >= EDGE_NAME_MAX)
        return NULL;
    if (u->count == u->room) {
        size_t room = u->room ? 2 * u->room : 64;
        struct unit **grown = realloc(u->unit, room * sizeof(struct unit *));

        if (!grown)
            return NULL;
        u->unit = grown;
        u->room = room;
    }
    made = calloc(1, sizeof(*made));
    if (!made)
        return NULL;
    strcpy(made->name, name);
    made->demand.draw.basis = POWER_UNKNOWN;
    made->lease_uw = RULE_UNLIMITED;
    made->number = (uint32_t)u->count;
    u->unit[u->count] = made;
    u->slot[slot] = (uint32_t)++u->count;
    return made;
}

size_t units_count(const struct units *u)
{
    return u->count;
}

const struct unit *units_at(const struct units *u, size_t i)
{
    return u->unit[i];
}

struct unit *units_change(struct units *u, size_t i)
{
    return u->unit[i];
}

struct power_range unit_draw(const struct unit *u, int64_t now_ms)
{
    if (!u->state.online || !u->demand_ms || now_ms - u->demand_ms >= UNITS_DRAW_MS)
        return (struct power_range){.basis = POWER_UNKNOWN};
    return u->demand.draw;
}

bool unit_has_twin(const struct unit *u, int64_t now_ms)
{
    return u->twin_ms && now_ms - u->twin_ms < UNITS_TWIN_MS;
}

const struct payload_shrunk *unit_shrunk(const struct unit *u, int64_t now_ms)
{
    return u->state.online && now_ms - u->shrunk_ms < PAYLOAD_SHRUNK_OLD_S * 1000 ? u->shrunk
                                                                                  : NULL;
}
