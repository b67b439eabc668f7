/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate: makes the workers of a runtime's thread pool sleep and wake up one by one.
 *
 * A pool of n workers has one struct gate with a limit; workers with an id >= limit park. The pool
 * calls (through a backend's hooks) gate_pass() between two closures, and gate_idle_enter() and
 * gate_idle_leave() around its own sleep. A worker is
 *
 *   BUSY    anywhere between two gates, perhaps inside a closure
 *   IDLE    in the pool's own sleep: it cannot run a closure before gate_idle_leave() lets it
 *   PARKED  asleep here
 *   GONE    without a thread: it has left the pool, or has not entered it yet
 *
 * The gate is settled when no worker >= limit is BUSY and none < limit is PARKED. An
 * acknowledgement says exactly this. States and limit are sequentially consistent: a worker
 * stores its state before it loads the limit, and gate_set() stores the limit before it reads the
 * states. So at least one side sees the other.
 *
 * gate_pass(), gate_idle_*(): the worker itself; gate_set() and the readers: the agent's control
 * thread (one at a time). No allocation but in gate_init(); no lock anywhere.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum gate_state { GATE_GONE, GATE_BUSY, GATE_IDLE, GATE_PARKED, GATE_STATE_MAX };

struct gate;

/* Each has a cache line of its own, because its worker writes to it after every closure. */
struct gate_worker {
    struct gate *gate;
    uint32_t id;
    _Atomic uint32_t state;      /* enum gate_state */
    _Atomic uint32_t wake;       /* futex word, counts the wake-ups */
    _Atomic int32_t tid;         /* 0: no thread yet */
    _Atomic uint64_t passes;     /* gates passed: about the number of closures run */
    _Atomic uint64_t arrived_ns; /* end of the closure before the last parking */
    _Atomic uint64_t placed_ns;  /* last time it was parked or woke up */
    uint64_t cpu_before_ns;      /* CPU time when the limit was set; control thread */
} __attribute__((aligned(64)));

struct gate {
    _Atomic uint32_t limit; /* workers with this id or a higher one park; n or more: none */
    uint32_t n;
    uint32_t capacity;            /* workers allocated, n or more */
    struct gate_worker *worker;   /* n of them */
    _Atomic uint32_t watched;     /* the control thread waits for this gate to settle */
    void (*nudge)(struct gate *); /* makes a worker look at the pool's queues; any thread */
    void (*settled)(void);        /* wakes the control thread; async-signal-safe */
};

/* The timings of the last change of the limit; CLOCK_MONOTONIC. */
struct gate_timing {
    uint64_t closure_end_ns; /* of the worst worker that held a closure; 0: none did */
    uint64_t placed_ns;      /* when the last worker was in place */
    uint64_t longest_ns;     /* longest from @received_ns to the end of a held closure */
    uint64_t lag_ns;         /* worst, see struct proto_ack */
    uint64_t surplus_cpu_ns; /* CPU time of the workers >= limit since gate_set() */
};

/*
 * Prepares @gate for @n workers, none parked; keeps the callbacks. Reuses memory of an earlier use
 * of the struct when it is large enough, and never frees it, because a worker on its way out may
 * still read it. Returns 0, -ENOMEM or -EINVAL (n = 0 or above 4096).
 */
int gate_init(struct gate *gate, uint32_t n, void (*nudge)(struct gate *), void (*settled)(void));

/*
 * The worker @id enters or leaves the pool; its own thread calls. A surplus worker parks on entry,
 * because its queue may hold a closure already. gate_enter() returns NULL for an unknown id.
 */
struct gate_worker *gate_enter(struct gate *gate, uint32_t id);
void gate_leave(struct gate_worker *worker);

void gate_park(struct gate_worker *worker);

/* Called between two closures, with none held: sleeps while the worker is surplus. */
static inline void gate_pass(struct gate_worker *worker)
{
    uint64_t passes = atomic_load_explicit(&worker->passes, memory_order_relaxed);

    atomic_store_explicit(&worker->passes, passes + 1, memory_order_relaxed);
    if (__builtin_expect(
            worker->id >= atomic_load_explicit(&worker->gate->limit, memory_order_relaxed), 0))
        gate_park(worker);
}

/* Called before the pool's own sleep: parks a surplus worker, then marks the worker idle. */
void gate_idle_enter(struct gate_worker *worker);

/*
 * Called after the pool's own sleep. Returns true when the worker may go on, false when it is
 * surplus: it must then give back the closure that it may hold, and call gate_park().
 */
bool gate_idle_leave(struct gate_worker *worker);

/*
 * Sets the limit (at least 1: worker 0 never parks; above n means n), wakes the workers below it
 * and starts the clocks. Returns true when the gate is settled at once; otherwise the last worker
 * that takes its place calls gate->settled().
 */
bool gate_set(struct gate *gate, uint32_t limit);

/*
 * An idle worker that wakes up in vain unsettles the gate for a moment, perhaps just after the last
 * report. A caller that then finds the gate unsettled must watch it again. Returns as gate_set().
 */
bool gate_watch(struct gate *gate);

bool gate_settled(const struct gate *gate);

/* Returns true when the worker holds a closure and sleeps in it (reads /proc). */
bool gate_blocked(const struct gate_worker *worker);
uint64_t gate_cpu_ns(const struct gate_worker *worker); /* CPU time of its thread; 0: unknown */

uint32_t gate_active(const struct gate *gate); /* workers neither parked nor gone */
uint64_t gate_passes(const struct gate *gate); /* sum over the workers */

/* @sent_ns: when the command was sent, @received_ns: when gate_set() was called for it. */
void gate_measure(const struct gate *gate, uint64_t sent_ns, uint64_t received_ns,
                  struct gate_timing *ret_timing);
