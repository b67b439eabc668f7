/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/latency.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/job/job.h"

#include <assert.h>
#include <string.h>

/* A request in flight for so long, while nothing moves, never ends. */
#define FORGOTTEN_NS (60 * NS_PER_S)

/* Requests in flight in all of its processes but @except. */
static uint32_t in_flight_but(const struct job *j, const struct process *except)
{
    uint64_t all = 0;

    for (const struct process *p = j->processes; p; p = p->next)
        all += p == except ? 0 : p->latency.begun - p->latency.ended;
    return all < PROTO_IN_FLIGHT_MAX ? (uint32_t)all : PROTO_IN_FLIGHT_MAX;
}

static uint32_t in_flight(const struct job *j, uint64_t now_ns)
{
    return now_ns - j->latency.seconds.moved_ns < FORGOTTEN_NS ? in_flight_but(j, NULL) : 0;
}

static void roll(struct job *j, uint64_t now_ns)
{
    latency_seconds_roll(&j->latency.seconds, (uint64_t)j->asked.attributes.slo_us * NS_PER_US,
                         in_flight(j, now_ns), now_ns);
}

/* Counts that fell are those of another program in the same process; each source has its own. */
static bool began_anew(const struct process_latency *seen, const struct proto_latency *m)
{
    bool anew = m->ended < seen->ended || m->source != seen->source;

    for (unsigned b = 0; b < LATENCY_BUCKETS; b++)
        anew |= m->bucket[b] - seen->bucket[b] > INT32_MAX; /* they may wrap */
    return anew;
}

/*
 * Finds what later counts are compared with. Of a process that an earlier daemon knew, the first
 * message may count requests of hours, so they are its own; others are compared with nothing.
 */
static void find_base(struct process *p, const struct proto_latency *m)
{
    struct process_latency *seen = &p->latency;
    bool recovered = !seen->told && p->job->met_ns != p->job->created_ns;

    if (seen->told && !began_anew(seen, m))
        return;
    *seen = (struct process_latency){.told = true, .source = m->source};
    if (!recovered)
        return;
    seen->ended = m->ended;
    memcpy(seen->bucket, m->bucket, sizeof(seen->bucket));
}

/* Returns whether @m counts. The program's word replaces what calls seemed to say. */
static bool take_source(struct process *p, const struct proto_latency *m)
{
    struct job *j = p->job;

    if (j->latency.seconds.since_ns == 0)
        j->latency.source = m->source;
    if ((j->latency.source == PROTO_REQUESTS_TOLD) == (m->source == PROTO_REQUESTS_TOLD))
        return true;
    if (m->source != PROTO_REQUESTS_TOLD)
        return false;
    j->latency = (struct job_latency){.source = PROTO_REQUESTS_TOLD};
    for (struct process *q = j->processes; q; q = q->next)
        latency_gone(q);
    return true;
}

void latency_told(struct process *p, const struct proto_latency *m, uint64_t now_ns)
{
    struct process_latency *seen = &p->latency;
    struct job_latency *l = &p->job->latency;
    uint32_t most;

    if (!take_source(p, m))
        return;
    latency_seconds_begin(&l->seconds, now_ns);
    roll(p->job, now_ns);
    find_base(p, m);
    if (m->ended > seen->ended || m->begun > seen->begun)
        l->seconds.moved_ns = now_ns;
    for (unsigned b = 0; b < LATENCY_BUCKETS; b++)
        l->seconds.now[b] += m->bucket[b] - seen->bucket[b];
    l->requests += m->ended - seen->ended;
    memcpy(seen->bucket, m->bucket, sizeof(seen->bucket));
    seen->begun = m->begun;
    seen->ended = m->ended;
    most = in_flight_but(p->job, p) + m->most_in_flight;
    l->most_in_flight = most > l->most_in_flight ? most : l->most_in_flight;
}

void latency_gone(struct process *p)
{
    p->latency.begun = p->latency.ended;
}

uint32_t latency_serving(const struct job *j)
{
    uint32_t n = 0;

    for (const struct process *p = j->processes; p; p = p->next)
        n += p->connection && p->latency.ended > 0;
    return n;
}

uint32_t latency_busy(const struct job *j)
{
    uint32_t n = 0;

    for (const struct process *p = j->processes; p; p = p->next)
        n += p->latency.begun > p->latency.ended;
    return n;
}

void latency_judge_anew(struct job *j)
{
    j->latency.seconds.judged = j->latency.seconds.kept = 0;
}

bool latency_window(const struct job *j, uint64_t now_ns, struct latency_window *ret)
{
    return latency_seconds_view(&j->latency.seconds, in_flight(j, now_ns), now_ns, ret);
}

const char *latency_source_name(const struct job_latency *l)
{
    static const char *const names[] = {
        [PROTO_REQUESTS_TOLD] = "told",       [PROTO_REQUESTS_ONNX] = "onnxruntime",
        [PROTO_REQUESTS_PYTORCH] = "pytorch", [PROTO_REQUESTS_TENSORFLOW] = "tensorflow",
        [PROTO_REQUESTS_SOCKETS] = "sockets",
    };
    static_assert(ARRAY_LEN(names) == PROTO_REQUESTS_MAX, "one name for each source");

    return names[l->source];
}

bool latency_look(struct job *j, uint64_t now_ns, struct latency_window *ret)
{
    roll(j, now_ns);
    return latency_window(j, now_ns, ret);
}

uint32_t latency_take_most(struct job *j, uint32_t in_flight)
{
    uint32_t most = j->latency.most_in_flight > in_flight ? j->latency.most_in_flight : in_flight;

    j->latency.most_in_flight = in_flight;
    return most;
}
