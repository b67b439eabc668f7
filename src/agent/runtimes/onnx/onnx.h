/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the parts of the ONNX Runtime backend. docs/design/56-onnxruntime.md says why.
 *
 *   the library is loaded -> onnx.c: onnx_class.c finds the class of its thread pools, and two
 *   entries in the table of that class's virtual functions get the stubs of onnx_hooks.c
 *   -> each parallel loop comes by a stub, which says with how many threads it runs
 */
#pragma once

#include "agent/agent.h"

#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define ONNX_COPIES_MAX 4 /* of the library, in one process */
#define ONNX_SIZE       "ORT_INTRA_OP_NUM_THREADS"

/* std::function<void(unsigned)> of libstdc++. */
struct onnx_body {
    void *data[2];
    bool (*manage)(void *to, const void *from, int operation);
    void (*invoke)(const void *data, const unsigned *index);
};

typedef void (*onnx_run_fn)(void *pool, struct onnx_body *body, unsigned n, ptrdiff_t block);
typedef void (*onnx_section_fn)(void *pool, void *section, struct onnx_body *body, unsigned n,
                                ptrdiff_t block);

/* A loaded library. Its pools have one class, which keeps it loaded while our stubs are in use. */
struct onnx_copy {
    uintptr_t start, end;     /* 0: free */
    _Atomic uintptr_t table;  /* the virtual functions of the class; its pools point to it */
    onnx_run_fn run;          /* what the table held: a loop, by itself … */
    onnx_section_fn run_more; /* … and in a section, whose helpers stay for further loops */
    void (*spin)(void *pool); /* workers without work look for it for a while, as they are made */
    void (*doze)(void *pool); /* … or sleep at once */
    uint32_t threads_at;      /* where a pool has its number of workers */
    uint32_t spins_at;        /* … and whether they spin */
    _Atomic bool proven;      /* a loop came by a stub, and was one */
};

/* Places in the table of virtual functions. */
enum onnx_function {
    ONNX_NUM_THREADS = 3,
    ONNX_RUN_MORE = 9,
    ONNX_RUN = 10,
    ONNX_SPIN = 13,
    ONNX_DOZE = 14,
    ONNX_FUNCTION_MAX
};

enum onnx_may {
    ONNX_UNSEEN,  /* not here */
    ONNX_FREE,    /* its stubs are in place */
    ONNX_JUDGING, /* a thread writes the note */
    ONNX_FIXED,   /* moldable for good, and the note says why */
    ONNX_MAY_MAX
};

struct onnx_state {
    struct onnx_copy copies[ONNX_COPIES_MAX];
    _Atomic int may;
    _Atomic uint32_t target;  /* 0: none */
    _Atomic uint32_t own;     /* threads without a target; 0: as many as a pool has */
    _Atomic uint32_t largest; /* pool so far, its caller included; 0: none yet */
    _Atomic bool has_library; /* with the C API */
    _Atomic bool in_python;   /* the module of Python, which knows the version */
    _Atomic bool quiet;       /* for a moment nobody spins, since fewer threads are wanted */
    _Atomic bool changed;     /* some pool's workers were told not to spin */
    _Atomic(void *) leader;   /* the one thread that has run loops since the last change */
    _Atomic bool watched;     /* the control thread waits until fewer helpers are at work */
    _Atomic uint64_t placed_ns;
    _Atomic bool forked; /* the child of a fork, in which the agent does not run yet */
    bool spins;          /* the user wants threads to spin as they like */
    int (*set_affinity)(pthread_t thread, size_t size, const cpu_set_t *set);
    char most[16]; /* agent_config.max, as text */
    char note[PROTO_NOTE_MAX];
};

extern struct onnx_state onnx;

/* The most threads that loops have together; 0: as many as they like. Any thread. */
static inline uint32_t onnx_limit(void)
{
    uint32_t target = atomic_load(&onnx.target);
    uint32_t limit = target ? target : atomic_load(&onnx.own);

    return atomic_load(&onnx.may) == ONNX_FREE && limit < atomic_load(&onnx.largest) ? limit : 0;
}

/*
 * How many of @wanted helpers a loop that begins may have, where @loops run already, with @helpers.
 * The threads that run the loops are the program's and count first. Pure.
 */
static inline uint32_t onnx_help(uint32_t limit, uint32_t loops, uint32_t helpers, uint32_t wanted)
{
    uint32_t active = loops + 1 + helpers;
    uint32_t room = limit > active ? limit - active : 0;

    return limit == 0 || wanted < room ? wanted : room;
}

/* From now on loops have the threads that they ask for. Any thread; the first note stays. */
void onnx_fix(const char *note);

/* ---- onnx.c ---- */

/* The library with the C API, and it has been loaded: our stubs for loops are in it. */
bool onnx_is_library(const struct object *o);

/* ---- onnx_class.c ---- */

/*
 * Finds the class of the thread pools in a loaded object, and fills in all of @ret but the first
 * two members and the last. Returns false when there is none, or not the one that we know. Any
 * thread, also in the middle of a load.
 */
bool onnx_find_class(const struct dl_phdr_info *info, struct onnx_copy *ret);

/* The address of the entry for @function. */
uintptr_t onnx_entry(const struct onnx_copy *copy, enum onnx_function function);

/* Places in OrtApi, which only grows (onnxruntime_c_api.h). */
enum onnx_api {
    ONNX_API_RUN = 9,
    ONNX_API_RUN_BOUND = 133,
    ONNX_API_RUN_ASYNC = 260,
    ONNX_API_MAX
};

/*
 * The table of functions that programs in C, C++, Java and others call; 0: there is none, or it is
 * not as expected. Control thread; @o has been loaded.
 */
uintptr_t onnx_find_api(const struct dl_phdr_info *info, const struct object *o);

/* All of its functions are the library's own. */
bool onnx_api_is_stock(const struct dl_phdr_info *info, uintptr_t table);

/* True if @body is what the pools' own parallel loops run. */
bool onnx_is_loop(const struct onnx_copy *copy, const struct onnx_body *body);

/* ---- onnx_calls.c ---- */

/* Sees to it that calls from Python and those of the C API are seen where they are wanted. Control
 * thread. */
void onnx_calls_watch(void);
void onnx_calls_after_fork(void);

/* ---- onnx_hooks.c ---- */

/* The two entries get this. */
void onnx_run(void *pool, struct onnx_body *body, unsigned n, ptrdiff_t block);
void onnx_run_more(void *pool, void *section, struct onnx_body *body, unsigned n, ptrdiff_t block);

/* The library calls these instead of getenv() and pthread_setaffinity_np(). */
char *onnx_getenv(const char *name);
int onnx_set_affinity(pthread_t thread, size_t size, const cpu_set_t *set);

/* No more helpers are at work than may be. Any thread. */
bool onnx_hooks_fit(void);
uint32_t onnx_hooks_helpers(void);
uint64_t onnx_hooks_loops(void); /* so far */
void onnx_hooks_after_fork(void);
