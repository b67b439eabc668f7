/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for BLIS. Each operation takes a copy of the program's numbers as it begins:
 * bli_rntm_init_from_global(). libblis calls this through a slot of its own, and our stub lowers
 * the number in the copy. Debian's libblas.so.3 of BLIS has no such slot, and no function that sets
 * the number: there the control thread writes the program's. docs/design/59-mkl-blis.md says why.
 */
#include "agent/compat.h"
#include "agent/process/number.h"
#include "agent/processor.h"
#include "agent/runtimes/blas/blas.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <string.h>

#define COPIES_MAX  4
#define FROM_GLOBAL "bli_rntm_init_from_global"

/* rntm_t: its beginning is the same from 0.7 to 2.1. */
struct numbers {
    int32_t first[2]; /* of different meanings */
    int64_t threads;  /* below 1: not set */
    int64_t ways[6];  /* for each loop; all below 2: they follow from the number */
};

typedef void (*from_global_fn)(struct numbers *ret);

static struct blas_asks blis = {.name = "blis"};

/* libblis; written by threads that load a library, one at a time. */
static struct copy {
    uintptr_t start; /* 0: free */
    from_global_fn from_global;
} copies[COPIES_MAX];

/* The number of BLIS's libblas.so.3. */
static struct {
    _Atomic(int64_t *) threads; /* NULL: none */
    uint32_t own;               /* what the environment makes it */
    uint32_t ours;              /* 0: the library has not read the environment yet */
} variable;

/* ---- stubs: the program's threads ---- */

static void answer(const struct copy *copy, struct numbers *ret)
{
    bool by_ways = false;

    copy->from_global(ret);
    if (ret->threads < 2 || ret->threads > PROTO_THREADS_MAX)
        return;
    for (size_t i = 0; i < ARRAY_LEN(ret->ways); i++)
        by_ways = by_ways || ret->ways[i] > 1;
    if (by_ways)
        return;
    blas_meet(&blis, (uint32_t)ret->threads);
    ret->threads = blas_limited(&blis, (uint32_t)ret->threads);
}

#define STUB(i)                                                                                    \
    static void from_global_##i(struct numbers *ret)                                               \
    {                                                                                              \
        answer(&copies[i], ret);                                                                   \
    }
STUB(0)
STUB(1)
STUB(2)
STUB(3)
static const from_global_fn stubs[] = {from_global_0, from_global_1, from_global_2, from_global_3};
_Static_assert(ARRAY_LEN(stubs) == COPIES_MAX, "a copy without a stub");

/* ---- a library is loaded: a thread of the program, in the middle of that ---- */

/* The number that the environment gives it; without one it computes with one thread. */
static uint32_t environment(void)
{
    static const char *const names[] = {"BLIS_NUM_THREADS", "OMP_NUM_THREADS", NULL};

    return blas_variable(names);
}

static bool divides_loops(void)
{
    static const char *const names[] = {"BLIS_JC_NT", "BLIS_PC_NT", "BLIS_IC_NT",
                                        "BLIS_JR_NT", "BLIS_IR_NT", NULL};

    return blas_variable(names) > 0;
}

/* The version says of which layout the numbers are; AMD's has other ones. */
static bool is_known(const struct object *o)
{
    typedef const char *(*text_fn)(void);
    static const char *const versions[] = {"0.8", "0.9", "1.", "2."};
    text_fn text = (text_fn)pointer_to(object_defines(o, "bli_info_get_version_str"));
    const char *version = text ? text() : "";

    if (!blis.version[0])
        snprintf(blis.version, sizeof(blis.version), "%s", version);
    for (size_t i = 0; i < ARRAY_LEN(versions); i++)
        if (blas_begins_with(version, versions[i]))
            return true;
    return false;
}

/* Another copy follows: then it is no matter of all of BLIS. */
static void leave_alone(const char *note)
{
    if (copies[0].start || atomic_load(&variable.threads))
        atomic_store(&blis.further, true);
    else
        blas_fix(&blis, note, environment());
}

static void take_library(const struct object *o)
{
    struct copy *copy = copies;

    for (; copy < copies + COPIES_MAX && copy->start && copy->start != o->start; copy++)
        ;
    if (copy == copies + COPIES_MAX || !is_known(o)) {
        leave_alone("moldable: an unknown BLIS");
        return;
    }
    copy->from_global = (from_global_fn)pointer_to(object_defines(o, FROM_GLOBAL));
    if (slots_take(o, FROM_GLOBAL, (const void *)copy->from_global,
                   (const void *)stubs[copy - copies]))
        copy->start = o->start;
    else
        leave_alone("moldable: an unknown BLIS");
}

#if PROCESSOR_CODE_IS_KNOWN

/* gcc's code for `*rntm = global_rntm` in Debian's bli_rntm_init_from_global(). A displacement
 * follows each piece but the last; 16 bytes are copied at a time. */
static const char *const copying[] = {"\x66\x0f\x6f\x05",
                                      "\x48\x89\xef\x0f\x11\x03\x66\x0f\x6f\x0d",
                                      "\x0f\x11\x4b\x10\x66\x0f\x6f\x15",
                                      "\x0f\x11\x53\x20\x66\x0f\x6f\x1d",
                                      "\x0f\x11\x5b\x30\x66\x0f\x6f\x25",
                                      "\x0f\x11\x63\x40\x48\x8b\x05",
                                      "\x48\x89\x43\x50"};

#define CODE_AROUND (512 * 1024) /* it is compiled beside the interface of BLAS */
#define CODE_MAX    128          /* bytes, more than all pieces have */

/* The address that the code at @at copies from; 0: it is another code. */
static uintptr_t copied_at(const unsigned char *at)
{
    uintptr_t first = 0;

    for (size_t i = 0; i < ARRAY_LEN(copying); i++) {
        size_t n = strlen(copying[i]);
        int32_t displacement;
        uintptr_t from;

        if (memcmp(at, copying[i], n) != 0)
            return 0;
        at += n;
        if (i == ARRAY_LEN(copying) - 1)
            break;
        memcpy(&displacement, at, sizeof(displacement));
        at += sizeof(displacement);
        from = (uintptr_t)at + (uintptr_t)(intptr_t)displacement;
        if (i == 0)
            first = from;
        if (from != first + 16 * i)
            return 0;
    }
    return first;
}

/* The segment of code that @address lies in; NULL. */
static const struct span *code_of(const struct object *o, uintptr_t address)
{
    for (unsigned i = 0; i < o->n_spans && i < OBJECT_SPANS_MAX; i++)
        if (o->spans[i].is_code && address >= o->spans[i].start &&
            address - o->spans[i].start < o->spans[i].size)
            return &o->spans[i];
    return NULL;
}

/* The program's numbers, where exactly one place in the code copies them; 0. */
static uintptr_t find_numbers(const struct object *o)
{
    uintptr_t near = object_defines(o, "dgemm_"), found = 0;
    const struct span *code = code_of(o, near);
    const unsigned char *from, *to;

    if (!code)
        return 0;
    from = pointer_to(near - code->start > CODE_AROUND ? near - CODE_AROUND : code->start);
    to = pointer_to(code->start + code->size - near > CODE_AROUND ? near + CODE_AROUND
                                                                  : code->start + code->size);
    for (; (from = memmem(from, (size_t)(to - from), copying[0], strlen(copying[0]))); from++) {
        uintptr_t numbers = to - from > CODE_MAX ? copied_at(from) : 0;

        if (numbers && found)
            return 0;
        found = numbers ? numbers : found;
    }
    return found >= o->start && found < o->end ? found : 0;
}

#else

static uintptr_t find_numbers(const struct object *o)
{
    (void)o;
    return 0;
}

#endif

/* libblas.so.3 can be anybody's. With one thread there is nothing to govern. The library stays. */
static void take_libblas(const struct object *o)
{
    uint32_t own = environment();
    uintptr_t numbers = own > 1 && !atomic_load(&variable.threads) ? find_numbers(o) : 0;

    if (!numbers || !dlopen(o->path, RTLD_LAZY | RTLD_NOLOAD))
        return;
    variable.own = own;
    atomic_store(&variable.threads, &((struct numbers *)pointer_to(numbers))->threads);
    blas_begin(&blis);
}

static void take(const struct object *o)
{
    bool is_library = blas_begins_with(object_file(o), "libblis");

    if (!o->dynamic || (!is_library && !blas_begins_with(object_file(o), "libblas")) ||
        number_threads_are_bound() || atomic_load(&blis.may) != BLAS_FREE)
        return;
    if (divides_loops())
        blas_fix(&blis, "moldable: BLIS_JC_NT and the like divide its loops", environment());
    else if (is_library)
        take_library(o);
    else
        take_libblas(o);
}

static void blis_loaded(const struct object *o)
{
    take(o);
}

static int take_each(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    (void)arg;
    object_read(&o, info);
    take(&o);
    return 0;
}

/* Libraries that the program is linked with may be initialized before us. */
__attribute__((constructor)) static void take_if_linked(void)
{
    if (agent_config.enabled)
        dl_iterate_phdr(take_each, NULL);
}

/* ---- targets: the control thread ---- */

/*
 * Its first operation makes the variable what the environment says. From then on nobody writes it
 * but us: an aligned word, of which an operation takes one copy.
 */
static void place(void)
{
    int64_t *threads = atomic_load(&variable.threads);
    int64_t held = threads ? __atomic_load_n(threads, __ATOMIC_RELAXED) : 0;
    uint32_t want = blas_limited(&blis, variable.own);

    if (!threads || held == 0)
        return;
    if (held != (variable.ours ? variable.ours : variable.own)) { /* a build with one thread */
        atomic_store(&variable.threads, NULL);
        return;
    }
    blas_meet(&blis, variable.own);
    __atomic_store_n(threads, want, __ATOMIC_RELAXED);
    variable.ours = want;
}

static bool blis_apply(const struct agent_target *target)
{
    blas_asks_apply(&blis, target);
    place();
    return true;
}

static void blis_watch(uint64_t now_ns)
{
    (void)now_ns;
    blas_asks_watch(&blis);
    place();
}

static void blis_measure(struct proto_ack *ack)
{
    blas_asks_measure(&blis, ack);
}

static bool blis_describe(struct proto_backend *b)
{
    return blas_asks_describe(&blis, b);
}

static void blis_after_fork(void)
{
    int64_t *threads = atomic_load(&variable.threads);

    blas_asks_after_fork(&blis);
    if (threads && variable.ours)
        __atomic_store_n(threads, variable.own, __ATOMIC_RELAXED);
    atomic_store(&variable.threads, NULL); /* nobody starts the agent in the child */
}

const struct agent_backend blis_backend = {
    .name = "blis",
    .apply = blis_apply,
    .settled = blas_asks_settled,
    .measure = blis_measure,
    .describe = blis_describe,
    .watch = blis_watch,
    .tasks = blas_asks_tasks,
    .loaded = blis_loaded,
    .after_fork = blis_after_fork,
};
