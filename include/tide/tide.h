/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threadtide's C API: libtide.so, `cc … $(pkg-config --cflags --libs threadtide)`.
 *
 * It has two halves, each of use without the other:
 *
 *   program side      tide_get … tide_request_end: a program reads and steers its own threads,
 *                     through the agent that `tide run` loaded into it. Without the agent the
 *                     program runs as ever: the calls return -ENOENT, and reports are dropped.
 *   controller side   tide_ctl_*: a controlling program lists jobs, sets their threads and moves
 *                     cores between them, over a connection of its own to the daemon (tided).
 *
 * Words: max = threads that the pools were built with; target = threads that should be active;
 * active = threads that are not parked; allowed = cores that the process may use.
 *
 * Results: 0, or -errno; a positive value is a kind of success that the function names. Outputs
 * come last, are called ret_x, may be NULL where documented, and are untouched on failure. No
 * function prints, exits, raises a signal or leaves a thread behind; none reports through errno.
 *
 * Structs start with their size. The caller sets it before the call,
 * `struct tide_state now = {.size = sizeof(now)};`, and the library reads and writes no more than
 * that. So a program built against an older header keeps working. In structs that the library
 * passes to a callback, size says how many bytes the library filled in.
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

#define TIDE_THREADS_MAX 4096 /* threads or cores in one request; more is -ERANGE */
#define TIDE_ID_MAX      16   /* bytes of the texts below, with their NUL */
#define TIDE_NAME_MAX    64
#define TIDE_CORES_MAX   128
#define TIDE_UNIT_MAX    32

/* Positive results. */
#define TIDE_PARTIAL 1 /* the deadline passed before every process had acknowledged */
#define TIDE_PENDING 1 /* accepted; takes effect at the thaw, or when a pool exists */
#define TIDE_DROPPED 1 /* no agent is loaded: the report was dropped */

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

/* Where the present target comes from. */
enum tide_source {
    TIDE_SOURCE_LIMIT,  /* no target is set: threads follow the process's affinity and quota */
    TIDE_SOURCE_DAEMON, /* tided's policy, or a controlling program through tided */
    TIDE_SOURCE_SIGNAL, /* the resize signal */
    TIDE_SOURCE_API     /* tide_set in this process */
};

struct tide_state {
    size_t size;           /* in: sizeof(struct tide_state) */
    uint32_t max;          /* threads; 0: no pool exists yet */
    uint32_t target;       /* threads, ≥ 1; may exceed max */
    uint32_t active;       /* threads */
    uint32_t allowed_mcpu; /* thousandths of a core: the smaller of affinity and quota */
    uint32_t source;       /* enum tide_source */
    uint32_t frozen;       /* 0 or 1: between tide_freeze and tide_thaw */
    uint64_t generation;   /* differs after every change of target */
};

/*
 * Reads the present state. Makes no system call; may wait for a mutex.
 * Returns 0, -ENOENT, or -EINVAL (size is 0 or too small to hold any field).
 */
TIDE_API int tide_get(struct tide_state *ret_state);

/*
 * Sets a local target: @intra active threads in the pools that split one operation, @inter in those
 * that run operations side by side (0: the same as intra). It outranks the daemon's until
 * tide_set(0, 0) hands control back ("automatic"). A program with one pool of its own uses @intra.
 * Returns 0 (under way; tide_on_change's callback follows), TIDE_PENDING, -ENOENT, or -ERANGE
 * (above TIDE_THREADS_MAX, or inter without intra). With a target above max all threads are active.
 */
TIDE_API int tide_set(uint32_t intra, uint32_t inter);

/*
 * Between tide_freeze and tide_thaw the number of active threads does not change. That suits a
 * measurement, or a collective operation with a fixed number of members. The thaw applies the
 * latest target that arrived meanwhile. Calls nest and count for the process, not for the thread.
 * Returns 0, -ENOENT, or -EINVAL (tide_thaw without tide_freeze).
 */
TIDE_API int tide_freeze(void);
TIDE_API int tide_thaw(void);

/* @state is valid during the call only; @arg is tide_on_change's. */
typedef void (*tide_change_fn)(const struct tide_state *state, void *arg);

/*
 * Calls @fn after every change of target, on a thread of the agent's, one call at a time. One
 * callback per process: a second call replaces the first, NULL removes it. When tide_on_change
 * returns, the previous callback is not running and will not run again, so its @arg may be freed
 * (if the callback itself called it: when the callback returns). It therefore waits for a running
 * callback: hold no lock that the callback takes. @fn should return soon, because other changes
 * wait for it. @fn may run at once, when the agent starts and first reads the process's limit.
 * A child of fork() starts without callback, freezes and declared threads, because the parent's
 * other threads do not exist in it.
 * Returns 0, -ENOENT, or -EOPNOTSUPP.
 */
TIDE_API int tide_on_change(tide_change_fn fn, void *arg);

/*
 * Declares that the program has @max worker threads of its own and follows the target. Starts the
 * agent's control thread if necessary; the process then has a backend "program" and needs no
 * framework. Read the target with tide_get or tide_on_change, park the workers above it, and report
 * with tide_active. Call it again with another number after a rebuild of the pool, with 0 after its
 * end. Returns 0, -ENOENT, -EOPNOTSUPP, or -ERANGE (above TIDE_THREADS_MAX).
 */
TIDE_API int tide_declare(uint32_t max);

/*
 * Reports that @active of the declared threads are not parked now. A target is acknowledged when
 * this number has reached it. Call it when a worker has parked or woken.
 * Returns 0, -ENOENT, -EOPNOTSUPP, -ERANGE (above the declared number), -EINVAL (nothing declared).
 */
TIDE_API int tide_active(uint32_t active);

/*
 * Reports that @done of @total units (0: unknown) are finished; @unit ("steps"; NULL: "units") is
 * copied, at most TIDE_UNIT_MAX - 1 bytes. `tide ps` shows it; policies learn the job's speed-up
 * from the rate. Lock-free, no system call, cheap enough for every iteration. @done counts from the
 * program's start and should not shrink.
 * Returns 0, or TIDE_DROPPED.
 */
TIDE_API int tide_progress(uint64_t done, uint64_t total, const char *unit);

/*
 * A request begins that this server has to answer, and ends. The time in between is its latency, so
 * begin it as soon as the request has come, before it waits for a thread. Any number of requests
 * may be in flight, and each may end on another thread than it began on. Requests within requests
 * count each for itself: tell one of the two. Cheap enough for every request: atomic additions and
 * a look at the clock, no lock, and no system call but to wake the agent's thread when many more
 * are in flight than the daemon knows, at most every 10 ms. The first call may start that thread.
 *
 * tide_request_begin() returns what tide_request_end() takes: when it began, in nanoseconds of
 * CLOCK_MONOTONIC, or 0 without an agent, or with an older one. End each request exactly once, also
 * one that fails; one that never ends counts as in flight until the process ends.
 * tide_request_end(0) does nothing. A child of fork() begins without requests, and ignores the end
 * of one of its parent's.
 */
TIDE_API uint64_t tide_request_begin(void);
TIDE_API void tide_request_end(uint64_t began);

/* ------------------------------------------------------------------------------------------ */
/*
 * Controller side. A handle belongs to one thread at a time (open one per thread); different
 * handles are independent. After fork() the child's first call opens a connection of its own.
 *
 * @job is a job's id ("j3"), its name, or the pid of one of its processes in digits; NULL or "" is
 * the job that the calling process itself belongs to.
 *
 * Results common to all functions that talk to the daemon:
 *   -ECONNREFUSED    no daemon runs
 *   -EACCES          the job, or the socket found by default, belongs to another user
 *   -ESRCH           no such job
 *   -EBUSY           the job is pinned by tide_ctl_set and cannot lend or borrow, or too many
 *                    requests of this handle wait
 *   -ERANGE          more than TIDE_THREADS_MAX threads or cores
 *   -EINVAL          a @job text of TIDE_NAME_MAX bytes or more, a wrong size field
 *   -ETIMEDOUT       no answer by the deadline and half a second after it
 *   -ECONNRESET      the daemon ended before it answered: it may have done what was asked, or not
 *   -EPROTONOSUPPORT daemon and library speak different versions
 *   -EBADMSG         the answer is not valid; the connection was closed
 *   -ENOMEM, -EMFILE and other errors of socket(2)
 * A call never hangs. When the daemon was killed and another one started, the next call connects to
 * the new one by itself. tide_ctl_message gives the reason in words.
 */
typedef struct tide_ctl tide_ctl;

struct tide_ctl_options {
    size_t size; /* in: sizeof(struct tide_ctl_options) */
    /*
     * A daemon's directory, or its agent.sock; borrowed during the call. NULL: the first of
     * $TIDE_DIR, $TIDE_SOCKET (set in every job), /run/tide, $XDG_RUNTIME_DIR/tide,
     * /tmp/tide-<uid>.
     */
    const char *path;
    uint32_t timeout_ms; /* deadline of calls with deadline_ms = 0; 0: 5000 */
};

/*
 * Connects to the daemon. @options may be NULL.
 * Returns 0, -ENAMETOOLONG (path longer than a socket's), or one of the common results.
 * tide_ctl_close frees the handle.
 */
TIDE_API int tide_ctl_open(const struct tide_ctl_options *options, tide_ctl **ret_ctl);

/* Closes and frees; takes NULL; returns NULL. Jobs keep what the handle set. */
TIDE_API tide_ctl *tide_ctl_close(tide_ctl *ctl);

/*
 * Returns the connection's descriptor for poll(2), or -ENOTCONN. When it is readable, call
 * tide_ctl_poll until it returns 0; also after a synchronous call, which keeps the failures that it
 * read. The handle owns the descriptor. Ask again after every call: a reconnect changes it.
 */
TIDE_API int tide_ctl_fd(const tide_ctl *ctl);

/*
 * Returns a sentence of the daemon or the library about the last call on this handle, or "".
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
    uint32_t oversubscribed; /* 0 or 1: it has more active threads than cores */
    uint32_t lent;           /* cores that it lent and has not got back */
    uint32_t borrowed;       /* cores of other jobs */
    uint64_t progress_done;
    uint64_t progress_total; /* 0: unknown */
    uint64_t rate_milli;     /* thousandths of a unit per second */
    char id[TIDE_ID_MAX];
    char state[TIDE_ID_MAX]; /* "starting", "running", "moldable", "rigid" */
    char name[TIDE_NAME_MAX];
    char cores[TIDE_CORES_MAX]; /* list syntax "0-3,8"; ends in "…" when cut */
    char unit[TIDE_UNIT_MAX];
};

/* @job is valid during the call only. A result other than 0 ends the list and becomes its result.
 */
typedef int (*tide_job_fn)(const struct tide_job *job, void *arg);

/*
 * Calls @fn for every job that the caller may see, oldest first, after the whole list has arrived;
 * @fn may use the handle. Returns 0, @fn's result, or a common result.
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
 * A @deadline_ms that means: do not wait. The function sends the request with one system call and
 * returns 0 (or -EAGAIN: the daemon is busy, nothing was sent). It does not write @ret_result.
 * The daemon answers only a failure, and tide_ctl_poll reads it.
 */
#define TIDE_ASYNC UINT32_MAX

/*
 * Pins @job's active threads to @intra and, in its second pool, @inter (0: the same as intra).
 * Both 0: automatic, the policy decides again. More than the machine's cores is accepted and marked
 * oversubscribed. @deadline_ms: how long to wait until every process has acknowledged. A process
 * does so when its surplus threads are parked, or all wanted ones awake. 0: the handle's timeout;
 * or TIDE_ASYNC. @ret_result may be NULL.
 * Returns 0 (also when no pool exists yet: a later pool starts so, and tide_ctl_message says it),
 * TIDE_PARTIAL (set, but the deadline came first), or a common result.
 */
TIDE_API int tide_ctl_set(tide_ctl *ctl, const char *job, uint32_t intra, uint32_t inter,
                          uint32_t deadline_ms, struct tide_result *ret_result);

/*
 * Move cores between jobs for a while (the terms of DLB's LeWI; docs/api.md maps them). Threads
 * follow the cores: the job that loses cores parks threads, then the job that gains wakes its own.
 *
 *   lend      @cores of @job's own go into its user's pool; it keeps at least one
 *   borrow    @job takes up to @cores from that pool; ret_result->to says how many it has now
 *   reclaim   all cores that @job has lent come back, from borrowers too
 *   return    all cores that @job has borrowed go back to their lenders or into the pool
 *
 * A pinned job takes no part: set it to automatic first. @deadline_ms and @ret_result are as in
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

/* Returns the number of the handle's last asynchronous request: 1, 2, … 2^31-1, 1; 0: none yet. */
TIDE_API uint32_t tide_ctl_sent(const tide_ctl *ctl);

/*
 * Reads, without waiting, the failure of one asynchronous request: ret_result->request says which,
 * ->status why, tide_ctl_message why in words. The handle keeps the 64 newest unread failures.
 * Returns 1 (one was read; there may be more), 0 (no more), or -ECONNRESET (the daemon is gone and
 * may not have got all requests; the next call reconnects). @ret_result may not be NULL.
 */
TIDE_API int tide_ctl_poll(tide_ctl *ctl, struct tide_result *ret_result);

#ifdef __cplusplus
}
#endif

#endif
