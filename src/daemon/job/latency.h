/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latency of a job's requests, as the agents of its processes tell it (PROTO_LATENCY), and the part
 * of the time in which its promise was kept. Daemon's event loop only; called by peers/agent.c, the
 * plan and the views.
 */
#pragma once

#include "base/latency.h"
#include "proto/proto.h"

#include <stdbool.h>
#include <stdint.h>

struct job;
struct process;

/* Part of each process: the agent's counts at its last message. */
struct process_latency {
    bool told;
    enum proto_requests source;
    uint64_t begun, ended;
    uint32_t bucket[LATENCY_BUCKETS];
};

/*
 * Part of each job. As soon as one of its processes tells requests, those that are calls of a
 * runtime, of any process, are none. Calls of several runtimes count together; the source is the
 * first one's.
 */
struct job_latency {
    enum proto_requests source;
    struct latency_seconds seconds;
    uint32_t most_in_flight; /* since the last latency_take_most() */
    uint64_t requests;       /* ended, as long as this daemon knows the job */
};

/* Takes up an agent's message. */
void latency_told(struct process *p, const struct proto_latency *m, uint64_t now_ns);

/* The agent of a process starts over or is gone: nothing of it is in flight. */
void latency_gone(struct process *p);

/* The promise changed: seconds are counted anew. */
void latency_judge_anew(struct job *j);

/* Number of its processes that tell requests, or whose requests are read; and with some now. */
uint32_t latency_serving(const struct job *j);
uint32_t latency_busy(const struct job *j);

/* Ends seconds that are over. Returns false if no request was told yet. */
bool latency_look(struct job *j, uint64_t now_ns, struct latency_window *ret);

/* The same for who may change nothing. */
bool latency_window(const struct job *j, uint64_t now_ns, struct latency_window *ret);

/* "told", or the runtime whose calls are taken for requests: "pytorch". */
const char *latency_source_name(const struct job_latency *l);

/* Most requests in flight since the last call. */
uint32_t latency_take_most(struct job *j, uint32_t in_flight);
