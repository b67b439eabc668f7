/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `round-robin`: jobs take turns of a quantum. A running job keeps running while no other
 * needs its place. Waiting jobs stand in the row of queue.h in the order in which they came or were
 * paused. The first takes the free cores. If these are not enough, it pauses as many preemptible
 * jobs as it needs of those that have used up their quantum, the longest turn first. A turn is
 * counted in run time since the job last started or resumed; a resize does not begin a new one.
 * Priorities do not count here.
 *
 * Snapshots do not tell when a turn began, so the state does: it holds, for each running job, the
 * accumulated run time at that moment. A running job without an entry begins its turn now.
 */
#include "policy/division/queue.h"
#include "policy/rules/policies.h"

#include <errno.h>
#include <string.h>

enum { RR_QUANTUM = QUEUE_PARAM_MAX, RR_PARAM_MAX };

#define QUANTUM_MIN INT64_C(1000000)
#define QUANTUM_MAX (INT64_C(24) * 3600 * 1000000000)
#define QUANTUM_DEF (INT64_C(60) * 1000000000)

/* ---- state ----------------------------------------------------------------------------------- */

/* Entries follow, by id. */
struct state_head {
    uint64_t magic; /* marks this policy's state in this layout */
    uint64_t count;
};

#define STATE_MAGIC UINT64_C(0x7469646572723031) /* "tiderr01" */

struct turn {
    uint64_t id;
    uint64_t run_ns; /* run time at the beginning of its turn */
};

static void rr_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room)
{
    queue_room(snapshot, ret_room);
    ret_room->state_bytes = sizeof(struct state_head) + snapshot->job_count * sizeof(struct turn);
}

static bool smaller_id(uint32_t a, uint32_t b, const void *arg)
{
    const struct ticket *ticket = arg;

    return ticket[a].id < ticket[b].id;
}

/* Returns entry @index of the state, which may lie at any address. */
static struct turn turn_at(const struct policy_snapshot *snapshot, uint64_t index)
{
    struct turn turn;

    memcpy(&turn, (const char *)snapshot->state + sizeof(struct state_head) + index * sizeof(turn),
           sizeof(turn));
    return turn;
}

/* Sets how long each running job's turn has lasted; the row is in the order of ids. */
static int read_turns(struct queue *q)
{
    const struct policy_snapshot *s = q->snapshot;
    struct state_head head;
    uint64_t k = 0;

    if (!s->state || s->state_size == 0)
        return 0;
    if (s->state_size < sizeof(head))
        return -EPROTO;
    memcpy(&head, s->state, sizeof(head));
    if (head.magic != STATE_MAGIC || (s->state_size - sizeof(head)) % sizeof(struct turn) ||
        head.count != (s->state_size - sizeof(head)) / sizeof(struct turn))
        return -EPROTO;
    for (uint64_t i = 1; i < head.count; i++)
        if (turn_at(s, i - 1).id >= turn_at(s, i).id)
            return -EPROTO;
    for (uint32_t i = 0; i < s->job_count; i++) {
        const struct policy_job *job = &s->jobs[q->row[i]];
        struct turn turn;

        while (k < head.count && turn_at(s, k).id < job->id)
            k++;
        if (k == head.count)
            break;
        turn = turn_at(s, k);
        /* the run time shrank, so its count began anew, and the turn with it */
        if (turn.id == job->id && job->state == POLICY_RUNNING && turn.run_ns <= job->run_ns)
            q->ticket[q->row[i]].turn_ns = job->run_ns - turn.run_ns;
    }
    return 0;
}

/* The jobs with cores in the plan run now. */
static void write_turns(struct queue *q)
{
    const struct policy_snapshot *s = q->snapshot;
    struct state_head head = {.magic = STATE_MAGIC};
    char *out = (char *)q->plan->state_out + sizeof(head);

    for (uint32_t i = 0; i < s->job_count; i++)
        q->row[i] = i;
    order_sort(q->row, s->job_count, smaller_id, q->ticket);
    for (uint32_t i = 0; i < s->job_count; i++) {
        uint32_t j = q->row[i];
        struct turn turn = {s->jobs[j].id, s->jobs[j].run_ns - q->ticket[j].turn_ns};

        if (q->ticket[j].mcpu == 0 || q->ticket[j].paused_for != QUEUE_NOBODY)
            continue;
        memcpy(out, &turn, sizeof(turn));
        out += sizeof(turn);
        head.count++;
    }
    memcpy(q->plan->state_out, &head, sizeof(head));
    q->plan->state_size = sizeof(head) + head.count * sizeof(struct turn);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static uint64_t yields_ns(const struct queue *q, uint32_t running, uint32_t waiting)
{
    uint64_t ran = q->ticket[running].turn_ns, at;

    if (ran >= (uint64_t)q->unit)
        return q->snapshot->now_ns;
    return __builtin_add_overflow(q->snapshot->now_ns, (uint64_t)q->unit - ran, &at) ? POLICY_NEVER
                                                                                     : at;
}

static bool paused_first(uint32_t a, uint32_t b, const void *arg)
{
    const struct queue *q = arg;
    const struct ticket *x = &q->ticket[a], *y = &q->ticket[b];

    return x->turn_ns != y->turn_ns ? x->turn_ns > y->turn_ns : x->id < y->id;
}

static void explain(struct queue *q, uint32_t j, uint32_t paused_for)
{
    uint64_t ran = q->ticket[j].turn_ns;

    layout_reason(&q->layout, j, POLICY_REASON_QUANTUM, ran < INT64_MAX ? (int64_t)ran : INT64_MAX,
                  (int64_t)q->ticket[paused_for].id, 0, 0);
}

static const struct queue_pausing pausing = {
    .yields_ns = yields_ns,
    .paused_first = paused_first,
    .explain = explain,
};

/* Running jobs stand in front; then the order of arrival or pause. */
static uint64_t stands_since(const struct policy_job *job)
{
    if (job->state == POLICY_RUNNING)
        return 0;
    return job->state == POLICY_PAUSED && job->change_ns ? job->change_ns : job->arrival_ns;
}

static int rr_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                     struct policy_plan *plan)
{
    struct queue queue;
    int r;

    queue_init(&queue, policy, snapshot, plan);
    queue.pausing = &pausing;
    queue.unit = policy_param(policy, snapshot, RR_QUANTUM);
    order_sort(queue.row, snapshot->job_count, smaller_id, queue.ticket);
    r = read_turns(&queue);
    if (r < 0)
        return r;
    for (uint32_t j = 0; j < snapshot->job_count; j++) {
        queue.ticket[j].major = snapshot->jobs[j].state == POLICY_RUNNING ? 0 : 1;
        queue.ticket[j].minor = stands_since(&snapshot->jobs[j]);
        queue.ticket[j].class = 0; /* they take turns: none waits for ever for those of its class */
    }
    queue_decide(&queue);
    write_turns(&queue);
    return 0;
}

static const struct policy_param rr_params[] = {
    QUEUE_PARAMS,
    [RR_QUANTUM] = {.name = "quantum",
                    .min = QUANTUM_MIN,
                    .max = QUANTUM_MAX,
                    .def = QUANTUM_DEF,
                    .unit = "ns",
                    .text = "run time after which a job gives way to one that waits"},
};

const struct policy policy_round_robin = {
    .name = "round-robin",
    .brief = "jobs that do not fit at once take turns of a quantum",
    .params = rr_params,
    .param_count = RR_PARAM_MAX,
    .room = rr_room,
    .decide = rr_decide,
};
