/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's engine: jobs come from a source, a policy decides on a virtual clock, records of
 * the run go to a sink. Snapshot and policy functions are those of the daemon.
 *
 *   source ─▶ event queue ─▶ snapshot ─▶ policy_decide() ─▶ plan ─▶ machine model ─▶ sink
 *
 * Nothing here reads a clock, a file or an environment, and a run depends on its arguments alone:
 * same source, same options, same records on every machine. Memory is linear in the jobs alive. One
 * thread per run; different runs share nothing.
 *
 * Times are nanoseconds since the start of the scenario, work is time on one core alone, speed-ups
 * are integers in thousandths; amounts of cores in mcpu (see policy/core/policy.h).
 */
#pragma once

#include "base/error.h"
#include "policy/core/policy.h"

#include <stdbool.h>
#include <stdint.h>

#define SIM_CORES_MAX 65536u
#define SIM_NAME_MAX  64
#define SIM_TIME_MAX  ((uint64_t)INT64_MAX) /* of the virtual clock, and of one job's work */

/*
 * The policies' clock shows this at the scenario's start, because zero means "never" to them
 * (policy_job.start_ns). Snapshots and plans handed to a sink have it in every point of time.
 */
#define SIM_CLOCK_START_NS UINT64_C(1000000000)

/* Sums over all jobs of a run: the core time of a year's trace exceeds 64 bits. */
__extension__ typedef unsigned __int128 sim_sum;

/* ---- machine --------------------------------------------------------------------------------- */

/*
 * How jobs hold their allocated cores. As in the daemon, a job with M mcpu runs max(1, ⌊M/1000⌋)
 * threads, and M is its weight wherever jobs compete for CPU time.
 */
enum sim_placement {
    SIM_SHARED,    /* work-conserving: cores overlap, others fill gaps of serial phases */
    SIM_EXCLUSIVE, /* disjoint cores; a core that its job does not use is idle */
    SIM_QUOTA,     /* a hard limit of CPU time; below one core the only thread is throttled */
    SIM_PLACEMENT_MAX
};

/* See machine.c for the model. */
struct sim_machine {
    uint32_t cores; /* 1 … SIM_CORES_MAX */
    uint32_t numa;  /* NUMA nodes of equal size, at least 1 */
    uint32_t smt;   /* hardware threads per core, at least 1; `cores` counts hardware threads */
    /* Groups of cores of one speed, the fastest first, with 1000 permille; 0: all are alike. */
    struct policy_speed speeds[POLICY_SPEEDS_MAX];
    uint32_t speed_count;
    uint32_t smt_gain_permille; /* speed of a core's second thread beside a busy first one */
    int64_t memory_bytes;       /* 0: not counted */
    int64_t devices;            /* counts of base/devices.h; 0: not counted */
    uint64_t idle_uw;           /* drawn by the machine without work */
    uint64_t core_uw;           /* for each busy core in addition */
    uint64_t cap_uw;            /* the machine slows down to draw no more; 0: no cap */
    enum sim_placement placement;
    /*
     * Losses of a job's speed, with a factor l in thousandths for each cause:
     *   oversubscription  where r > 1 threads per core are runnable: all but 1 / (1 + l (r - 1))
     *   contention        where others keep a part u of the cores busy (bandwidth, caches): l u
     *   numa              where it holds more cores than one NUMA node has: l
     */
    uint32_t oversubscription_permille;
    uint32_t contention_permille;
    uint32_t numa_permille;
};

/* ---- jobs ------------------------------------------------------------------------------------ */

/* A speed-up table as policies have it; the arrays are the source's and live as long as the run. */
struct sim_curve {
    const uint32_t *speedup_permille; /* speed with k cores, at index k − 1; none is 0 */
    const uint32_t *envelope_permille;
    uint32_t count;
};

/* Requests of a server, in order of arrival; the source's, and they live as long as the run. */
struct sim_requests {
    const uint64_t *arrival_ns; /* since the server's arrival */
    const uint64_t *work_ns;    /* of each, with one core alone */
    size_t count;
};

struct sim_job {
    uint64_t id; /* from 1, unique, increasing with arrival */
    char name[SIM_NAME_MAX];
    uint64_t arrival_ns;    /* not before the arrival of the source's previous job */
    uint64_t work_ns;       /* true work, with one core alone */
    uint64_t start_ns;      /* time before the work: imports and such, on one core. Until then a
                               malleable job is given one core, as by tided */
    uint64_t told_ns;       /* work_ns as the policy is told; POLICY_UNKNOWN: untold */
    uint64_t told_error_ns; /* the possible error of that */
    const struct sim_curve *curve;      /* the true curve, alone on the machine */
    const struct sim_curve *told_curve; /* the curve that the policy is told; NULL: none */
    /*
     * CPU time that running in parallel costs beside the work (synchronisation, spinning): with k
     * threads a job keeps S(k) · (1 + permille/1000 · (1 − 1/k)) cores busy, k at most, on average.
     */
    uint32_t waste_permille;
    uint32_t idle_permille; /* part of its time alone in which it sleeps: waits for disks, timers */
    /*
     * Serial phases: the last part of every `serial_every_ns` of its work runs on one core, with
     * whatever threads, and the curve counts for the rest. 0 permille: none.
     */
    uint32_t serial_permille;
    uint64_t serial_every_ns;
    uint32_t request;       /* cores; 0: no request */
    uint32_t min, max;      /* cores; max 0: as many as there are */
    uint32_t stock_threads; /* threads of the program when no policy controls it */
    int64_t memory_bytes;
    int64_t devices;       /* counts of base/devices.h */
    uint32_t user;         /* users share the machine before their jobs do */
    uint32_t malleability; /* enum policy_malleability */
    uint32_t class;
    uint32_t weight;
    int32_t priority;
    bool preemptible;
    uint64_t deadline_ns; /* since the start of the scenario; POLICY_NEVER */
    /*
     * Time without progress after an action, in which the job holds and uses its cores as before:
     * START, RESIZE, and PAUSE, which counts at the resume. Costs at one time overlap.
     */
    uint64_t cost_ns[POLICY_ACTION_MAX];
    /*
     * A server: its work is that of its requests, `workers` of which share its cores at a time,
     * each as fast as the curve says of its part. It ends with the last of them. NULL: it is none.
     */
    const struct sim_requests *requests;
    uint32_t workers; /* 1 … SIM_CORES_MAX */
    /*
     * More than 1: of processes that serve one request at a time each, with threads of their own:
     * even parts of its cores, or as many as its promise gives them (policy/core/instances.h).
     */
    uint32_t processes;
    uint64_t slo_ns; /* its promise: what 99 of 100 requests take at most; 0: none */
};

/* Returns jobs in order of arrival. 1, 0 at the end, or -errno with *err. */
struct sim_source {
    int (*next)(struct sim_source *source, struct sim_job *ret_job, struct error *err);
};

/* ---- results --------------------------------------------------------------------------------- */

struct sim_quantiles; /* metrics.h */

/* The outcome of a server's requests. */
struct sim_served {
    uint64_t requests; /* answered */
    uint64_t seconds,
        kept; /* with requests and a promise; and with a p99 within it, as tided judges */
    const struct sim_quantiles *latency_ns;
};

/* The outcome of a job; for one that never ended, finish_ns is POLICY_NEVER. */
struct sim_record {
    const struct sim_job *job; /* valid during the call */
    uint64_t start_ns;         /* begin of the first run, POLICY_NEVER: never ran */
    uint64_t finish_ns;
    uint64_t run_ns;    /* with cores */
    uint64_t wait_ns;   /* queued or paused */
    uint64_t alone_ns;  /* its time on an empty machine with its request; with no request, with as
                           many cores as it can have */
    uint64_t core_ns;   /* cores held × time; saturates, like busy_ns */
    uint64_t busy_ns;   /* CPU time used */
    uint64_t useful_ns; /* of that, the time that one core would have needed: work_ns at the end */
    uint32_t resizes, pauses;
    bool infeasible;                 /* the policy refused it: this machine can never run it … */
    bool late;                       /* … or not before its deadline */
    const struct sim_served *served; /* NULL: no server; valid during the call */
};

/* Cores that a job holds from begin to end; a job's segments come in order of time. */
struct sim_segment {
    const struct sim_job *job; /* valid during the call */
    uint64_t begin_ns, end_ns;
    int64_t mcpu; /* 0: paused; without control, its threads */
};

/* Totals of a run. */
struct sim_totals {
    uint64_t jobs, finished, infeasible;
    uint64_t late;        /* part of infeasible: jobs refused for their deadlines */
    uint64_t begin_ns;    /* first arrival */
    uint64_t end_ns;      /* last finish, … */
    uint64_t work_end_ns; /* … but for servers; 0: none */
    sim_sum core_ns;      /* cores held × time */
    sim_sum busy_ns;      /* CPU time used */
    sim_sum useful_ns;    /* of that, work done */
    sim_sum energy_uj;    /* of the machine from begin to end */
    uint64_t resizes, pauses;
    uint64_t decisions;
    uint64_t decide_ns; /* 0 unless options.clock_ns is given */
    uint32_t most_alive;
};

/* Receives the events of a run; functions may be NULL. 0, or -errno which ends the run. */
struct sim_sink {
    int (*segment)(struct sim_sink *sink, const struct sim_segment *segment);
    int (*record)(struct sim_sink *sink, const struct sim_record *record);
    /* Receives a snapshot and its new plan, for recording and tests. */
    int (*decision)(struct sim_sink *sink, const struct policy_snapshot *snapshot,
                    const struct policy_plan *plan);
};

/* ---- running --------------------------------------------------------------------------------- */

struct sim_options {
    const struct policy *policy; /* NULL: no control, every job runs its stock_threads at once;
                                    placement and memory do not count */
    /* Decides in place of policy_decide(), as a plan of .policy; NULL: that does. As it returns. */
    int (*decide)(void *arg, const struct policy_snapshot *snapshot, struct policy_plan *plan);
    void *decide_arg;
    const int64_t *params;  /* as the policy's; NULL: defaults */
    uint32_t split;         /* every server holds so many cores, and promises do nothing; 0: no */
    bool extras;            /* lends idle cores as extra threads (policy/core/extras.h): where
                               placement is shared and no power is capped */
    uint64_t seed;          /* handed to the policy */
    uint64_t resolution_ns; /* finish times are rounded up to this; at least 1 */
    bool check;             /* policy_plan_check() every plan; a fault ends the run with -EPROTO */
    uint64_t (*clock_ns)(void); /* times policy_decide(); NULL: not timed */
};

/*
 * Runs the source dry. Everything that happens at one time is followed by one decision: finishes
 * first, then arrivals, both by id. @sink may be NULL. Returns 0 or -errno with *err:
 * -EINVAL (machine, options or a job are malformed: says which and why), -EDEADLK (jobs are left
 * and nothing will ever happen, or nothing makes progress; their records are sent, unfinished),
 * -EOVERFLOW (later than SIM_TIME_MAX), -EPROTO (a plan that cannot be), -ENOMEM, what the policy,
 * source or sink returned. *ret_totals is filled in also when the run fails with -EDEADLK.
 */
int sim_run(const struct sim_machine *machine, struct sim_source *source,
            const struct sim_options *options, struct sim_sink *sink, struct sim_totals *ret_totals,
            struct error *err);

/* Speed with @cores (>= 1), in thousandths of one core's; beyond the table its last entry. */
uint32_t sim_curve_speed(const struct sim_curve *curve, uint32_t cores);
