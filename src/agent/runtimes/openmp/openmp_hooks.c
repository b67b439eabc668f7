/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenMP backend's hooks: the entries of parallel regions that gcc's and clang's code calls.
 * Before a top-level region the thread takes its new number of threads, if there is one, by the
 * runtime's own omp_set_num_threads. The entry is then called with unchanged arguments, so an
 * explicit num_threads(n) is what it was.
 *
 * Several copies of a runtime may be in one process. Which of them a call belongs to follows from
 * the object that calls, as the dynamic linker would have bound it; a table keeps it for each call
 * site. While nothing changes, a region costs a look into that table, two writes to a line of the
 * thread's own, and no system call. What orders these writes against a new target is paid by the
 * control thread (membarrier), or, on kernels before 4.14, by the region (an exchange).
 */
#include "agent/compat.h"
#include "agent/runtimes/openmp/openmp.h"

#include "base/clock.h"

#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <string.h>

/* The hooks' prototypes are the runtimes'. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define OMP_EXPORT __attribute__((visibility("default")))

#define CALLS  1024 /* call sites remembered; further ones are looked up each time */
#define PROBES 8
#define THREADS                                                                                    \
    256 /* of the program, with regions of their own; further ones keep their number               \
         */
#define IN_SHIFT                                                                                   \
    32 /* of the generation in a slot's state; then 8 bits of the copy, the threads                \
        */

/* ---- which runtime does a call belong to? ---- */

enum entry {
    ENTRY_PARALLEL,
    ENTRY_LOOP_STATIC,
    ENTRY_LOOP_DYNAMIC,
    ENTRY_LOOP_GUIDED,
    ENTRY_LOOP_RUNTIME,
    ENTRY_LOOP_NONMONOTONIC_DYNAMIC,
    ENTRY_LOOP_NONMONOTONIC_GUIDED,
    ENTRY_LOOP_NONMONOTONIC_RUNTIME,
    ENTRY_LOOP_MAYBE_NONMONOTONIC_RUNTIME,
    ENTRY_SECTIONS,
    ENTRY_REDUCTIONS,
    ENTRY_FORK_CALL,
    ENTRY_MAX
};

static const char *const names[] = {
    [ENTRY_PARALLEL] = "GOMP_parallel",
    [ENTRY_LOOP_STATIC] = "GOMP_parallel_loop_static",
    [ENTRY_LOOP_DYNAMIC] = "GOMP_parallel_loop_dynamic",
    [ENTRY_LOOP_GUIDED] = "GOMP_parallel_loop_guided",
    [ENTRY_LOOP_RUNTIME] = "GOMP_parallel_loop_runtime",
    [ENTRY_LOOP_NONMONOTONIC_DYNAMIC] = "GOMP_parallel_loop_nonmonotonic_dynamic",
    [ENTRY_LOOP_NONMONOTONIC_GUIDED] = "GOMP_parallel_loop_nonmonotonic_guided",
    [ENTRY_LOOP_NONMONOTONIC_RUNTIME] = "GOMP_parallel_loop_nonmonotonic_runtime",
    [ENTRY_LOOP_MAYBE_NONMONOTONIC_RUNTIME] = "GOMP_parallel_loop_maybe_nonmonotonic_runtime",
    [ENTRY_SECTIONS] = "GOMP_parallel_sections",
    [ENTRY_REDUCTIONS] = "GOMP_parallel_reductions",
    [ENTRY_FORK_CALL] = "__kmpc_fork_call",
};
_Static_assert(sizeof(names) / sizeof(names[0]) == ENTRY_MAX, "an entry without a name");

struct call {
    _Atomic uint64_t key; /* return address and entry; 0: free. Written last. */
    void *real;
    struct copy *copy; /* NULL: not governed */
};

static struct call calls[CALLS];
static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;

static int real_dlclose(void *handle)
{
    typedef int (*close_fn)(void *);
    close_fn real = (close_fn)dlsym(RTLD_NEXT, "dlclose");

    return real ? real(handle) : -1;
}

void *hooks_resolve(const char *symbol, const void *caller)
{
    void *found = dlsym(RTLD_NEXT, symbol);
    void *handle;
    Dl_info info;

    if (found || !dladdr(caller, &info))
        return found;
    /* A library of a Python package: only its own dependencies define it. */
    handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    found = handle ? dlsym(handle, symbol) : NULL;
    if (handle)
        real_dlclose(handle);
    return found;
}

static struct call *call_find(uint64_t key)
{
    unsigned at = (unsigned)(key * 0x9e3779b97f4a7c15ull >> 54);

    for (unsigned i = 0; i < PROBES; i++) {
        struct call *call = &calls[(at + i) % CALLS];
        uint64_t has = atomic_load_explicit(&call->key, memory_order_acquire);

        if (has == key)
            return call;
        if (has == 0)
            return NULL;
    }
    return NULL;
}

__attribute__((noinline, cold)) static struct call *
call_make(uint64_t key, enum entry entry, const void *caller, struct call *scratch)
{
    unsigned at = (unsigned)(key * 0x9e3779b97f4a7c15ull >> 54);
    int saved = errno;
    struct call *call;

    *scratch = (struct call){.real = hooks_resolve(names[entry], caller)};
    if (scratch->real && agent_start())
        scratch->copy = copy_of(scratch->real);
    pthread_mutex_lock(&calls_lock);
    call = call_find(key);
    for (unsigned i = 0; !call && scratch->real && i < PROBES; i++) {
        struct call *next = &calls[(at + i) % CALLS];

        if (atomic_load(&next->key) != 0)
            continue;
        next->real = scratch->real;
        next->copy = scratch->copy;
        atomic_store_explicit(&next->key, key, memory_order_release);
        call = next;
    }
    pthread_mutex_unlock(&calls_lock);
    errno = saved;
    return call ? call : scratch;
}

void hooks_forget_calls(void)
{
    pthread_mutex_lock(&calls_lock);
    for (unsigned i = 0; i < CALLS; i++)
        atomic_store(&calls[i].key, 0);
    pthread_mutex_unlock(&calls_lock);
}

/* ---- the program's threads ---- */

/* A line of its own for each thread, because the thread writes to it before each region. */
struct slot {
    _Atomic uint64_t state;   /* 0: outside; else generation, copy, threads */
    _Atomic uint64_t regions; /* so far */
    _Atomic bool used;
} __attribute__((aligned(64)));

static struct slot slots[THREADS];
static struct slot no_slot;
#define NO_SLOT (&no_slot)
static _Atomic unsigned slots_used; /* high-water mark */
static pthread_key_t ends;
static _Atomic int ends_made; /* 0: no, 1: being made, 2: yes */

static __thread struct {
    struct slot *slot;
    struct openmp_number number[COPIES_MAX];
} me __attribute__((tls_model("initial-exec")));

static void slot_release(void *arg)
{
    struct slot *slot = arg;

    if (me.slot != slot)
        return; /* the parent's, in the child of a fork */
    atomic_fetch_add(&openmp.regions, atomic_load(&slot->regions));
    atomic_store(&slot->regions, 0);
    atomic_store(&slot->state, 0);
    me.slot = NO_SLOT; /* destructors behind ours may have regions, too */
    atomic_store(&slot->used, false);
}

static bool make_key(void)
{
    typedef int (*key_create_fn)(pthread_key_t *, void (*)(void *));
    key_create_fn create = (key_create_fn)dlsym(RTLD_DEFAULT, "pthread_key_create");
    int expected = 0;

    if (atomic_load(&ends_made) == 2)
        return true;
    if (!create || !atomic_compare_exchange_strong(&ends_made, &expected, 1))
        return false;
    if (create(&ends, slot_release) != 0)
        return false;
    atomic_store(&ends_made, 2);
    return true;
}

__attribute__((noinline, cold)) static void slot_claim(void)
{
    typedef int (*setspecific_fn)(pthread_key_t, const void *);
    setspecific_fn set = (setspecific_fn)dlsym(RTLD_DEFAULT, "pthread_setspecific");

    me.slot = NO_SLOT;
    for (unsigned i = 0; i < THREADS && set && make_key(); i++) {
        bool free = false;
        unsigned used = atomic_load(&slots_used);

        if (!atomic_compare_exchange_strong(&slots[i].used, &free, true))
            continue;
        if (set(ends, &slots[i]) != 0) {
            atomic_store(&slots[i].used, false);
            return;
        }
        while (used < i + 1 && !atomic_compare_exchange_weak(&slots_used, &used, i + 1))
            ;
        me.slot = &slots[i];
        return;
    }
}

static void raise_most(uint32_t to)
{
    uint32_t most = atomic_load(&openmp.most);

    while (most < to && !atomic_compare_exchange_weak(&openmp.most, &most, to))
        ;
}

static void take_number(const struct copy *copy, struct openmp_number *number)
{
    struct openmp_wish wish = {.target = atomic_load(&openmp.target),
                               .limit = atomic_load(&openmp.limit),
                               .machine = openmp.machine,
                               .sized = openmp.sized};
    uint32_t seen = (uint32_t)copy->get_max();
    uint32_t want = openmp_number(number, seen, &wish);

    if (want != seen)
        copy->set_number((int)want);
    else if (seen != number->ours)
        atomic_store(&openmp.theirs, true);
    raise_most(number->most);
    atomic_store(&openmp.placed_ns, clock_now_ns());
}

/* The next region of this thread begins under the newest target. */
__attribute__((noinline, cold)) static void renew(const struct copy *copy,
                                                  struct openmp_number *number, uint32_t generation)
{
    int may = atomic_load(&copy->may);
    int saved = errno;

    if (may == OPENMP_UNJUDGED)
        return;
    if (may != OPENMP_FREE) {
        raise_most((uint32_t)copy->get_max());
        number->generation = generation;
        return;
    }
    if (atomic_load(&openmp.loads) != objects_loaded())
        return; /* a new object may have asked for the number already; the next tick looks */
    take_number(copy, number);
    number->generation = generation;
    if (atomic_load(&openmp.watched))
        agent_notify();
    errno = saved;
}

void hooks_at_safe_point(void)
{
    unsigned n = atomic_load(&openmp.n_copies);
    uint32_t generation = atomic_load(&openmp.generation);
    int saved = errno;

    for (unsigned i = 0; i < n; i++) {
        const struct copy *copy = &openmp.copies[i];

        if (atomic_load(&copy->may) != OPENMP_PYTHON)
            continue;
        if (copy->level() > 0)
            return; /* Python within a region; it will be asked for again */
        take_number(copy, &me.number[i]);
    }
    atomic_store(&openmp.python, generation);
    agent_notify();
    errno = saved;
}

static uint64_t state_of(const struct openmp_number *number, unsigned index, unsigned threads)
{
    return (uint64_t)number->generation << IN_SHIFT | (uint64_t)index << 24 | 1u << 23 |
           (threads ? threads : number->ours);
}

/* A region of @threads (0: the thread's number) begins. Returns false when it is not top-level. */
static inline bool region_begin(const struct copy *copy, unsigned threads)
{
    unsigned index = copy->index;
    struct openmp_number *number = &me.number[index];
    uint32_t generation;

    if (__builtin_expect(!me.slot, 0))
        slot_claim();
    if (me.slot == NO_SLOT || copy->level() > 0)
        return false;
    atomic_store_explicit(&me.slot->regions,
                          atomic_load_explicit(&me.slot->regions, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    /* Either this thread sees the new generation, or the control thread sees the old region. */
    atomic_store_explicit(&me.slot->state, state_of(number, index, threads), memory_order_relaxed);
    if (__builtin_expect(atomic_load_explicit(&openmp.fences, memory_order_relaxed), 0))
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);
    generation = atomic_load_explicit(&openmp.generation, memory_order_acquire);
    if (__builtin_expect(generation != number->generation, 0)) {
        renew(copy, number, generation);
        atomic_store(&me.slot->state, state_of(number, index, threads));
    }
    return true;
}

__attribute__((noinline, cold)) static void region_left(void)
{
    atomic_store(&openmp.placed_ns, clock_now_ns());
    agent_notify();
}

static inline void region_end(void)
{
    if (me.slot == NO_SLOT || !me.slot)
        return; /* the child of a fork within the region */
    atomic_store_explicit(&me.slot->state, 0, memory_order_release);
    /* The control thread's next tick finds what it misses in this moment. */
    if (__builtin_expect(atomic_load_explicit(&openmp.watched, memory_order_relaxed), 0))
        region_left();
}

bool hooks_settled(void)
{
    uint32_t generation = atomic_load(&openmp.generation);
    unsigned used = atomic_load(&slots_used);

    for (unsigned i = 0; i < used; i++) {
        uint64_t state = atomic_load(&slots[i].state);

        if (state && (uint32_t)(state >> IN_SHIFT) != generation &&
            atomic_load(&openmp.copies[state >> 24 & 0xff].may) == OPENMP_FREE)
            return false;
    }
    return true;
}

uint32_t hooks_active(void)
{
    unsigned used = atomic_load(&slots_used);
    uint32_t active = 0;

    for (unsigned i = 0; i < used; i++) {
        uint32_t threads = atomic_load(&slots[i].state) & 0x7fffff;

        active = threads > active ? threads : active;
    }
    return active;
}

uint64_t hooks_regions(void)
{
    unsigned used = atomic_load(&slots_used);
    uint64_t regions = atomic_load(&openmp.regions);

    for (unsigned i = 0; i < used; i++)
        regions += atomic_load_explicit(&slots[i].regions, memory_order_relaxed);
    return regions;
}

void hooks_after_fork(void)
{
    pthread_mutex_init(&calls_lock, NULL);
    for (unsigned i = 0; i < THREADS; i++) {
        atomic_store(&slots[i].used, false);
        atomic_store(&slots[i].state, 0);
        atomic_store(&slots[i].regions, 0);
    }
    me.slot = NULL;
}

/* ---- interposed ---- */

struct region {
    void *real; /* NULL: this program has no such runtime */
    bool ours;
};

static inline struct region region_enter(enum entry entry, const void *caller, unsigned threads)
{
    uint64_t key = (uint64_t)(uintptr_t)caller | (uint64_t)entry << 56;
    struct call *call = call_find(key);
    struct call scratch;

    if (__builtin_expect(!call, 0))
        call = call_make(key, entry, caller, &scratch);
    return (struct region){call->real, call->copy && region_begin(call->copy, threads)};
}

#define CALLER __builtin_return_address(0)

typedef void (*body_fn)(void *);

OMP_EXPORT void GOMP_parallel(body_fn body, void *data, unsigned threads, unsigned flags)
{
    struct region region = region_enter(ENTRY_PARALLEL, CALLER, threads);
    typedef void (*real_fn)(body_fn, void *, unsigned, unsigned);

    if (!region.real) { /* a weak reference that stock would have left empty */
        body(data);
        return;
    }
    ((real_fn)region.real)(body, data, threads, flags);
    if (region.ours)
        region_end();
}

OMP_EXPORT unsigned GOMP_parallel_reductions(body_fn body, void *data, unsigned threads,
                                             unsigned flags)
{
    struct region region = region_enter(ENTRY_REDUCTIONS, CALLER, threads);
    typedef unsigned (*real_fn)(body_fn, void *, unsigned, unsigned);
    unsigned had;

    if (!region.real) {
        body(data);
        return 1;
    }
    had = ((real_fn)region.real)(body, data, threads, flags);
    if (region.ours)
        region_end();
    return had;
}

OMP_EXPORT void GOMP_parallel_sections(body_fn body, void *data, unsigned threads, unsigned count,
                                       unsigned flags)
{
    struct region region = region_enter(ENTRY_SECTIONS, CALLER, threads);
    typedef void (*real_fn)(body_fn, void *, unsigned, unsigned, unsigned);

    if (region.real)
        ((real_fn)region.real)(body, data, threads, count, flags);
    if (region.ours)
        region_end();
}

#define LOOP(name, entry)                                                                          \
    OMP_EXPORT void name(body_fn body, void *data, unsigned threads, long from, long to,           \
                         long step, long chunk, unsigned flags)                                    \
    {                                                                                              \
        struct region region = region_enter(entry, CALLER, threads);                               \
        typedef void (*real_fn)(body_fn, void *, unsigned, long, long, long, long, unsigned);      \
                                                                                                   \
        if (region.real)                                                                           \
            ((real_fn)region.real)(body, data, threads, from, to, step, chunk, flags);             \
        if (region.ours)                                                                           \
            region_end();                                                                          \
    }

#define LOOP_WITHOUT_CHUNK(name, entry)                                                            \
    OMP_EXPORT void name(body_fn body, void *data, unsigned threads, long from, long to,           \
                         long step, unsigned flags)                                                \
    {                                                                                              \
        struct region region = region_enter(entry, CALLER, threads);                               \
        typedef void (*real_fn)(body_fn, void *, unsigned, long, long, long, unsigned);            \
                                                                                                   \
        if (region.real)                                                                           \
            ((real_fn)region.real)(body, data, threads, from, to, step, flags);                    \
        if (region.ours)                                                                           \
            region_end();                                                                          \
    }

LOOP(GOMP_parallel_loop_static, ENTRY_LOOP_STATIC)
LOOP(GOMP_parallel_loop_dynamic, ENTRY_LOOP_DYNAMIC)
LOOP(GOMP_parallel_loop_guided, ENTRY_LOOP_GUIDED)
LOOP(GOMP_parallel_loop_nonmonotonic_dynamic, ENTRY_LOOP_NONMONOTONIC_DYNAMIC)
LOOP(GOMP_parallel_loop_nonmonotonic_guided, ENTRY_LOOP_NONMONOTONIC_GUIDED)
LOOP_WITHOUT_CHUNK(GOMP_parallel_loop_runtime, ENTRY_LOOP_RUNTIME)
LOOP_WITHOUT_CHUNK(GOMP_parallel_loop_nonmonotonic_runtime, ENTRY_LOOP_NONMONOTONIC_RUNTIME)
LOOP_WITHOUT_CHUNK(GOMP_parallel_loop_maybe_nonmonotonic_runtime,
                   ENTRY_LOOP_MAYBE_NONMONOTONIC_RUNTIME)

#ifdef __x86_64__
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

OMP_EXPORT void __kmpc_fork_call(void *loc, int32_t argc, void *body, ...)
{
    struct region region = region_enter(ENTRY_FORK_CALL, CALLER, 0);
    size_t n = 3 + (argc > 0 ? (size_t)argc : 0);
    void **words = __builtin_alloca((n < 6 ? 6 : n) * sizeof(*words));
    va_list ap;

    memset(words, 0, 6 * sizeof(*words));
    words[0] = loc;
    memcpy(&words[1], &(intptr_t){argc}, sizeof(words[1]));
    words[2] = body;
    va_start(ap, body);
    for (size_t i = 3; i < n; i++)
        words[i] = va_arg(ap, void *);
    va_end(ap);
    if (region.real)
        openmp_forward(region.real, words, n < 6 ? 6 : n);
    if (region.ours)
        region_end();
}
#endif

OMP_EXPORT int dlclose(void *handle)
{
    bool governs = atomic_load(&openmp.n_copies) > 0;
    uint64_t before = governs ? objects_unloaded() : 0;
    int r = real_dlclose(handle);

    if (governs && objects_unloaded() != before)
        hooks_forget_calls(); /* another object may come to lie at the same addresses */
    return r;
}
