/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The in-process API (program_api.h), and the backend "program" for a program that parks its own
 * threads and reports them through libtide.
 */
#include "agent/agent.h"
#include "agent/process/limit.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static struct program {
    pthread_mutex_t lock;
    agent_change_fn on_change;
    void *on_change_arg;
    /* backend "program" */
    _Atomic uint32_t max;    /* as declared; 0: the program declared no pool */
    _Atomic uint32_t active; /* as reported */
    _Atomic uint32_t wanted;
    _Atomic uint64_t received_ns;
    _Atomic uint64_t placed_ns;
    _Atomic int frozen;
    _Atomic uint64_t settled; /* generation */
    /* progress, a sequence lock of one writer at a time */
    _Atomic uint32_t progress_seq;
    _Atomic uint64_t done;
    _Atomic uint64_t total;
    _Atomic char unit[PROTO_SHORT_MAX];
    _Atomic bool serves; /* it told a request, and the agent runs */
} program = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t program_threads(const struct agent_target *target)
{
    uint32_t max = atomic_load(&program.max);
    uint32_t k = target->intra ? target->intra : limit_threads(target->allowed_mcpu);

    return k < max ? k : max;
}

static void get_state(struct agent_state *ret_state)
{
    struct agent_state state = {.max = 0};
    struct proto_backend said = {.max_intra = 0};
    struct agent_target target;

    agent_start();
    core_target(&target);
    state.target = target.intra ? target.intra : limit_threads(target.allowed_mcpu);
    state.allowed_mcpu = target.allowed_mcpu;
    state.source = core_source();
    state.frozen = core_frozen();
    state.generation = core_generation();
    for (each_backend(b)) {
        said.max_intra = said.max_inter = 0; /* the rest does not count: it would cost time */
        if (!(*b)->describe(&said) || said.max_intra < state.max)
            continue;
        state.max = said.max_intra;
        state.active = said.active_intra;
    }
    *ret_state = state;
}

static int set_local(uint32_t intra, uint32_t inter)
{
    struct agent_state state;

    if (intra > PROTO_THREADS_MAX || inter > PROTO_THREADS_MAX)
        return -ERANGE;
    if (!agent_start())
        return -ENOENT;
    core_set_local(PROTO_SOURCE_API, intra, inter);
    get_state(&state);
    return state.frozen || state.max == 0;
}

static int freeze(int on)
{
    int frozen = atomic_load(&program.frozen);

    do {
        if (!on && frozen == 0)
            return -EINVAL;
    } while (!atomic_compare_exchange_weak(&program.frozen, &frozen, frozen + (on ? 1 : -1)));
    if (!on && frozen == 1)
        agent_notify(); /* the control thread applies the target that came meanwhile */
    return 0;
}

bool core_frozen(void)
{
    return atomic_load(&program.frozen) > 0;
}

static int on_change(agent_change_fn fn, void *arg)
{
    agent_start();
    pthread_mutex_lock(&program.lock);
    program.on_change = fn;
    program.on_change_arg = arg;
    pthread_mutex_unlock(&program.lock);
    return 0;
}

void program_changed(void)
{
    struct agent_state state;
    agent_change_fn fn;
    void *arg;

    pthread_mutex_lock(&program.lock);
    fn = program.on_change;
    arg = program.on_change_arg;
    pthread_mutex_unlock(&program.lock);
    if (!fn)
        return;
    get_state(&state);
    fn(&state, arg);
}

void program_settled(uint64_t generation)
{
    atomic_store(&program.settled, generation);
}

static uint64_t get_settled(void)
{
    return atomic_load(&program.settled);
}

static int report_progress(uint64_t done, uint64_t total, const char *unit)
{
    uint32_t seq = atomic_load_explicit(&program.progress_seq, memory_order_relaxed);
    size_t i = 0;

    agent_start();
    /* The number is odd during a write; a second writer at that moment drops its report. */
    if ((seq & 1) || !atomic_compare_exchange_strong(&program.progress_seq, &seq, seq + 1))
        return 0;
    atomic_store(&program.done, done);
    atomic_store(&program.total, total);
    for (; unit && unit[i] && i < PROTO_SHORT_MAX - 1; i++)
        atomic_store_explicit(&program.unit[i], unit[i], memory_order_relaxed);
    atomic_store_explicit(&program.unit[i], '\0', memory_order_relaxed);
    atomic_store(&program.progress_seq, seq + 2);
    return 0;
}

void program_progress(uint64_t *ret_done, uint64_t *ret_total, char ret_unit[PROTO_SHORT_MAX])
{
    uint32_t seq;

    do {
        seq = atomic_load(&program.progress_seq);
        *ret_done = atomic_load(&program.done);
        *ret_total = atomic_load(&program.total);
        for (size_t i = 0; i < PROTO_SHORT_MAX; i++)
            ret_unit[i] = atomic_load_explicit(&program.unit[i], memory_order_relaxed);
        /* A preempted writer must not hold up the control thread, so the reader gives up soon. It
         * may then mix two reports, which does no harm: the next heartbeat is right again. */
    } while (!(seq & 1) && seq != atomic_load(&program.progress_seq));
    ret_unit[PROTO_SHORT_MAX - 1] = '\0';
}

static uint64_t request_begin(void)
{
    if (!atomic_load_explicit(&program.serves, memory_order_acquire)) {
        if (!agent_start())
            return 0;
        atomic_store(&program.serves, true);
    }
    return requests_begin();
}

static int declare(uint32_t max)
{
    struct agent_target target;

    if (max > PROTO_THREADS_MAX)
        return -ERANGE;
    if (!agent_start())
        return -ENOENT;
    core_target(&target);
    atomic_store(&program.max, max);
    atomic_store(&program.active, max);
    atomic_store(&program.wanted, program_threads(&target));
    agent_notify();
    return 0;
}

static int report_active(uint32_t active)
{
    uint32_t max = atomic_load(&program.max);

    if (max == 0)
        return -EINVAL;
    if (active > max)
        return -ERANGE;
    atomic_store(&program.placed_ns, clock_now_ns());
    if (atomic_exchange(&program.active, active) != active)
        agent_notify();
    return 0;
}

__attribute__((visibility("default"))) extern const struct agent_program_api tide_agent_program_api;
const struct agent_program_api tide_agent_program_api = {
    .size = sizeof(struct agent_program_api),
    .get = get_state,
    .set_local = set_local,
    .freeze = freeze,
    .on_change = on_change,
    .progress = report_progress,
    .declare = declare,
    .report_active = report_active,
    .settled = get_settled,
    .request_begin = request_begin,
    .request_end = requests_end,
};

/* ---- backend "program" ---- */

static bool backend_settled(void)
{
    return atomic_load(&program.max) == 0 ||
           atomic_load(&program.active) == atomic_load(&program.wanted);
}

static bool backend_apply(const struct agent_target *target)
{
    atomic_store(&program.received_ns, clock_now_ns());
    atomic_store(&program.wanted, program_threads(target));
    return backend_settled();
}

static void backend_measure(struct proto_ack *ack)
{
    uint64_t placed_ns = atomic_load(&program.placed_ns);

    if (atomic_load(&program.max) == 0 || placed_ns <= ack->received_ns)
        return;
    if (placed_ns > ack->placed_ns)
        ack->placed_ns = placed_ns;
    if (placed_ns - ack->sent_ns > ack->lag_ns)
        ack->lag_ns = placed_ns - ack->sent_ns;
}

static bool backend_describe(struct proto_backend *b)
{
    uint32_t max = atomic_load(&program.max);

    if (max == 0)
        return false;
    b->malleable = 1;
    b->max_intra = max;
    b->target_intra = atomic_load(&program.wanted);
    b->active_intra = atomic_load(&program.active);
    snprintf(b->name, sizeof(b->name), "program");
    return true;
}

static void backend_watch(uint64_t now_ns)
{
    (void)now_ns;
}

static uint64_t backend_tasks(void)
{
    return 0;
}

static void backend_after_fork(void)
{
    pthread_mutex_init(&program.lock, NULL);
    program.on_change = NULL;
    atomic_store(&program.serves, false);
    atomic_store(&program.max, 0);
    atomic_store(&program.frozen, 0);
    /* The parent goes on telling its own, and jobs add up their processes. */
    atomic_store(&program.done, 0);
    atomic_store(&program.total, 0);
    atomic_store(&program.unit[0], '\0');
    atomic_store(&program.progress_seq, 0); /* a thread of the parent may have been writing */
}

const struct agent_backend program_backend = {
    .name = "program",
    .apply = backend_apply,
    .settled = backend_settled,
    .measure = backend_measure,
    .describe = backend_describe,
    .watch = backend_watch,
    .tasks = backend_tasks,
    .after_fork = backend_after_fork,
};
