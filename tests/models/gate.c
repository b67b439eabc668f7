/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the gate in every interleaving: gate.c, tensorflow.c and tensorflow_hooks.c of src/agent as
 * the agent has them, on a model of Eigen's thread pool. Futexes, locks and atomics are steps of
 * explore.h.
 *
 * Model, not real code:
 *   - pool_worker(), pool_wait(), pool_schedule(), pool_destroy(): Eigen's NonBlockingThreadPool.h
 *     and EventCount.h (Prewait, CommitWait, CancelWait, Notify with its signals and its stack of
 *     waiters), with one step for a look at all queues, and without spinning;
 *   - agent_thread(): control.c's on_target(), apply_change() and acknowledge_if_settled(), with a
 *     pipe that is a flag. It has no ticks, so no property shown here rests on a timer. Only the
 *     scenario `rescue` calls the watchdog;
 *   - the program: threads that schedule closures, build and destroy the pool.
 *
 * Shown in every reachable state:
 *   - a worker above an acknowledged limit begins no closure until the next target;
 *   - an acknowledgement is sent only while no surplus worker is BUSY (IDLE counts as parked);
 *   - no part of a pool is used after its destructor has returned.
 * Shown at every end (no thread can go on):
 *   - all closures have run, also two that wait for each other once the limit is 2;
 *   - every target has been acknowledged; no worker below the limit is parked; the gate is settled;
 *   - a destructor has returned.
 *
 * run.py has the mutations of the sources that must fail here.
 *
 * usage: gate [SCENARIO [PREEMPTIONS]]; without arguments it prints the scenarios' names.
 */
#include "explore.h"
#include "redirect.h"

#include "agent/gate/gate.c"
#include "agent/runtimes/tensorflow/tensorflow.c"
#include "agent/runtimes/tensorflow/tensorflow_hooks.c"

#include <stdarg.h>

#define WORKERS_MAX   3
#define QUEUE_MAX     6
#define CLOSURES_MAX  3
#define ORDERS_MAX    4
#define CLOSURE_PROBE 0xff

struct order {
    uint32_t threads;
    bool at_once; /* does not wait for the acknowledgement */
};

struct scenario {
    const char *name;
    uint32_t workers;
    enum tf_mode mode;
    unsigned closures;
    bool meet;      /* the first two closures wait for each other */
    bool destroy;   /* when all closures are done … */
    bool early;     /* … or as soon as they are scheduled */
    bool late;      /* built by the program, beside the agent's thread */
    bool fine;      /* the pool's own steps one by one */
    bool spurious;  /* futexes may wake up by themselves, once each */
    unsigned looks; /* how often the watchdog looks at the end */
    struct order order[ORDERS_MAX];
};

static const struct scenario scenarios[] = {
    {"shrink", 2, TF_GATE, .closures = 1, .order = {{1}}},
    {"shrink-grow", 2, TF_GATE, .closures = 1, .order = {{1}, {2}}},
    {"newest-wins", 2, TF_GATE, .closures = 1, .order = {{1, true}, {2}}},
    {"back-and-forth", 2, TF_GATE, .order = {{1}, {2, true}, {1}}},
    {"three", 3, TF_GATE, .closures = 1, .order = {{1}}},
    {"meet", 2, TF_GATE, .closures = 2, .meet = true, .order = {{1, true}, {2}}},
    {"spurious", 2, TF_GATE, .closures = 1, .spurious = true, .order = {{1}, {2}}},
    {"destroy", 2, TF_GATE, .closures = 1, .destroy = true, .order = {{1}}},
    {"destroy-early", 2, TF_GATE, .closures = 1, .destroy = true, .early = true, .order = {{1}}},
    {"destroy-shrunk", 2, TF_GATE, .destroy = true, .order = {{1}, {2}}},
    {"build", 2, TF_GATE, .closures = 1, .late = true, .order = {{1}}},
    {"steal", 2, TF_STEAL, .closures = 2, .order = {{1}, {2}}},
    {"rescue", 2, TF_GATE, .closures = 2, .meet = true, .looks = 3, .order = {{1}}},
};

static const struct scenario *scenario;

/* The state outside of the agent's own sources. */
static struct world {
    /* the Eigen pool */
    uint8_t queue[WORKERS_MAX][QUEUE_MAX];
    uint8_t n_queue[WORKERS_MAX];
    uint8_t prewaits;
    uint8_t signals;
    uint8_t stack[WORKERS_MAX];
    uint8_t n_stack;
    bool woken[WORKERS_MAX];
    uint8_t blocked;
    bool started;
    bool done;
    bool gone[WORKERS_MAX];
    bool freed;
    /* closures */
    bool ran[CLOSURES_MAX];
    bool begun[CLOSURES_MAX];
    bool running[WORKERS_MAX];    /* a closure */
    bool in_closure[WORKERS_MAX]; /* … and asleep in it */
    /* the agent */
    bool notified;
    struct agent_target target;
    uint32_t acknowledged; /* 0: not yet */
    bool finished;         /* every order is acknowledged */
    uint8_t looks;
    bool locked;
    /* futexes */
    bool asleep[WORKERS_MAX];
    bool startled[WORKERS_MAX];
    /* the older limit that a relaxed load may return, and to which threads */
    uint32_t old_limit;
    bool may_be_old[EXPLORE_THREADS];
} w;

/* The hooks' thread-local variables. */
static struct {
    struct gate_worker *self;
    struct pool *building;
} local[EXPLORE_THREADS];

static void swap_local(unsigned thread, bool in)
{
    if (in) {
        self = local[thread].self;
        building = local[thread].building;
    } else {
        local[thread].self = self;
        local[thread].building = building;
        for (uint32_t id = 0; id < scenario->workers; id++)
            pools[0].gate.worker[id].passes =
                0; /* a count without end; the watchdog asks the rest */
        pools[0].handed = 0;
    }
}

/* ---- the agent's other files ---- */

struct agent_config agent_config = {.enabled = true};

static void *eigen_vtable[1];
static struct {
    void *vtable;
} eigen = {eigen_vtable};
static struct eigen_device device = {.pool = &eigen};
static void *owner[TF_THREADPOOL_WORDS + 3];

bool agent_start(void)
{
    return true;
}

void agent_notify(void)
{
    explore_step("notifies the agent");
    w.notified = true;
}

void core_target(struct agent_target *ret_target)
{
    *ret_target = w.target;
}

uint32_t limit_affinity_cpus(void)
{
    return scenario->workers;
}

/* No limit of the process stands in a pool's way. */
uint32_t room_for_threads(const char *root, uint64_t stack_bytes)
{
    return UINT32_MAX;
}

uint64_t room_stack_bytes(void)
{
    return 0;
}

/* tensorflow_data.c and tensorflow_calls.c are no part of the model: nothing in them stops or wakes
 * a worker of a pool. */
void tf_calls_watch(void)
{
}

void tf_data_after_fork(void)
{
}

bool resolve_peek(const void *from, void *to, size_t size)
{
    memcpy(to, from, size);
    return true;
}

/* ---- atomics, futexes, locks ---- */

static int worker_of(const volatile void *at, size_t *ret_offset)
{
    const struct gate *gate = &pools[0].gate;
    size_t offset = (size_t)((const volatile char *)at - (const volatile char *)gate->worker);

    if (!gate->worker || offset >= gate->n * sizeof(struct gate_worker))
        return -1;
    *ret_offset = offset % sizeof(struct gate_worker);
    return (int)(offset / sizeof(struct gate_worker));
}

/* If no pool comes or goes while the agent runs, a load of `eigen` and the lock are no steps. */
static bool pools_change(void)
{
    return scenario->destroy || scenario->late;
}

/* Returns NULL for numbers that are only shown or measured, because no decision rests on them. */
static const char *step_name(const volatile void *at)
{
    size_t offset;
    int id = worker_of(at, &offset);

    if (id >= 0)
        return offset == offsetof(struct gate_worker, state)  ? "state"
               : offset == offsetof(struct gate_worker, wake) ? "wake"
                                                              : NULL;
    return at == &pools[0].gate.limit     ? "limit"
           : at == &pools[0].gate.watched ? "watched"
           : at == &pools[0].eigen        ? pools_change() ? "eigen" : NULL
                                          : NULL;
}

void model_load(const volatile void *at, int order)
{
    const char *name = step_name(at);

    if (at == &pools[0].gate.limit && order == __ATOMIC_RELAXED)
        return; /* model_relaxed() is its step */
    if (name)
        explore_step(name);
    if (at == &pools[0].gate.limit && explore_self() >= 0)
        w.may_be_old[explore_self()] = false;
}

void model_store(const volatile void *at)
{
    const char *name = step_name(at);

    if (name)
        explore_step(name);
    if (at == &pools[0].gate.limit) {
        w.acknowledged = 0; /* whatever follows: the watchdog and a destructor let all go */
        w.old_limit = pools[0].gate.limit;
        memset(w.may_be_old, true, sizeof(w.may_be_old));
        if (explore_self() >= 0)
            w.may_be_old[explore_self()] = false;
    }
}

/* A thread that has not seen the newest limit may see the one before it. */
bool model_relaxed(const volatile void *at, uint32_t *ret_older)
{
    int thread = explore_self();

    if (at != &pools[0].gate.limit || thread < 0)
        return false;
    if (explore_choose("limit, relaxed", 2) == 1 && w.may_be_old[thread]) {
        *ret_older = w.old_limit;
        return true;
    }
    w.may_be_old[thread] = false;
    return false;
}

static bool awake(const void *arg)
{
    return !*(const bool *)arg;
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value)
{
    size_t offset;
    int id = worker_of(word, &offset);

    if (op == FUTEX_WAKE_PRIVATE) {
        explore_step("futex wake");
        w.asleep[id] = false;
        return 0;
    }
    if (explore_choose("futex wait", scenario->spurious && !w.startled[id] ? 2 : 1) == 1) {
        w.startled[id] = true;
        return -1;
    }
    if (__atomic_load_n((uint32_t *)word, __ATOMIC_SEQ_CST) != value)
        return -1;
    w.asleep[id] = true;
    explore_wait("asleep in the gate", awake, &w.asleep[id]);
    return 0;
}

long model_syscall(long number, ...)
{
    va_list list;
    long r = -1;

    va_start(list, number);
    if (number == SYS_gettid) {
        r = explore_self() + 1;
    } else if (number == SYS_futex) {
        _Atomic uint32_t *word = va_arg(list, _Atomic uint32_t *);
        int op = va_arg(list, int);

        r = futex(word, op, va_arg(list, uint32_t));
    }
    va_end(list);
    return r;
}

void model_lock(pthread_mutex_t *lock)
{
    (void)lock;
    if (pools_change())
        explore_wait("locks the pools", awake, &w.locked);
    w.locked = true;
}

void model_unlock(pthread_mutex_t *lock)
{
    (void)lock;
    w.locked = false;
}

uint64_t model_now(void)
{
    return 1; /* no decision rests on it but the watchdog's, which is told another */
}

uint64_t model_slice(uint64_t ns)
{
    (void)ns;
    return 0;
}

int model_close(int fd)
{
    (void)fd;
    return 0;
}

/* /proc/self/task/TID/stat: workers are the threads from 0 on. */
int model_open(const char *path)
{
    return atoi(strrchr(path, 'k') + 2) - 1;
}

ssize_t model_read(int fd, char *to, size_t size)
{
    return snprintf(to, size, "1 (x) %c", w.in_closure[fd] || w.asleep[fd] ? 'S' : 'R');
}

/* ---- the Eigen pool ---- */

#include "gate_pool.h"

static const char *version(void)
{
    return "2.21.0";
}

void *resolve_next(const char *symbol, const void *caller, const char *soname)
{
    static const struct {
        const char *symbol;
        void *function;
    } table[] = {
        {TF_STRING(TF_THREADPOOL_C1), (void *)pool_build},
        {TF_STRING(TF_THREADPOOL_D1), (void *)pool_destroy},
        {TF_STRING(TF_EIGEN_C1), (void *)pool_build_eigen},
        {TF_STRING(TF_WORKER_LOOP), (void *)pool_worker},
        {TF_STRING(TF_LOCAL_STEAL), (void *)pool_local_steal},
        {TF_STRING(TF_WAIT_FOR_WORK), (void *)pool_wait},
        {TF_STRING(TF_SCHEDULE_WITH_HINT), (void *)pool_schedule_hint},
        {TF_STRING(TF_MAYBE_GET_TASK), (void *)pool_get_task},
        {"TF_Version", (void *)version},
    };

    (void)caller;
    (void)soname;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(symbol, table[i].symbol) == 0 &&
            (scenario->mode == TF_GATE || table[i].function != (void *)pool_get_task))
            return table[i].function;
    return NULL;
}

/* ---- threads ---- */

static void worker_thread(void *arg)
{
    unsigned id = (unsigned)(uintptr_t)arg;

    explore_wait("is not started", is_set, &w.started);
    TF_WORKER_LOOP(&eigen, (int)id);
    w.gone[id] = true;
}

static void build(void)
{
    static const struct stdstring name = {.data = "numa_-1_Eigen", .size = 13};

    TF_THREADPOOL_C1(owner, NULL, NULL, &name, (int)scenario->workers, false, NULL);
}

static bool all_ran(const void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < scenario->closures; i++)
        if (!w.ran[i])
            return false;
    return true;
}

static void program_thread(void *arg)
{
    (void)arg;
    if (scenario->late)
        build();
    for (unsigned i = 0; i < scenario->closures; i++) {
        struct stdfunction f = function_of((uint8_t)(i + 1));

        pool_schedule(&eigen, &f);
    }
    if (!scenario->destroy)
        return;
    if (!scenario->early)
        explore_wait("waits for its closures", all_ran, NULL);
    TF_THREADPOOL_D1(owner);
}

static void acknowledge(uint32_t threads)
{
    if (pools[0].gate.limit != threads || !w.started)
        return; /* a pool that is being built or destroyed follows no target */
    for (uint32_t id = threads; id < scenario->workers; id++)
        if (w.running[id])
            explore_fail("a target is acknowledged while a surplus worker runs a closure");
    w.acknowledged = threads;
}

static bool stuck_or_done(const void *arg)
{
    (void)arg;
    return all_ran(NULL) || w.in_closure[0] || w.in_closure[1];
}

/* src/agent/control/control.c: on_target(), and the loop around it. */
static void agent_thread(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ORDERS_MAX && scenario->order[i].threads > 0; i++) {
        w.target.intra = w.target.inter = scenario->order[i].threads;
        tf_apply(&w.target);
        while (!tf_settled() && !scenario->order[i].at_once) {
            explore_wait("agent: waits for its pipe", is_set, &w.notified);
            w.notified = false;
        }
        if (!scenario->order[i].at_once)
            acknowledge(scenario->order[i].threads);
    }
    for (unsigned i = 0; i < scenario->looks; i++) {
        explore_wait("agent: its next tick", stuck_or_done, NULL);
        tf_watch(1);
    }
    w.finished = true;
}

/* ---- ends ---- */

static const char *check_end(void)
{
    const struct pool *pool = &pools[0];

    if (!w.finished)
        return "a target is never acknowledged";
    if (scenario->destroy)
        return w.freed ? NULL : "a destructor never returns";
    if (!all_ran(NULL))
        return "a closure never runs";
    if (!gate_settled(&pool->gate))
        return "the gate is not settled at the end";
    for (uint32_t id = 0; id < pool->gate.limit; id++)
        if (w.asleep[id])
            return "a worker below the limit is parked at the end";
    return NULL;
}

static int run(const struct scenario *s, unsigned bound)
{
    static const char *const names[] = {"worker 0", "worker 1", "worker 2"};
    struct explore_result result;
    bool ok;

    scenario = s;
    eigen_vtable[EIGEN_VTABLE_SCHEDULE] = (void *)pool_schedule;
    agent_config.max = s->workers;
    w.target = (struct agent_target){.intra = s->workers, .inter = s->workers};
    tf.task_layout = s->mode == TF_GATE ? TASK_INLINE : TASK_BOXED;
    atomic_store(&tf.gate_seen, true);
    for (unsigned i = 0; i < s->workers; i++)
        explore_thread(names[i], worker_thread, (void *)(uintptr_t)i);
    explore_thread("agent", agent_thread, NULL);
    explore_thread("program", program_thread, NULL);
    if (gate_init(&pools[0].gate, s->workers, pool_nudge, agent_notify) < 0)
        return 2;
    if (!s->late) {
        build();
        memset(w.queue, 0, sizeof(w.queue)); /* the first probe has been seen */
        memset(w.n_queue, 0, sizeof(w.n_queue));
    }
    explore_memory(&w, sizeof(w));
    explore_memory(local, sizeof(local));
    explore_memory(tasks, sizeof(tasks));
    explore_memory(boxes, sizeof(boxes));
    explore_memory(owner, sizeof(owner));
    explore_memory(&device, sizeof(device));
    explore_memory(&pools[0], sizeof(pools[0]));
    explore_memory((void *)&pools_used, sizeof(pools_used));
    explore_memory(&tf, sizeof(tf));
    explore_memory(pools[0].gate.worker, s->workers * sizeof(struct gate_worker));
    ok = explore_run(bound, swap_local, check_end, &result);
    printf("%s %s: %lu states, %lu steps, %lu ends\n", ok ? "ok  " : "FAIL", s->name, result.states,
           result.steps, result.ends);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < ARRAY_LEN(scenarios); i++) {
        if (argc < 2)
            puts(scenarios[i].name);
        else if (strcmp(argv[1], scenarios[i].name) == 0)
            return run(&scenarios[i], argc > 2 ? (unsigned)atoi(argv[2]) : EXPLORE_ALL);
    }
    return argc < 2 ? 0 : 2;
}
