/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runtime's number of threads that changes at safe points of Python's main thread alone, where
 * the program could change it itself: what the backends of PyTorch and XGBoost have in common.
 *
 *   control thread: target, or a library that shares the runtime -> wanted -> asks for a safe point
 *   main thread:    at_safe_point() of the backend -> reads and sets the number -> placed
 *
 * threadpoolctl asks OpenMP for the number through ctypes, sets another, and later puts back what
 * it was told. On the main thread it is told the program's own number, not the target's, so that it
 * puts back no old target.
 */
#pragma once

#include "agent/agent.h"
#include "agent/process/objects.h"

#include <stdatomic.h>

enum safe_number_may {
    NUMBER_UNSEEN,  /* the runtime is not here, or not looked at yet */
    NUMBER_FREE,    /* may change at safe points */
    NUMBER_JUDGING, /* a thread writes the note */
    NUMBER_FIXED,   /* moldable for good, and the note says why */
    NUMBER_MAY_MAX
};

struct safe_number {
    const char *name;  /* of the backend */
    const char *whose; /* OpenMP a library shares, for the note */

    /* Python's main thread. Returns true once the number that is wanted is in place. */
    bool (*at_safe_point)(void);
    /* Is a main thread that sleeps long outside of the runtime, so that it comes to a safe point
     * before it enters it again? NULL: always. Control thread. */
    bool (*sleeper_is_safe)(void);
    /* Does @o use the runtime's copy of OpenMP, and may build on the number that it meets? */
    bool (*shares)(const struct object *o);

    char version[PROTO_SHORT_MAX];
    char note[PROTO_NOTE_MAX];
    _Atomic int may;
    _Atomic bool asked;       /* for a safe point */
    _Atomic bool theirs;      /* a library has set another number for the moment */
    _Atomic bool sleeps;      /* the main thread takes what is wanted before it works again */
    _Atomic bool elsewhere;   /* other threads use it, too, with numbers of their own */
    _Atomic bool forked;      /* the child of a fork, in which the agent does not run */
    _Atomic uint32_t own;     /* the main thread's number for the program; 0: not known yet */
    _Atomic uint32_t sized;   /* the user's or the program's choice: never more; 0: none */
    _Atomic uint32_t ours;    /* the number that it was given */
    _Atomic uint32_t held;    /* … and that it had at the last safe point */
    _Atomic uint32_t limit;   /* set through ctypes, until the own number is put back; 0: none */
    _Atomic uint32_t target;  /* 0: none */
    _Atomic uint32_t allowed; /* threads for the process's CPUs and quota; 0: not known yet */
    _Atomic uint32_t room;    /* threads for which limits leave room; 0: not looked at yet */
    _Atomic uint64_t loads;   /* objects loaded when all had been looked at; 0: not all */
    _Atomic uint64_t wanted;  /* grows with each change of what is asked for */
    _Atomic uint64_t placed;  /* … and what the main thread has last taken */
    _Atomic uint64_t placed_ns;
};

/* The number that the main thread is to have. Any thread. */
uint32_t safe_number_wanted(const struct safe_number *n);

/* Fixes it where Python has no GIL, and so no safe points. Returns whether it has none. Control
 * thread, before anything of the program is changed. */
bool safe_number_lacks_gil(struct safe_number *n);

/* From now on targets count, unless it is fixed. Control thread. */
void safe_number_free(struct safe_number *n);

/* From now on it is the program's own number. Any thread; the first note stays. */
void safe_number_fix(struct safe_number *n, const char *note);

/* Fixes it if @o shares its OpenMP. Any thread. */
void safe_number_meet(struct safe_number *n, const struct object *o);

/*
 * Looks at what has been loaded since the last look, while it is free. A number of ours is only
 * set when all is looked at: safe_number_all_seen(). Control thread.
 */
void safe_number_look(struct safe_number *n);
bool safe_number_all_seen(const struct safe_number *n);

/*
 * For the functions that ctypes gets, on the main thread: what the program is told where the
 * runtime holds @held, and what the runtime is to hold where the program sets @number.
 */
uint32_t safe_number_told(const struct safe_number *n, uint32_t held);
uint32_t safe_number_given(struct safe_number *n, uint32_t number);

/* The rest is for the backend's entries of the same names. */
bool safe_number_apply(struct safe_number *n, const struct agent_target *target);
bool safe_number_settled(struct safe_number *n);
void safe_number_watch(struct safe_number *n);
bool safe_number_describe(const struct safe_number *n, struct proto_backend *b);
void safe_number_after_fork(struct safe_number *n);
