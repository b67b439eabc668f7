/* SPDX-License-Identifier: Apache-2.0 */
#include "power/division/divide_tree.h"

#include "power/division/demand_shape.h"

/* A group while it is divided; lists of indices end with DIVIDE_NO_GROUP. */
struct node {
    struct demand demand;
    uint64_t sure_uw;                 /* floors and fixed powers in it */
    uint64_t share_uw;                /* what it gets */
    uint32_t first_leaf, first_group; /* in it */
    uint32_t next_group;              /* beside it */
    uint32_t takers;                  /* leaves below it that take what is left */
};

struct tree {
    const struct divide_group *group;
    const struct divide_leaf *leaf;
    uint32_t groups, leaves;
    struct node *node;         /* of each group */
    struct divide_child *part; /* members of the group that is looked at: leaves, then groups */
    uint64_t *part_uw;
    uint32_t *next_leaf;
    void *scratch;
};

static size_t aligned(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

size_t divide_tree_bytes(uint32_t groups, uint32_t leaves)
{
    size_t members = (size_t)groups + leaves;

    return groups * sizeof(struct node) + members * sizeof(struct divide_child) +
           members * sizeof(uint64_t) + aligned(leaves * sizeof(uint32_t)) +
           divide_bytes(groups + leaves);
}

static struct tree lay_out(const struct divide_group *group, uint32_t groups,
                           const struct divide_leaf *leaf, uint32_t leaves, char *at)
{
    struct tree t = {.group = group, .leaf = leaf, .groups = groups, .leaves = leaves};
    size_t members = (size_t)groups + leaves;

    t.node = (void *)at;
    at += groups * sizeof(struct node);
    t.part = (void *)at;
    at += members * sizeof(struct divide_child);
    t.part_uw = (void *)at;
    at += members * sizeof(uint64_t);
    t.next_leaf = (void *)at;
    at += aligned(leaves * sizeof(uint32_t));
    t.scratch = at;
    return t;
}

static void link_members(struct tree *t)
{
    for (uint32_t g = 0; g < t->groups; g++) {
        t->node[g].first_leaf = t->node[g].first_group = DIVIDE_NO_GROUP;
        t->node[g].sure_uw = 0;
        t->node[g].takers = 0;
    }
    for (uint32_t g = t->groups; g-- > 1;) {
        struct node *parent = &t->node[t->group[g].parent];

        t->node[g].next_group = parent->first_group;
        parent->first_group = g;
    }
    for (uint32_t i = t->leaves; i-- > 0;) {
        t->next_leaf[i] = t->node[t->leaf[i].group].first_leaf;
        t->node[t->leaf[i].group].first_leaf = i;
    }
}

/* Lists the members of the group as children of a division. */
static uint32_t list_members(const struct tree *t, uint32_t g)
{
    uint32_t n = 0;

    for (uint32_t i = t->node[g].first_leaf; i != DIVIDE_NO_GROUP; i = t->next_leaf[i])
        t->part[n++] = t->leaf[i].child;
    for (uint32_t k = t->node[g].first_group; k != DIVIDE_NO_GROUP; k = t->node[k].next_group)
        t->part[n++] = (struct divide_child){
            .demand = &t->node[k].demand,
            .floor_uw = larger_u64(t->group[k].floor_uw, t->node[k].sure_uw),
            .most_uw = t->group[k].cap_uw < DEMAND_MAX ? larger_u64(t->group[k].cap_uw, 1) : 0,
        };
    return n;
}

/* Children before parents. */
static void merge_up(struct tree *t)
{
    for (uint32_t g = t->groups; g-- > 0;) {
        struct node *n = &t->node[g];
        uint32_t members = list_members(t, g);

        for (uint32_t i = n->first_leaf; i != DIVIDE_NO_GROUP; i = t->next_leaf[i])
            n->takers += t->leaf[i].rest;
        for (uint32_t k = n->first_group; k != DIVIDE_NO_GROUP; k = t->node[k].next_group)
            n->takers += t->node[k].takers;
        for (uint32_t i = 0; i < members; i++) {
            const struct divide_child *c = &t->part[i];

            n->sure_uw =
                smaller_u64(n->sure_uw + (c->fixed_uw ? c->fixed_uw : c->floor_uw), DEMAND_MAX);
        }
        n->demand.count = 0;
        if (members)
            divide_merge(t->part, members, t->scratch, &n->demand);
    }
}

/* Adds to @uw a part of the watts that no curve wants: they go to its takers. */
static uint64_t one_rest(uint64_t *left, uint32_t *takers, uint32_t of, uint64_t uw, uint64_t most)
{
    uint64_t part = *takers ? *left / *takers * of + (*takers == of ? *left % *takers : 0) : 0;

    if (most && uw + part > most)
        part = most > uw ? most - uw : 0;
    *left -= part;
    *takers -= of;
    return uw + part;
}

/* A group that nothing bounds: each member is bounded by itself alone. */
static void open_group(struct tree *t, uint32_t g, uint64_t *ret_uw)
{
    for (uint32_t i = t->node[g].first_leaf; i != DIVIDE_NO_GROUP; i = t->next_leaf[i]) {
        uint64_t most = t->leaf[i].child.most_uw;

        ret_uw[i] = most ? smaller_u64(most, DEMAND_MAX) : DEMAND_MAX;
    }
    for (uint32_t k = t->node[g].first_group; k != DIVIDE_NO_GROUP; k = t->node[k].next_group)
        t->node[k].share_uw = t->group[k].cap_uw;
}

static void divide_group(struct tree *t, uint32_t g, uint64_t *ret_uw)
{
    uint32_t members = list_members(t, g), takers = t->node[g].takers, n = 0;
    uint64_t left = 0;

    if (divide_cap(t->node[g].share_uw, t->part, members, t->scratch, t->part_uw, &left) < 0)
        for (uint32_t i = 0; i < members; i++) /* somebody takes more than there is */
            t->part_uw[i] = t->part[i].floor_uw;
    for (uint32_t i = t->node[g].first_leaf; i != DIVIDE_NO_GROUP; i = t->next_leaf[i], n++)
        ret_uw[i] = one_rest(&left, &takers, t->leaf[i].rest, t->part_uw[n], t->part[n].most_uw);
    for (uint32_t k = t->node[g].first_group; k != DIVIDE_NO_GROUP; k = t->node[k].next_group, n++)
        t->node[k].share_uw =
            smaller_u64(t->group[k].cap_uw, one_rest(&left, &takers, t->node[k].takers,
                                                     t->part_uw[n], t->part[n].most_uw));
}

void divide_tree(const struct divide_group *group, uint32_t groups, const struct divide_leaf *leaf,
                 uint32_t leaves, void *scratch, uint64_t *ret_uw, struct demand *ret_demand)
{
    struct tree t = lay_out(group, groups, leaf, leaves, scratch);

    link_members(&t);
    merge_up(&t);
    t.node[0].share_uw = group[0].cap_uw;
    for (uint32_t g = 0; g < groups; g++)
        if (t.node[g].share_uw >= DEMAND_MAX)
            open_group(&t, g, ret_uw);
        else
            divide_group(&t, g, ret_uw);
    if (ret_demand)
        *ret_demand = t.node[0].demand;
}
