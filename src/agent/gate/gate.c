/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/gate/gate.h"

#include "base/clock.h"
#include "base/minmax.h"
#include "base/slice.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GATE_WORKERS_MAX 4096

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0l);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0l);
}

/* Returns the CPU time of another thread of this process, 0 when the thread has ended. */
static uint64_t thread_cpu_ns(int32_t tid)
{
    struct timespec ts;
    clockid_t id = (clockid_t)((~(unsigned)tid << 3) | 6); /* the kernel's per-thread CPU clock */

    if (tid == 0 || syscall(SYS_clock_gettime, id, &ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

int gate_init(struct gate *gate, uint32_t n, void (*nudge)(struct gate *), void (*settled)(void))
{
    if (n == 0 || n > GATE_WORKERS_MAX)
        return -EINVAL;
    if (n > gate->capacity) {
        void *p = NULL;

        if (posix_memalign(&p, 64, n * sizeof(struct gate_worker)) != 0)
            return -ENOMEM;
        gate->worker = p;
        gate->capacity = n;
    }
    gate->n = n;
    memset(gate->worker, 0, gate->n * sizeof(struct gate_worker));
    for (uint32_t id = 0; id < gate->n; id++) {
        gate->worker[id].gate = gate;
        gate->worker[id].id = id;
    }
    atomic_store(&gate->limit, gate->n);
    atomic_store(&gate->watched, 0);
    gate->nudge = nudge;
    gate->settled = settled;
    return 0;
}

/* Wakes the control thread if this worker was the last one that the gate waited for. */
static void report(struct gate *gate)
{
    if (atomic_load(&gate->watched) && gate_settled(gate) && atomic_exchange(&gate->watched, 0))
        gate->settled();
}

void gate_leave(struct gate_worker *worker)
{
    atomic_store(&worker->tid, 0);
    atomic_store(&worker->state, GATE_GONE);
    report(worker->gate);
}

static bool surplus(const struct gate_worker *worker)
{
    return worker->id >= atomic_load(&worker->gate->limit);
}

void gate_park(struct gate_worker *worker)
{
    struct gate *gate = worker->gate;
    uint64_t slice_ns = 0;
    bool nudged = false;
    int saved = errno;

    atomic_store(&worker->arrived_ns, clock_now_ns());
    while (surplus(worker)) {
        uint32_t wake = atomic_load(&worker->wake);

        atomic_store(&worker->placed_ns, clock_now_ns());
        atomic_store(&worker->state, GATE_PARKED);
        if (surplus(worker)) {
            report(gate);
            /*
             * This worker's wake-up may have been for a closure that is still queued. The nudge
             * makes another worker look, or the closure would wait for the next wake-up. It comes
             * after PARKED, because the woken worker may take this core at once.
             */
            if (!nudged)
                gate->nudge(gate);
            nudged = true;
            slice_ns = slice_set(SLICE_SHORT_NS);
            futex_wait(&worker->wake, wake);
        }
        atomic_store(&worker->state, GATE_BUSY);
        atomic_store(&worker->placed_ns, clock_now_ns());
        if (slice_ns)
            slice_set(slice_ns);
    }
    report(gate);
    errno = saved;
}

struct gate_worker *gate_enter(struct gate *gate, uint32_t id)
{
    struct gate_worker *worker;

    if (id >= gate->n)
        return NULL;
    worker = &gate->worker[id];
    atomic_store(&worker->tid, (int32_t)syscall(SYS_gettid));
    atomic_store(&worker->state, GATE_BUSY);
    if (surplus(worker))
        gate_park(worker);
    return worker;
}

void gate_idle_enter(struct gate_worker *worker)
{
    atomic_store(&worker->state, GATE_IDLE);
    if (__builtin_expect(surplus(worker), 0)) {
        atomic_store(&worker->state, GATE_BUSY);
        gate_park(worker);
        atomic_store(&worker->state, GATE_IDLE);
    }
    if (atomic_load(&worker->gate->watched)) /* must come after the store of IDLE */
        report(worker->gate);
}

bool gate_idle_leave(struct gate_worker *worker)
{
    atomic_store(&worker->state, GATE_BUSY);
    return !surplus(worker);
}

bool gate_set(struct gate *gate, uint32_t limit)
{
    if (limit == 0)
        limit = 1;
    if (limit > gate->n)
        limit = gate->n;
    for (uint32_t id = limit; id < gate->n; id++) {
        struct gate_worker *worker = &gate->worker[id];

        worker->cpu_before_ns = thread_cpu_ns(atomic_load(&worker->tid));
    }
    atomic_store(&gate->limit, limit);
    for (uint32_t id = 0; id < limit; id++) {
        struct gate_worker *worker = &gate->worker[id];

        if (atomic_load(&worker->state) == GATE_PARKED) {
            atomic_fetch_add(&worker->wake, 1);
            futex_wake(&worker->wake);
        }
    }
    return gate_watch(gate);
}

bool gate_watch(struct gate *gate)
{
    atomic_store(&gate->watched, 1);
    return gate_settled(gate) && atomic_exchange(&gate->watched, 0);
}

bool gate_settled(const struct gate *gate)
{
    uint32_t limit = atomic_load(&gate->limit);

    for (uint32_t id = 0; id < gate->n; id++) {
        uint32_t state = atomic_load(&gate->worker[id].state);

        if (id >= limit ? state == GATE_BUSY : state == GATE_PARKED)
            return false;
    }
    return true;
}

bool gate_blocked(const struct gate_worker *worker)
{
    int32_t tid = atomic_load(&worker->tid);
    char path[64];
    char text[128];
    const char *state;
    ssize_t n;
    int fd;

    if (atomic_load(&worker->state) != GATE_BUSY || tid == 0)
        return false;
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    state = strrchr(text, ')');
    return state && (state[2] == 'S' || state[2] == 'D') &&
           atomic_load(&worker->state) == GATE_BUSY;
}

uint64_t gate_cpu_ns(const struct gate_worker *worker)
{
    return thread_cpu_ns(atomic_load(&worker->tid));
}

uint32_t gate_active(const struct gate *gate)
{
    uint32_t limit = atomic_load(&gate->limit);
    uint32_t active = 0;

    for (uint32_t id = 0; id < gate->n; id++) {
        uint32_t state = atomic_load(&gate->worker[id].state);

        active += state == GATE_BUSY || (state == GATE_IDLE && id < limit);
    }
    return active;
}

uint64_t gate_passes(const struct gate *gate)
{
    uint64_t passes = 0;

    for (uint32_t id = 0; id < gate->n; id++)
        passes += atomic_load_explicit(&gate->worker[id].passes, memory_order_relaxed);
    return passes;
}

void gate_measure(const struct gate *gate, uint64_t sent_ns, uint64_t received_ns,
                  struct gate_timing *ret_timing)
{
    struct gate_timing t = {.placed_ns = received_ns};
    uint32_t limit = atomic_load(&gate->limit);

    t.lag_ns = received_ns > sent_ns ? received_ns - sent_ns : 0;
    for (uint32_t id = 0; id < gate->n; id++) {
        const struct gate_worker *worker = &gate->worker[id];
        uint64_t placed = atomic_load(&worker->placed_ns);
        uint64_t arrived = atomic_load(&worker->arrived_ns);
        uint64_t begin = sent_ns;

        if (id >= limit) {
            uint64_t cpu = thread_cpu_ns(atomic_load(&worker->tid));

            t.surplus_cpu_ns += cpu > worker->cpu_before_ns ? cpu - worker->cpu_before_ns : 0;
        }
        if (placed <= received_ns)
            continue; /* this command did not move the worker */
        if (id >= limit && arrived > received_ns) {
            begin = larger_u64(sent_ns, arrived);
            t.longest_ns = larger_u64(t.longest_ns, arrived - received_ns);
            t.closure_end_ns = larger_u64(t.closure_end_ns, arrived);
        }
        t.placed_ns = larger_u64(t.placed_ns, placed);
        t.lag_ns = larger_u64(t.lag_ns, placed - begin);
    }
    *ret_timing = t;
}
