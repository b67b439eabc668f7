/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs real C code in every interleaving of a few threads.
 *
 * Threads are coroutines of one process. Each announces the step that it is about to take and
 * returns to the explorer, which takes every enabled thread in turn: depth first, from a copy of
 * the whole state (the memory that was registered, and the used part of every stack), and never
 * twice from the same state. A state is kept as a hash of 64 bits.
 *
 * The exploration is exhaustive for what a scenario does. A scenario that has too many states for
 * that is explored for every place of at most so many preemptions (a thread that could go on has to
 * wait): errors need few. It ends at a state in which no thread can go on; explore_run() then asks
 * the scenario whether that is a proper end. Endless loops that visit new states are cut by
 * DEPTH_MAX, which is a failure, too.
 *
 * Memory model: sequentially consistent. Which values a relaxed load may return beside the newest
 * is the scenario's business (explore_choose). On x86 that is all there is: a sequentially
 * consistent store drains the store buffer, and the gate has no other stores that matter.
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

void explore_memory(void *at, size_t size); /* belongs to the state */
void explore_thread(const char *name, void (*run)(void *arg), void *arg);

/*
 * Explores. @bound: preemptions, or EXPLORE_ALL. @swap: a thread comes (@in) or goes: save or load
 * what is thread-local. @end: NULL when this is how it may end, else what is wrong. Prints the way
 * to a failure to stderr; returns false then.
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
