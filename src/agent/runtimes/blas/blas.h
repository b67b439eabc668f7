/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part that the backends of BLAS libraries share (OpenBLAS, MKL, BLIS).
 *
 *   OpenBLAS: a call reads a variable      -> the control thread writes the target there
 *   MKL, BLIS: a call asks for the number  -> our stub in the library's own slot answers
 */
#pragma once

#include "agent/agent.h"
#include "agent/process/objects.h"

#include <stdatomic.h>
#include <string.h>

/*
 * Libraries that compute with threads of their own: where one is, a BLAS's are no measure of the
 * process. Looks at what has been loaded since the last time. Control thread, once
 * objects_watch_forks() has been called.
 */
void blas_look_beside(void);

/* Returns false where @b is not to be shown, as the last look has found. @told: it has been, so
 * that it has to be taken back. Any thread. */
bool blas_shows(_Atomic bool *told, struct proto_backend *b);

/* The largest number above 0 that one of these variables, up to a NULL, is the first to have; 0. */
uint32_t blas_variable(const char *const *names);

/* Whether the user has chosen that number: it is no size that tide set for the start. */
bool blas_chosen(const char *const *names);

enum blas_may {
    BLAS_FREE,    /* each call has the number that we answer */
    BLAS_JUDGING, /* a thread writes the note */
    BLAS_FIXED,   /* moldable for good, and the note says why */
    BLAS_MAY_MAX
};

/* A library that asks for its number. A call never gets more than the program's own number. */
struct blas_asks {
    const char *name; /* of the backend */
    char version[PROTO_SHORT_MAX];
    char note[PROTO_NOTE_MAX];
    _Atomic int may;         /* enum blas_may */
    _Atomic bool further;    /* there is a copy that keeps its number, beside one that follows */
    _Atomic bool begun;      /* the agent runs because of it */
    _Atomic bool told;       /* it has been shown */
    _Atomic uint32_t most;   /* the largest number that the program has had; 0: none yet */
    _Atomic uint32_t target; /* 0: none */
    _Atomic uint64_t placed_ns;
};

/* Starts the agent. A thread of the program; keeps errno. */
void blas_begin(struct blas_asks *b);

/* A call has the number @own without us: 2 or more. The first one starts the agent. Any thread;
 * keeps errno. */
void blas_meet(struct blas_asks *b, uint32_t own);

/* It keeps its number @most from now on; the first note stays. Starts the agent if that is 2 or
 * more. A thread of the program; keeps errno. Do not call it once calls have been answered. */
void blas_fix(struct blas_asks *b, const char *note, uint32_t most);

/* The number for a call that begins now and had @own. Any thread. */
static inline uint32_t blas_limited(const struct blas_asks *b, uint32_t own)
{
    uint32_t target = atomic_load_explicit(&b->target, memory_order_relaxed);

    return target && target < own ? target : own;
}

static inline bool blas_begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The rest is for the backend's entries of the same names. */
bool blas_asks_apply(struct blas_asks *b, const struct agent_target *target);
bool blas_asks_settled(void);
void blas_asks_watch(const struct blas_asks *b);
void blas_asks_measure(const struct blas_asks *b, struct proto_ack *ack);
bool blas_asks_describe(struct blas_asks *b, struct proto_backend *ret);
uint64_t blas_asks_tasks(void);
void blas_asks_after_fork(struct blas_asks *b);
