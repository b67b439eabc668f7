/* SPDX-License-Identifier: Apache-2.0 */
#include "tfnode/threads.h"

#include "agent/program_api.h"

#include "base/cleanup.h"
#include "base/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>

#define ERROR_WORD "replica-not-started"

/*
 * RTLD_GLOBAL puts the agent into the scope that libraries opened later search first. So
 * TensorFlow's calls to its own pools find the agent's hooks, as with LD_PRELOAD. But a missing
 * agent stops nothing, and no second exec is needed.
 */
static const struct agent_program_api *load_agent(struct error *err)
{
    const struct agent_program_api *api = dlsym(RTLD_DEFAULT, TIDE_AGENT_PROGRAM_API_SYMBOL);
    char dir[PATH_MAX], path[PATH_MAX + 32];
    void *handle;

    if (!api) {
        if (preload_find(dir, sizeof(dir), err) < 0)
            return NULL;
        snprintf(path, sizeof(path), "%s/$LIB/" PRELOAD_FILE, dir);
        handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (!handle) {
            error_set(err, -ENOENT, "%s", dlerror());
            return NULL;
        }
        api = dlsym(handle, TIDE_AGENT_PROGRAM_API_SYMBOL);
    }
    if (!api || api->size < sizeof(*api)) {
        error_set(err, -EOPNOTSUPP, "the agent is older than tide-tfnode");
        return NULL;
    }
    if (api->set_local(0, 0) < 0) {
        error_set(err, -EOPNOTSUPP, "the agent is switched off (TIDE_DISABLE)");
        return NULL;
    }
    return api;
}

/* Runs on the agent's own thread. */
static void on_change(const struct agent_state *state, void *arg)
{
    const struct threads *t = arg;

    eventfd_write(t->event_fd, 1);
}

static uint32_t count_cpus(void)
{
    cpu_set_t set;

    /* Fails on machines with more than 1,024 CPUs; --threads says how many there. */
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

int threads_init(struct threads *ret, uint32_t threads, struct error *err)
{
    uint64_t generation;

    ret->plain = threads > 0 ? threads : count_cpus();
    ret->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ret->event_fd < 0)
        return error_set(err, -errno, "eventfd: %m");
    ret->api = load_agent(err);
    if (!ret->api)
        return 1;
    ret->api->on_change(on_change, ret);
    return threads > 0 ? threads_set(ret, threads, &generation) : 0;
}

int threads_set(const struct threads *t, uint32_t threads, uint64_t *ret_generation)
{
    struct agent_state state;
    int r;

    if (!t->api)
        return -EOPNOTSUPP;
    r = t->api->set_local(threads, threads);
    if (r < 0)
        return r;
    t->api->get(&state);
    *ret_generation = state.generation;
    return 0;
}

void threads_count(const struct threads *t, bool running, struct threads_count *count)
{
    struct agent_state state;
    uint64_t generation;

    if (!t->api) {
        count->active = count->max = running ? t->plain : 0;
        count->settled = true;
        return;
    }
    generation = t->api->settled(); /* read first, so that the state is never the older one */
    t->api->get(&state);
    count->max = state.max;
    /* Without a pool, or with one whose workers the agent cannot park, the agent reports a settled
     * generation at once. In both cases no worker is active. */
    count->settled = generation >= state.generation && state.max > 0 && state.active > 0;
    if (count->settled) {
        count->generation = generation;
        count->active = state.target < state.max ? state.target : state.max;
    }
}
