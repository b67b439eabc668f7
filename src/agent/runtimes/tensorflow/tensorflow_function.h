/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a graph of TensorFlow trains, by the types of its operations: a call of it that trains
 * answers no request. Pure.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The greater one holds for a graph that has operations of both. */
enum tf_effect {
    TF_READS,  /* it may answer a request */
    TF_WRITES, /* variables, or it cannot be told: a training's evaluation, a restored checkpoint */
    TF_TRAINS, /* computes gradients, or changes variables as optimizers do */
    TF_EFFECT_MAX
};

/* An operation's effect by its type, which need not end in NUL. */
enum tf_effect tf_effect_of(const char *type, size_t length);

/* Calls a function that is defined elsewhere. Returns its effect. */
typedef enum tf_effect (*tf_called_fn)(void *arg, const char *name, size_t length);

/*
 * A function's effect by its FunctionDef, a protocol buffer that TensorFlow has written; TF_WRITES
 * where it is none. Calls @called for each function in it.
 */
enum tf_effect tf_effect_of_function(const void *def, size_t size, tf_called_fn called, void *arg);

/*
 * The bytes at which a process may look in all: functions that its program makes without end, or
 * that call each other in many ways, must not cost it more. Measured: some half a second for small
 * operations.
 */
#define TF_LOOK_MAX       (UINT64_C(64) << 20)
#define TF_LOOK_FUNCTION  4096 /* each function, besides its bytes: TensorFlow searches for it */
#define TF_LOOK_OPERATION 64   /* each operation or input of a session's run */

/* Whether something is left, and whether it was before @cost has been looked at. */
bool tf_may_look(_Atomic uint64_t *looked);
bool tf_looks_at(_Atomic uint64_t *looked, uint64_t cost);
