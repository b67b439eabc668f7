/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/store/memory.h"

#include "base/fnv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NEAR 8 /* entries after its own place in which a point may lie */

struct entry {
    char unit[STORE_UNIT_MAX], point[OUTBOX_POINT_MAX];
    struct known known;
};

struct memory {
    struct entry *entry[POINTS_KEPT];
};

int memory_new(struct memory **ret)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret ? 0 : -ENOMEM;
}

struct memory *memory_free(struct memory *m)
{
    if (m)
        memory_forget(m);
    free(m);
    return NULL;
}

void memory_forget(struct memory *m)
{
    for (size_t i = 0; i < POINTS_KEPT; i++) {
        free(m->entry[i]);
        m->entry[i] = NULL;
    }
}

static struct entry **place(struct memory *m, const char *unit, const char *point)
{
    size_t at = fnv_text(fnv_bytes(fnv_text(FNV_START, unit), "/", 1), point) % POINTS_KEPT;
    struct entry **empty = NULL;

    for (size_t i = 0; i < NEAR; i++) {
        struct entry **e = &m->entry[(at + i) % POINTS_KEPT];

        if (*e && strcmp((*e)->unit, unit) == 0 && strcmp((*e)->point, point) == 0)
            return e;
        empty = empty || *e ? empty : e;
    }
    return empty ? empty : &m->entry[at];
}

struct known *memory_find(struct memory *m, const char *unit, const char *point)
{
    struct entry *e = *place(m, unit, point);

    return e && strcmp(e->unit, unit) == 0 && strcmp(e->point, point) == 0 ? &e->known : NULL;
}

void memory_put(struct memory *m, const char *unit, const char *point, const struct known *k)
{
    struct entry **e = place(m, unit, point);

    if (!*e)
        *e = malloc(sizeof(**e));
    if (!*e || strlen(unit) >= sizeof((*e)->unit) || strlen(point) >= sizeof((*e)->point)) {
        free(*e);
        *e = NULL;
        return;
    }
    strcpy((*e)->unit, unit);
    strcpy((*e)->point, point);
    (*e)->known = *k;
}
