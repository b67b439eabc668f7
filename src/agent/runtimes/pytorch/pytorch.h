/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the parts of the PyTorch backend. docs/design/53-pytorch.md says why.
 *
 *   control thread (pytorch.c): finds PyTorch, puts stubs into its slots, keeps the target, and
 *   asks for a safe point -> Python's main thread (pytorch_hooks.c): at::set_num_threads()
 */
#pragma once

#include "agent/process/safe_number.h"

/* PyTorch's own functions, read from the slots before the stubs are put there. */
struct pytorch_real {
    int (*get_number)(void); /* at::get_num_threads: the calling thread's number */
    void (*set_number)(int); /* at::set_num_threads: that number, and the first of new threads */
    void (*init)(void);      /* at::init_num_threads: a thread's first work */
    bool (*in_region)(void); /* at::in_parallel_region */
    void (*set_openmp)(int); /* omp_set_num_threads of the copy that PyTorch uses */
    void *backward;          /* torch::autograd::Engine::execute; NULL: nobody counts */
    int (*get_openmp)(void); /* omp_get_max_threads of that copy */
    bool counts_backward;    /* the stub for it is in place */
};

extern struct safe_number pytorch;
extern struct pytorch_real pytorch_real;
extern char pytorch_path[512]; /* of libtorch_cpu */

/* ---- pytorch_hooks.c ---- */

/* On Python's main thread, between two bytecodes. */
bool pytorch_at_safe_point(void);

/* The stubs in the slots of libtorch_python and libtorch_cpu. */
int pytorch_get_number(void);
void pytorch_set_number(int n);
void pytorch_init(void);
int pytorch_get_openmp(void); /* ctypes' */
void pytorch_set_openmp(int n);
extern void (*const pytorch_backward)(void); /* in assembler: for any arguments; NULL: none here */

extern _Atomic uint64_t pytorch_backwards; /* calls of it so far: the unit of a training's work */

/* This is Python's main thread, and it has a number of ours. */
bool pytorch_is_changed_here(void);

/* ---- pytorch_calls.c ---- */

/* Sees to it that calls of modules are seen where they are wanted. Control thread. */
void pytorch_calls_watch(void);
void pytorch_calls_after_fork(void);
