/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ONNX Runtime backend on the program's threads: what its pools' parallel loops come by. A loop
 * asks for n threads, itself and n - 1 helpers from the pool; the loop's own thread alone would do
 * all of the work, and a helper that comes too late is not waited for. So a smaller n changes who
 * computes what, and nothing else. While there is no limit, a loop costs three atomic additions.
 */
#include "agent/process/number.h"
#include "agent/runtimes/onnx/onnx.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HOT static inline __attribute__((always_inline))

#define NESTED_MAX  4    /* loops of one thread, each within the one before */
#define WORKERS_MAX 4096 /* of a pool: whatever says more is none */

/* ---- the loops that run now ---- */

/* A line of its own, because each loop writes to it. */
static struct {
    _Atomic uint64_t busy;  /* loops (upper half) and their helpers, which change at once */
    _Atomic uint64_t loops; /* so far */
} __attribute__((aligned(64))) all;

#define LOOP          (UINT64_C(1) << 32)
#define LOOPS(word)   ((uint32_t)((word) >> 32))
#define HELPERS(word) ((uint32_t)(word))

/* The calling thread's loops. One that an exception has ended is still in the list. */
static __thread struct {
    struct {
        uintptr_t frame;
        uint32_t helpers;
    } loop[NESTED_MAX];
    unsigned depth;
} me __attribute__((tls_model("initial-exec")));

uint32_t onnx_hooks_helpers(void)
{
    return HELPERS(atomic_load(&all.busy));
}

uint64_t onnx_hooks_loops(void)
{
    return atomic_load_explicit(&all.loops, memory_order_relaxed);
}

bool onnx_hooks_fit(void)
{
    uint32_t limit = onnx_limit();

    return limit == 0 || onnx_hooks_helpers() < limit;
}

__attribute__((noinline, cold)) static void tell(void)
{
    int saved = errno;

    if (onnx_hooks_fit() && atomic_exchange(&onnx.watched, false)) {
        atomic_store(&onnx.placed_ns, clock_now_ns());
        agent_notify();
    }
    errno = saved;
}

HOT void leave(uint32_t helpers)
{
    atomic_fetch_sub(&all.busy, LOOP + helpers);
    if (__builtin_expect(atomic_load(&onnx.watched), 0))
        tell();
}

/* Returns how many helpers the loop has. */
HOT uint32_t enter(uint32_t wanted)
{
    for (;;) {
        uint32_t limit = onnx_limit(), helpers;
        uint64_t before = atomic_load(&all.busy);

        do {
            helpers = onnx_help(limit, LOOPS(before), HELPERS(before), wanted);
        } while (!atomic_compare_exchange_weak(&all.busy, &before, before + LOOP + helpers));
        /* Either this thread sees a new target, or the control thread sees these helpers. */
        if (__builtin_expect(onnx_limit() == limit, 1))
            return helpers;
        leave(helpers);
    }
}

/* Loops of this thread that have not ended, but whose frames are gone from its stack. */
HOT void forget_lost(uintptr_t frame)
{
    while (__builtin_expect(me.depth > 0 && me.loop[me.depth - 1].frame <= frame, 0))
        leave(me.loop[--me.depth].helpers);
}

/* ---- waiting ---- */

/* Each thread that runs loops has helpers of its own; those of others would spin meanwhile. */
static bool leads_alone(void)
{
    void *leader = atomic_load(&onnx.leader);

    if (leader == &me || (!leader && atomic_compare_exchange_strong(&onnx.leader, &leader, &me)))
        return true;
    if (leader != &onnx)
        atomic_store(&onnx.leader, &onnx); /* nobody does */
    return false;
}

__attribute__((noinline, cold)) static void choose_waiting(const struct onnx_copy *copy, void *pool)
{
    const uint32_t *spins = (const uint32_t *)((const char *)pool + copy->spins_at);
    bool alone = leads_alone();
    bool spin = onnx_limit() == 0 || (alone && !atomic_load(&onnx.quiet));

    if (onnx.spins || __atomic_load_n(spins, __ATOMIC_RELAXED) != !spin)
        return;
    atomic_store(&onnx.changed, true);
    (spin ? copy->spin : copy->doze)(pool);
}

/* ---- the stubs of the two virtual functions ---- */

HOT struct onnx_copy *copy_of(const void *pool)
{
    uintptr_t table = *(const uintptr_t *)pool;
    struct onnx_copy *copy = onnx.copies;

    /* It is one of them, since its table has led here. */
    while (atomic_load_explicit(&copy->table, memory_order_relaxed) != table &&
           copy < &onnx.copies[ONNX_COPIES_MAX - 1])
        copy++;
    return copy;
}

__attribute__((noinline, cold)) static bool prove(struct onnx_copy *copy, struct onnx_body *body,
                                                  uint32_t workers)
{
    int saved = errno;
    bool proven = atomic_load(&onnx.may) == ONNX_FREE && workers > 0 && workers < WORKERS_MAX &&
                  onnx_is_loop(copy, body);

    if (proven)
        atomic_store(&copy->proven, true);
    else
        onnx_fix("moldable: an unknown ONNX Runtime");
    errno = saved;
    return proven;
}

/* The child of a fork has made a pool of its own, or no worker would ever help. */
__attribute__((noinline, cold)) static void begin_in_child(void)
{
    if (atomic_exchange(&onnx.forked, false))
        agent_start();
}

/* A loop begins that asks for @n threads. Returns how many it gets. */
HOT unsigned loop_begin(struct onnx_copy *copy, void *pool, struct onnx_body *body, unsigned n,
                        uintptr_t frame)
{
    uint32_t workers = *(const uint32_t *)((const char *)pool + copy->threads_at);
    uint32_t largest = atomic_load_explicit(&onnx.largest, memory_order_relaxed), helpers;

    if (__builtin_expect(!atomic_load_explicit(&copy->proven, memory_order_relaxed), 0) &&
        !prove(copy, body, workers))
        return n;
    if (__builtin_expect(atomic_load_explicit(&onnx.forked, memory_order_relaxed), 0))
        begin_in_child();
    forget_lost(frame);
    if (n == 0 || n > workers + 1 || me.depth == NESTED_MAX)
        return n; /* theirs to complain about, or to do as without us */
    while (__builtin_expect(workers + 1 > largest, 0) &&
           !atomic_compare_exchange_weak(&onnx.largest, &largest, workers + 1))
        ;
    helpers = enter(n - 1);
    me.loop[me.depth].frame = frame;
    me.loop[me.depth++].helpers = helpers;
    atomic_fetch_add_explicit(&all.loops, 1, memory_order_relaxed);
    if (__builtin_expect(atomic_load(&onnx.changed) || onnx_limit(), 0))
        choose_waiting(copy, pool);
    return 1 + helpers;
}

HOT void loop_end(const struct onnx_copy *copy, void *pool, uintptr_t frame)
{
    if (me.depth == 0 || me.loop[me.depth - 1].frame != frame)
        return;
    leave(me.loop[--me.depth].helpers);
    if (__builtin_expect(atomic_load_explicit(&onnx.quiet, memory_order_relaxed), 0))
        choose_waiting(copy, pool);
}

void onnx_run(void *pool, struct onnx_body *body, unsigned n, ptrdiff_t block)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    struct onnx_copy *copy = copy_of(pool);

    copy->run(pool, body, loop_begin(copy, pool, body, n, frame), block);
    loop_end(copy, pool, frame);
}

void onnx_run_more(void *pool, void *section, struct onnx_body *body, unsigned n, ptrdiff_t block)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    struct onnx_copy *copy = copy_of(pool);

    copy->run_more(pool, section, body, loop_begin(copy, pool, body, n, frame), block);
    loop_end(copy, pool, frame);
}

/* ---- when a pool is made ---- */

/* A size that tide chose is where the pool begins, and it is made so large that it can grow. */
char *onnx_getenv(const char *name)
{
    int saved = errno;
    bool by_user = true;
    uint32_t size = strcmp(name, ONNX_SIZE) == 0 ? number_of_variable(name, &by_user) : 0;

    errno = saved;
    if (size == 0 || by_user || size >= agent_config.max || atomic_load(&onnx.may) != ONNX_FREE)
        return getenv(name);
    atomic_store(&onnx.own, size);
    return onnx.most;
}

/* A worker binds itself to a core. All programs would take the same ones; a daemon shares them. */
int onnx_set_affinity(pthread_t thread, size_t size, const cpu_set_t *set)
{
    if (agent_config.socket || !onnx.set_affinity)
        return 0;
    return onnx.set_affinity(thread, size, set);
}

void onnx_hooks_after_fork(void)
{
    atomic_store(&all.busy, 0);
    me.depth = 0;
}
