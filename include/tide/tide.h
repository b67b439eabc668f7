/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threadtide's C API: libtide.so, `cc … $(pkg-config --cflags --libs threadtide)`.
 *
 * Two halves that need not know of each other:
 *
 *   program side      tide_get … tide_progress: a program reads and steers its own threads, through
 *                     the agent that `tide run` loaded into it. Without the agent the program runs
 *                     as ever: the calls answer -ENOENT, progress is accepted and dropped.
 *   controller side   tide_ctl_*: a scheduler lists jobs, sets their threads and moves cores
 *                     between them, over a connection of its own to the daemon (tided).
 *
 * Words: max = threads the pools were built with; target = threads that should be active;
 * active = threads that are not parked; allowed = processor time the process may use.
 *
 * Results: 0, or -errno; a positive value is a kind of success that the function names. Outputs
 * come last, are called ret_x, may be NULL where said, and are untouched on failure. No function
 * prints, exits, raises a signal or leaves a thread behind; errno is not part of the interface.
 *
 * Structs start with their size. The caller sets it before handing a struct in,
 * `struct tide_state now = {.size = sizeof(now)};`, and the library reads and writes no more than
 * that, so that a program built against an older header keeps working. In structs that the library
 * hands to a callback, size says how much of it this library filled in.
 */
#ifndef TIDE_TIDE_H
#define TIDE_TIDE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TIDE_API __attribute__((visibility("default")))
#else
#define TIDE_API
#endif

#define TIDE_THREADS_MAX 4096 /* threads or cores in one request; above is -ERANGE */
#define TIDE_ID_MAX      16   /* bytes of the texts below, with their NUL */
#define TIDE_NAME_MAX    64
#define TIDE_CORES_MAX   128
#define TIDE_UNIT_MAX    32

/* Positive results. */
#define TIDE_PARTIAL 1 /* the deadline passed before every process had acknowledged */
#define TIDE_PENDING 1 /* accepted; takes effect at the thaw, or when a pool exists */
#define TIDE_DROPPED 1 /* no agent is loaded: accepted and dropped */

/* Version of the library, "0.1.0". Static storage, any thread. */
TIDE_API const char *tide_version(void);

/*
 * One English sentence for a result (negative errno) of this interface: "no agent is loaded …".
 * Static storage, any thread, never NULL.
 */
TIDE_API const char *tide_strerror(int result);

/* ------------------------------------------------------------------------------------------ */
/*
 * Program side. Every function may be called from any thread, from a tide_change_fn too, but not
 * from a signal handler (the first call resolves a symbol). Common results:
 *   -ENOENT       no agent is loaded into this process (it was not started by `tide run`)
 *   -EOPNOTSUPP   the loaded agent is older than this library and lacks the function
 */

/* Who asked for the present target. */
enum tide_source {
    TIDE_SOURCE_LIMIT,  /* nobody: it follows the own affinity and cgroup quota */
    TIDE_SOURCE_DAEMON, /* tided's policy, or a controller through tided */
    TIDE_SOURCE_SIGNAL, /* the resize signal */
    TIDE_SOURCE_API     /* tide_set in this process */
};

struct tide_state {
    size_t size;           /* in: sizeof(struct tide_state) */
    uint32_t max;          /* threads; 0: no pool exists yet */
    uint32_t target;       /* threads, ≥ 1; may exceed max */
    uint32_t active;       /* threads */
    uint32_t allowed_mcpu; /* thousandths of a core: affinity and quota, the smaller of the two */
    uint32_t source;       /* enum tide_source */
    uint32_t frozen;       /* 0 or 1: between tide_freeze and tide_thaw */
    uint64_t generation;   /* differs after every change of target */
};

/*
 * Reads the present state. Takes no system call; may wait for a mutex.
 * Returns 0, -ENOENT, or -EINVAL (size is 0 or too small to hold any field).
 */
TIDE_API int tide_get(struct tide_state *ret_state);

/*
 * Sets a local target: @intra active threads in the pools that split one operation, @inter in those
 * that run operations side by side (0: the same as intra). It outranks the daemon's until
 * tide_set(0, 0) hands control back ("automatic"). A program with one pool of its own reads intra.
 * Returns 0 (under way; the callback of tide_on_change tells when), TIDE_PENDING, -ENOENT, or
 * -ERANGE (above TIDE_THREADS_MAX, or inter without intra). Above max, every thread is active.
 */
TIDE_API int tide_set(uint32_t intra, uint32_t inter);

/*
 * Between tide_freeze and tide_thaw the number of active threads does not change: for a phase that
 * must not see it (a measurement, a collective operation with a fixed number of members). Requests
 * that arrive meanwhile are remembered, the latest is applied at the thaw. Calls nest and count for
 * the process, not for the thread.
 * Returns 0, -ENOENT, or -EINVAL (tide_thaw without tide_freeze).
 */
TIDE_API int tide_freeze(void);
TIDE_API int tide_thaw(void);

/* @state is valid during the call only; @arg is what tide_on_change was given. */
typedef void (*tide_change_fn)(const struct tide_state *state, void *arg);

/*
 * Calls @fn after every change of target, on a thread of the agent's, one call at a time. One
 * callback per process: a second call replaces the first, NULL removes it. When tide_on_change
 * returns, the previous callback is not running and will not run again, so @arg may be freed
 * (called from inside the callback: when the callback returns). It therefore waits for a running
 * callback: hold no lock that the callback takes. @fn should return soon; other changes wait. The
 * first call may come at once, when the agent starts here and finds out its own limit.
 * A child of fork() starts without callback, freezes and declared threads: its other threads do
 * not exist.
 * Returns 0, -ENOENT, or -EOPNOTSUPP.
 */
TIDE_API int tide_on_change(tide_change_fn fn, void *arg);

/*
 * The program has worker threads of its own, @max of them, and will follow the target: starts the
 * agent's control thread if nothing did yet, and makes the process controllable under the backend
 * name "program" without any framework. Read the target with tide_get or tide_on_change, park the
 * workers above it, and say so with tide_active. Again with another number: the pool was rebuilt;
 * 0: it is gone. Returns 0, -ENOENT, -EOPNOTSUPP, or -ERANGE (above TIDE_THREADS_MAX).
 */
TIDE_API int tide_declare(uint32_t max);

/*
 * @active of the declared threads are not parked now. Whoever set the target gets the
 * acknowledgement when this number has reached it. Call it when a worker has parked or woken.
 * Returns 0, -ENOENT, -EOPNOTSUPP, -ERANGE (above the declared number), -EINVAL (nothing declared).
 */
TIDE_API int tide_active(uint32_t active);

/*
 * Reports that @done of @total units (0: unknown) are finished; @unit ("steps"; NULL: "units") is
 * copied, at most TIDE_UNIT_MAX - 1 bytes. Shown by `tide ps`; policies learn the job's speed-up
 * from its rate. Lock-free, no system call, cheap enough for every iteration. @done counts from the
 * program's start and should not shrink.
 * Returns 0, or TIDE_DROPPED.
 */
TIDE_API int tide_progress(uint64_t done, uint64_t total, const char *unit);

/* ------------------------------------------------------------------------------------------ */
/*
 * Controller side. A handle belongs to one thread at a time (open one per thread); different
 * handles are independent. After fork() the child's first call opens a connection of its own.
 *
 * JOB is a job's id ("j3"), its name, or the pid of one of its processes in digits; NULL or "" is
 * the job that the calling process itself belongs to.
 *
 * Results common to all that talk to the daemon:
 *   -ECONNREFUSED    no daemon (none was started, or it is gone)
 *   -EACCES          the job belongs to another user; or the socket found by default does
 *   -ESRCH           no such job
 *   -EBUSY           not now: the job is pinned by tide_ctl_set and cannot lend or borrow, or too
 *                    many requests of this handle wait
 *   -ERANGE          more than TIDE_THREADS_MAX threads or cores
 *   -EINVAL          a JOB text of TIDE_NAME_MAX bytes or more, a wrong size field
 *   -ETIMEDOUT       no answer by the deadline (and half a second of grace)
 *   -ECONNRESET      the daemon went away after the request was sent: it may have been done or not
 *   -EPROTONOSUPPORT daemon and library speak different versions
 *   -EBADMSG         the answer makes no sense; the connection was closed
 *   -ENOMEM, -EMFILE and what socket(2) gives
 * A call never hangs. When the daemon was killed and another one started, the next call connects to
 * it by itself. tide_ctl_message has the reason in words.
 */
typedef struct tide_ctl tide_ctl;

struct tide_ctl_options {
    size_t size; /* in: sizeof(struct tide_ctl_options) */
    /*
     * A daemon's directory, or its agent.sock; borrowed during the call. NULL finds it: $TIDE_DIR,
     * $TIDE_SOCKET (set in every job), /run/tide, $XDG_RUNTIME_DIR/tide, /tmp/tide-<uid>.
     */
    const char *path;
    uint32_t timeout_ms; /* deadline of calls that are given none; 0: 5000 */
};

/*
 * Connects to the daemon. @options may be NULL.
 * Returns 0, -ENAMETOOLONG (path longer than a socket's), or one of the common results.
 * The handle is freed with tide_ctl_close.
 */
TIDE_API int tide_ctl_open(const struct tide_ctl_options *options, tide_ctl **ret_ctl);

/* Closes and frees; takes NULL; returns NULL. Nothing that was set is undone. */
TIDE_API tide_ctl *tide_ctl_close(tide_ctl *ctl);

/*
 * The connection's descriptor for poll(2), or -ENOTCONN. Readable: call tide_ctl_poll until it
 * returns 0; do so after a synchronous call too, which keeps what it read on its way. Owned by the
 * handle; ask again after every call, a reconnect may have changed it.
 */
TIDE_API int tide_ctl_fd(const tide_ctl *ctl);

/*
 * What the daemon or the library has to say about the last call on this handle: a sentence, or "".
 * Valid until the next call on the handle.
 */
TIDE_API const char *tide_ctl_message(const tide_ctl *ctl);

struct tide_job {
    size_t size;  /* bytes that this library filled in */
    uint32_t pid; /* first process */
    uint32_t allowed_mcpu;
    uint32_t target; /* threads, as are active and max */
    uint32_t active;
    uint32_t max;
    uint32_t oversubscribed; /* 0 or 1: more active threads than cores allowed to it */
    uint32_t lent;           /* cores given away and not back yet */
    uint32_t borrowed;       /* cores of others */
    uint64_t progress_done;
    uint64_t progress_total; /* 0: unknown */
    uint64_t rate_milli;     /* thousandths of a unit per second */
    char id[TIDE_ID_MAX];
    char state[TIDE_ID_MAX]; /* "starting", "running", "rigid" */
    char name[TIDE_NAME_MAX];
    char cores[TIDE_CORES_MAX]; /* list syntax "0-3,8"; ends in "…" when cut */
    char unit[TIDE_UNIT_MAX];
};

/* @job is valid during the call only. A result other than 0 ends the list and is passed on. */
typedef int (*tide_job_fn)(const struct tide_job *job, void *arg);

/*
 * Calls @fn for every job that the caller may see, by age, after the whole list has arrived; @fn
 * may use the handle. Returns 0, @fn's result, or a common result.
 */
TIDE_API int tide_ctl_list(tide_ctl *ctl, tide_job_fn fn, void *arg);

struct tide_result {
    size_t size;             /* in: sizeof(struct tide_result) */
    int32_t status;          /* what the call returned */
    uint32_t from;           /* threads (tide_ctl_set) or cores (the others) before … */
    uint32_t to;             /* … and after */
    uint32_t oversubscribed; /* 0 or 1 */
    uint64_t latency_ns;     /* from the request's start to the acknowledgement */
    uint32_t request;        /* number of an asynchronous request, see tide_ctl_sent */
    uint32_t reserved;       /* 0 */
};

/*
 * As a deadline: do not wait. The request is sent with one system call and the function returns 0
 * at once (or -EAGAIN: the daemon does not keep up, nothing was sent); @ret_result is not written.
 * Only a failure is answered, and tide_ctl_poll reads it.
 */
#define TIDE_ASYNC UINT32_MAX

/*
 * Pins @job's active threads to @intra and, in its second pool, @inter (0: the same as intra).
 * Both 0: automatic, the policy decides again. Above the machine's cores is accepted and marked
 * oversubscribed. @deadline_ms: how long to wait until every process has acknowledged, which it
 * does when its surplus threads are parked or all wanted ones awake; 0: the handle's timeout;
 * TIDE_ASYNC. @ret_result may be NULL.
 * Returns 0 (also when no pool exists yet: it will start so, tide_ctl_message says it),
 * TIDE_PARTIAL (set, but the deadline came first), or a common result.
 */
TIDE_API int tide_ctl_set(tide_ctl *ctl, const char *job, uint32_t intra, uint32_t inter,
                          uint32_t deadline_ms, struct tide_result *ret_result);

/*
 * Cores that change hands for a while (the terms of DLB's LeWI; docs/api.md maps them). Threads
 * follow the cores: the lender parks first, then the borrower wakes, and the other way round.
 *
 *   lend      @cores of @job's own go into its user's pool; it keeps at least one
 *   borrow    @job takes up to @cores from that pool; ret_result->to says how many it has now
 *   reclaim   everything @job has lent comes back, from borrowers too
 *   return    everything @job has borrowed goes back to its lenders or into the pool
 *
 * A pinned job takes no part: set it to automatic first. @deadline_ms and @ret_result as in
 * tide_ctl_set.
 * Returns 0, TIDE_PARTIAL (a thread was not parked by the deadline, or fewer cores than asked
 * for), -EINVAL (0 cores to lend or borrow), or a common result.
 */
TIDE_API int tide_ctl_lend(tide_ctl *ctl, const char *job, uint32_t cores, uint32_t deadline_ms,
                           struct tide_result *ret_result);
TIDE_API int tide_ctl_borrow(tide_ctl *ctl, const char *job, uint32_t cores, uint32_t deadline_ms,
                             struct tide_result *ret_result);
TIDE_API int tide_ctl_reclaim(tide_ctl *ctl, const char *job, uint32_t deadline_ms,
                              struct tide_result *ret_result);
TIDE_API int tide_ctl_return(tide_ctl *ctl, const char *job, uint32_t deadline_ms,
                             struct tide_result *ret_result);

/* The number of the last asynchronous request on this handle: 1, 2, … 2^31-1, 1; 0: none yet. */
TIDE_API uint32_t tide_ctl_sent(const tide_ctl *ctl);

/*
 * Reads, without waiting, the failure of one asynchronous request: ret_result->request says which,
 * ->status why, tide_ctl_message in words. At most 64 failures are kept until they are read; then
 * the oldest are dropped.
 * Returns 1 (one was read; there may be more), 0 (no more), or -ECONNRESET (the daemon is gone;
 * requests without a word may be lost; the next call reconnects). @ret_result may not be NULL.
 */
TIDE_API int tide_ctl_poll(tide_ctl *ctl, struct tide_result *ret_result);

#ifdef __cplusplus
}
#endif

#endif
