/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages on agent.sock (SOCK_SEQPACKET, one message a packet) between a daemon and the agents
 * inside the jobs' processes, and between it and controlling programs (libtide.so's tide_ctl_*).
 *
 * Fixed layout, little-endian, natural alignment without implicit padding, one size per type.
 * A receiver calls proto_check() first; after it every field is in bounds and every text is
 * terminated. A message of another version, an unknown type or a wrong size is refused whole. The
 * daemon answers a controlling program with PROTO_RESULT and hangs up; an agent hangs up and
 * follows its own limit. Any thread; no state.
 *
 * Version 1 grows without a new number, so that agents in running programs and a daemon of another
 * release go on talking: WELCOME's cookie says what the daemon understands beyond the first
 * release (enum proto_feature; 0 from older daemons), and an agent sends no more than that.
 */
#pragma once

#include "base/error.h"
#include "base/latency.h"

#include <stddef.h>
#include <stdint.h>

#define PROTO_MAGIC   0x45444954u /* "TIDE" */
#define PROTO_VERSION 1

#define PROTO_MESSAGE_MAX         1024 /* bytes; no type is larger, a longer packet is refused */
#define PROTO_TOKEN_MAX           40   /* 32 hexadecimal digits, NUL, padding */
#define PROTO_ID_MAX              16   /* "j17" */
#define PROTO_NAME_MAX            64   /* a job's name */
#define PROTO_SHORT_MAX           32   /* backend names, versions, units, comm */
#define PROTO_NOTE_MAX            128
#define PROTO_TEXT_MAX            256
#define PROTO_BACKENDS_MAX        24 /* in one process */
#define PROTO_BACKENDS_FIRST      8  /* as many as a daemon without PROTO_FEATURE_RUNTIMES takes */
#define PROTO_THREADS_MAX         4096 /* a higher target is refused */
#define PROTO_CONNECTIONS_MAX     1024 /* to one daemon, which hangs up on further ones */
#define PROTO_CONNECTIONS_UID_MAX 512  /* for each user but root and the daemon's own */
#define PROTO_JOBS_MAX            512  /* in one daemon */
#define PROTO_PRIORITY_MAX        1000 /* a job's; the least is -1000; not on this socket */
#define PROTO_CLASS_MAX           1000
#define PROTO_IN_FLIGHT_MAX       (1u << 20) /* requests that one process may tell of at once */

enum proto_type {
    PROTO_NONE,
    /* agent -> daemon */
    PROTO_HELLO,     /* first message of an agent */
    PROTO_BACKEND,   /* a runtime was found in the process, or its state changed */
    PROTO_ACK,       /* a target is in place: its surplus threads are parked, or all are awake */
    PROTO_HEARTBEAT, /* threads and progress; also asks the daemon to renew the lease */
    PROTO_LOCAL,     /* a signal or the program itself (API) set or cleared a target */
    /* daemon -> agent */
    PROTO_WELCOME, /* answer to HELLO */
    PROTO_TARGET,  /* set the active threads */
    PROTO_LEASE,   /* answer to HEARTBEAT: the targets stay valid */
    /* controlling program -> daemon */
    PROTO_CONTROL, /* each message of a controlling program: one verb */
    /* daemon -> controlling program */
    PROTO_JOB,    /* one row of a list */
    PROTO_RESULT, /* end of every verb */
    /* agent -> daemon; behind the others, because numbers on the wire stay */
    PROTO_LATENCY, /* requests that the program serves */
    PROTO_TYPE_MAX
};

/* In WELCOME's cookie. */
enum proto_feature {
    PROTO_FEATURE_RUNTIMES = 1 << 0, /* PROTO_BACKENDS_MAX backends, and PROTO_ACK_WAITING */
    PROTO_FEATURE_LATENCY = 1 << 1,  /* PROTO_LATENCY */
    /* Calls of runtimes are wanted as requests, where the program tells none: the job has a
     * promise. A WELCOME follows where that changes. */
    PROTO_FEATURE_CALLS = 1 << 2,
    PROTO_FEATURE_SOURCES = 1 << 3, /* requests of PyTorch and TensorFlow, too */
    PROTO_FEATURE_MOVES = 1 << 4,   /* a policy chooses the job's targets: they will change */
    PROTO_FEATURE_SOCKETS = 1 << 5, /* requests of the server's sockets, too */
};

#define PROTO_FEATURES                                                                             \
    (PROTO_FEATURE_RUNTIMES | PROTO_FEATURE_LATENCY | PROTO_FEATURE_SOURCES | PROTO_FEATURE_SOCKETS)

struct proto_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;   /* enum proto_type */
    uint32_t size;   /* whole message, header included; equals the packet's length */
    uint32_t cookie; /* the asker chooses it, the answer repeats it; else 0, but see WELCOME */
};

struct proto_hello {
    struct proto_header h;
    uint32_t pid;    /* as the sender sees it; the daemon uses the kernel's answer instead */
    uint32_t signal; /* number of the resize signal, 0 when the handler is not in place */
    uint32_t cpus;   /* logical CPUs of the machine as the sender sees it */
    uint32_t max;    /* most threads that a pool will be built with */
    char token[PROTO_TOKEN_MAX];   /* from TIDE_TOKEN, may be empty */
    char job_id[PROTO_ID_MAX];     /* from TIDE_JOB_ID; lets a new daemon find the job again */
    char job_name[PROTO_NAME_MAX]; /* from TIDE_JOB_NAME */
    char comm[PROTO_SHORT_MAX];
    char agent_version[PROTO_SHORT_MAX];
};

struct proto_backend {
    struct proto_header h;
    uint32_t index;     /* 0 … PROTO_BACKENDS_MAX-1, stable within the process */
    uint32_t malleable; /* 0 or 1; for 0 the note says why */
    uint32_t max_intra; /* threads the pools were built with; inter is 0 without such a pool */
    uint32_t max_inter;
    uint32_t target_intra;
    uint32_t target_inter;
    uint32_t active_intra; /* threads not parked */
    uint32_t active_inter;
    char name[PROTO_SHORT_MAX];    /* "tensorflow" */
    char version[PROTO_SHORT_MAX]; /* "2.21.0" */
    char note[PROTO_NOTE_MAX];
};

enum proto_ack_status {
    PROTO_ACK_DONE,  /* every pool is at the target */
    PROTO_ACK_LATER, /* accepted, but the program froze its threads, or no pool exists yet */
    PROTO_ACK_STALE, /* ignored: (epoch, generation) is older than one already seen */
    /* Not in place yet: the program is where its threads cannot change, perhaps for long. DONE
     * follows. Only with PROTO_FEATURE_RUNTIMES. */
    PROTO_ACK_WAITING,
    PROTO_ACK_STATUS_MAX
};

struct proto_ack {
    struct proto_header h; /* has the cookie of the TARGET */
    uint64_t epoch;
    uint64_t generation;
    uint32_t status;         /* enum proto_ack_status */
    uint32_t active;         /* threads not parked, intra-op pool */
    uint64_t sent_ns;        /* copied from the TARGET; CLOCK_MONOTONIC, as all below */
    uint64_t received_ns;    /* when the agent got it */
    uint64_t closure_end_ns; /* end of the last closure that a surplus worker held, 0: none did */
    uint64_t placed_ns;      /* when the last worker was parked, or was awake */
    uint64_t longest_ns;     /* longest time from received_ns to the end of a held closure */
    uint64_t surplus_cpu_ns; /* CPU time that surplus workers used after received_ns; 0: unknown */
    uint64_t lag_ns; /* worst worker: from the later of sent_ns and the end of its closure */
                     /* to parked; after a grow: from sent_ns to awake */
};

enum proto_source {
    PROTO_SOURCE_LIMIT, /* the process's affinity and quota: no target is set */
    PROTO_SOURCE_DAEMON,
    PROTO_SOURCE_SIGNAL,
    PROTO_SOURCE_API,
    PROTO_SOURCE_MAX
};

struct proto_heartbeat {
    struct proto_header h;
    uint64_t epoch;      /* from the last WELCOME */
    uint64_t generation; /* from the last TARGET in place */
    uint32_t source;     /* enum proto_source: origin of the present target */
    uint32_t target;     /* active threads wanted (intra-op) */
    uint32_t active;
    uint32_t allowed_mcpu; /* the process's affinity and quota, thousandths of a core */
    uint64_t tasks; /* operations that the program's own threads gave to pools: grows with the work,
                       whatever the number of threads; 0: unknown */
    uint64_t progress_done;     /* units that the program reported; 0 if it reported none */
    uint64_t progress_total;    /* 0: unknown */
    char unit[PROTO_SHORT_MAX]; /* "steps" */
};

/* Where requests come from: the program, calls of a runtime or sockets (both only with
 * PROTO_FEATURE_CALLS). A
 * further source needs a feature of its own, as an unknown one ends the connection. */
enum proto_requests {
    PROTO_REQUESTS_TOLD, /* by the program */
    PROTO_REQUESTS_ONNX,
    PROTO_REQUESTS_PYTORCH,    /* with PROTO_FEATURE_SOURCES … */
    PROTO_REQUESTS_TENSORFLOW, /* … as well */
    PROTO_REQUESTS_SOCKETS,    /* with PROTO_FEATURE_SOCKETS */
    PROTO_REQUESTS_MAX
};

/*
 * Requests of the process, counted from its beginning; a child of fork() counts its own. Told ones
 * and calls have counts of their own; those of all runtimes are one, and the source is the runtime
 * of the first call. Ten times a second while requests end or are in flight, and at once when many
 * more are in flight than the last message said; no message otherwise. Only with
 * PROTO_FEATURE_LATENCY.
 */
struct proto_latency {
    struct proto_header h;
    uint64_t now_ns;         /* CLOCK_MONOTONIC: when the agent read the counts */
    uint64_t begun;          /* ≥ ended; the difference is in flight */
    uint64_t ended;          /* a bucket may count one already that this does not */
    uint32_t most_in_flight; /* since the last message; ≥ in flight, at most PROTO_IN_FLIGHT_MAX */
    uint32_t source;         /* enum proto_requests; the program's word is the last one */
    uint32_t bucket[LATENCY_BUCKETS]; /* ended requests by duration, without calls that failed; each
                                         may wrap */
};

struct proto_local {
    struct proto_header h;
    uint32_t source; /* PROTO_SOURCE_SIGNAL or PROTO_SOURCE_API */
    uint32_t intra;  /* 0: the local target was cleared, back to automatic */
    uint32_t inter;
    uint32_t pad;
};

struct proto_welcome {
    struct proto_header h; /* the cookie has the daemon's features */
    uint64_t epoch;        /* grows with every start of a daemon in this directory */
    uint32_t lease_ms;     /* after so long without LEASE or TARGET the agent drops the target */
    uint32_t heartbeat_ms; /* time between two HEARTBEATs */
    char job_id[PROTO_ID_MAX];
    char job_name[PROTO_NAME_MAX];
};

struct proto_target {
    struct proto_header h;
    uint64_t epoch;
    uint64_t generation;
    uint32_t intra; /* active threads, 1 … PROTO_THREADS_MAX; 0: follow the process's limit */
    uint32_t inter; /* 0: the same as intra */
    uint64_t sent_ns;
};

struct proto_lease {
    struct proto_header h;
    uint64_t epoch;
};

enum proto_verb {
    PROTO_VERB_LIST,    /* every job: PROTO_JOB …, then PROTO_RESULT */
    PROTO_VERB_SET,     /* pin a job's threads to intra/inter; 0 = back to automatic */
    PROTO_VERB_LEND,    /* give `intra` of the job's cores to jobs that borrow */
    PROTO_VERB_BORROW,  /* take up to `intra` lent cores; RESULT.to says how many it has now */
    PROTO_VERB_RECLAIM, /* take all lent cores back, from the borrowers too */
    PROTO_VERB_RETURN,  /* give all borrowed cores back */
    PROTO_VERB_BEGIN,   /* wait for the job's start: 0 when it runs, -ECANCELED if it never will */
    PROTO_VERB_MAX
};

enum proto_control_flags {
    PROTO_CONTROL_WAIT = 1 << 0,  /* answer after the acknowledgement or at the deadline */
    PROTO_CONTROL_QUIET = 1 << 1, /* answer only a failure */
};

struct proto_control {
    struct proto_header h;
    uint32_t verb;        /* enum proto_verb */
    uint32_t flags;       /* enum proto_control_flags */
    uint32_t intra;       /* threads or cores */
    uint32_t inter;       /* SET only; 0: the same as intra */
    uint32_t deadline_ms; /* with WAIT; 0: the daemon's default of 5000 */
    uint32_t pad;
    uint64_t sent_ns;
    char job[PROTO_NAME_MAX]; /* id, name or pid; empty: the job that the sender belongs to */
};

struct proto_job {
    struct proto_header h;
    uint32_t pid; /* first process */
    uint32_t allowed_mcpu;
    uint32_t target;
    uint32_t active;
    uint32_t max;
    uint32_t oversubscribed; /* 0 or 1 */
    uint32_t lent;           /* cores that it gave away and has not got back */
    uint32_t borrowed;
    uint64_t progress_done;
    uint64_t progress_total;
    uint64_t rate_milli; /* units/s * 1000 */
    char id[PROTO_ID_MAX];
    char state[PROTO_ID_MAX]; /* "running" */
    char name[PROTO_NAME_MAX];
    char cores[PROTO_NOTE_MAX]; /* list syntax, cut at a comma with a final "…" when too long */
    char unit[PROTO_SHORT_MAX];
};

struct proto_result {
    struct proto_header h;
    int32_t status; /* 0, PROTO_RESULT_PARTIAL, or -errno */
    uint32_t from;  /* threads (SET) or cores (other verbs) before */
    uint32_t to;
    uint32_t oversubscribed;
    uint64_t latency_ns; /* from sent_ns to the acknowledgement; 0 without WAIT */
    char text[PROTO_TEXT_MAX];
};

#define PROTO_RESULT_PARTIAL 1 /* the deadline passed before every process had acknowledged */

union proto_message {
    struct proto_header h;
    struct proto_hello hello;
    struct proto_backend backend;
    struct proto_ack ack;
    struct proto_heartbeat heartbeat;
    struct proto_latency latency;
    struct proto_local local;
    struct proto_welcome welcome;
    struct proto_target target;
    struct proto_lease lease;
    struct proto_control control;
    struct proto_job job;
    struct proto_result result;
    unsigned char bytes[PROTO_MESSAGE_MAX];
};

/* Returns the size in bytes of a message of @type, or 0 for an unknown type. */
size_t proto_size(unsigned type);

/* Zeroes @m and fills in its header for @type (which must be known). */
void proto_init(union proto_message *m, enum proto_type type, uint32_t cookie);

/*
 * Checks a received packet of @len bytes: magic, version, known type, exact size, enums and counts
 * in range; terminates every text in place.
 * Returns 0, -EBADMSG (truncated, oversized, malformed), -EPROTONOSUPPORT (other version; *err says
 * which) or -ERANGE (a field out of its range).
 */
int proto_check(union proto_message *m, size_t len, struct error *err);
