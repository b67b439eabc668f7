/* SPDX-License-Identifier: Apache-2.0 */
#include "explore.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define STACK_BYTES 16384
#define CLEAR_BYTES 1536 /* below a stack's end: leftovers of earlier calls are no state */
#define REGIONS_MAX 12
#define DEPTH_MAX   20000
#ifndef TABLE_BITS
#define TABLE_BITS 25
#endif
#define STATE_BYTES (EXPLORE_THREADS * STACK_BYTES)

struct thread {
    const char *name;
    void (*run)(void *arg);
    void *arg;
    void *jump[5];                  /* where it goes on */
    bool (*ready)(const void *arg); /* NULL: always */
    const void *ready_arg;
    const char *what; /* the step that it is about to take */
    unsigned n_choices;
    unsigned choice;
    bool ended;
};

struct run {
    unsigned last; /* thread that ran */
    unsigned left; /* preemptions that may still happen */
};

struct step {
    unsigned char *state; /* before it */
    size_t size;
    struct run run;
    unsigned thread; /* to try next */
    unsigned choice;
    unsigned took_thread;
    unsigned took_choice;
    const char *what;
};

static struct {
    struct thread thread[EXPLORE_THREADS];
    unsigned n_threads;
    int self;
    void *jump[5];
    ucontext_t begin;
    struct {
        unsigned char *at;
        size_t size;
    } region[REGIONS_MAX];
    unsigned n_regions;
    const char *failed;
    struct run run;
    struct step *path;
    unsigned depth;
    uint64_t *seen;
    unsigned long n_seen;
} x = {.self = -1};

static unsigned char stacks[EXPLORE_THREADS][STACK_BYTES] __attribute__((aligned(64)));

/* ---- threads ---- */

/* The used part of a stack, rounded to words. */
static size_t stack_used(unsigned i)
{
    size_t top = (size_t)(stacks[i] + STACK_BYTES);
    size_t sp = (size_t)x.thread[i].jump[2] & ~(size_t)7;

    return x.thread[i].ended ? 0 : top - sp;
}

__attribute__((noipa)) static void leave(void)
{
    __builtin_longjmp(x.jump, 1);
}

__attribute__((noipa)) static void pause_here(struct thread *t)
{
    if (__builtin_setjmp(t->jump) == 0)
        leave();
}

static void announce(const char *what, bool (*ready)(const void *), const void *arg, unsigned n)
{
    struct thread *t = &x.thread[x.self];

    t->what = what;
    t->ready = ready;
    t->ready_arg = arg;
    t->n_choices = n;
    pause_here(t);
    t->ready = NULL;
    t->ready_arg = NULL;
}

void explore_step(const char *what)
{
    if (x.self >= 0)
        announce(what, NULL, NULL, 1);
}

void explore_wait(const char *what, bool (*ready)(const void *arg), const void *arg)
{
    if (x.self >= 0)
        announce(what, ready, arg, 1);
}

unsigned explore_choose(const char *what, unsigned n)
{
    unsigned choice;

    if (x.self < 0)
        return 0;
    announce(what, NULL, NULL, n);
    choice = x.thread[x.self].choice;
    x.thread[x.self].choice = 0;
    return choice;
}

void explore_fail(const char *what)
{
    if (!x.failed)
        x.failed = what;
}

int explore_self(void)
{
    return x.self;
}

bool explore_ended(unsigned thread)
{
    return x.thread[thread].ended;
}

static void thread_main(void)
{
    struct thread *t = &x.thread[x.self];

    announce("begins", NULL, NULL, 1);
    t->run(t->arg);
    t->ended = true;
    t->what = "has ended";
    leave();
}

__attribute__((noipa)) static void go_on(struct thread *t)
{
    __builtin_longjmp(t->jump, 1);
}

static void run_thread(unsigned i, void (*swap)(unsigned, bool))
{
    size_t used = stack_used(i);

    memset(stacks[i] + STACK_BYTES - used - CLEAR_BYTES, 0, CLEAR_BYTES);
    x.self = (int)i;
    if (swap)
        swap(i, true);
    if (__builtin_setjmp(x.jump) == 0)
        go_on(&x.thread[i]);
    i = (unsigned)x.self;
    if (swap)
        swap(i, false);
    x.self = -1;
}

__attribute__((noipa)) static void first_run(unsigned i)
{
    ucontext_t context;

    getcontext(&context);
    context.uc_stack.ss_sp = stacks[i];
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, thread_main, 0);
    x.self = (int)i;
    if (__builtin_setjmp(x.jump) == 0)
        setcontext(&context);
    x.self = -1;
}

/* ---- states ---- */

static size_t state_save(unsigned char *to)
{
    unsigned char *at = to;

    memcpy(at, x.thread, sizeof(x.thread));
    at += sizeof(x.thread);
    for (unsigned i = 0; i < x.n_regions; i++) {
        memcpy(at, x.region[i].at, x.region[i].size);
        at += x.region[i].size;
    }
    for (unsigned i = 0; i < x.n_threads; i++) {
        size_t used = stack_used(i);

        memcpy(at, stacks[i] + STACK_BYTES - used, used);
        at += used;
    }
    while ((size_t)(at - to) % 8)
        *at++ = 0;
    return (size_t)(at - to);
}

static void state_load(const unsigned char *at)
{
    memcpy(x.thread, at, sizeof(x.thread));
    at += sizeof(x.thread);
    for (unsigned i = 0; i < x.n_regions; i++) {
        memcpy(x.region[i].at, at, x.region[i].size);
        at += x.region[i].size;
    }
    for (unsigned i = 0; i < x.n_threads; i++) {
        size_t used = stack_used(i);

        memcpy(stacks[i] + STACK_BYTES - used, at, used);
        at += used;
    }
}

static uint64_t state_hash(const unsigned char *state, size_t size)
{
    uint64_t a = 0x9e3779b97f4a7c15ull ^ size;
    uint64_t b = 0xc2b2ae3d27d4eb4full;

    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word;

        memcpy(&word, state + i, 8);
        a = (a ^ word) * 0xff51afd7ed558ccdull;
        a ^= a >> 32;
        b = (b + word) * 0xc4ceb9fe1a85ec53ull;
        b ^= b >> 29;
    }
    a ^= b * 0x9e3779b97f4a7c15ull;
    a ^= a >> 31;
    return a ? a : 1;
}

/* Returns false when the state is in the table already. */
static bool state_new(uint64_t hash)
{
    uint64_t mask = (1ull << TABLE_BITS) - 1;

    for (uint64_t i = hash & mask;; i = (i + 1) & mask) {
        if (x.seen[i] == hash)
            return false;
        if (x.seen[i] == 0) {
            x.seen[i] = hash;
            if (++x.n_seen > mask - mask / 4)
                explore_fail("more states than the table holds");
            return true;
        }
    }
}

/* Without a bound it does not matter which way led to a state. */
static uint64_t run_hash(unsigned bound)
{
    return bound == EXPLORE_ALL
               ? 0
               : (x.run.last + 1) * 0x9e3779b97f4a7c15ull + x.run.left * 0xd6e8feb86659fd93ull;
}

/* ---- the search ---- */

static void report_failure(void)
{
    fprintf(stderr, "failed: %s\n", x.failed);
    for (unsigned i = 0; i < x.depth; i++)
        if (x.path[i].what)
            fprintf(stderr, "%4u  %-10s %s (%u)\n", i, x.thread[x.path[i].took_thread].name,
                    x.path[i].what, x.path[i].took_choice);
    for (unsigned i = 0; i < x.n_threads; i++)
        fprintf(stderr, "      %-10s %s\n", x.thread[i].name, x.thread[i].what);
}

static bool enabled(const struct thread *t)
{
    return !t->ended && (!t->ready || t->ready(t->ready_arg));
}

static void push(unsigned char *scratch, size_t size)
{
    struct step *s = &x.path[x.depth++];

    *s = (struct step){.state = malloc(size), .size = size, .run = x.run};
    memcpy(s->state, scratch, size);
}

/* Chooses the next transition of the loaded state on top. Returns false: none is left. */
static bool next_transition(struct step *s)
{
    bool preempts = enabled(&x.thread[s->run.last]);

    for (; s->thread < x.n_threads; s->thread++, s->choice = 0) {
        struct thread *t = &x.thread[s->thread];

        if (!enabled(t) || s->choice >= t->n_choices ||
            (preempts && s->thread != s->run.last && s->run.left == 0))
            continue;
        x.run = (struct run){s->thread, s->run.left - (preempts && s->thread != s->run.last)};
        t->choice = s->choice;
        s->took_thread = s->thread;
        s->took_choice = s->choice++;
        s->what = t->what;
        return true;
    }
    return false;
}

static void check_end(const char *(*end)(void), struct explore_result *result)
{
    const char *wrong;

    for (unsigned i = 0; i < x.n_threads; i++)
        if (enabled(&x.thread[i]))
            return;
    result->ends++;
    wrong = end();
    if (wrong)
        explore_fail(wrong);
}

bool explore_run(unsigned bound, void (*swap)(unsigned thread, bool in), const char *(*end)(void),
                 struct explore_result *ret_result)
{
    struct explore_result result = {0};
    unsigned char *scratch = malloc(STATE_BYTES);
    size_t size;

    x.path = calloc(DEPTH_MAX, sizeof(*x.path));
    x.seen = calloc(1ull << TABLE_BITS, sizeof(*x.seen));
    if (!scratch || !x.path || !x.seen)
        abort();
    x.run.left = bound;
    for (unsigned i = 0; i < x.n_threads; i++)
        first_run(i);
    size = state_save(scratch);
    state_new(state_hash(scratch, size));
    push(scratch, size);
    while (x.depth > 0 && !x.failed) {
        struct step *s = &x.path[x.depth - 1];

        state_load(s->state);
        if (!next_transition(s)) {
            free(s->state);
            x.depth--;
            continue;
        }
        result.steps++;
        run_thread(s->took_thread, swap);
        size = state_save(scratch);
        if (x.failed || !state_new(state_hash(scratch, size) ^ run_hash(bound)))
            continue;
        check_end(end, &result);
        if (x.depth == DEPTH_MAX)
            explore_fail("a run without an end");
        else
            push(scratch, size);
    }
    result.states = x.n_seen;
    if (x.failed)
        report_failure();
    *ret_result = result;
    free(scratch);
    free(x.seen);
    return !x.failed;
}

void explore_memory(void *at, size_t size)
{
    if (x.n_regions == REGIONS_MAX)
        abort();
    x.region[x.n_regions].at = at;
    x.region[x.n_regions++].size = size;
}

void explore_thread(const char *name, void (*run)(void *arg), void *arg)
{
    if (x.n_threads == EXPLORE_THREADS)
        abort();
    x.thread[x.n_threads++] = (struct thread){.name = name, .run = run, .arg = arg};
}
