/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of one server: a line in order of arrival, of which the first `workers` are served
 * at a time, all with the same speed (live.c says with which). Latency is what a request waits and
 * what it is served. One thread per run; called by the engine.
 *
 *   arrival ──▶ line ──▶ served, up to `workers` ──▶ ended: a duration in histograms
 */
#pragma once

#include "base/latency.h"
#include "policy/core/instances.h"
#include "policy/core/promise.h"
#include "sim/engine/metrics.h"
#include "sim/engine/sim.h"

struct server {
    const struct sim_requests *requests;
    uint64_t begin_ns;            /* its arrival */
    size_t arrived, begun, ended; /* of all its requests */
    uint32_t workers, served;     /* at a time; and at present */
    sim_sum service; /* that a request would have had since the begin, 32 fractional bits */
    sim_sum done;    /* of all together */
    /* as the stage before the policy sees it */
    struct latency_seconds seconds;
    struct promise_state state;
    uint32_t processes; /* 1: any request may have all threads */
    struct instances_state instances;
    struct instances_shape shape;  /* threads 0: even parts */
    uint32_t most_in_flight, told; /* since the last look; at the last look */
    size_t ended_then;             /* at the last look */
    uint64_t next_look_ns;
    struct sim_quantiles latency_ns;
    struct {
        sim_sum until; /* service at its end */
        uint64_t arrival_ns;
    } serving[]; /* those that are served; the first to end first */
};

struct server *server_new(const struct sim_job *job); /* NULL without memory; free() frees it */

/* Each request that is served had @done of service, in ns with 32 fractional bits. */
void server_progress(struct server *s, sim_sum done);

/* Takes what has arrived, or been served, by @now_ns, and serves others. */
void server_arrive(struct server *s, uint64_t now_ns);
void server_finish(struct server *s, uint64_t now_ns);

/* Time of the next arrival, POLICY_NEVER: none; and the service until the next end. */
uint64_t server_next_ns(const struct server *s);
sim_sum server_left(const struct server *s);

/* Threads that a request has at most, where the server has @threads in all; 0: all. */
static inline uint32_t server_threads(const struct server *s, uint32_t threads)
{
    if (s->processes < 2)
        return 0;
    if (s->shape.threads)
        return s->shape.threads;
    return threads > s->processes ? threads / s->processes : 1;
}

static inline uint32_t server_in_flight(const struct server *s)
{
    size_t n = s->arrived - s->ended;

    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static inline bool server_is_done(const struct server *s)
{
    return s->ended == s->requests->count;
}
