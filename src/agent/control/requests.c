/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that the program serves, as it tells them by tide_request_begin() and
 * tide_request_end(): how many are in flight, and how long they took. While it tells none, a call
 * of a runtime that answers one (ONNX Runtime's Run) is taken for a request, if the daemon wants
 * that: the outermost of its thread. Calls of several runtimes are counted together. Where the user
 * has asked for requests from sockets, these are in the place of all calls. The program's
 * threads only add to atomics. One of them wakes the control thread when more are in flight than
 * the daemon thinks by far, at most once for each message.
 */
#include "agent/agent.h"

#include "base/clock.h"
#include "base/latency.h"

#include <stdatomic.h>
#include <string.h>

#define PERIOD_NS (100 * NS_PER_MS) /* between two messages */
#define URGENT_NS (10 * NS_PER_MS)  /* … when many more are in flight than the last one said */
#define TRIES     64                /* to read two counts of the same moment */

#define CALLS_FIRST 8 /* that do not count, of a runtime that trains, too */

#define LINE __attribute__((aligned(64)))

/* Requests that are told, or those that are calls. */
struct counts {
    /* each request writes these */
    LINE _Atomic uint64_t begun;
    _Atomic uint64_t ended;
    _Atomic uint32_t most; /* in flight, since the last message */
    LINE _Atomic uint32_t bucket[LATENCY_BUCKETS];
};

static struct requests {
    struct counts told, called;
    /* each request reads these */
    LINE _Atomic bool urgent;   /* the control thread has been woken for a message */
    _Atomic bool tells;         /* the program has told one: calls are none */
    _Atomic uint32_t wanted;    /* by the daemon: runtimes whose calls are, a bit each */
    _Atomic uint32_t first;     /* calls that show that the process serves, up to CALLS_FIRST */
    _Atomic uint32_t runtime;   /* of the first call; 0: none yet */
    _Atomic uint32_t in_flight; /* by the last message … */
    _Atomic uint32_t told_most;
    _Atomic uint64_t told_ns; /* … and its time; 0: none */
    uint64_t since_ns;        /* a child of fork(): what began before is its parent's */
    /* control thread */
    uint32_t sources; /* that the daemon understands, a bit each; the program's word is always */
    uint32_t told_source;
    uint64_t told_ended;
    uint64_t retry_ns; /* no message before; 0: the last one was sent */
} requests;

/* Calls that the thread is in, each within the one before. */
static __thread unsigned calls __attribute__((tls_model("initial-exec")));
__thread bool requests_trained __attribute__((tls_model("initial-exec")));

static uint32_t in_flight(uint64_t begun, uint64_t ended)
{
    uint64_t n = begun > ended ? begun - ended : 0; /* fewer began: the program ended one twice */

    return n < PROTO_IN_FLIGHT_MAX ? (uint32_t)n : PROTO_IN_FLIGHT_MAX;
}

static void raise_most(struct counts *c, uint32_t now)
{
    uint32_t most = atomic_load_explicit(&c->most, memory_order_relaxed);

    while (now > most && !atomic_compare_exchange_weak(&c->most, &most, now))
        ;
}

/* Requests in flight that are no news to the daemon: for a while also the most of its last message,
 * so that one short request after the other does not wake the control thread each time. */
static uint32_t known(uint64_t now_ns)
{
    uint64_t told_ns = atomic_load_explicit(&requests.told_ns, memory_order_relaxed);

    return atomic_load_explicit(now_ns - told_ns < PERIOD_NS ? &requests.told_most
                                                             : &requests.in_flight,
                                memory_order_relaxed);
}

/* ---- the program's threads ---- */

static uint64_t begin(struct counts *c)
{
    uint64_t now_ns = clock_now_ns(), begun;
    uint32_t now;

    begun = atomic_fetch_add(&c->begun, 1) + 1;
    now = in_flight(begun, atomic_load(&c->ended));
    raise_most(c, now);
    if (now > 2 * known(now_ns) && !atomic_load(&requests.urgent) &&
        !atomic_exchange(&requests.urgent, true))
        agent_notify();
    return now_ns;
}

static void end(struct counts *c, uint64_t began_ns)
{
    uint64_t now_ns = clock_now_ns();

    if (began_ns == 0 || began_ns < requests.since_ns || began_ns > now_ns)
        return;
    atomic_fetch_add_explicit(&c->bucket[latency_bucket(now_ns - began_ns)], 1,
                              memory_order_relaxed);
    atomic_fetch_add(&c->ended, 1);
}

uint64_t requests_begin(void)
{
    if (!atomic_load_explicit(&requests.tells, memory_order_relaxed))
        atomic_store(&requests.tells, true);
    return begin(&requests.told);
}

void requests_end(uint64_t began_ns)
{
    end(&requests.told, began_ns);
}

bool requests_want_calls(enum proto_requests source)
{
    return (atomic_load_explicit(&requests.wanted, memory_order_relaxed) >> source & 1) &&
           !atomic_load_explicit(&requests.tells, memory_order_relaxed);
}

uint64_t requests_call_begin(enum proto_requests source, bool (*answers)(void))
{
    uint32_t none = 0;

    if (calls++ > 0 || !requests_want_calls(source) || (answers && !answers()))
        return 0;
    if (!atomic_load_explicit(&requests.runtime, memory_order_relaxed))
        atomic_compare_exchange_strong(&requests.runtime, &none, source);
    return begin(&requests.called);
}

uint64_t requests_socket_begin(void)
{
    if (!requests_want_calls(PROTO_REQUESTS_SOCKETS))
        return 0;
    atomic_store_explicit(&requests.runtime, PROTO_REQUESTS_SOCKETS, memory_order_relaxed);
    return begin(&requests.called);
}

bool requests_serves(bool trains)
{
    if (requests_trained)
        return false;
    if (atomic_load_explicit(&requests.first, memory_order_relaxed) >= CALLS_FIRST)
        return true;
    if (!trains)
        atomic_fetch_add(&requests.first, 1);
    return false;
}

/* The child of a fork() in a call comes back from calls that it has not begun. */
void requests_call_left(void)
{
    if (calls > 0)
        calls--;
}

void requests_call_answered(uint64_t began_ns)
{
    if (began_ns)
        end(&requests.called, began_ns);
}

void requests_call_failed(uint64_t began_ns)
{
    if (began_ns && began_ns >= requests.since_ns)
        atomic_fetch_add(&requests.called.ended, 1);
}

void requests_call_end(uint64_t began_ns)
{
    requests_call_left();
    requests_call_answered(began_ns);
}

void requests_call_returned(uint64_t began_ns, bool failed)
{
    requests_call_left();
    if (failed)
        requests_call_failed(began_ns);
    else
        requests_call_answered(began_ns);
}

/* ---- the control thread ---- */

static enum proto_requests source(void)
{
    return atomic_load(&requests.tells) ? PROTO_REQUESTS_TOLD : atomic_load(&requests.runtime);
}

static struct counts *counts_of(enum proto_requests source)
{
    return source == PROTO_REQUESTS_TOLD ? &requests.told : &requests.called;
}

/*
 * Returns how many are in flight, and how many have ended by then. Whatever begins between two
 * looks, perhaps many where this thread had to wait for a core, must not look as if it were in
 * flight. Where requests end faster than this can look, the closest of some looks will do.
 */
static uint32_t count(const struct counts *c, uint64_t *ret_ended)
{
    uint64_t ended = atomic_load(&c->ended);
    uint32_t least = UINT32_MAX;

    for (unsigned i = 0; i < TRIES; i++) {
        uint32_t now = in_flight(atomic_load(&c->begun), ended);
        uint64_t again = atomic_load(&c->ended);

        if (now < least || again == ended) {
            least = now;
            *ret_ended = ended;
        }
        if (again == ended)
            break;
        ended = again;
    }
    return least;
}

uint64_t requests_due_ns(void)
{
    uint64_t told_ns = atomic_load(&requests.told_ns), due_ns = UINT64_MAX, ended;
    enum proto_requests from = source();

    if (from != PROTO_REQUESTS_TOLD && !(requests.sources >> from & 1))
        return UINT64_MAX;
    if (atomic_load(&requests.urgent))
        due_ns = told_ns + URGENT_NS;
    else if (count(counts_of(from), &ended) > 0 || ended != requests.told_ended ||
             (ended > 0 && from != requests.told_source))
        due_ns = told_ns + PERIOD_NS;
    return due_ns > requests.retry_ns ? due_ns : requests.retry_ns;
}

void requests_read(uint64_t now_ns, struct proto_latency *ret)
{
    struct counts *c;
    uint32_t now;

    atomic_store(&requests.urgent, false); /* first: what begins from now on may be missing below */
    ret->source = source();
    c = counts_of(ret->source);
    now = count(c, &ret->ended);
    for (unsigned b = 0; b < LATENCY_BUCKETS; b++)
        ret->bucket[b] = atomic_load_explicit(&c->bucket[b], memory_order_relaxed);
    ret->now_ns = now_ns;
    ret->begun = ret->ended + now;
    ret->most_in_flight = atomic_exchange(&c->most, now);
    if (ret->most_in_flight < now)
        ret->most_in_flight = now;
}

void requests_told(const struct proto_latency *told, bool sent)
{
    if (!sent) {
        raise_most(counts_of(told->source), told->most_in_flight);
        requests.retry_ns = told->now_ns + PERIOD_NS;
        return;
    }
    requests.retry_ns = 0;
    requests.told_ended = told->ended;
    requests.told_source = told->source;
    atomic_store(&requests.in_flight, (uint32_t)(told->begun - told->ended));
    atomic_store(&requests.told_most, told->most_in_flight);
    atomic_store(&requests.told_ns, told->now_ns);
}

void requests_untold(void)
{
    static const struct proto_latency nothing;

    requests_told(&nothing, true);
}

void requests_wanted(uint32_t sources, bool calls_too)
{
    requests.sources = sources;
    atomic_store(&requests.wanted, calls_too ? sources : 0);
}

void requests_after_fork(void)
{
    memset(&requests, 0, sizeof(requests));
    requests.since_ns = clock_now_ns();
    calls = 0; /* a child forked in a call may never come back from it */
    /* requests_trained stays: the child of a training's thread is most likely a part of it. */
}
