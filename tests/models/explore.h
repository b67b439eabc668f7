/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs real C code in every interleaving of a few threads.
 *
 * Threads are coroutines of one process. Each announces the step that it is about to take and
 * returns to the explorer. The explorer runs every enabled thread in turn: depth first, from a copy
 * of the whole state (the registered memory and the used part of every stack), and never twice from
 * the same state. It remembers a state as a hash of 64 bits.
 *
 * The exploration is exhaustive for a scenario. If that has too many states, it tries every place
 * of a bounded number of preemptions (a thread that could go on has to wait), because most errors
 * need few. A run ends at a state in which no thread can go on; explore_run() then asks the
 * scenario whether that is a proper end. DEPTH_MAX cuts endless loops that visit new states; that
 * is a failure, too.
 *
 * The memory model is sequentially consistent. The scenario chooses which older values a relaxed
 * load may return (explore_choose). For x86 that suffices: a sequentially consistent store drains
 * the store buffer, and the gate has no other stores that matter.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define EXPLORE_THREADS 6
#define EXPLORE_ALL     (~0u)

struct explore_result {
    unsigned long states;
    unsigned long steps;
    unsigned long ends;
};

/* ---- before explore_run() ---- */

void explore_memory(void *at, size_t size); /* adds it to the state */
void explore_thread(const char *name, void (*run)(void *arg), void *arg);

/*
 * Explores. @bound: preemptions, or EXPLORE_ALL. @swap loads (@in) or saves the thread-local
 * variables of a thread. @end returns NULL for a proper end, else what is wrong. At a failure
 * prints the steps that led to it to stderr and returns false.
 */
bool explore_run(unsigned bound, void (*swap)(unsigned thread, bool in), const char *(*end)(void),
                 struct explore_result *ret_result);

/* ---- in threads; outside of them they do nothing and choose 0 ---- */

void explore_step(const char *what); /* others may go first */
void explore_wait(const char *what, bool (*ready)(const void *arg), const void *arg);
unsigned explore_choose(const char *what, unsigned n); /* every value below @n is tried */
void explore_fail(const char *what);
int explore_self(void); /* -1: outside */
bool explore_ended(unsigned thread);
