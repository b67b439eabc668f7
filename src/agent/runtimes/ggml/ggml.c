/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for ggml (llama.cpp, whisper.cpp, Ollama's runner). Before each graph ggml makes a plan
 * for so many threads. LD_PRELOAD puts our ggml_graph_plan() before ggml's own: the plan is made
 * for the target where that is smaller, so each graph is one that the program could have asked for
 * itself. docs/design/57-ggml.md says why.
 *
 *   ggml_graph_plan(n)    n = min(n, target); claims a slot                thread of the program
 *   ggml_graph_compute()  the slot says that a graph runs                  the same thread
 *   target                settled once no slot is of an older generation   control thread
 *
 * The hooks need the plan's address as an argument, which is so on x86-64 alone. Elsewhere ggml
 * keeps its number, and the note says so.
 */
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/process/objects.h"
#include "agent/processor.h"

#include "base/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GGML_EXPORT          __attribute__((visibility("default")))
#define SITES_MAX            16                  /* objects that call one of the functions */
#define SLOTS                64                  /* graphs at the same time that are watched */
#define PLAN_NS              (50 * NS_PER_MS)    /* a plan that is not computed by then is kept */
#define SAFE_POOLS           9006                /* ggml 0.9.6, as version_number() has it */
#define RUNS                 (UINT64_C(1) << 31) /* in a slot's state */
#define GENERATION_OF(state) ((uint32_t)((state) >> 32))

/* A graph between its plan and its end. Each has a line of its own. */
struct slot {
    _Atomic uint64_t state;    /* 0: free; else generation, RUNS, threads */
    _Atomic uint64_t since_ns; /* of the plan; 0: of this moment */
} __attribute__((aligned(64)));

static struct slot slots[SLOTS];

static struct {
    char version[PROTO_SHORT_MAX];
    _Atomic bool begun;          /* a graph was planned, so the agent runs */
    _Atomic bool any_free;       /* graphs follow targets */
    _Atomic bool unknown, pools; /* plans are not as we know them; pools are kept that may not */
    _Atomic uint32_t most;       /* the largest number that was asked for */
    _Atomic uint32_t target;     /* 0: none */
    _Atomic uint32_t generation; /* grows with each change of the target */
    _Atomic bool watched;        /* the control thread waits for the end of graphs */
    _Atomic uint64_t graphs;     /* so far */
    _Atomic uint64_t placed_ns;  /* when a thread last took a new number, or left an old graph */
} ggml = {.generation = 1};

/* ---- the rule ---- */

static uint32_t limited(uint32_t asked)
{
    uint32_t target = atomic_load(&ggml.target);

    return target && target < asked ? target : asked;
}

#if PROCESSOR_RESULT_IS_ARGUMENT

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the hooks have ggml's */

static __thread struct {
    struct slot *slot; /* of the plan that this thread has made and not finished; NULL: none */
    const void *plan;
    bool computes; /* the graph of that plan; one within it has no slot */
    uint32_t generation;
} me __attribute__((tls_model("initial-exec")));

/* ---- the functions behind the hooks ---- */

typedef void *(*plan_fn)(void *ret_plan, const void *graph, int threads, void *pool);
typedef int (*compute_fn)(void *graph, void *plan);

enum may {
    ON_TRIAL, /* the first plan has the program's number, and is looked at */
    FREE,
    FIXED,
    MAY_MAX
};

/* An object that calls one of the functions, and what ld.so would have bound it to without us. */
struct site {
    uintptr_t start, end;
    plan_fn plan;
    compute_fn compute;
    bool safe_pools; /* a pool that the program keeps may have other numbers from graph to graph */
    _Atomic int may;
};

static struct site sites[SITES_MAX];
static _Atomic unsigned sites_used;
static _Atomic bool adding; /* a thread adds a site */

struct search {
    const char *name;
    uintptr_t found;
};

static int defines(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *s = arg;
    struct object o;

    (void)size;
    object_read(&o, info);
    if (o.dynamic && ((uintptr_t)slots < o.start || (uintptr_t)slots >= o.end))
        s->found = object_defines(&o, s->name);
    return s->found != 0;
}

/* ld.so would have given @caller this for the name; the library stays loaded. NULL: unknown. */
static const void *bound(const char *name, const void *caller)
{
    bool can_look_up = dlsym && dlopen && dladdr;
    const void *found = can_look_up ? resolve_next(name, caller, NULL) : NULL;
    Dl_info info;

    if (found && dladdr(found, &info))
        dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return found;
}

/* A tail call hides the caller, and older programs have no libdl: the first object that has it. */
static const void *any(const char *name)
{
    struct search s = {name, 0};

    return dl_iterate_phdr(defines, &s) == 1 ? pointer_to(s.found) : NULL;
}

/* "0.13.1" -> 13001; 0: unknown */
static unsigned version_number(const char *text)
{
    unsigned number = 0;

    for (int part = 0; part < 3; part++) {
        char *end;
        unsigned value = (unsigned)strtoul(text, &end, 10);

        if (end == text || value > 999 || (part < 2 && *end != '.'))
            return 0;
        number = number * 1000 + value;
        text = end + 1;
    }
    return number;
}

static void read_version(struct site *site)
{
    typedef const char *(*version_fn)(void);
    version_fn version = (version_fn)bound("ggml_version", (const void *)site->plan);
    const char *text = version ? version() : NULL;

    if (!text) /* Ollama's ggml, which is compiled with GGML_VERSION=0x0, returns no text */
        return;
    site->safe_pools = version_number(text) >= SAFE_POOLS;
    if (!ggml.version[0])
        snprintf(ggml.version, sizeof(ggml.version), "%s", text);
}

/* In @room, which is not kept, where the caller is not known, there is no place, or another thread
 * is here as well. */
__attribute__((noinline, cold)) static struct site *site_add(const void *caller, struct site *room)
{
    bool ours = !atomic_exchange(&adding, true);
    unsigned used = atomic_load(&sites_used);
    int saved = errno;
    struct object o;

    *room = (struct site){.plan = (plan_fn)bound("ggml_graph_plan", caller),
                          .compute = (compute_fn)bound("ggml_graph_compute", caller),
                          .may = FIXED};
    if (ours && used < SITES_MAX && room->plan && room->compute && object_at(caller, &o)) {
        room->start = o.start;
        room->end = o.end;
        if (agent_config.enabled) {
            read_version(room);
            room->may = ON_TRIAL;
        }
        sites[used] = *room;
        room = &sites[used];
        atomic_store(&sites_used, used + 1);
    }
    if (!room->plan)
        room->plan = (plan_fn)any("ggml_graph_plan");
    if (!room->compute)
        room->compute = (compute_fn)any("ggml_graph_compute");
    if (ours)
        atomic_store(&adding, false);
    errno = saved;
    return room;
}

static struct site *site_of(const void *caller, struct site *room)
{
    unsigned used = atomic_load_explicit(&sites_used, memory_order_acquire);
    uintptr_t code = (uintptr_t)caller;

    for (unsigned i = 0; i < used; i++)
        if (code >= sites[i].start && code < sites[i].end)
            return &sites[i];
    return site_add(caller, room);
}

/* ---- slots: the thread that plans and computes ---- */

static void hold(uint64_t state)
{
    if (me.slot) {
        atomic_store(&me.slot->state, state);
        return;
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        uint64_t none = 0;

        if (atomic_compare_exchange_strong(&slots[i].state, &none, state)) {
            me.slot = &slots[i];
            return;
        }
    }
}

/* The number for a graph that a plan of @asked threads is made for. */
static uint32_t claim(const void *plan, uint32_t asked)
{
    uint32_t generation, number;

    if (me.computes)
        return limited(asked);
    if (me.slot)
        atomic_store(&me.slot->since_ns, 0);
    do { /* either we see the new target, or the control thread sees the old graph */
        generation = atomic_load(&ggml.generation);
        number = limited(asked);
        hold((uint64_t)generation << 32 | number);
    } while (atomic_load(&ggml.generation) != generation);
    if (me.slot)
        atomic_store(&me.slot->since_ns, clock_now_ns());
    if (generation != me.generation)
        atomic_store(&ggml.placed_ns, clock_now_ns());
    me.generation = generation;
    me.plan = plan;
    return number;
}

/* ---- hooks ---- */

static void begin(void)
{
    atomic_store(&ggml.begun, true);
    agent_start();
}

static void asked_for(uint32_t threads)
{
    uint32_t most = atomic_load_explicit(&ggml.most, memory_order_relaxed);

    while (threads > most && !atomic_compare_exchange_weak(&ggml.most, &most, threads))
        ;
}

static int number_for(const struct site *site, const void *plan, int threads, const void *pool)
{
    int saved = errno, number = threads;

    /* 0 and less: ggml's own number. */
    if (threads <= 0 || threads > PROTO_THREADS_MAX || !agent_config.enabled)
        return threads;
    asked_for((uint32_t)threads);
    if (!atomic_load_explicit(&ggml.begun, memory_order_relaxed))
        begin();
    if (atomic_load(&site->may) == FREE && (!pool || site->safe_pools)) {
        atomic_store_explicit(&ggml.any_free, true, memory_order_relaxed);
        number = (int)claim(plan, (uint32_t)threads);
    } else if (atomic_load(&site->may) == FREE) {
        atomic_store_explicit(&ggml.pools, true, memory_order_relaxed);
    }
    errno = saved;
    return number;
}

/* Has ggml made a plan as we know it, for @threads threads at most? */
static void judge(struct site *site, const void *given, const void *returned, int threads)
{
    struct {
        size_t work_size;
        void *work_data;
        int threads;
    } plan; /* the beginning of struct ggml_cplan, the same since 2023 */
    bool known = returned == given && resolve_peek(given, &plan, sizeof(plan)) && !plan.work_data &&
                 plan.threads >= 1 && plan.threads <= threads;

    if (threads <= 0)
        return;
    if (!known)
        atomic_store(&ggml.unknown, true);
    atomic_store(&site->may, known ? FREE : FIXED);
}

/* Returns a structure by value: the caller's hidden pointer comes first (System V x86-64). Versions
 * without a pool do not look at the last argument. */
GGML_EXPORT void *ggml_graph_plan(void *ret_plan, const void *graph, int threads, void *pool)
{
    struct site room, *site = site_of(__builtin_return_address(0), &room);
    int number = number_for(site, ret_plan, threads, pool);
    void *plan = site->plan(ret_plan, graph, number, pool);

    if (__builtin_expect(atomic_load(&site->may) == ON_TRIAL, 0))
        judge(site, ret_plan, plan, threads);
    return plan;
}

GGML_EXPORT int ggml_graph_compute(void *graph, void *plan)
{
    struct site room, *site = site_of(__builtin_return_address(0), &room);
    bool ours = me.slot && !me.computes && me.plan == plan;
    int status;

    if (ours) {
        atomic_fetch_or(&me.slot->state, RUNS);
        me.computes = true;
    }
    status = site->compute(graph, plan);
    atomic_fetch_add_explicit(&ggml.graphs, 1, memory_order_relaxed);
    if (!ours || !me.slot) /* without a slot: the child of a fork within the graph */
        return status;
    me.computes = false;
    me.plan = NULL;
    atomic_store(&me.slot->since_ns, 0);
    atomic_store(&me.slot->state, 0);
    me.slot = NULL;
    if (__builtin_expect(atomic_load(&ggml.watched), 0)) {
        atomic_store(&ggml.placed_ns, clock_now_ns());
        agent_notify();
    }
    return status;
}

static void hooks_after_fork(void)
{
    memset(&me, 0, sizeof(me));
    atomic_store(&adding, false);
}

static void ggml_loaded(const struct object *o)
{
    (void)o; /* the first plan begins */
}

#else /* no hooks */

static void hooks_after_fork(void)
{
}

/* Nobody tells what the program asks for: it may be as many threads as it has CPUs. */
static void ggml_loaded(const struct object *o)
{
    if (o->dynamic && object_defines(o, "ggml_graph_plan") && agent_start()) {
        atomic_store(&ggml.most, limit_affinity_cpus());
        atomic_store(&ggml.unknown, true);
    }
}

#endif

/* ---- targets: the control thread ---- */

/* Is a graph of an older target at work in @slot, or about to be? */
static bool is_old(const struct slot *slot, uint32_t generation, uint64_t now_ns)
{
    uint64_t state = atomic_load(&slot->state), since_ns = atomic_load(&slot->since_ns);

    return state && GENERATION_OF(state) != generation &&
           (state & RUNS || since_ns == 0 || since_ns + PLAN_NS > now_ns);
}

static bool is_settled(void)
{
    uint32_t generation = atomic_load(&ggml.generation);
    uint64_t now_ns = clock_now_ns();

    for (unsigned i = 0; i < SLOTS; i++)
        if (is_old(&slots[i], generation, now_ns))
            return false;
    return true;
}

static bool ggml_settled(void)
{
    bool settled = is_settled();

    if (settled)
        atomic_store(&ggml.watched, false);
    return settled;
}

static bool ggml_apply(const struct agent_target *target)
{
    uint32_t generation = atomic_load(&ggml.generation);

    atomic_store(&ggml.target, target->intra);
    atomic_store(&ggml.watched, true); /* until it is settled */
    atomic_store(&ggml.generation, generation == UINT32_MAX ? 1 : generation + 1);
    return ggml_settled();
}

static void ggml_measure(struct proto_ack *ack)
{
    agent_measure(ack, atomic_load(&ggml.placed_ns));
}

/* Threads of the largest graph that runs. */
static uint32_t running(void)
{
    uint32_t largest = 0;

    for (unsigned i = 0; i < SLOTS; i++) {
        uint64_t state = atomic_load(&slots[i].state);
        uint32_t threads = (uint32_t)(state & (RUNS - 1));

        if (state & RUNS && threads > largest)
            largest = threads;
    }
    return largest;
}

static bool ggml_describe(struct proto_backend *b)
{
    uint32_t most = atomic_load(&ggml.most);
    bool fixed = atomic_load(&ggml.unknown) || atomic_load(&ggml.pools);

    b->malleable = atomic_load(&ggml.any_free);
    if (most == 0 || (!b->malleable && !fixed))
        return false;
    b->max_intra = most;
    b->target_intra = b->malleable ? limited(most) : most;
    b->active_intra = b->malleable && !is_settled() ? running() : b->target_intra;
    snprintf(b->name, sizeof(b->name), "ggml");
    snprintf(b->version, sizeof(b->version), "%s", ggml.version);
    snprintf(b->note, sizeof(b->note), "%s",
             !fixed                          ? ""
             : b->malleable                  ? "a further copy is moldable"
             : !PROCESSOR_RESULT_IS_ARGUMENT ? PROCESSOR_NOTE
             : atomic_load(&ggml.unknown)
                 ? "moldable: an unknown ggml"
                 : "moldable: a pool that ggml before 0.9.6 may not shrink");
    return true;
}

static void ggml_watch(uint64_t now_ns)
{
    (void)now_ns;
}

static uint64_t ggml_tasks(void)
{
    return atomic_load_explicit(&ggml.graphs, memory_order_relaxed);
}

/* The child's first graph starts the agent again, and has the program's number. */
static void ggml_after_fork(void)
{
    hooks_after_fork();
    for (unsigned i = 0; i < SLOTS; i++) {
        atomic_store(&slots[i].since_ns, 0);
        atomic_store(&slots[i].state, 0);
    }
    atomic_store(&ggml.begun, false);
    atomic_store(&ggml.watched, false);
    atomic_store(&ggml.target, 0);
}

const struct agent_backend ggml_backend = {
    .name = "ggml",
    .needs_safe_point = true,
    .apply = ggml_apply,
    .settled = ggml_settled,
    .measure = ggml_measure,
    .describe = ggml_describe,
    .watch = ggml_watch,
    .loaded = ggml_loaded,
    .tasks = ggml_tasks,
    .after_fork = ggml_after_fork,
};
