/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides a cap over children in groups that have caps of their own, as areas have inside an
 * organization: upwards the groups' curves are merged (divide_merge()), downwards each group's part
 * is divided in it (divide_cap()). Pure; any thread. Used by src/edge.
 */
#pragma once

#include <stdbool.h>

#include "power/division/divide.h"

#define DIVIDE_NO_GROUP UINT32_MAX

struct divide_group {
    uint32_t parent;           /* index, smaller than its own; of group 0, which holds all, none */
    uint64_t cap_uw, floor_uw; /* DEMAND_MAX: no cap; a floor of the group as a whole */
};

struct divide_leaf {
    struct divide_child child;
    uint32_t group;
    bool rest; /* above its part it gets what no curve wants, in equal parts with others like it */
};

/* The bytes of scratch, aligned as uint64_t. */
size_t divide_tree_bytes(uint32_t groups, uint32_t leaves);

/*
 * ret_uw[i] becomes the power of leaf i: DEMAND_MAX if nothing bounds it. In a group whose floors
 * do not fit below what it gets, each leaf gets its floor. *ret_demand (may be NULL): the curve of
 * all together. O(leaves + groups).
 */
void divide_tree(const struct divide_group *group, uint32_t groups, const struct divide_leaf *leaf,
                 uint32_t leaves, void *scratch, uint64_t *ret_uw, struct demand *ret_demand);
