/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent: declarations that its files share. It lives in the process of a user's program, so it
 * does nothing before the first pool or API call, keeps errno, prints nothing, and never makes the
 * program fail.
 *
 *   hooks of a backend --agent_start()--> control thread --backend->apply()--> gates
 *   tided, signal, API, own limit --> core (which target is in force?) --> control thread
 */
#pragma once

#include "agent/program_api.h"
#include "proto/proto.h"

#include <stdbool.h>
#include <stdint.h>

struct object; /* process/objects.h */

/* The target for the pools. intra = 0: no target is set, the pools follow the process's limit. */
struct agent_target {
    uint32_t intra; /* active threads of the intra-op pools */
    uint32_t inter;
    uint32_t allowed_mcpu; /* the process's limit at this moment */
    uint64_t sent_ns;      /* when the order was sent, or the agent saw the change */
    bool moves;            /* a policy chose it: it will change */
};

/* A runtime whose threads the agent can govern: a file in runtimes/, and a row in backends.c. */
struct agent_backend {
    const char *name;
    /* The program's threads change at certain points of its code only, which may be minutes away:
     * a target that is not in place soon is reported as waiting. */
    bool needs_safe_point;
    /* Puts a target in place. Control thread. Returns true when all threads are already in place;
     * otherwise the backend calls agent_notify() once they are. */
    bool (*apply)(const struct agent_target *target);
    bool (*settled)(void);
    /* Adds the timings of the last apply() to an acknowledgement. Control thread, once settled. */
    void (*measure)(struct proto_ack *ack);
    /* Fills in all but the header and the index. Returns false while the runtime is not in the
     * process. Any thread of the agent. */
    bool (*describe)(struct proto_backend *ret_backend);
    /* Called about ten times a second. Wakes parked threads when the active ones block on them. */
    void (*watch)(uint64_t now_ns);
    uint64_t (*tasks)(void); /* units of work done since the start */
    /* @o is being loaded; NULL: of no interest. A thread of the program with the loader's lock,
     * before the object's constructors. errno may change. */
    void (*loaded)(const struct object *o);
    void (*after_fork)(void); /* called in the child, which has none of the parent's threads */
};

/* measure() of a backend whose threads were all in place at @placed_ns. */
static inline void agent_measure(struct proto_ack *ack, uint64_t placed_ns)
{
    if (placed_ns <= ack->received_ns)
        return;
    if (placed_ns > ack->placed_ns)
        ack->placed_ns = placed_ns;
    if (placed_ns - ack->received_ns > ack->longest_ns)
        ack->longest_ns = placed_ns - ack->received_ns;
}

extern const struct agent_backend tensorflow_backend, program_backend, openmp_backend,
    pytorch_backend, xgboost_backend, openblas_backend, ggml_backend, tbb_backend, onnx_backend,
    mkl_backend, blis_backend, sockets_backend;

/*
 * The runtimes that the agent knows, up to a NULL; the position is the index in messages. start.c
 * defines the list and backends.c fills it in before main(), so that control/ depends on no
 * runtime.
 */
extern const struct agent_backend *const *agent_backends;

/* for (each_backend(b)) … (*b)->tasks() */
/* NOLINTBEGIN(bugprone-macro-parentheses): it declares @b */
#define each_backend(b)                                                                            \
    const struct agent_backend *const *b = agent_backends;                                         \
    *b;                                                                                            \
    b++
/* NOLINTEND(bugprone-macro-parentheses) */

/* ---- control/start.c: configuration and the beginning ---- */

struct agent_config {
    bool enabled;
    bool openmp;        /* TIDE_OPENMP=on: docs/design/52-openmp.md */
    bool sockets;       /* TIDE_REQUESTS=sockets: requests are read there, sockets/sockets.c */
    bool stalls;        /* TIDE_STALLS=keep: those of tf.data stay, see tensorflow_data.c */
    int signal;         /* number, 0: none */
    uint32_t max;       /* threads to build a pool with */
    uint32_t cpus;      /* of the machine */
    const char *socket; /* a copy of $TIDE_SOCKET, NULL: no daemon */
    char token[PROTO_TOKEN_MAX];
    char job_id[PROTO_ID_MAX];
    char job_name[PROTO_NAME_MAX];
};

/* Valid once agent_start() has returned true. */
extern struct agent_config agent_config;

/*
 * Starts the control thread unless it runs. Hooks and the API's first call use it.
 * Any thread; keeps errno. Returns false when the agent is inert.
 */
bool agent_start(void);

/* ---- process/wake.c: two sockets; all but agent_notify(): control thread ---- */

/* Wakes the control thread. Any thread, also a signal handler. */
void agent_notify(void);
void wake_ensure(void); /* makes them, and makes them again if the program closed it */
void wake_drain(void);
int wake_fd(void);
bool wake_may_sleep(void); /* false: a notice came since wake_drain() */
void wake_slept(void);     /* after each wake_may_sleep() */
void wake_after_fork(void);

/* ---- control/core.c: which target is in force ---- */

/* The target in force. Any thread. */
void core_target(struct agent_target *ret_target);
uint32_t core_source(void); /* enum proto_source */
uint64_t core_generation(void);
uint32_t core_allowed_mcpu(void);
bool core_frozen(void);

/* Orders and events that may change the target in force. Control thread, except core_set_local(),
 * which any thread may call. */
enum core_daemon_order { CORE_ORDER_NEW, CORE_ORDER_STALE, CORE_ORDER_MAX };
enum core_daemon_order core_set_daemon(uint64_t epoch, uint64_t generation, uint32_t intra,
                                       uint32_t inter, uint64_t sent_ns);
void core_set_moves(bool moves); /* whether the daemon's orders come from a policy */
void core_daemon_lost(void);     /* the lease has run out */
void core_daemon_found(void); /* lease renewed: the last order of this connection is valid again */
void core_daemon_gone(void);  /* the daemon hung up: forgets its order */
void core_set_local(enum proto_source source, uint32_t intra, uint32_t inter);
bool core_take_local(uint32_t *ret_source, uint32_t *ret_intra, uint32_t *ret_inter);
void core_local_unheard(void); /* the order just taken was not sent: it will be taken again */
void core_local_again(void);   /* a new daemon needs the local order in force, if there is one */
void core_set_allowed(uint32_t mcpu, uint64_t now_ns);
void core_after_fork(void);
bool core_take_change(void); /* true once after every change of the target in force */

/* ---- control/control.c ---- */
bool control_start(void); /* core_lock held by agent_start() */
void control_after_fork(void);
int control_signal_install(int number); /* returns the number in place, 0: none */

/* ---- control/program.c: the in-process API ---- */
void program_changed(void);                /* control thread, after a target has been applied */
void program_settled(uint64_t generation); /* control thread, when all threads are in place */
void program_progress(uint64_t *ret_done, uint64_t *ret_total, char ret_unit[PROTO_SHORT_MAX]);

/* ---- control/requests.c: requests that the program serves ---- */

/* The program's threads, once the agent runs; see program_api.h. */
uint64_t requests_begin(void);
void requests_end(uint64_t began_ns);

/*
 * A thread of the program is in a call of the runtime @source that may answer a request. The call
 * counts where calls are wanted, it is within no other of its thread, and @answers says so (NULL:
 * each does). @began_ns: what begin() has returned.
 */
bool requests_want_calls(enum proto_requests source);
uint64_t requests_call_begin(enum proto_requests source, bool (*answers)(void));
void requests_call_end(uint64_t began_ns);
/* The same, for a call that may have @failed: it was in flight, and how long it took says nothing.
 */
void requests_call_returned(uint64_t began_ns, bool failed);
/* A request has been received on a socket; requests_call_answered() or requests_call_failed() with
 * what this returns ends it, on any thread. 0: nobody wants it. */
uint64_t requests_socket_begin(void);
/*
 * For @answers of a runtime that trains, too: this call trains nothing by itself. A thread that has
 * computed gradients does not serve, nor does a process that has (@trains) before it has made some
 * calls, which show that it serves; a validation before a training is over by then. These first
 * calls do not count; they are the slow ones of its beginning.
 */
bool requests_serves(bool trains);
extern __thread bool requests_trained; /* this thread has */
/* The same in two steps, where the call returns before it is answered, on any thread. */
void requests_call_left(void);
void requests_call_answered(uint64_t began_ns);
void requests_call_failed(uint64_t began_ns); /* in place of answered() */

/* Control thread. CLOCK_MONOTONIC from when on there is something to tell the daemon; UINT64_MAX:
 * nothing. */
uint64_t requests_due_ns(void);
/* Control thread: fills in all but the header; requests_told() with it says what became of it. */
void requests_read(uint64_t now_ns, struct proto_latency *ret);
void requests_told(const struct proto_latency *told, bool sent);
void requests_untold(void); /* control thread: a daemon that knows nothing yet … */
/* … the sources that it understands, a bit each, and whether it wants calls. */
void requests_wanted(uint32_t sources, bool calls_too);
void requests_after_fork(void);

/* ---- process/resolve.c ---- */

/*
 * Finds the next definition of @symbol behind ours. A library opened with RTLD_LOCAL (by Python)
 * hides its symbols: then the object at @caller is searched, then @soname. Returns NULL when there
 * is none. Keeps errno.
 */
void *resolve_next(const char *symbol, const void *caller, const char *soname);

/* Reads @size bytes of this process's memory at @from. Returns false, and does not fault, when they
 * are not mapped. Hooks check the layout of other libraries' structures with it. */
bool resolve_peek(const void *from, void *to, size_t size);
