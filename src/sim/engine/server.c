/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine/server.h"

#include <stdlib.h>
#include <string.h>

struct server *server_new(const struct sim_job *job)
{
    struct server *s = calloc(1, sizeof(*s) + job->workers * sizeof(s->serving[0]));

    if (!s)
        return NULL;
    s->requests = job->requests;
    s->begin_ns = job->arrival_ns;
    s->workers = job->workers;
    s->processes = job->processes;
    s->next_look_ns = POLICY_NEVER;
    return s;
}

void server_progress(struct server *s, sim_sum done)
{
    s->service += done;
    s->done += done * s->served;
}

/* The one that needs the most service stands last, among equals the younger. */
static void serve(struct server *s)
{
    while (s->served < s->workers && s->begun < s->arrived) {
        sim_sum until = s->service + ((sim_sum)s->requests->work_ns[s->begun] << 32);
        uint32_t at = s->served;

        while (at > 0 && s->serving[at - 1].until > until)
            at--;
        memmove(&s->serving[at + 1], &s->serving[at], (s->served - at) * sizeof(s->serving[0]));
        s->serving[at].until = until;
        s->serving[at].arrival_ns = s->begin_ns + s->requests->arrival_ns[s->begun];
        s->served++;
        s->begun++;
    }
}

uint64_t server_next_ns(const struct server *s)
{
    if (s->arrived == s->requests->count)
        return POLICY_NEVER;
    return s->begin_ns + s->requests->arrival_ns[s->arrived];
}

sim_sum server_left(const struct server *s)
{
    sim_sum until = s->serving[0].until;

    return until > s->service ? until - s->service : 0;
}

void server_arrive(struct server *s, uint64_t now_ns)
{
    while (server_next_ns(s) <= now_ns)
        s->arrived++;
    latency_seconds_begin(&s->seconds, now_ns + SIM_CLOCK_START_NS);
    s->seconds.moved_ns = now_ns + SIM_CLOCK_START_NS;
    if (server_in_flight(s) > s->most_in_flight)
        s->most_in_flight = server_in_flight(s);
    serve(s);
}

void server_finish(struct server *s, uint64_t now_ns)
{
    uint32_t count = 0;

    while (count < s->served && s->serving[count].until <= s->service) {
        uint64_t took_ns = now_ns - s->serving[count].arrival_ns;

        s->seconds.now[latency_bucket(took_ns)]++;
        sim_quantiles_add(&s->latency_ns, took_ns);
        count++;
    }
    if (count == 0)
        return;
    s->served -= count;
    s->ended += count;
    s->seconds.moved_ns = now_ns + SIM_CLOCK_START_NS;
    memmove(&s->serving[0], &s->serving[count], s->served * sizeof(s->serving[0]));
    serve(s);
}
