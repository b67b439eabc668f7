/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the two parts of the PyTorch backend. docs/design/53-pytorch.md says why.
 *
 *   control thread (pytorch.c): finds PyTorch, puts stubs into its slots, keeps the target, and
 *   asks for a safe point -> Python's main thread (pytorch_hooks.c): at::set_num_threads()
 */
#pragma once

#include "agent/agent.h"
#include "agent/process/number.h"

#include <stdatomic.h>

enum pytorch_may {
    PYTORCH_UNSEEN,  /* not here, or not looked at yet */
    PYTORCH_FREE,    /* its stubs are in place: the number may change at safe points */
    PYTORCH_JUDGING, /* a thread writes the note */
    PYTORCH_FIXED,   /* moldable for good, and its note says why */
    PYTORCH_MAY_MAX
};

/* What PyTorch's slots held; written before the stubs are put there. */
struct pytorch_real {
    int (*get_number)(void); /* at::get_num_threads: the calling thread's number */
    void (*set_number)(int); /* at::set_num_threads: that number, and the first of new threads */
    void (*init)(void);      /* at::init_num_threads: a thread's first work */
    bool (*in_region)(void); /* at::in_parallel_region */
    void (*set_openmp)(int); /* omp_set_num_threads of the copy that PyTorch uses */
};

struct pytorch_state {
    struct pytorch_real real;
    char path[512]; /* of libtorch_cpu */
    _Atomic int may;
    _Atomic uint32_t own;    /* the main thread's number for the program; 0: not known yet */
    _Atomic uint32_t ours;   /* the number that it has, unless a library has changed it */
    _Atomic uint32_t fresh;  /* the number of threads that begin to use PyTorch */
    _Atomic bool touched;    /* at::set_num_threads has been called by us */
    _Atomic uint32_t sized;  /* the user's or the program's choice: never more; 0: none */
    _Atomic bool theirs;     /* a library has set another number for the moment */
    _Atomic bool forked;     /* the child of a fork, in which the agent does not run */
    _Atomic uint32_t target; /* 0: none */
    _Atomic uint64_t loads;  /* objects loaded when all had been looked at; 0: not all */
    _Atomic uint64_t wanted; /* grows with each change of what is asked for */
    _Atomic uint64_t placed; /* … and what the main thread has last taken */
    _Atomic uint64_t placed_ns;
    char version[PROTO_SHORT_MAX];
    char note[PROTO_NOTE_MAX];
};

extern struct pytorch_state pytorch;

/* The number that the main thread is to have. */
uint32_t pytorch_number(void);

/* From now on PyTorch has the program's own number. Any thread; the first note stays. */
void pytorch_fix(const char *note);

/* ---- pytorch_hooks.c ---- */

/* On Python's main thread, between two bytecodes. */
void pytorch_at_safe_point(void);

/* What the slots of libtorch_python and libtorch_cpu get. */
int pytorch_get_number(void);
void pytorch_set_number(int n);
void pytorch_init(void);

/* This is Python's main thread, and it has a number of ours. */
bool pytorch_is_changed_here(void);
