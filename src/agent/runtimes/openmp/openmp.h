/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the parts of the OpenMP backend. docs/design/52-openmp.md says why.
 *
 *   a runtime is loaded -> __gmon_start__ (openmp.c) -> control thread: objects_look()
 *   -> each object is judged (openmp_objects.c, its code by openmp_code.c)
 *   -> a slot of its table of addresses (GOT) that holds an entry of a runtime gets our stub for
 *      this copy and entry (openmp_hooks.c)
 *   -> region: stub -> process/number.h -> what the slot held
 */
#pragma once

#include "agent/agent.h"
#include "agent/process/number.h"
#include "agent/process/objects.h"

#include <stdatomic.h>
#include <stddef.h>

#define COPIES_MAX 8 /* of runtimes in a process; with more of them nothing is malleable */

/* May the number of threads for regions of this copy change? */
enum openmp_may {
    OPENMP_UNJUDGED, /* not before the control thread has looked at the objects that call it */
    OPENMP_FREE,     /* in each top-level region */
    OPENMP_NEVER,    /* moldable: the note says why */
    OPENMP_MAY_MAX
};

/* The functions with which compilers begin regions: X(name of the constant, symbol). */
#define OPENMP_LOOPS(X)                                                                            \
    X(LOOP_STATIC, "GOMP_parallel_loop_static")                                                    \
    X(LOOP_DYNAMIC, "GOMP_parallel_loop_dynamic")                                                  \
    X(LOOP_GUIDED, "GOMP_parallel_loop_guided")                                                    \
    X(LOOP_NONMONOTONIC_DYNAMIC, "GOMP_parallel_loop_nonmonotonic_dynamic")                        \
    X(LOOP_NONMONOTONIC_GUIDED, "GOMP_parallel_loop_nonmonotonic_guided")

#define OPENMP_LOOPS_WITHOUT_CHUNK(X)                                                              \
    X(LOOP_RUNTIME, "GOMP_parallel_loop_runtime")                                                  \
    X(LOOP_NONMONOTONIC_RUNTIME, "GOMP_parallel_loop_nonmonotonic_runtime")                        \
    X(LOOP_MAYBE_NONMONOTONIC_RUNTIME, "GOMP_parallel_loop_maybe_nonmonotonic_runtime")

#define OPENMP_ENTRIES(X)                                                                          \
    X(PARALLEL, "GOMP_parallel")                                                                   \
    X(REDUCTIONS, "GOMP_parallel_reductions")                                                      \
    X(SECTIONS, "GOMP_parallel_sections")                                                          \
    OPENMP_LOOPS(X)                                                                                \
    OPENMP_LOOPS_WITHOUT_CHUNK(X)                                                                  \
    X(FORK_CALL, "__kmpc_fork_call")

#define OPENMP_CONSTANT(name, symbol) OPENMP_##name,
enum openmp_entry { OPENMP_ENTRIES(OPENMP_CONSTANT) OPENMP_ENTRY_MAX };

/*
 * A loaded libgomp, libomp or libiomp5. An object that is bound to it keeps it loaded, and only
 * such an object has our stubs for it, so nothing here is used after it was unloaded.
 */
struct copy {
    uintptr_t start, end; /* where it is loaded; 0: free */
    char name[PROTO_SHORT_MAX];
    int (*get_max)(void); /* its nthreads-var for the calling thread */
    int (*level)(void);
    void (*push)(void *loc, int32_t thread, int32_t n); /* of libomp alone */
    int32_t (*thread)(void *loc);
    void *entry[OPENMP_ENTRY_MAX]; /* what slots held; written before our stub is put there */
    _Atomic int may;               /* enum openmp_may */
    _Atomic bool begun;            /* a region began through our stub: none is hidden from us */
    char note[PROTO_NOTE_MAX];
};

/* The target in force; a thread compares the generation with its own before each region. */
struct openmp_state {
    struct copy copies[COPIES_MAX];
    _Atomic bool present;        /* a runtime has been loaded */
    _Atomic uint32_t generation; /* 0: nothing applied yet; or OPENMP_FORKED */
    _Atomic uint32_t target;     /* threads; 0: no target, the limit counts */
    _Atomic uint32_t limit;      /* threads */
    _Atomic uint32_t give;       /* the target as far as there is room for it */
    _Atomic uint64_t loads;      /* dlopens when all objects had been looked at; 0: not all */
    _Atomic bool fences;         /* a region orders its own writes: no membarrier here */
    _Atomic bool watched;        /* the control thread waits for the end of regions */
    _Atomic uint64_t regions;    /* of threads that have ended */
    _Atomic uint64_t placed_ns;  /* when a thread last took a new number, or left an old region */
    struct number_wish wish;     /* what does not change: machine, chosen, sized */
    uint32_t most;               /* threads that a region can get */
    bool tools;                  /* libomp is told to load some (OMPT) */
};

#define OPENMP_FORKED UINT32_MAX /* the child of a fork, in which the agent does not run yet */

extern struct openmp_state openmp;

/* ---- openmp_objects.c; control thread ---- */

/* Is @file a runtime of OpenMP, by its name? Any thread. */
bool openmp_is_runtime(const char *file);

/*
 * Judges objects loaded since the last time, and puts stubs into their slots. Neither waits for the
 * loader's lock, which a constructor may hold for minutes: what is not bound yet waits for the next
 * look.
 */
void objects_look(void);

/* Some slots were not bound at the last look. */
bool objects_pending(void);

/* ---- openmp_code.c; control thread ---- */

#define CODE_STUBS_MAX 8

enum code_question {
    CODE_LOOPS = 1, /* are all mentions of the two functions calls of gcc's static loops? */
    CODE_CORES = 2, /* may it call sysconf() for the number of cores? */
    CODE_TEXT = 4   /* has it the name of a variable that holds the number? */
};

/* A function that an object imports, and how its code reaches it. */
struct callee {
    uintptr_t got; /* where its address is; 0: not imported */
    uintptr_t stub[CODE_STUBS_MAX];
    unsigned n;
};

enum reading_pass { PASS_STUBS, PASS_CODE, PASS_TEXT, PASS_MAX };

/* One object that is read, what for, how far, and the answers. */
struct reading {
    unsigned wants; /* enum code_question */
    struct span spans[OBJECT_SPANS_MAX];
    unsigned n_spans;
    struct callee number, id; /* omp_get_num_threads, omp_get_thread_num */
    bool linked;              /* they belong to the procedure linkage table */

    int pass; /* enum reading_pass */
    unsigned span;
    size_t at;

    unsigned numbers, ids; /* calls */
    bool other;            /* something else than such calls */
    bool cores;
    const char *text; /* the variable's name */
    bool unread;      /* it could not be read */
};

/* Reads at most @left bytes, and subtracts them. Returns true when there are more. */
bool reading_goes_on(struct reading *r, size_t *left);

/* The answer to CODE_LOOPS. */
bool reading_only_loops(const struct reading *r);

/* ---- openmp_hooks.c ---- */

/* The functions of libpthread that hooks use; before the first stub is in place. Not on a thread of
 * the program: it takes the loader's lock. Returns false when they are missing. */
bool hooks_prepare(void);

/* Our stub for @entry of the copy at @index. NULL: there is none on this processor. */
void *hooks_stub(unsigned index, enum openmp_entry entry);

/* No region runs with a number of an older generation. Control thread. */
bool hooks_settled(void);
unsigned
hooks_threads(bool known);    /* threads with regions: larger teams may be theirs, or not yet */
void hooks_know(unsigned n);  /* of those not yet */
uint32_t hooks_active(void);  /* threads of the largest region that runs; 0: none */
uint64_t hooks_regions(void); /* top-level regions so far */
void hooks_after_fork(void);
