/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a node admits a pod, by what the scheduler requires: selector, affinity and taints. */
#include "kube/capacity/capacity.h"

#include <stdlib.h>
#include <string.h>

const char *label_value(const struct kube_labels *labels, const char *key)
{
    for (uint32_t i = 0; i < labels->count; i++)
        if (strcmp(labels->at[i].key, key) == 0)
            return labels->at[i].value;
    return NULL;
}

static bool is_among(const struct kube_requirement *need, const char *value)
{
    for (uint32_t i = 0; i < need->value_count; i++)
        if (strcmp(need->values[i], value) == 0)
            return true;
    return false;
}

/* Compares two numbers; false if either is no number. */
static bool compares(const struct kube_requirement *need, const char *value, bool greater)
{
    char *end = NULL, *end_of_bound = NULL;
    long long number, bound;

    if (!value || need->value_count != 1)
        return false;
    number = strtoll(value, &end, 10);
    bound = strtoll(need->values[0], &end_of_bound, 10);
    if (end == value || *end || end_of_bound == need->values[0] || *end_of_bound)
        return false;
    return greater ? number > bound : number < bound;
}

static bool meets(const struct kube_requirement *need, const struct kube_labels *labels,
                  const char *name)
{
    const char *value = label_value(labels, need->key);

    if (need->field)
        value = strcmp(need->key, "metadata.name") == 0 ? name : NULL;
    switch (need->op) {
    case KUBE_IN:
        return value && is_among(need, value);
    case KUBE_NOT_IN:
        return !value || !is_among(need, value);
    case KUBE_EXISTS:
        return value;
    case KUBE_DOES_NOT_EXIST:
        return !value;
    case KUBE_GT:
        return compares(need, value, true);
    case KUBE_LT:
        return compares(need, value, false);
    default:
        return false;
    }
}

bool labels_match(const struct kube_labels *labels, const struct kube_term *term, const char *name)
{
    for (uint32_t i = 0; i < term->count; i++)
        if (!meets(&term->at[i], labels, name))
            return false;
    return true;
}

static bool tolerate(const struct kube_toleration *at, uint32_t count,
                     const struct kube_taint *taint)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct kube_toleration *t = &at[i];

        if (t->effect != KUBE_EFFECT_ANY && t->effect != taint->effect)
            continue;
        if (*t->key ? strcmp(t->key, taint->key) == 0 : !t->value) {
            if (!t->value || strcmp(t->value, taint->value) == 0)
                return true;
        }
    }
    return false;
}

static bool tolerates(const struct kube_place *place, const struct kube_demand *more,
                      const struct kube_taint *taint)
{
    return tolerate(place->tolerations, place->toleration_count, taint) ||
           (more && tolerate(more->tolerations, more->toleration_count, taint));
}

static bool selects(const struct kube_label *at, uint32_t count, const struct kube_node *node)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *value = label_value(&node->labels, at[i].key);

        if (!value || strcmp(value, at[i].value) != 0)
            return false;
    }
    return true;
}

static bool meets_demand(const struct kube_demand *more, const struct node_capacity *capacity)
{
    const char *value =
        more->topology_required ? label_value(&capacity->node->labels, more->topology_key) : NULL;

    if (more->topology_required && (!value || strcmp(value, more->topology_value) != 0))
        return false;
    return !(more->no_gpus && capacity->gpu) &&
           selects(more->selector, more->selector_count, capacity->node);
}

/* The API server's own taints tell how a node is, not for whom. */
static bool tells_state(const struct kube_taint *taint)
{
    return strncmp(taint->key, "node.kubernetes.io/", strlen("node.kubernetes.io/")) == 0;
}

static bool suits(const struct kube_place *place, const struct kube_demand *more,
                  const struct node_capacity *capacity, bool later)
{
    const struct kube_node *node = capacity->node;
    bool affine = place->term_count == 0;

    if (place->node_name && strcmp(place->node_name, node->meta.name) != 0)
        return false;
    if (!selects(place->selector.at, place->selector.count, node))
        return false;
    /* a term without requirements matches nothing */
    for (uint32_t i = 0; i < place->term_count && !affine; i++)
        affine = place->terms[i].count > 0 &&
                 labels_match(&node->labels, &place->terms[i], node->meta.name);
    if (!affine || (more && !meets_demand(more, capacity)))
        return false;
    for (uint32_t i = 0; i < node->taint_count && !capacity->plain; i++)
        if (node->taints[i].effect != KUBE_PREFER_NO_SCHEDULE &&
            !(later && tells_state(&node->taints[i])) && !tolerates(place, more, &node->taints[i]))
            return false;
    return true;
}

bool place_admits(const struct kube_place *place, const struct kube_demand *more,
                  const struct node_capacity *capacity)
{
    return capacity->usable && suits(place, more, capacity, false);
}

bool place_suits(const struct kube_place *place, const struct kube_demand *more,
                 const struct node_capacity *capacity)
{
    return suits(place, more, capacity, true);
}
