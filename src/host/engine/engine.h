/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container engine on this machine, Docker (API 1.41 and newer), podman (libpod 4 and newer) or
 * the pods of a Kubernetes node (tide-pods, with a part of Docker's API), behind one interface:
 * news of its containers, and calls that ask and change. It serves an event loop: no function
 * blocks or starts a thread; the owner watches engine_fd and calls engine_dispatch. A first
 * question tells which engine it is.
 *
 * One thread: the owner's loop. Called by tided; its parts are engine_text.c (answers → structs),
 * docker.c and podman.c (the requests of each) and transfer.c (HTTP).
 *
 * A callback borrows its arguments until it returns. Only engine_dispatch runs callbacks. They may
 * call all functions here except engine_dispatch and engine_free.
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ENGINE_API_OLDEST     41    /* of Docker's API 1.x: Engine 20.10 … */
#define ENGINE_API_NEWEST     51    /* … to the newest that this client was made for */
#define ENGINE_LIBPOD_OLDEST  4     /* podman's major version */
#define ENGINE_TIMEOUT_MS     10000 /* of a call that names none */
#define ENGINE_CONTAINERS_MAX 4096  /* in one list; TRANSFER_BODY_MAX also bounds the answer */
#define ENGINE_LABELS_MAX     1024  /* of one container; further labels are left out */
#define ENGINE_ID_MAX         256   /* bytes of an id or a name */
#define ENGINE_EVENT_MAX      (256 << 10) /* bytes of one event; a longer one is a resync … */
#define ENGINE_SKIP_MAX       (16 << 20)  /* … and above this, the stream is given up */
#define ENGINE_CALLS_MAX      1000        /* under way at a time, streams too */

enum engine_kind { ENGINE_DOCKER, ENGINE_PODMAN, ENGINE_PODS };

/* Returns the engine's name: "docker", "podman" or "pods" (tide-pods). */
const char *engine_kind_name(enum engine_kind kind);

/* ---- containers ---- */

enum engine_state {
    ENGINE_CREATED,
    ENGINE_RUNNING,
    ENGINE_PAUSED,
    ENGINE_RESTARTING,
    ENGINE_REMOVING,
    ENGINE_EXITED,
    ENGINE_DEAD,
    ENGINE_STATE_MAX,
};

const char *engine_state_name(enum engine_state state); /* Docker's word */

struct engine_label {
    const char *key, *value;
};

/*
 * A hard limit in one of Docker's two kinds: `--cpus` (nano_cpus > 0) or `--cpu-quota` and
 * `--cpu-period`. A container keeps its kind: Docker refuses to change it.
 */
struct engine_quota {
    uint64_t nano_cpus; /* 10⁻⁹ CPUs; 0: the other kind */
    int64_t quota_us;   /* per period; -1: lifted; 0: never given */
    uint64_t period_us; /* 0: the kernel's, 100 ms */
};

struct engine_limits {
    struct cpuset cpus;        /* empty: never given, all CPUs */
    const char *cgroup_parent; /* "": the engine's own; never NULL */
    struct engine_quota quota;
    uint64_t memory_bytes; /* 0: none */
    int64_t swap_bytes;    /* beside them; -1: no limit */
    uint32_t shares;       /* 0: never given, 1024 */
    bool fixed; /* its CPUs are another program's to choose, and cannot be changed here */
};

struct engine_container {
    const char *id;    /* 64 hexadecimal digits */
    const char *name;  /* without the slash in front of Docker's */
    const char *image; /* the image's name as it was given */
    const struct engine_label *labels;
    size_t n_labels;
    int64_t started_ns; /* since 1970; 0: never started, or not said (Docker's list) */
    enum engine_state state;
    pid_t pid;     /* its first process, in the engine's namespace; 0: none, or not said */
    int exit_code; /* of the last run */
    /*
     * The engine's memory of the limits, only when inspected. Docker reports what it last wrote,
     * podman (4.3) what the container was created with: updates do not show. Another program may
     * write to the control group, so only the control group tells the truth.
     */
    bool inspected;
    struct engine_limits limits;
};

/* Returns the value of a label, or NULL. */
const char *engine_label(const struct engine_container *c, const char *key);

/* Returns the limit in thousandths of a CPU, rounded down, at least 1; 0: none. */
uint32_t engine_quota_mcpu(const struct engine_quota *quota);

/*
 * Returns a limit of @mcpu (0: none) in the kind of @now, the inspected limit. For a `--cpus`
 * container, none means all of the machine's @n_cpus: Docker cannot lift such a limit, and with a
 * quota of -1 beside it the container would have none after its next start.
 */
struct engine_quota engine_quota_make(const struct engine_quota *now, uint32_t mcpu,
                                      unsigned n_cpus);

/* ---- news ---- */

enum engine_action {
    ENGINE_CREATE,
    ENGINE_START,
    ENGINE_DIE,
    ENGINE_OOM,
    ENGINE_PAUSE,
    ENGINE_UNPAUSE,
    ENGINE_UPDATE, /* carries no values: inspect. podman (4.3) has no such event */
    ENGINE_RENAME,
    ENGINE_DESTROY,
    ENGINE_ACTION_MAX,
};

const char *engine_action_name(enum engine_action action); /* Docker's word */

struct engine_event {
    const char *id, *name;
    uint64_t time_ns; /* since 1970, by the engine's clock */
    enum engine_action action;
    int exit_code; /* ENGINE_DIE; else 0 */
    const void *attributes;
};

/* The engine's further values for the container, its labels among them; NULL: none. Borrowed. */
const char *engine_event_attribute(const struct engine_event *event, const char *key);

enum engine_news_kind {
    ENGINE_LOST,   /* the engine cannot be reached, or is too old: text says why. The client keeps
                      trying */
    ENGINE_BACK,   /* the engine answers again, and no event was missed */
    ENGINE_RESYNC, /* the engine answers, but events may have been missed: list the containers. Also
                      the first news of a running engine */
    ENGINE_NEWS,   /* event */
};

struct engine_news {
    enum engine_news_kind kind;
    const char *text;                 /* of ENGINE_LOST */
    const struct engine_event *event; /* of ENGINE_NEWS */
};

typedef void engine_news_fn(void *arg, const struct engine_news *news);

struct engine;

/*
 * Looks for the engine that listens on @socket_path, and tells @news about it, as long as the
 * object lives. A missing, ended or replaced engine is no error here. Returns 0, -ENAMETOOLONG or
 * another -errno.
 */
int engine_new(const char *socket_path, engine_news_fn *news, void *arg, struct engine **ret,
               struct error *err);

/* Breaks off every call without calling its done. Takes NULL, returns NULL. */
struct engine *engine_free(struct engine *e);

int engine_fd(const struct engine *e); /* for EPOLLIN; borrowed */

/*
 * Works as far as it can without waiting. Call it soon: Docker silently drops events for a reader
 * that lags by some hundred milliseconds and a thousand events.
 */
void engine_dispatch(struct engine *e);

/* The engine that answered last: "docker 1.41"; "" before the first ENGINE_RESYNC. */
const char *engine_version(const struct engine *e);

/*
 * Whether only the CPUs of its containers can be changed, since another program owns the rest: the
 * kubelet makes weight and quota of what a pod requests, pauses nothing, and ends pods itself.
 */
bool engine_only_cpus(const struct engine *e);

/* ---- calls ---- */

enum engine_verb {
    ENGINE_V_LIST,
    ENGINE_V_INSPECT,
    ENGINE_V_UPDATE,
    ENGINE_V_PAUSE,
    ENGINE_V_UNPAUSE,
    ENGINE_V_STOP,
    ENGINE_V_MAX,
};

struct engine_result {
    enum engine_verb verb;
    int code;           /* 0 or -errno, see below */
    int status;         /* HTTP status; 0: no answer came */
    const char *target; /* the id or name in the request; "" for a list */
    const char *text;   /* for a failure: which engine was asked for what, and the reason */
    uint64_t took_ns;
    const struct engine_container *containers; /* LIST, INSPECT */
    size_t n_containers;
};

typedef void engine_done(void *arg, const struct engine_result *result);

/* The end of a call: its callback and its time limit. */
struct engine_then {
    engine_done *done;
    void *arg;
    unsigned timeout_ms; /* 0: ENGINE_TIMEOUT_MS */
};

/*
 * Each call returns a ticket > 0 when it was begun, and done is then called exactly once (but not
 * after engine_cancel and engine_free); or -errno, and done is not called:
 *   -ENOTCONN  no engine has answered yet
 *   -EINVAL    not an id or name ([A-Za-z0-9_.-], shorter than ENGINE_ID_MAX), or a bad argument
 *   -EBUSY     ENGINE_CALLS_MAX are under way
 *   -ENOMEM
 * Calls run side by side: a caller that needs an order waits for done. The codes of a result:
 *   -ENOTCONN    no program listens, nothing was done
 *   -ECONNRESET, -ETIMEDOUT  whether it was done is unknown: inspect
 *   -EINVAL      refused as nonsense (HTTP 400), as CPUs that the machine does not have
 *   -ENOENT      no such container or image (404)
 *   -EBUSY       not in this state (409, or 500 and the engine's words for it)
 *   -EREMOTEIO   the engine failed (500)
 *   -EPROTO      another status
 *   -EBADMSG, -EMSGSIZE  the answer is nonsense, or too long
 *   -EACCES, -ENOMEM, -EIO
 * "Already so" (304: started, stopped) is success.
 */

/* Lists the containers: all, or those with @label ("KEY" or "KEY=VALUE", may be NULL). */
int64_t engine_list(struct engine *e, const char *label, struct engine_then then);
int64_t engine_inspect(struct engine *e, const char *id, struct engine_then then);

/* Docker takes no -1 for memory (moby#22516); the kernel takes so much for none. */
#define ENGINE_NO_MEMORY_LIMIT (UINT64_C(0x7ffffffffffff000))

/*
 * The changes to make. Docker makes all or none; podman's OCI runtime may have made a part when it
 * fails. CPUs and quota can change, but not become "never given" again.
 */
struct engine_update {
    const struct cpuset *cpus;        /* NULL: unchanged */
    const struct engine_quota *quota; /* NULL: unchanged; by engine_quota_make, or inspected */
    uint32_t shares;                  /* 0: unchanged */
    uint64_t memory_bytes;            /* 0: unchanged; ENGINE_NO_MEMORY_LIMIT */
    int64_t swap_bytes;               /* with memory_bytes: beside them; -1: no limit */
};

/*
 * The engine refuses the form of the quota if its kind has changed since the inspection, or if crun
 * on cgroup v1 does not know -1. Then the call tries the other form once by itself.
 */
int64_t engine_update(struct engine *e, const char *id, const struct engine_update *update,
                      struct engine_then then);

int64_t engine_pause(struct engine *e, const char *id, struct engine_then then);
int64_t engine_unpause(struct engine *e, const char *id, struct engine_then then);

/* Sends SIGTERM, and SIGKILL after @grace_s; the timeout must be longer. */
int64_t engine_stop(struct engine *e, const char *id, unsigned grace_s, struct engine_then then);

/* Breaks a call off without calling done; the engine may still carry it out. */
void engine_cancel(struct engine *e, int64_t ticket);
