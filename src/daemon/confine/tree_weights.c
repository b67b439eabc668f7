/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/confine/tree_weights.h"

void tree_parts(struct tree_group *groups, size_t n)
{
    for (size_t i = 0; i < n; i++)
        groups[i].siblings = 0;
    for (size_t i = n; i-- > 0;) {
        const struct tree_group *g = &groups[i];

        if (!g->active || g->parent == TREE_ROOT)
            continue;
        groups[g->parent].active = true;
        groups[g->parent].siblings += g->weight;
    }
    for (size_t i = 0; i < n; i++) {
        const struct tree_group *parent =
            groups[i].parent == TREE_ROOT ? NULL : &groups[groups[i].parent];

        groups[i].part = groups[i].weight;
        if (parent)
            groups[i].part *= parent->siblings > 0 ? parent->part / parent->siblings : 0;
    }
}

static bool is_ours(const struct tree_group *groups, size_t i)
{
    while (!groups[i].ours && groups[i].parent != TREE_ROOT)
        i = groups[i].parent;
    return groups[i].ours;
}

static bool counts(const struct tree_group *g)
{
    return g->wanted > 0 && g->active;
}

double tree_our_weight(const struct tree_group *groups, size_t n)
{
    double ours = 0, wanted = 0, part = 0;

    for (size_t i = 0; i < n; i++) {
        if (!counts(&groups[i]))
            continue;
        if (is_ours(groups, i)) {
            ours += groups[i].wanted;
        } else {
            wanted += groups[i].wanted;
            part += groups[i].part;
        }
    }
    return wanted > 0 ? part * ours / wanted : 0;
}

uint32_t tree_permille(const struct tree_group *groups, size_t n, size_t i)
{
    double wanted = 0, part = 0, right;

    for (size_t k = 0; k < n; k++)
        if (counts(&groups[k])) {
            wanted += groups[k].wanted;
            part += groups[k].part;
        }
    right = wanted > 0 ? part * groups[i].wanted / wanted : 0;
    return right > 0 ? (uint32_t)(groups[i].part / right * 1000 + 0.5) : 1000;
}
