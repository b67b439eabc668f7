/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The areas of the organization as a tree: those that the policy names in `areas` or in a rule, and
 * all on the way to them. Made anew with each policy. Pure but for memory; any thread. Used by
 * in_force.c, caps.c and src/hub/serve.
 */
#pragma once

#include "hub/compile/policy.h"

#include <stdbool.h>

#define AREA_NONE UINT32_MAX

struct area {
    char path[AREA_PATH_MAX];
    uint32_t parent;                 /* index, or AREA_NONE: the organization */
    uint32_t end;                    /* all from the next index to before @end lie below it */
    const struct policy_area *entry; /* of the policy; NULL: it has neither unit nor name */
};

/* Parents stand before what lies below them, which follows at once. */
struct areas {
    struct area *area;
    uint32_t count;
};

/* Borrows the policy. Returns 0 or -ENOMEM. */
int areas_make(const struct power_policy *policy, struct areas *ret);
void areas_done(struct areas *a);

/* Whether a unit stands there; and whether none stands above it, whose meters see it, too. */
bool areas_have_unit(const struct areas *a, uint32_t area);
bool areas_topmost(const struct areas *a, uint32_t area);

/* How many units stand in each area and below it; @ret has room for all. */
void areas_count_units(const struct areas *a, uint32_t *ret);

/* Index of the area of that path, or AREA_NONE. */
uint32_t areas_find(const struct areas *a, const char *path);
