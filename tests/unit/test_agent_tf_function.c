/* SPDX-License-Identifier: Apache-2.0 */
/* Effects of functions of TensorFlow, by their protocol buffers. */
#include "agent/runtimes/tensorflow/tensorflow_function.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A message in the making. */
struct made {
    uint8_t bytes[512];
    size_t size;
};

static void put(struct made *m, unsigned number, const void *value, size_t size)
{
    assert_true(number < 16 && size < 128 && m->size + 2 + size < sizeof(m->bytes));
    m->bytes[m->size++] = (uint8_t)(number << 3 | 2);
    m->bytes[m->size++] = (uint8_t)size;
    memcpy(m->bytes + m->size, value, size);
    m->size += size;
}

static void put_text(struct made *m, unsigned number, const char *text)
{
    put(m, number, text, strlen(text));
}

/* A node with its name, and an attribute that calls @called (NULL: none); in a list: @listed. */
static void put_node(struct made *def, const char *type, const char *called, bool listed)
{
    static const uint8_t flag[] = {5 << 3, 1}; /* an attribute that is a number */
    struct made node = {.size = 0}, entry = {.size = 0}, value = {.size = 0}, list = {.size = 0},
                function = {.size = 0};

    put_text(&node, 1, "node");
    put_text(&node, 2, type);
    put_text(&node, 3, "Assign"); /* an input of that name */
    if (called) {
        put_text(&function, 1, called);
        if (listed) {
            put(&list, 9, function.bytes, function.size);
            put(&value, 1, list.bytes, list.size);
        } else {
            put(&value, 10, function.bytes, function.size);
        }
    } else {
        memcpy(value.bytes, flag, sizeof(flag));
        value.size = sizeof(flag);
    }
    put_text(&entry, 1, "ResourceApply");
    put(&entry, 2, value.bytes, value.size);
    put(&node, 5, entry.bytes, entry.size);
    put(def, 3, node.bytes, node.size);
}

static char called[64];

static enum tf_effect call(void *arg, const char *name, size_t length)
{
    assert_true(length < sizeof(called));
    memcpy(called, name, length);
    called[length] = '\0';
    return *(enum tf_effect *)arg;
}

static enum tf_effect effect_of(const struct made *def, enum tf_effect of_called)
{
    called[0] = '\0';
    return tf_effect_of_function(def->bytes, def->size, call, &of_called);
}

static enum tf_effect effect_of_type(const char *type)
{
    struct made def = {.size = 0};

    put_text(&def, 1, "ResourceApplyAdam"); /* the signature */
    put_node(&def, "MatMul", NULL, false);
    put_node(&def, type, NULL, false);
    assert_int_equal(effect_of(&def, TF_READS), tf_effect_of(type, strlen(type)));
    return effect_of(&def, TF_READS);
}

static void the_types_of_operations_say_what_a_function_does(void **state)
{
    static const char *const reads[] = {"ReadVariableOp",
                                        "Softmax",
                                        "ScatterNd",
                                        "TensorScatterUpdate",
                                        "ResourceGather",
                                        "StopGradient",
                                        "Conv2DBackpropInput",
                                        "A",
                                        ""},
                             *const writes[] = {"AssignVariableOp", "AssignAddVariableOp",
                                                "Assign",           "ResourceScatterAdd",
                                                "ScatterNdUpdate",  "EagerPyFunc",
                                                "PyFuncStateless"},
                             *const trains[] = {"ResourceApplyAdam",
                                                "AssignSubVariableOp",
                                                "ResourceSparseApplyAdagrad",
                                                "ApplyGradientDescent",
                                                "SparseApplyFtrl",
                                                "BroadcastGradientArgs",
                                                "ReluGrad"};

    (void)state;
    for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
        assert_int_equal(effect_of_type(reads[i]), TF_READS);
    for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++)
        assert_int_equal(effect_of_type(writes[i]), TF_WRITES);
    for (size_t i = 0; i < sizeof(trains) / sizeof(trains[0]); i++)
        assert_int_equal(effect_of_type(trains[i]), TF_TRAINS);
}

static void a_function_does_what_those_do_that_it_calls(void **state)
{
    for (enum tf_effect effect = TF_READS; effect < TF_EFFECT_MAX; effect++) {
        struct made one = {.size = 0}, list = {.size = 0}, type = {.size = 0};

        (void)state;
        put_node(&one, "StatefulPartitionedCall", "inner", false);
        put_node(&list, "Case", "branch", true);
        put_node(&type, "__inference_old_7", NULL, false);
        assert_int_equal(effect_of(&one, effect), effect);
        assert_string_equal(called, "inner");
        assert_int_equal(effect_of(&list, effect), effect);
        assert_string_equal(called, "branch");
        assert_int_equal(effect_of(&type, effect), effect);
        assert_string_equal(called, "__inference_old_7");
    }
}

/* A value that calls "outer", whose attribute calls the next one, and so on; the last is "inner".
 */
static void put_nested(struct made *value, unsigned depth)
{
    struct made function = {.size = 0}, entry = {.size = 0}, deeper = {.size = 0};

    put_text(&function, 1, depth > 0 ? "o" : "inner");
    if (depth > 0) {
        put_nested(&deeper, depth - 1);
        put(&entry, 2, deeper.bytes, deeper.size);
        put(&function, 2, entry.bytes, entry.size);
    }
    put(value, 10, function.bytes, function.size);
}

static enum tf_effect inner_writes(void *arg, const char *name, size_t length)
{
    (*(unsigned *)arg)++;
    return length == 5 && memcmp(name, "inner", 5) == 0 ? TF_WRITES : TF_READS;
}

static enum tf_effect effect_of_nested(unsigned depth, tf_called_fn of, void *arg)
{
    struct made def = {.size = 0}, node = {.size = 0}, entry = {.size = 0}, value = {.size = 0};

    put_nested(&value, depth);
    put(&entry, 2, value.bytes, value.size);
    put_text(&node, 2, "MapDataset");
    put(&node, 5, entry.bytes, entry.size);
    put(&def, 3, node.bytes, node.size);
    return tf_effect_of_function(def.bytes, def.size, of, arg);
}

static void functions_in_attributes_of_a_called_one_are_followed(void **state)
{
    enum tf_effect reads = TF_READS;
    unsigned calls = 0;

    (void)state;
    assert_int_equal(effect_of_nested(1, inner_writes, &calls), TF_WRITES);
    assert_int_equal(calls, 2);
    assert_int_equal(effect_of_nested(7, inner_writes, &calls), TF_WRITES);
    assert_int_equal(effect_of_nested(7, call, &reads), TF_READS);
    assert_int_equal(effect_of_nested(8, call, &reads),
                     TF_WRITES); /* deeper than TensorFlow writes */
}

static void looking_has_an_end(void **state)
{
    _Atomic uint64_t looked = 0;

    (void)state;
    assert_true(tf_looks_at(&looked, TF_LOOK_MAX - 1));
    assert_true(tf_may_look(&looked));
    assert_true(tf_looks_at(&looked, 2)); /* the last one is read */
    assert_false(tf_may_look(&looked));
    assert_false(tf_looks_at(&looked, 0));
}

static void what_is_cut_off_is_not_taken_for_one_that_reads(void **state)
{
    struct made def = {.size = 0};

    (void)state;
    put_node(&def, "MatMul", "inner", true);
    assert_int_equal(effect_of(&def, TF_READS), TF_READS);
    while (--def.size > 0)
        assert_int_equal(effect_of(&def, TF_READS), TF_WRITES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_types_of_operations_say_what_a_function_does),
        cmocka_unit_test(a_function_does_what_those_do_that_it_calls),
        cmocka_unit_test(functions_in_attributes_of_a_called_one_are_followed),
        cmocka_unit_test(looking_has_an_end),
        cmocka_unit_test(what_is_cut_off_is_not_taken_for_one_that_reads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
