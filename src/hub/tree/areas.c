/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/areas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* '/' sorts before every other letter, so that what lies below an area follows it at once. */
static int compare_paths(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    if (*a == *b)
        return 0;
    if (!*a || !*b)
        return *a ? 1 : -1;
    if (*a == '/' || *b == '/')
        return *a == '/' ? -1 : 1;
    return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
}

static int by_path(const void *a, const void *b)
{
    return compare_paths(((const struct area *)a)->path, ((const struct area *)b)->path);
}

/* The paths of all areas, with those above them; some of them several times. */
static size_t collect(const struct power_policy *p, const char *path, struct area *to)
{
    size_t n = 0, len = strlen(path);

    for (size_t at = strlen(p->org); at <= len; at++)
        if (path[at] == '/' || path[at] == '\0') {
            if (to) {
                memcpy(to[n].path, path, at);
                to[n].path[at] = '\0';
            }
            n++;
        }
    return n;
}

static size_t collect_all(const struct power_policy *p, struct area *to)
{
    size_t n = collect(p, p->org, to);

    for (uint32_t i = 0; i < p->area_count; i++)
        n += collect(p, p->areas[i].area, to ? to + n : NULL);
    for (uint32_t i = 0; i < p->set.count; i++)
        n += collect(p, p->set.rule[i].area, to ? to + n : NULL);
    return n;
}

/* Parent, end and entry of each, in one walk: the areas that are open now are a stack. */
static void link_areas(const struct power_policy *p, struct areas *a)
{
    uint32_t open = AREA_NONE;

    for (uint32_t i = 0; i < a->count; i++) {
        struct area *x = &a->area[i];

        while (open != AREA_NONE && !area_below(x->path, a->area[open].path)) {
            a->area[open].end = i;
            open = a->area[open].parent;
        }
        x->parent = open;
        x->entry = policy_area(p, x->path);
        open = i;
    }
    for (; open != AREA_NONE; open = a->area[open].parent)
        a->area[open].end = a->count;
}

int areas_make(const struct power_policy *policy, struct areas *ret)
{
    size_t n = collect_all(policy, NULL);
    struct areas a = {calloc(n + 1, sizeof(struct area)), 0};

    if (!a.area)
        return -ENOMEM;
    collect_all(policy, a.area);
    qsort(a.area, n, sizeof(*a.area), by_path);
    for (size_t i = 0; i < n; i++)
        if (a.count == 0 || strcmp(a.area[a.count - 1].path, a.area[i].path) != 0)
            a.area[a.count++] = a.area[i];
    link_areas(policy, &a);
    *ret = a;
    return 0;
}

void areas_done(struct areas *a)
{
    free(a->area);
    *a = (struct areas){0};
}

bool areas_have_unit(const struct areas *a, uint32_t area)
{
    return a->area[area].entry && *a->area[area].entry->unit;
}

bool areas_topmost(const struct areas *a, uint32_t area)
{
    uint32_t above = a->area[area].parent;

    while (above != AREA_NONE && !areas_have_unit(a, above))
        above = a->area[above].parent;
    return above == AREA_NONE && areas_have_unit(a, area);
}

void areas_count_units(const struct areas *a, uint32_t *ret)
{
    memset(ret, 0, a->count * sizeof(*ret));
    for (uint32_t i = a->count; i-- > 0;) {
        ret[i] += areas_have_unit(a, i);
        if (a->area[i].parent != AREA_NONE)
            ret[a->area[i].parent] += ret[i];
    }
}

uint32_t areas_find(const struct areas *a, const char *path)
{
    for (uint32_t low = 0, high = a->count; low < high;) {
        uint32_t mid = low + (high - low) / 2;
        int order = compare_paths(a->area[mid].path, path);

        if (order == 0)
            return mid;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return AREA_NONE;
}
