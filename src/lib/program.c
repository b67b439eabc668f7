/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program side of tide.h: a thin layer over the agent's table. Any thread may call it; the
 * change callback runs on the agent's own thread.
 */
#include "tide/tide.h"

#include "agent/program_api.h"
#include "lib/sized.h"
#include "proto/proto.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

static_assert((int)TIDE_SOURCE_LIMIT == (int)PROTO_SOURCE_LIMIT, "sources");
static_assert((int)TIDE_SOURCE_DAEMON == (int)PROTO_SOURCE_DAEMON, "sources");
static_assert((int)TIDE_SOURCE_SIGNAL == (int)PROTO_SOURCE_SIGNAL, "sources");
static_assert((int)TIDE_SOURCE_API == (int)PROTO_SOURCE_API, "sources");
static_assert(TIDE_THREADS_MAX == PROTO_THREADS_MAX, "one cap on both sides");

/* A table without entries: agent() looked for the agent and found none. */
static const struct agent_program_api no_agent;

/* Returns the agent's table, or &no_agent. One look-up suffices: no agent is loaded later. */
static const struct agent_program_api *agent(void)
{
    static _Atomic(const struct agent_program_api *) found;
    const struct agent_program_api *api = atomic_load_explicit(&found, memory_order_acquire);

    if (!api) {
        api = dlsym(RTLD_DEFAULT, TIDE_AGENT_PROGRAM_API_SYMBOL);
        if (!api)
            api = &no_agent;
        atomic_store_explicit(&found, api, memory_order_release);
    }
    return api;
}

/* True when the loaded agent's table has @entry. An older agent's table is shorter. */
#define HAS(api, entry) ((api)->size >= SIZED_END(struct agent_program_api, entry) && (api)->entry)

/* Returns why an entry is missing. */
static int missing(const struct agent_program_api *api)
{
    return api == &no_agent ? -ENOENT : -EOPNOTSUPP;
}

static void state_from_agent(const struct agent_state *from, struct tide_state *ret_state)
{
    *ret_state = (struct tide_state){
        .size = sizeof(*ret_state),
        .max = from->max,
        .target = from->target,
        .active = from->active,
        .allowed_mcpu = from->allowed_mcpu,
        .source = from->source,
        .frozen = from->frozen,
        .generation = from->generation,
    };
}

int tide_get(struct tide_state *ret_state)
{
    const struct agent_program_api *api = agent();
    struct agent_state state = {0};
    struct tide_state own;

    if (ret_state->size < SIZED_END(struct tide_state, generation))
        return -EINVAL;
    if (!HAS(api, get))
        return missing(api);
    api->get(&state);
    state_from_agent(&state, &own);
    sized_copy(ret_state, &own, sizeof(own));
    return 0;
}

int tide_set(uint32_t intra, uint32_t inter)
{
    const struct agent_program_api *api = agent();

    if (intra > TIDE_THREADS_MAX || inter > TIDE_THREADS_MAX || (inter && !intra))
        return -ERANGE;
    if (!HAS(api, set_local))
        return missing(api);
    return api->set_local(intra, inter);
}

static int freeze(int on)
{
    const struct agent_program_api *api = agent();

    return HAS(api, freeze) ? api->freeze(on) : missing(api);
}

int tide_freeze(void)
{
    return freeze(1);
}

int tide_thaw(void)
{
    return freeze(0);
}

/*
 * The callback runs under this lock: when tide_on_change returns, the old callback has ended. The
 * lock is recursive, so that a callback may replace itself.
 */
static pthread_mutex_t change_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static tide_change_fn change_fn;
static void *change_arg;

/* A child has neither the thread that held the lock nor threads for the callback to wake. */
static void change_after_fork(void)
{
    change_fn = NULL;
    change_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

static void change_prepare(void)
{
    pthread_atfork(NULL, NULL, change_after_fork);
}

static void change_call(const struct agent_state *from, void *unused)
{
    struct tide_state state;

    state_from_agent(from, &state);
    pthread_mutex_lock(&change_lock);
    if (change_fn)
        change_fn(&state, change_arg);
    pthread_mutex_unlock(&change_lock);
}

int tide_on_change(tide_change_fn fn, void *arg)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct agent_program_api *api = agent();

    if (!HAS(api, on_change))
        return missing(api);
    pthread_once(&once, change_prepare);
    /* The agent keeps change_call for good, since this library is never unloaded. The call takes a
     * lock of the agent, and change_call runs under one: holding ours here could deadlock. */
    if (fn) {
        int r = api->on_change(change_call, NULL);
        if (r < 0)
            return r;
    }
    pthread_mutex_lock(&change_lock);
    change_fn = fn;
    change_arg = arg;
    pthread_mutex_unlock(&change_lock);
    return 0;
}

int tide_declare(uint32_t max)
{
    const struct agent_program_api *api = agent();

    if (max > TIDE_THREADS_MAX)
        return -ERANGE;
    return HAS(api, declare) ? api->declare(max) : missing(api);
}

int tide_active(uint32_t active)
{
    const struct agent_program_api *api = agent();

    return HAS(api, report_active) ? api->report_active(active) : missing(api);
}

int tide_progress(uint64_t done, uint64_t total, const char *unit)
{
    const struct agent_program_api *api = agent();

    if (!HAS(api, progress))
        return TIDE_DROPPED;
    return api->progress(done, total, unit ? unit : "units");
}

uint64_t tide_request_begin(void)
{
    const struct agent_program_api *api = agent();

    return HAS(api, request_begin) ? api->request_begin() : 0;
}

void tide_request_end(uint64_t began)
{
    const struct agent_program_api *api = agent();

    if (began && HAS(api, request_end))
        api->request_end(began);
}
