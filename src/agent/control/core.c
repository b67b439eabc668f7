/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"

#include "base/clock.h"

#include <pthread.h>

/* Finds the target in force: the newer of the daemon's and the local order, else the limit. */
static struct core {
    pthread_mutex_t lock;
    struct {
        uint64_t epoch;
        uint64_t generation;
        uint32_t intra;
        uint32_t inter;
        uint64_t sent_ns;
        bool valid; /* the daemon is connected and its lease runs */
        bool moves; /* its orders are a policy's, which change */
    } daemon;
    struct {
        uint32_t source; /* enum proto_source; PROTO_SOURCE_LIMIT: none */
        uint32_t intra;
        uint32_t inter;
        uint64_t sent_ns;
        bool unsent; /* the daemon has not got this order yet */
    } local;
    uint32_t allowed_mcpu;
    uint64_t allowed_since_ns;
    struct agent_target target; /* in force */
    uint64_t generation;        /* counts its changes */
    bool changed;
} core = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Recomputes the target in force. core.lock held. */
static void update_target(void)
{
    struct agent_target next = {.allowed_mcpu = core.allowed_mcpu,
                                .sent_ns = core.allowed_since_ns};

    if (core.local.source != PROTO_SOURCE_LIMIT) {
        next.intra = core.local.intra;
        next.inter = core.local.inter;
        next.sent_ns = core.local.sent_ns;
    } else if (core.daemon.valid && core.daemon.intra > 0) {
        next.intra = core.daemon.intra;
        next.inter = core.daemon.inter;
        next.sent_ns = core.daemon.sent_ns;
        next.moves = core.daemon.moves;
    }
    if (next.inter == 0)
        next.inter = next.intra;
    core.changed |= next.moves != core.target.moves;
    core.target.moves = next.moves;
    if (next.intra == core.target.intra && next.inter == core.target.inter &&
        next.allowed_mcpu == core.target.allowed_mcpu)
        return;
    core.target = next;
    core.generation++;
    core.changed = true;
}

void core_target(struct agent_target *ret_target)
{
    pthread_mutex_lock(&core.lock);
    *ret_target = core.target;
    pthread_mutex_unlock(&core.lock);
}

uint32_t core_source(void)
{
    uint32_t source;

    pthread_mutex_lock(&core.lock);
    source = core.local.source != PROTO_SOURCE_LIMIT      ? core.local.source
             : core.daemon.valid && core.daemon.intra > 0 ? (uint32_t)PROTO_SOURCE_DAEMON
                                                          : (uint32_t)PROTO_SOURCE_LIMIT;
    pthread_mutex_unlock(&core.lock);
    return source;
}

uint64_t core_generation(void)
{
    uint64_t generation;

    pthread_mutex_lock(&core.lock);
    generation = core.generation;
    pthread_mutex_unlock(&core.lock);
    return generation;
}

uint32_t core_allowed_mcpu(void)
{
    uint32_t mcpu;

    pthread_mutex_lock(&core.lock);
    mcpu = core.allowed_mcpu;
    pthread_mutex_unlock(&core.lock);
    return mcpu;
}

enum core_daemon_order core_set_daemon(uint64_t epoch, uint64_t generation, uint32_t intra,
                                       uint32_t inter, uint64_t sent_ns)
{
    enum core_daemon_order order = CORE_ORDER_STALE;

    pthread_mutex_lock(&core.lock);
    if (epoch > core.daemon.epoch ||
        (epoch == core.daemon.epoch && generation >= core.daemon.generation)) {
        core.daemon.epoch = epoch;
        core.daemon.generation = generation;
        core.daemon.intra = intra;
        core.daemon.inter = inter;
        core.daemon.sent_ns = sent_ns;
        core.daemon.valid = true;
        /* The newest order wins. An unsent local order is newer, and the daemon gets it next. */
        if (!core.local.unsent)
            core.local.source = PROTO_SOURCE_LIMIT;
        update_target();
        order = CORE_ORDER_NEW;
    }
    pthread_mutex_unlock(&core.lock);
    return order;
}

void core_set_moves(bool moves)
{
    pthread_mutex_lock(&core.lock);
    core.daemon.moves = moves;
    update_target();
    pthread_mutex_unlock(&core.lock);
}

static void set_daemon_valid(bool valid)
{
    pthread_mutex_lock(&core.lock);
    core.daemon.valid = valid;
    update_target();
    pthread_mutex_unlock(&core.lock);
}

void core_daemon_gone(void)
{
    pthread_mutex_lock(&core.lock);
    core.daemon.intra = 0; /* a lease of the next daemon must not revive this daemon's order */
    core.daemon.inter = 0;
    core.daemon.valid = false;
    update_target();
    pthread_mutex_unlock(&core.lock);
}

void core_daemon_lost(void)
{
    set_daemon_valid(false);
}

void core_daemon_found(void)
{
    set_daemon_valid(true);
}

void core_set_local(enum proto_source source, uint32_t intra, uint32_t inter)
{
    pthread_mutex_lock(&core.lock);
    core.local.source = intra > 0 ? source : PROTO_SOURCE_LIMIT;
    core.local.intra = intra;
    core.local.inter = inter;
    core.local.sent_ns = clock_now_ns();
    core.local.unsent = true;
    update_target();
    pthread_mutex_unlock(&core.lock);
    agent_notify();
}

bool core_take_local(uint32_t *ret_source, uint32_t *ret_intra, uint32_t *ret_inter)
{
    bool unsent;

    pthread_mutex_lock(&core.lock);
    unsent = core.local.unsent;
    core.local.unsent = false;
    if (unsent) {
        *ret_source =
            core.local.source == PROTO_SOURCE_LIMIT ? PROTO_SOURCE_API : core.local.source;
        *ret_intra = core.local.intra;
        *ret_inter = core.local.inter;
    }
    pthread_mutex_unlock(&core.lock);
    return unsent;
}

void core_local_unheard(void)
{
    pthread_mutex_lock(&core.lock);
    core.local.unsent = true;
    pthread_mutex_unlock(&core.lock);
}

void core_local_again(void)
{
    pthread_mutex_lock(&core.lock);
    if (core.local.source != PROTO_SOURCE_LIMIT)
        core.local.unsent = true;
    pthread_mutex_unlock(&core.lock);
}

void core_set_allowed(uint32_t mcpu, uint64_t now_ns)
{
    pthread_mutex_lock(&core.lock);
    if (mcpu != core.allowed_mcpu) {
        core.allowed_mcpu = mcpu;
        core.allowed_since_ns = now_ns;
        update_target();
    }
    pthread_mutex_unlock(&core.lock);
}

bool core_take_change(void)
{
    bool changed;

    pthread_mutex_lock(&core.lock);
    changed = core.changed;
    core.changed = false;
    pthread_mutex_unlock(&core.lock);
    return changed;
}

void core_after_fork(void)
{
    pthread_mutex_init(&core.lock, NULL);
    core.daemon.valid = false;
    core.daemon.intra = core.daemon.inter = 0;
    core.local.unsent = false;
    update_target(); /* no daemon may come, and its order has ended */
}
