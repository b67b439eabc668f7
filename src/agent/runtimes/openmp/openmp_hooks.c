/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenMP backend's stubs: what an object's slot holds instead of an entry of a runtime. There
 * is one for each copy and entry, so it needs to know neither its caller nor the loader: it calls
 * what the slot has held. Before a top-level region without num_threads(n) it says a number, as the
 * clause would: libgomp's entries have a parameter for it, libomp has a function.
 *
 * While nothing changes, a region costs two calls into the runtime, two writes to a line of the
 * thread's own, and no system call. The ordering of these writes against a new target is paid by
 * the control thread (membarrier), or, on kernels before 4.14, by the region (a fence).
 */
#include "agent/compat.h"
#include "agent/process/objects.h"
#include "agent/processor.h"
#include "agent/runtimes/openmp/openmp.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#define THREADS                                                                                    \
    256 /* of the program, with regions of their own; further ones have stock's number */
#define HOT static inline __attribute__((always_inline))

/* ---- the program's threads ---- */

/* A line of its own for each thread, because the thread writes to it before each region. */
struct slot {
    _Atomic uint64_t turns; /* entries to regions and exits: inside while it is odd */
    _Atomic uint32_t
        generation; /* … and what its regions follow; the rest is written when it changes */
    _Atomic uint32_t threads;
    _Atomic uint8_t copy;
    _Atomic bool used;
    _Atomic bool known; /* to the control thread: there is room for larger teams than stock's */
} __attribute__((aligned(64)));

static struct slot slots[THREADS];
static struct slot no_slot = {.turns = 1};
#define NO_SLOT (&no_slot)
static _Atomic unsigned slots_used; /* high-water mark */
static pthread_key_t ends;

static int (*set_specific)(pthread_key_t, const void *);

static __thread struct {
    struct slot *slot;
    struct number_wish wish; /* of the slot's generation */
} me __attribute__((tls_model("initial-exec")));

static void slot_release(void *arg)
{
    struct slot *slot = arg;

    if (me.slot != slot)
        return; /* the parent's, in the child of a fork */
    atomic_fetch_add(&openmp.regions, atomic_load(&slot->turns) / 2);
    atomic_store(&slot->turns, 0);
    me.slot = NO_SLOT; /* destructors behind ours may have regions, too */
    atomic_store(&slot->used, false);
}

bool hooks_prepare(void)
{
    typedef int (*key_create_fn)(pthread_key_t *, void (*)(void *));
    key_create_fn create = (key_create_fn)dlsym(RTLD_DEFAULT, "pthread_key_create");

    set_specific = (int (*)(pthread_key_t, const void *))dlsym(RTLD_DEFAULT, "pthread_setspecific");
    return create && set_specific && create(&ends, slot_release) == 0;
}

__attribute__((noinline, cold)) static struct slot *slot_claim(void)
{
    me.slot = NO_SLOT;
    for (unsigned i = 0; i < THREADS; i++) {
        bool free = false;
        unsigned used = atomic_load(&slots_used);

        if (!atomic_compare_exchange_strong(&slots[i].used, &free, true))
            continue;
        atomic_store(&slots[i].known, false);
        atomic_store(&slots[i].generation, 0);
        if (set_specific(ends, &slots[i]) != 0) {
            atomic_store(&slots[i].used, false);
            break;
        }
        while (used < i + 1 && !atomic_compare_exchange_weak(&slots_used, &used, i + 1))
            ;
        me.slot = &slots[i];
        break;
    }
    return me.slot;
}

/* The next region of this thread begins under the newest target. */
__attribute__((noinline, cold)) static void renew(struct slot *slot, uint32_t generation)
{
    int saved = errno;

    if (generation == OPENMP_FORKED) {
        agent_start();
    } else {
        me.wish = openmp.wish;
        me.wish.target = atomic_load(&openmp.give);
        if (!atomic_load(&slot->known))
            me.wish.machine = 0;
        me.wish.limit = atomic_load(&openmp.limit);
        atomic_store(&openmp.placed_ns, clock_now_ns());
    }
    atomic_store(&slot->generation, generation);
    if (generation != OPENMP_FORKED && atomic_load(&openmp.watched))
        agent_notify();
    errno = saved;
}

/* Says a number for the region in @threads, if its code does not and it is to have another than the
 * runtime's own. Returns how many threads it gets; 0: not known. */
HOT unsigned number_for(struct copy *copy, unsigned *threads)
{
    int may = atomic_load_explicit(&copy->may, memory_order_relaxed);
    unsigned held, want;

    if (*threads || may == OPENMP_NEVER)
        return *threads;
    held = (unsigned)copy->get_max();
    if (may != OPENMP_FREE)
        return held;
    want = thread_number(held, &me.wish);
    /* A new object may have asked for the number already. */
    if (__builtin_expect(want == held, 1) || atomic_load(&openmp.loads) != objects_loaded())
        return held;
    return *threads = want;
}

/* A region begins. Returns the thread's slot; NULL: it is not top-level. @threads: its number, as
 * above. */
HOT struct slot *region_begin(struct copy *copy, unsigned *threads)
{
    struct slot *slot = me.slot;
    uint8_t index = (uint8_t)(copy - openmp.copies);
    uint32_t generation, gets;
    uint64_t turns;

    if (__builtin_expect(!slot, 0))
        slot = slot_claim();
    turns = atomic_load_explicit(&slot->turns, memory_order_relaxed);
    if (turns & 1 || copy->level() > 0) /* odd, too, in NO_SLOT */
        return NULL;
    if (__builtin_expect(atomic_load_explicit(&slot->copy, memory_order_relaxed) != index, 0))
        atomic_store(&slot->copy, index);
    /* Either this thread sees the new generation, or the control thread sees the old region. */
    atomic_store_explicit(&slot->turns, turns + 1, memory_order_release);
    if (__builtin_expect(atomic_load_explicit(&openmp.fences, memory_order_relaxed), 0))
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);
    generation = atomic_load_explicit(&openmp.generation, memory_order_acquire);
    if (__builtin_expect(
            generation != atomic_load_explicit(&slot->generation, memory_order_relaxed), 0))
        renew(slot, generation);
    if (__builtin_expect(!atomic_load_explicit(&copy->begun, memory_order_relaxed), 0))
        atomic_store(&copy->begun, true);
    gets = number_for(copy, threads);
    if (__builtin_expect(atomic_load_explicit(&slot->threads, memory_order_relaxed) != gets, 0))
        atomic_store_explicit(&slot->threads, gets, memory_order_relaxed);
    return slot;
}

__attribute__((noinline, cold)) static void region_left(void)
{
    int saved = errno;

    atomic_store(&openmp.placed_ns, clock_now_ns());
    agent_notify();
    errno = saved;
}

HOT void region_end(struct slot *slot)
{
    if (!slot || me.slot != slot)
        return; /* not top-level; or the child of a fork within the region */
    atomic_store_explicit(&slot->turns,
                          atomic_load_explicit(&slot->turns, memory_order_relaxed) + 1,
                          memory_order_release);
    /* The control thread's next tick finds what it misses in this moment. */
    if (__builtin_expect(atomic_load_explicit(&openmp.watched, memory_order_relaxed), 0))
        region_left();
}

/* ---- for the control thread ---- */

static bool is_inside(const struct slot *slot)
{
    return atomic_load(&slot->turns) & 1;
}

bool hooks_settled(void)
{
    uint32_t generation = atomic_load(&openmp.generation);
    unsigned used = atomic_load(&slots_used);

    for (unsigned i = 0; i < used; i++)
        if (is_inside(&slots[i]) && atomic_load(&slots[i].generation) != generation &&
            atomic_load(&openmp.copies[atomic_load(&slots[i].copy)].may) == OPENMP_FREE)
            return false;
    return true;
}

unsigned hooks_threads(bool known)
{
    unsigned used = atomic_load(&slots_used), n = 0;

    for (unsigned i = 0; i < used; i++)
        n += atomic_load(&slots[i].used) && atomic_load(&slots[i].known) == known;
    return n;
}

void hooks_know(unsigned n)
{
    unsigned used = atomic_load(&slots_used);

    for (unsigned i = 0; i < used && n > 0; i++)
        if (atomic_load(&slots[i].used) && !atomic_exchange(&slots[i].known, true))
            n--;
}

uint32_t hooks_active(void)
{
    unsigned used = atomic_load(&slots_used);
    uint32_t active = 0;

    for (unsigned i = 0; i < used; i++) {
        uint32_t threads = is_inside(&slots[i]) ? atomic_load(&slots[i].threads) : 0;

        active = threads > active ? threads : active;
    }
    return active;
}

uint64_t hooks_regions(void)
{
    unsigned used = atomic_load(&slots_used);
    uint64_t regions = atomic_load(&openmp.regions);

    for (unsigned i = 0; i < used; i++)
        regions += (atomic_load_explicit(&slots[i].turns, memory_order_relaxed) + 1) / 2;
    return regions;
}

void hooks_after_fork(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        atomic_store(&slots[i].used, false);
        atomic_store(&slots[i].turns, 0);
    }
    me.slot = NULL; /* its first region starts the agent again */
    me.wish = (struct number_wish){.limit = 0};
}

/* ---- stubs ---- */

#define ENTRY(copy, name) ((copy)->entry[OPENMP_##name])

typedef void (*body_fn)(void *);

HOT void parallel(struct copy *copy, body_fn body, void *data, unsigned threads, unsigned flags)
{
    typedef void (*real_fn)(body_fn, void *, unsigned, unsigned);
    struct slot *slot = region_begin(copy, &threads);

    ((real_fn)ENTRY(copy, PARALLEL))(body, data, threads, flags);
    region_end(slot);
}

HOT unsigned reductions(struct copy *copy, body_fn body, void *data, unsigned threads,
                        unsigned flags)
{
    typedef unsigned (*real_fn)(body_fn, void *, unsigned, unsigned);
    struct slot *slot = region_begin(copy, &threads);
    unsigned had = ((real_fn)ENTRY(copy, REDUCTIONS))(body, data, threads, flags);

    region_end(slot);
    return had;
}

HOT void sections(struct copy *copy, body_fn body, void *data, unsigned threads, unsigned n,
                  unsigned flags)
{
    typedef void (*real_fn)(body_fn, void *, unsigned, unsigned, unsigned);
    struct slot *slot = region_begin(copy, &threads);

    ((real_fn)ENTRY(copy, SECTIONS))(body, data, threads, n, flags);
    region_end(slot);
}

struct range {
    long from, to, step;
};

HOT void loop(struct copy *copy, void *entry, body_fn body, void *data, unsigned threads,
              struct range r, long chunk, unsigned flags)
{
    typedef void (*real_fn)(body_fn, void *, unsigned, long, long, long, long, unsigned);
    struct slot *slot = region_begin(copy, &threads);

    ((real_fn)entry)(body, data, threads, r.from, r.to, r.step, chunk, flags);
    region_end(slot);
}

HOT void loop_without_chunk(struct copy *copy, void *entry, body_fn body, void *data,
                            unsigned threads, struct range r, unsigned flags)
{
    typedef void (*real_fn)(body_fn, void *, unsigned, long, long, long, unsigned);
    struct slot *slot = region_begin(copy, &threads);

    ((real_fn)entry)(body, data, threads, r.from, r.to, r.step, flags);
    region_end(slot);
}

#if PROCESSOR_CODE_IS_KNOWN
/*
 * Calls @fn with @n words as arguments, six in registers and the others on the stack. libomp's
 * entry takes as many arguments as the region has shared variables; all are words.
 */
void openmp_forward(void *fn, void *const *words, uint64_t n) __attribute__((visibility("hidden")));

__asm__(".text\n"
        ".type openmp_forward, @function\n"
        ".hidden openmp_forward\n"
        ".globl openmp_forward\n"
        "openmp_forward:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    push %rbp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset %rbp, -16\n"
        "    mov %rsp, %rbp\n"
        "    .cfi_def_cfa_register %rbp\n"
        "    mov %rdi, %r11\n"
        "    mov %rsi, %r10\n"
        "    test $1, %dl\n" /* an odd number on the stack: keep it aligned */
        "    jz 1f\n"
        "    sub $8, %rsp\n"
        "1:  cmp $6, %rdx\n"
        "    jbe 2f\n"
        "    push -8(%r10,%rdx,8)\n"
        "    dec %rdx\n"
        "    jmp 1b\n"
        "2:  mov (%r10), %rdi\n"
        "    mov 8(%r10), %rsi\n"
        "    mov 16(%r10), %rdx\n"
        "    mov 24(%r10), %rcx\n"
        "    mov 32(%r10), %r8\n"
        "    mov 40(%r10), %r9\n"
        "    xor %eax, %eax\n" /* no vector registers */
        "    call *%r11\n"
        "    leave\n"
        "    .cfi_def_cfa %rsp, 8\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size openmp_forward, . - openmp_forward\n");

/* libomp's entry has as many arguments as the region has shared variables; the first three are in
 * registers. */
#define FORK_STUB(i)                                                                               \
    static void fork_call_##i(void *loc, int32_t argc, void *body, void *a, void *b, void *c, ...) \
    {                                                                                              \
        typedef void (*real_fn)(void *, int32_t, void *, ...);                                     \
        struct copy *copy = &openmp.copies[i];                                                     \
        unsigned threads = 0;                                                                      \
        struct slot *slot = region_begin(copy, &threads);                                          \
                                                                                                   \
        if (threads) /* objects with num_threads() are not governed: nothing is overwritten */     \
            copy->push(loc, copy->thread(loc), (int32_t)threads);                                  \
        if (argc <= 3) {                                                                           \
            ((real_fn)ENTRY(copy, FORK_CALL))(loc, argc, body, a, b, c);                           \
        } else {                                                                                   \
            size_t n = 3 + (size_t)argc;                                                           \
            void **words = __builtin_alloca(n * sizeof(*words));                                   \
            va_list ap;                                                                            \
                                                                                                   \
            memcpy(words, (void *[]){loc, NULL, body, a, b, c}, 6 * sizeof(*words));               \
            memcpy(&words[1], &(intptr_t){argc}, sizeof(words[1]));                                \
            va_start(ap, c);                                                                       \
            for (size_t word = 6; word < n; word++)                                                \
                words[word] = va_arg(ap, void *);                                                  \
            va_end(ap);                                                                            \
            openmp_forward(ENTRY(copy, FORK_CALL), words, n);                                      \
        }                                                                                          \
        region_end(slot);                                                                          \
    }
#define FORK_STUB_OF(i) fork_call_##i
#else
#define FORK_STUB(i)
#define FORK_STUB_OF(i) NULL
#endif

#define LOOP_STUB(name, i)                                                                         \
    static void name##_##i(body_fn body, void *data, unsigned threads, long from, long to,         \
                           long step, long chunk, unsigned flags)                                  \
    {                                                                                              \
        loop(&openmp.copies[i], ENTRY(&openmp.copies[i], name), body, data, threads,               \
             (struct range){from, to, step}, chunk, flags);                                        \
    }

#define LOOP_STUB_WITHOUT_CHUNK(name, i)                                                           \
    static void name##_##i(body_fn body, void *data, unsigned threads, long from, long to,         \
                           long step, unsigned flags)                                              \
    {                                                                                              \
        loop_without_chunk(&openmp.copies[i], ENTRY(&openmp.copies[i], name), body, data, threads, \
                           (struct range){from, to, step}, flags);                                 \
    }

#define STUBS(i)                                                                                   \
    static void parallel_##i(body_fn body, void *data, unsigned threads, unsigned flags)           \
    {                                                                                              \
        parallel(&openmp.copies[i], body, data, threads, flags);                                   \
    }                                                                                              \
    static unsigned reductions_##i(body_fn body, void *data, unsigned threads, unsigned flags)     \
    {                                                                                              \
        return reductions(&openmp.copies[i], body, data, threads, flags);                          \
    }                                                                                              \
    static void sections_##i(body_fn body, void *data, unsigned threads, unsigned n,               \
                             unsigned flags)                                                       \
    {                                                                                              \
        sections(&openmp.copies[i], body, data, threads, n, flags);                                \
    }                                                                                              \
    LOOP_STUB(LOOP_STATIC, i)                                                                      \
    LOOP_STUB(LOOP_DYNAMIC, i)                                                                     \
    LOOP_STUB(LOOP_GUIDED, i)                                                                      \
    LOOP_STUB(LOOP_NONMONOTONIC_DYNAMIC, i)                                                        \
    LOOP_STUB(LOOP_NONMONOTONIC_GUIDED, i)                                                         \
    LOOP_STUB_WITHOUT_CHUNK(LOOP_RUNTIME, i)                                                       \
    LOOP_STUB_WITHOUT_CHUNK(LOOP_NONMONOTONIC_RUNTIME, i)                                          \
    LOOP_STUB_WITHOUT_CHUNK(LOOP_MAYBE_NONMONOTONIC_RUNTIME, i)                                    \
    FORK_STUB(i)

STUBS(0)
STUBS(1)
STUBS(2)
STUBS(3)
STUBS(4)
STUBS(5)
STUBS(6)
STUBS(7)
_Static_assert(COPIES_MAX == 8, "a copy without stubs");

#define ROW(i)                                                                                     \
    {                                                                                              \
        [OPENMP_PARALLEL] = parallel_##i, [OPENMP_REDUCTIONS] = reductions_##i,                    \
        [OPENMP_SECTIONS] = sections_##i, [OPENMP_LOOP_STATIC] = LOOP_STATIC_##i,                  \
        [OPENMP_LOOP_DYNAMIC] = LOOP_DYNAMIC_##i, [OPENMP_LOOP_GUIDED] = LOOP_GUIDED_##i,          \
        [OPENMP_LOOP_NONMONOTONIC_DYNAMIC] = LOOP_NONMONOTONIC_DYNAMIC_##i,                        \
        [OPENMP_LOOP_NONMONOTONIC_GUIDED] = LOOP_NONMONOTONIC_GUIDED_##i,                          \
        [OPENMP_LOOP_RUNTIME] = LOOP_RUNTIME_##i,                                                  \
        [OPENMP_LOOP_NONMONOTONIC_RUNTIME] = LOOP_NONMONOTONIC_RUNTIME_##i,                        \
        [OPENMP_LOOP_MAYBE_NONMONOTONIC_RUNTIME] = LOOP_MAYBE_NONMONOTONIC_RUNTIME_##i,            \
        [OPENMP_FORK_CALL] = FORK_STUB_OF(i),                                                      \
    }

void *hooks_stub(unsigned index, enum openmp_entry entry)
{
    static void *const stubs[COPIES_MAX][OPENMP_ENTRY_MAX] = {ROW(0), ROW(1), ROW(2), ROW(3),
                                                              ROW(4), ROW(5), ROW(6), ROW(7)};

    return stubs[index][entry];
}
