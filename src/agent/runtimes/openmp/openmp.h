/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the parts of the OpenMP backend: openmp.c (targets, description; control thread),
 * openmp_objects.c (which objects let their number of threads change; control thread),
 * openmp_hooks.c (the interposed entries of parallel regions; the program's threads) and
 * openmp_rule.h (which number a thread gets; pure). docs/design/52-openmp.md says why.
 */
#pragma once

#include "agent/agent.h"
#include "agent/runtimes/openmp/openmp_rule.h"

#include <pthread.h>
#include <stdatomic.h>

#define COPIES_MAX 8 /* of runtimes in a process; a further one is not governed */

/* May the number of threads for regions of this copy change? */
enum openmp_may {
    OPENMP_UNJUDGED, /* not before the control thread has looked at the objects that call it */
    OPENMP_FREE,     /* before each top-level region */
    OPENMP_PYTHON,   /* on Python's main thread at its safe points: the user said so */
    OPENMP_NEVER,    /* moldable: the note says why */
    OPENMP_MAY_MAX
};

/* A loaded libgomp, libomp or libiomp5. Never unloaded again: its threads live in it. */
struct copy {
    void *base; /* where it is loaded */
    unsigned index;
    char name[PROTO_SHORT_MAX];
    int (*get_max)(void); /* its nthreads-var for the calling thread */
    void (*set_number)(int);
    int (*level)(void);
    _Atomic int may; /* enum openmp_may */
    char note[PROTO_NOTE_MAX];
};

/* What is in force; a thread compares the generation with its own before each region. */
struct openmp_state {
    struct copy copies[COPIES_MAX];
    _Atomic unsigned n_copies;
    _Atomic uint32_t generation; /* 0: nothing applied yet */
    _Atomic uint32_t target;     /* threads; 0: no target, the limit counts */
    _Atomic uint32_t limit;      /* threads */
    _Atomic uint64_t loads;      /* dlopens at the last look at the objects */
    _Atomic bool fences;         /* a region orders its own writes: no membarrier here */
    _Atomic bool watched;        /* the control thread waits for the end of regions */
    _Atomic bool theirs;         /* a thread's number was set by the program */
    _Atomic uint64_t regions;    /* of threads that have ended */
    _Atomic uint32_t most;       /* largest number that a thread may get */
    _Atomic uint64_t placed_ns;  /* when a thread last took a new number, or left an old region */
    uint32_t machine;            /* threads to grow to */
    _Atomic uint32_t python;     /* the generation that Python's main thread has */
    bool sized;                  /* by OMP_NUM_THREADS: never more than the program's own number */
};

extern struct openmp_state openmp;

/* ---- openmp.c ---- */

/* Is @file a runtime of OpenMP, by its name? */
bool openmp_is_runtime(const char *file);

/* The copy that defines @address; makes it known. NULL: unknown runtime. Any thread. */
struct copy *copy_of(const void *address);

/* ---- openmp_objects.c; control thread ---- */

/* Looks at objects loaded since the last time. Returns true when some copy's `may` has changed. */
bool objects_judge(void);

/* How many objects the program has loaded so far. Any thread. */
uint64_t objects_loaded(void);
uint64_t objects_unloaded(void);

/* ---- openmp_hooks.c ---- */

/* The definition of @symbol that @caller's object would get without us. NULL: none. */
void *hooks_resolve(const char *symbol, const void *caller);

/* No region runs with a number of an older generation. Control thread. */
bool hooks_settled(void);
uint32_t hooks_active(void);    /* threads of the largest region that runs; 0: none */
uint64_t hooks_regions(void);   /* top-level regions so far */
void hooks_at_safe_point(void); /* Python's main thread: takes the newest target */
void hooks_forget_calls(void);  /* which calls were resolved: an object was unloaded */
void hooks_after_fork(void);
