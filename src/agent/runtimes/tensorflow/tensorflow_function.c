/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/runtimes/tensorflow/tensorflow_function.h"

#include "base/cleanup.h"

#include <stdint.h>
#include <string.h>

static bool begins(const char *text, size_t length, const char *prefix)
{
    size_t n = strlen(prefix);

    return length >= n && memcmp(text, prefix, n) == 0;
}

enum tf_effect tf_effect_of(const char *type, size_t length)
{
    /* Work of optimizers, with and without resources. */
    static const char *const trains[] = {"ResourceApply", "ResourceSparseApply", "Apply",
                                         "SparseApply", "AssignSub"};
    /* Those in Python may do anything. */
    static const char *const writes[] = {"Assign", "ResourceScatter", "Scatter", "PyFunc",
                                         "EagerPyFunc"};
    static const char *const reads[] = {"ScatterNd", "ScatterNdNonAliasingAdd", "StopGradient",
                                        "PreventGradient"};

    for (size_t i = 0; i < ARRAY_LEN(reads); i++)
        if (strlen(reads[i]) == length && memcmp(type, reads[i], length) == 0)
            return TF_READS;
    for (size_t i = 0; i < ARRAY_LEN(trains); i++)
        if (begins(type, length, trains[i]))
            return TF_TRAINS;
    if (memmem(type, length, "Grad", strlen("Grad"))) /* ReluGrad, BroadcastGradientArgs */
        return TF_TRAINS;
    for (size_t i = 0; i < ARRAY_LEN(writes); i++)
        if (begins(type, length, writes[i]))
            return TF_WRITES;
    return TF_READS;
}

/* ---- protocol buffers ---- */

struct bytes {
    const uint8_t *at;
    size_t left;
};

struct field {
    uint64_t number;
    struct bytes value; /* of texts and messages; empty for numbers */
};

static bool take_number(struct bytes *b, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && b->left > 0; shift += 7) {
        uint8_t byte = *b->at++;

        b->left--;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static bool take_bytes(struct bytes *b, uint64_t size, struct bytes *ret)
{
    if (size > b->left)
        return false;
    *ret = (struct bytes){b->at, (size_t)size};
    b->at += size;
    b->left -= (size_t)size;
    return true;
}

/* Returns false at the end, and where it is none: then something is left. */
static bool take_field(struct bytes *b, struct field *ret)
{
    struct bytes rest = *b, skipped, none = {(const uint8_t *)"", 0};
    uint64_t tag, n;
    bool whole;

    if (!take_number(&rest, &tag))
        return false;
    *ret = (struct field){.number = tag >> 3, .value = none};
    switch (tag & 7) {
    case 0:
        whole = take_number(&rest, &n);
        break;
    case 1:
        whole = take_bytes(&rest, 8, &skipped);
        break;
    case 2:
        whole = take_number(&rest, &n) && take_bytes(&rest, n, &ret->value);
        break;
    case 5:
        whole = take_bytes(&rest, 4, &skipped);
        break;
    default:
        whole = false;
    }
    if (whole)
        *b = rest;
    return whole;
}

/* ---- tensorflow/core/framework: function.proto, node_def.proto, attr_value.proto ---- */

enum {
    FUNCTION_NODES = 3,
    NODE_TYPE = 2,
    NODE_ATTRIBUTES = 5,
    ENTRY_VALUE = 2,
    VALUE_LIST = 1,
    VALUE_FUNCTION = 10,
    LIST_FUNCTIONS = 9,
    FUNCTION_NAME = 1,
    FUNCTION_ATTRIBUTES = 2,
    NESTED_MAX = 8, /* functions in attributes of functions; TensorFlow writes one or two */
};

struct look {
    tf_called_fn called;
    void *arg;
    unsigned nested;
    enum tf_effect effect;
};

static void add(struct look *l, enum tf_effect effect)
{
    l->effect = effect > l->effect ? effect : l->effect;
}

static void end(struct look *l, const struct bytes *b)
{
    if (b->left > 0)
        add(l, TF_WRITES);
}

static void look_at_attribute(struct look *l, struct bytes entry);

/* A NameAttrList: its attributes may name functions, too, which the one of that name calls. */
static void look_at_called(struct look *l, struct bytes function)
{
    struct field f;

    if (l->nested == NESTED_MAX) {
        add(l, TF_WRITES);
        return;
    }
    l->nested++;
    while (take_field(&function, &f)) {
        if (f.number == FUNCTION_NAME)
            add(l, l->called(l->arg, (const char *)f.value.at, f.value.left));
        if (f.number == FUNCTION_ATTRIBUTES)
            look_at_attribute(l, f.value);
    }
    end(l, &function);
    l->nested--;
}

static void look_at_value(struct look *l, struct bytes value)
{
    struct field f, of_list;

    while (take_field(&value, &f)) {
        if (f.number == VALUE_FUNCTION)
            look_at_called(l, f.value);
        if (f.number != VALUE_LIST)
            continue;
        while (take_field(&f.value, &of_list))
            if (of_list.number == LIST_FUNCTIONS)
                look_at_called(l, of_list.value);
        end(l, &f.value);
    }
    end(l, &value);
}

static void look_at_attribute(struct look *l, struct bytes entry)
{
    struct field f;

    while (take_field(&entry, &f))
        if (f.number == ENTRY_VALUE)
            look_at_value(l, f.value);
    end(l, &entry);
}

static void look_at_node(struct look *l, struct bytes node)
{
    struct field f;

    while (take_field(&node, &f)) {
        if (f.number == NODE_TYPE) /* the name of a function is a type, too */
            add(l, f.value.left > 2 && memcmp(f.value.at, "__", 2) == 0
                       ? l->called(l->arg, (const char *)f.value.at, f.value.left)
                       : tf_effect_of((const char *)f.value.at, f.value.left));
        if (f.number == NODE_ATTRIBUTES)
            look_at_attribute(l, f.value);
    }
    end(l, &node);
}

enum tf_effect tf_effect_of_function(const void *def, size_t size, tf_called_fn called, void *arg)
{
    struct look l = {.called = called, .arg = arg, .effect = TF_READS};
    struct bytes rest = {def, size};
    struct field f;

    while (l.effect < TF_TRAINS && take_field(&rest, &f))
        if (f.number == FUNCTION_NODES)
            look_at_node(&l, f.value);
    if (l.effect < TF_TRAINS)
        end(&l, &rest);
    return l.effect;
}

bool tf_may_look(_Atomic uint64_t *looked)
{
    return atomic_load_explicit(looked, memory_order_relaxed) < TF_LOOK_MAX;
}

bool tf_looks_at(_Atomic uint64_t *looked, uint64_t cost)
{
    return atomic_fetch_add_explicit(looked, cost, memory_order_relaxed) < TF_LOOK_MAX;
}
