/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges an observed process: pure, from struct to struct. observe.c fills the observation,
 * cmd_doctor.c prints the diagnosis. Any thread.
 *
 * Demand is the mean number of threads that were running or runnable, in thousandths: the sum over
 * all threads of (time on a CPU + time waiting for one) / elapsed time.
 */
#pragma once

#include "base/cpuset.h"
#include "host/cgroup/cgroup.h"
#include "host/proc/proc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIAGNOSE_FINDINGS_MAX 12
#define DIAGNOSE_TEXT_MAX     512
#define DIAGNOSE_FIX_MAX      4096
#define DIAGNOSE_COMMAND_MAX  2048 /* of the quoted command line; a longer one is cut */
#define DIAGNOSE_NAME_MAX     64
#define DIAGNOSE_GROUPS_MAX   6

enum observed_tide { /* the daemon's view of the process */
                     OBSERVED_TIDE_UNREACHABLE,
                     OBSERVED_TIDE_UNKNOWN, /* a daemon answers but does not know the process */
                     OBSERVED_TIDE_JOB,
};

struct observation {
    pid_t pid;
    char comm[PROC_COMM_MAX];
    char command[DIAGNOSE_COMMAND_MAX]; /* shell-quoted command line; empty: unknown */
    bool command_cut;
    bool command_changed; /* '?' stands for what a terminal must not see: not to be typed */
    uint32_t threads;

    struct { /* threads of one name; the most numerous first */
        char comm[PROC_TASK_COMM_MAX];
        uint32_t n;
    } group[DIAGNOSE_GROUPS_MAX];

    uint64_t elapsed_ns;    /* of the sample */
    uint32_t running_milli; /* threads on a CPU, mean */
    uint32_t waiting_milli; /* threads waiting for one, mean */
    bool have_waiting; /* the kernel counts waiting; otherwise it is estimated from threads' states
                        */

    uint64_t involuntary; /* switches during the sample: preempted, or sched_yield() */
    bool have_spin;       /* the kernel said where its threads ran */
    uint32_t spin_samples;
    uint32_t spin_permille; /* of the samples: in an OpenMP library, see spin.h */

    struct cpuset cpus;  /* CPUs that its threads may use */
    uint32_t quota_mcpu; /* CGROUP_NO_QUOTA */
    char quota_path[CGROUP_PATH_MAX];
    enum cgroup_version quota_version;
    struct cgroup_throttle throttle; /* during the sample */

    struct proc_runtimes runtimes;
    bool handler;        /* a handler for the resize signal */
    bool agent_disabled; /* TIDE_DISABLE is set */

    enum observed_tide tide;
    char job_name[DIAGNOSE_NAME_MAX];
    char job_state[DIAGNOSE_NAME_MAX];
    char job_note[DIAGNOSE_TEXT_MAX]; /* a note about a backend that is not malleable */
    bool job_malleable;               /* the process has a malleable backend */
    bool job_pinned;
    uint32_t job_target;
    uint32_t job_active;
};

enum finding_code {
    FINDING_OVERSUBSCRIBED, /* more runnable threads than cores it may use */
    FINDING_CROWDED,        /* other programs keep its cores busy */
    FINDING_THROTTLED,      /* a quota stops it */
    FINDING_SPINNING,       /* threads that wait for others keep cores busy */
    FINDING_NO_AGENT,       /* malleable runtime, not started by tide */
    FINDING_DISCONNECTED,   /* the agent is loaded, but the daemon does not know the process */
    FINDING_NOT_MALLEABLE,  /* a runtime whose threads tide cannot change */
    FINDING_NO_HANDLER,     /* the resize signal would kill the process */
    FINDING_CODE_MAX
};

enum finding_severity { FINDING_NOTE, FINDING_PROBLEM };

struct finding {
    enum finding_code code;
    enum finding_severity severity;
    char text[DIAGNOSE_TEXT_MAX];
    char fix[DIAGNOSE_FIX_MAX]; /* a command to type; empty: none */
};

struct diagnosis {
    uint32_t allowed_mcpu; /* cores that it may use: the smaller of CPUs and quota */
    uint32_t demand_milli;
    unsigned recommended; /* threads, at least 1 */
    bool idle;            /* too little demand to say what it loses */
    bool healthy;         /* no finding is a problem */
    size_t n;
    struct finding finding[DIAGNOSE_FINDINGS_MAX];
};

void diagnose(const struct observation *seen, struct diagnosis *ret);

const char *finding_name(enum finding_code code); /* "oversubscribed", … */

enum malleability { /* of a runtime's threads, in the glossary's words */
                    MALLEABLE,
                    MOLDABLE,
                    RIGID,
                    MALLEABILITY_MAX
};

/* How far a runtime's threads can be changed, and *ret_why: a clause that says why not further. */
enum malleability diagnose_runtime(enum proc_runtime runtime, const char **ret_why);
/* Where the agent leaves a malleable runtime alone, which nobody sees from outside; else NULL. */
const char *diagnose_exceptions(enum proc_runtime runtime);
/* The variable that sizes this runtime when its program starts; NULL: none. */
const char *diagnose_variable(enum proc_runtime runtime);
const char *malleability_name(enum malleability m); /* "malleable", … */

/* True if the agent can change this runtime's threads while the program runs. */
bool diagnose_malleable(enum proc_runtime runtime);

/* True if demand is clearly above the allowed cores: by half a thread and a quarter. */
bool diagnose_oversubscribed(uint32_t demand_milli, uint32_t allowed_mcpu);

/*
 * Quotes the NUL-separated arguments for a shell. Returns 0, or 1 when the text was cut at the last
 * argument that fits.
 */
int diagnose_quote(const char *args, size_t len, char *buf, size_t size);

/* Copies the 64 digits of a container's id inside a cgroup path. Returns 0 or -ENOENT. */
int diagnose_container(const char *cgroup_path, char ret_id[65]);
