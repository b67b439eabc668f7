/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy interface: a snapshot of machine and jobs goes in, a plan comes out.
 *
 * Everything here is pure: no clock, allocation, I/O, randomness or floating point, and a total
 * order by job id, so the same snapshot gives the same plan on every machine. Daemon, simulator,
 * cluster controller and tests call the same functions; any thread, as nothing is shared. All
 * storage is the caller's, who asks policy_room() how much a plan may need.
 *
 * An index of a job or a domain is its place in the snapshot's array. Amounts are integers: mcpu in
 * thousandths of a core, memory in bytes, parameter servers, workers and devices as counts. Times
 * are nanoseconds of one clock (CLOCK_MONOTONIC in the daemon, virtual in the simulator).
 */
#pragma once

#include "base/devices.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_CORE_MCPU   1000       /* one core */
#define POLICY_UNLIMITED   INT64_MAX  /* an unbounded capacity or maximum */
#define POLICY_UNKNOWN     UINT64_MAX /* unknown remaining work */
#define POLICY_NEVER       UINT64_MAX /* no deadline, no next wake-up */
#define POLICY_NO_PARENT   UINT32_MAX /* the parent of the root domain */
#define POLICY_JOBS_MAX    (1u << 16) /* these bounds keep the integer arithmetic exact */
#define POLICY_DOMAINS_MAX (1u << 16)
#define POLICY_CORES_MAX   (INT64_C(1) << 20)
#define POLICY_WEIGHT_MAX  10000u
#define POLICY_POWER_MAX   (UINT64_C(1) << 47) /* microwatts of one domain */
#define POLICY_SPEEDS_MAX  4
#define POLICY_FASTEST     1000u /* permille: speed of the fastest cores */

/* ---- amounts and places ---------------------------------------------------------------------- */

enum policy_resource {
    POLICY_MCPU,   /* thousandths of a core */
    POLICY_MEMORY, /* bytes; a paused job keeps its own */
    POLICY_PS,     /* parameter servers */
    POLICY_WORKER,
    POLICY_CURVE_MAX,                 /* none of those that follow makes a job faster */
    POLICY_DEVICE = POLICY_CURVE_MAX, /* of kind 0, and so on; a paused job keeps its own */
    POLICY_RESOURCE_MAX = POLICY_DEVICE + DEVICE_KINDS
};

/* True of what a program keeps while it stands still, and no plan can take from it. */
static inline bool policy_stays(int resource)
{
    return resource == POLICY_MEMORY || resource >= POLICY_DEVICE;
}

/* One amount of each resource, indexed by enum policy_resource. */
struct policy_vector {
    int64_t of[POLICY_RESOURCE_MAX];
};

enum policy_level {
    POLICY_AREA,
    POLICY_CLUSTER,
    POLICY_NODE,
    POLICY_NUMA,
    POLICY_CORE,
    POLICY_SMT,
    POLICY_LEVEL_MAX
};

/*
 * A place with capacity. Domain 0 is the root; a parent stands before its children and has a
 * smaller level (levels may be left out: a lone machine is one POLICY_NODE). An amount placed in a
 * domain counts in all of its ancestors too.
 */
struct policy_domain {
    uint32_t parent;               /* index, or POLICY_NO_PARENT */
    uint32_t level;                /* enum policy_level */
    uint32_t id;                   /* the caller's number of the CPU, NUMA node or host */
    struct policy_vector capacity; /* for jobs; may be less than its children's sum (a quota) */
    uint64_t idle_uw;              /* power without work, in addition to the children's */
    uint64_t core_uw;              /* for each busy core in addition; 0: as the parent */
    uint64_t cap_uw;               /* maximum power of the subtree; 0: no cap */
};

/* How much of each resource lies in one domain. */
struct policy_amount {
    uint32_t domain;
    struct policy_vector amount;
};

/* Cores of one speed, in permille of the fastest ones'. */
struct policy_speed {
    uint32_t cores;
    uint32_t permille;
};

/* ---- jobs ------------------------------------------------------------------------------------ */

enum policy_state {
    POLICY_QUEUED,  /* wants to start */
    POLICY_HELD,    /* a user keeps it in the queue */
    POLICY_RUNNING, /* a job that began by itself has no `current` until the first plan */
    POLICY_PAUSED,
    POLICY_STATE_MAX
};

enum policy_malleability {
    POLICY_RIGID,     /* starts with its request, never changes */
    POLICY_MOLDABLE,  /* its size is chosen at the start */
    POLICY_MALLEABLE, /* changes while it runs */
    POLICY_MALLEABILITY_MAX
};

enum policy_pin {
    POLICY_PIN_NONE,
    POLICY_PIN_HAND,    /* tide set, or a controlling program */
    POLICY_PIN_PROGRAM, /* the program set its own target */
    POLICY_PIN_SIGNAL,  /* the resize signal */
    POLICY_PIN_MAX
};

enum policy_action {
    POLICY_ACTION_START,
    POLICY_ACTION_RESIZE,
    POLICY_ACTION_PAUSE, /* and the resume that follows */
    POLICY_ACTION_ADD_WORKER,
    POLICY_ACTION_MOVE_PS,
    POLICY_ACTION_MAX
};

/*
 * Speed with k units (k = 1 … count at index k-1) relative to one unit, in thousandths. The
 * envelope is the smallest concave curve above the table; both are the caller's arrays.
 */
struct policy_curve {
    const uint32_t *speedup_permille;  /* NULL: unknown */
    const uint32_t *envelope_permille; /* NULL: the table itself is concave */
    uint32_t count;
    uint32_t confidence_permille; /* of the fit; 1000: measured or declared */
};

/* Call policy_job_init() first: not every default is zero. */
struct policy_job {
    uint64_t id;           /* unique; the last key of every order */
    uint32_t state;        /* enum policy_state */
    uint32_t malleability; /* enum policy_malleability */
    uint32_t class;        /* smaller goes first in the queue of fcfs and priority */
    uint32_t weight;       /* 1 … POLICY_WEIGHT_MAX, relative to the other jobs */
    int32_t priority;      /* larger goes first */
    uint32_t user;         /* index of its user; 0 where users are not counted */
    bool granted;          /* an administrator set its pin, which comes before users' shares */
    uint32_t home;         /* domain that all of its amounts must lie in; 0: anywhere */
    uint32_t span;         /* enum policy_level: all of its amounts lie in one domain of this level
                              (a program in one node); POLICY_AREA: spread as the policy likes */
    bool preemptible;      /* may be paused */
    bool fenced;           /* has cores of its own (placement exclusive): their speeds count */

    struct policy_vector request; /* the user's request; 0: none */
    struct policy_vector min;
    struct policy_vector max;    /* 0: cannot use this resource; but one core is always granted */
    uint32_t pinned_by;          /* enum policy_pin */
    struct policy_vector pinned; /* the pinned amounts, never what stays; 0: not pinned */
    uint32_t lent;               /* cores lent and not yet returned */
    uint32_t borrowed;           /* cores borrowed from those that others lent */

    /*
     * The job's amounts now, at most one entry per domain; empty in the queue. For a paused job
     * (never empty) the amounts before the pause; it still holds memory and devices.
     */
    const struct policy_amount *current;
    uint32_t current_count;

    uint64_t arrival_ns;  /* age decides ties: older first */
    uint64_t start_ns;    /* begin of the first run; 0: never ran */
    uint64_t change_ns;   /* last resize, pause or resume; 0: none */
    uint64_t deadline_ns; /* POLICY_NEVER: none */
    uint64_t run_ns;      /* accumulated, pauses not counted */
    uint64_t wait_ns;     /* accumulated, queued and paused */

    uint64_t remaining_ns; /* work left, as time with one unit of everything; POLICY_UNKNOWN */
    uint64_t remaining_error_ns;
    struct policy_curve curve[POLICY_CURVE_MAX]; /* MCPU by whole cores; MEMORY has none */
    uint32_t communication_permille; /* part of a step that waits for parameter servers */
    uint64_t cost_ns[POLICY_ACTION_MAX];
};

/* A user, whose jobs have a share of the machine together, whatever their number. */
struct policy_user {
    uint64_t id;       /* the caller's number: a uid */
    uint32_t weight;   /* 1 … POLICY_WEIGHT_MAX, relative to the other users */
    int64_t most_mcpu; /* maximum of all its jobs; POLICY_UNLIMITED: only its share counts */
};

struct policy_snapshot {
    uint64_t now_ns;
    uint64_t epoch; /* compared before generation; both are copied to the plan */
    uint64_t generation;
    uint64_t seed; /* the only source of randomness */
    const struct policy_domain *domains;
    uint32_t domain_count; /* at least 1 */
    const struct policy_job *jobs;
    uint32_t job_count;
    const struct policy_user *users; /* cores are divided among users first, then their jobs */
    uint32_t user_count;             /* 0: users do not count */
    struct policy_speed speeds[POLICY_SPEEDS_MAX]; /* of the root's cores, the fastest first */
    uint32_t speed_count;                          /* 0 or 1: all cores are alike */
    bool at_once;          /* a caller waits for this plan: no switching gate */
    const int64_t *params; /* as policy->params, in its order; NULL: the defaults */
    const void *state;     /* the last plan's state_out, also across restarts; NULL: none yet;
                              a policy without state ignores it */
    size_t state_size;
};

/* ---- plan ------------------------------------------------------------------------------------ */

enum policy_verb {
    POLICY_VERB_NONE,       /* in no valid plan */
    POLICY_VERB_START,      /* queued -> running */
    POLICY_VERB_KEEP,       /* running, amounts as they are */
    POLICY_VERB_RESIZE,     /* running, other amounts or other places */
    POLICY_VERB_PAUSE,      /* running -> paused, memory and devices stay */
    POLICY_VERB_RESUME,     /* paused -> running */
    POLICY_VERB_HOLD,       /* stays queued or paused */
    POLICY_VERB_INFEASIBLE, /* not running, and this snapshot's capacity can never run it */
    POLICY_VERB_MAX
};

/*
 * The reason's arguments stand in brackets, in order: amounts as in policy_vector, a job's id, a
 * domain's level and id.
 */
enum policy_reason_code {
    POLICY_REASON_NONE,
    POLICY_REASON_EQUAL_SHARE,      /* [mcpu shared, jobs sharing, mcpu there are] */
    POLICY_REASON_WEIGHTED_SHARE,   /* [weight, sum of weights, mcpu shared, jobs sharing] */
    POLICY_REASON_MINIMUM,          /* [minimum mcpu, share mcpu] */
    POLICY_REASON_MAXIMUM,          /* [maximum mcpu, share mcpu or 0: no other job wants more] */
    POLICY_REASON_ONE_THREAD,       /* [jobs, mcpu, mcpu there are]: more jobs than cores */
    POLICY_REASON_MINIMA,           /* [minimum, sum of minima, shared, there are; mcpu] */
    POLICY_REASON_PINNED,           /* [mcpu, enum policy_pin] */
    POLICY_REASON_RIGID,            /* [mcpu] */
    POLICY_REASON_MOLDABLE,         /* [mcpu]: chosen at its start */
    POLICY_REASON_LENT,             /* [share mcpu, lent mcpu] */
    POLICY_REASON_BORROWED,         /* [share mcpu, borrowed mcpu] */
    POLICY_REASON_HELD,             /* [] by a person */
    POLICY_REASON_NO_ROOM,          /* [resource, needed, free] */
    POLICY_REASON_TOO_LARGE,        /* [resource, needed, capacity] */
    POLICY_REASON_PREEMPTED,        /* [job, its priority, own priority] */
    POLICY_REASON_PRIORITY,         /* [priority] */
    POLICY_REASON_DEADLINE,         /* [mcpu needed, ns left] */
    POLICY_REASON_DEADLINE_MISSED,  /* [ns needed with all it can use, ns left] */
    POLICY_REASON_POWER_CAP,        /* [cap uW, mcpu that it allows] */
    POLICY_REASON_LOCALITY,         /* [level, id]: kept within one domain */
    POLICY_REASON_SPARE,            /* [mcpu]: what others cannot use as well */
    POLICY_REASON_WORKERS,          /* [workers, gain permille of the last one] */
    POLICY_REASON_PARAMETER_SERVER, /* [parameter servers, communication permille] */
    POLICY_REASON_REQUEST,          /* [mcpu, what it asked for, or 0] */
    POLICY_REASON_PART,             /* [mcpu, request mcpu]: no more was free */
    POLICY_REASON_KEPT,             /* [mcpu, counted as request, asked for or 0] */
    POLICY_REASON_PROPORTION,  /* [request mcpu, sum of requests mcpu, mcpu shared, jobs sharing] */
    POLICY_REASON_BEHIND,      /* [job]: the first of the row */
    POLICY_REASON_SWITCH_COST, /* [mcpu planned, ns that a resize costs] */
    POLICY_REASON_DWELL,       /* [mcpu planned, ns until it may change] */
    POLICY_REASON_FREE_CORES,  /* [mcpu, mcpu planned]: what is free without a shrink */
    POLICY_REASON_QUANTUM,     /* [ns run in its turn, job that is next] */
    POLICY_REASON_ABOVE_MINIMUM, /* [minimum mcpu, weight, sum of weights, mcpu shared] */
    POLICY_REASON_GAIN,      /* [mcpu, permille of a core that the last added, one more would] */
    POLICY_REASON_NO_CURVE,  /* [mcpu, equal share mcpu] */
    POLICY_REASON_GIVES_WAY, /* [mcpu]: others gain more from them */
    POLICY_REASON_SIZE_RANK, /* [mcpu, place by work left, jobs, 1: class counted first] */
    POLICY_REASON_ENDS,      /* [mcpu, ns that it takes with them] */
    POLICY_REASON_MAX
};

#define POLICY_REASON_ARGS 4
#define POLICY_TEXT_MAX    160 /* the longest text of a reason or a fault, and NUL */

struct policy_reason {
    uint32_t code; /* enum policy_reason_code */
    int64_t arg[POLICY_REASON_ARGS];
    int64_t used_mcpu;     /* both of the most oversubscribed domain where the job has amounts; */
    int64_t capacity_mcpu; /* 0 without one */
    int64_t user_mcpu;     /* its user's share, when the user's jobs could use more, … */
    int64_t machine_mcpu;  /* … the cores that users divide … */
    uint32_t users;        /* … and the number of users; else 0 */
};

/* The decision about one job, which has the same index in the snapshot. */
struct policy_decision {
    uint64_t id;           /* of the job */
    uint32_t verb;         /* enum policy_verb */
    uint32_t amount_first; /* its entries in the plan's amounts; at most one per domain */
    uint32_t amount_count; /* 0 when it holds nothing */
    uint32_t place;    /* its number in the order in which waiting jobs begin; 0: the policy has no
                          such order, or the job does not wait for its turn */
    int64_t user_mcpu; /* maximum of its user; 0: users do not count */
    uint64_t worth;    /* worth of a unit of its speed to the switching gate; 0: its weight */
    uint32_t of_speed[POLICY_SPEEDS_MAX]; /* cores of each speed of the snapshot; all 0: any */
    struct policy_reason reason;
};

/* The use of one domain under the plan, its descendants included. */
struct policy_domain_use {
    struct policy_vector used;
    bool oversubscribed[POLICY_RESOURCE_MAX]; /* used is above the domain's available amount */
};

/* The caller sets the pointers and rooms; policy_decide() fills in the rest. */
struct policy_plan {
    uint64_t epoch;
    uint64_t generation;
    uint64_t next_wakeup_ns;           /* decide again then at the latest; or POLICY_NEVER */
    struct policy_decision *decisions; /* job_count of the snapshot */
    struct policy_domain_use *domains; /* domain_count of the snapshot */
    struct policy_amount *amounts;
    size_t amount_room; /* entries */
    size_t amount_count;
    void *state_out; /* opaque, same bytes on every machine of one byte order */
    size_t state_room;
    size_t state_size;
    int64_t reserve_mcpu; /* cores of the root domain that the policy keeps unused on purpose */
    void *scratch;        /* aligned as by malloc */
    size_t scratch_room;
};

/* ---- policies -------------------------------------------------------------------------------- */

#define POLICY_PARAMS_MAX 16 /* for one policy */

struct policy_param {
    const char *name;
    int64_t min;
    int64_t max;
    int64_t def;
    const char *unit; /* "ns", "mcpu", …; "" for a bare number */
    const char *text;
    const char *const *names; /* names of the values min … max, in order; NULL: a plain number */
    bool open;                /* max only ends the range of numbers: no text shows it */
    bool simulated;           /* no daemon takes it: there something else does the same */
};

/* The maximum needs of a plan; all of them may be 0. */
struct policy_room {
    size_t amounts; /* entries */
    size_t scratch_bytes;
    size_t state_bytes;
};

struct policy {
    const char *name;
    const char *brief; /* one line */
    const struct policy_param *params;
    uint32_t param_count;
    bool by_curves; /* uses speed-up curves, so exploring to learn them pays */
    bool by_watts;  /* has no effect where the machine's power is not given */
    void (*room)(const struct policy_snapshot *snapshot, struct policy_room *ret_room);
    /* Only policy_decide() calls it, after it checked snapshot and room. 0 or -errno. */
    int (*decide)(const struct policy *policy, const struct policy_snapshot *snapshot,
                  struct policy_plan *plan);
};

/* The registry, in the order in which a list shows them; the first is the default. */
size_t policy_count(void);
const struct policy *policy_at(size_t index);       /* NULL beyond the end */
const struct policy *policy_find(const char *name); /* NULL when there is none */

/* Returns the index of parameter @name, or -ENOENT. */
int policy_param_find(const struct policy *policy, const char *name);

/* Returns parameter @index for this snapshot: the value given, else the default. */
int64_t policy_param(const struct policy *policy, const struct policy_snapshot *snapshot,
                     uint32_t index);

/* Tells how much storage a plan for this snapshot may need; the snapshot must pass its check. */
void policy_room(const struct policy *policy, const struct policy_snapshot *snapshot,
                 struct policy_room *ret_room);

/*
 * Decides. Every job gets exactly one decision with a reason, and every domain its use.
 * Returns 0, -EINVAL (the snapshot is malformed: policy_snapshot_check says how), -ERANGE (a
 * parameter is out of its range), -ENOSPC (a room is too small) or -EPROTO (the state is none of
 * this policy's). The plan is undefined on failure.
 */
int policy_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                  struct policy_plan *plan);

/* ---- a choice of policy as text -------------------------------------------------------------- */

#define POLICY_SPEC_TEXT_MAX 512 /* the longest text of a choice, and NUL */

/* A policy and a value for each of its parameters: policy_snapshot.params for it. */
struct policy_spec {
    const struct policy *policy;
    int64_t params[POLICY_PARAMS_MAX];
};

/*
 * Reads NAME[/WORD…]: a word is the name of a value ("fcfs/max-prop/malleable") or PARAM=VALUE
 * ("priority/ageing=60s/variant=rigid"), each parameter at most once; the others have their
 * defaults. Returns 0, -ENOENT (no such policy) or -EINVAL, with the word, the expected words and
 * the nearest one in *err (may be NULL).
 */
int policy_spec_parse(const char *text, struct policy_spec *ret_spec, struct error *err);

/* The name of a parameter of the simulator alone that has not its default; NULL: none has. */
const char *policy_spec_simulated(const struct policy_spec *spec);

/* Writes the shortest text that reads back as the same. Returns its length. */
size_t policy_spec_text(const struct policy_spec *spec, char *buf, size_t size);

/*
 * Reads one parameter: a value's name, or a number in the parameter's unit or a multiple of it:
 * times in ns, us, ms, s, min, h; mcpu as cores; uW as W ("1.5s", "2 cores"). Returns 0 or -EINVAL.
 * policy_param_text() writes it for a person, so that it reads back as the same.
 */
int policy_param_parse(const struct policy_param *param, const char *text, int64_t *ret_value,
                       struct error *err);
size_t policy_param_text(const struct policy_param *param, int64_t value, char *buf, size_t size);

/* ---- building snapshots ---------------------------------------------------------------------- */

/* Makes a running, malleable job of weight 1: at least one core, no maximum, home or deadline. */
void policy_job_init(struct policy_job *job, uint64_t id);

/* Makes a lone machine: one POLICY_NODE as root. @memory_bytes 0: memory is not counted. Devices
 * are not counted before the caller says how many there are. */
void policy_machine_init(struct policy_domain *root, int64_t mcpu, int64_t memory_bytes);

/* ---- reading snapshots and plans ------------------------------------------------------------- */

/* True if @domain is @ancestor or lies in it. */
bool policy_domain_within(const struct policy_snapshot *snapshot, uint32_t domain,
                          uint32_t ancestor);

/*
 * Returns how much of a resource the domain has to give: its capacity; for POLICY_MCPU under a
 * power cap at most (cap - idle) / core, with the core that draws most in the subtree.
 */
int64_t policy_domain_capacity(const struct policy_snapshot *snapshot, uint32_t domain,
                               enum policy_resource resource);

/* Returns the sum over the entries; it saturates at INT64_MAX. */
int64_t policy_amount_total(const struct policy_amount *amounts, size_t count,
                            enum policy_resource resource);

/* Returns the same sum for a decision: the job's amount under the plan. */
int64_t policy_decision_total(const struct policy_plan *plan, uint32_t job,
                              enum policy_resource resource);

/*
 * Returns the domain of the job's span around @domain: @domain or its nearest ancestor of level
 * job->span or above.
 */
uint32_t policy_span_domain(const struct policy_snapshot *snapshot, const struct policy_job *job,
                            uint32_t domain);

/*
 * Returns the domain for the job's next amounts: its home, or, once it holds something, the domain
 * of its span around that, because no program moves between such domains by itself.
 */
uint32_t policy_job_place(const struct policy_snapshot *snapshot, const struct policy_job *job);

/*
 * Returns the amount that a running job must have: its pin; else, unless it is malleable, its
 * present amount, or for a rigid job its request. -1: the policy chooses.
 */
int64_t policy_job_fixed(const struct policy_job *job, enum policy_resource resource);

/* Returns the job's minimum to run: the fixed amount, else its minimum; at least one core. */
int64_t policy_job_least(const struct policy_job *job, enum policy_resource resource);

/* Returns the most that the job can use: its maximum; at least one core. */
int64_t policy_job_most(const struct policy_job *job, enum policy_resource resource);

/*
 * Returns the time of the job's remaining work with @units (>= 1; cores for POLICY_MCPU) by its
 * table, whose last entry counts for all larger numbers. POLICY_UNKNOWN without table or work.
 */
uint64_t policy_time_with(const struct policy_job *job, enum policy_resource resource,
                          uint32_t units);

/* Fills in the use of every domain and the oversubscription in the reasons, from the amounts. */
void policy_plan_account(const struct policy_snapshot *snapshot, struct policy_plan *plan);

/* ---- checking -------------------------------------------------------------------------------- */

enum policy_fault_code {
    POLICY_FAULT_NONE,
    /* faults of a snapshot */
    POLICY_FAULT_COUNT,   /* no domain, or too many of something */
    POLICY_FAULT_SPEED,   /* speeds out of order, or no core of one */
    POLICY_FAULT_DOMAIN,  /* tree out of order, level not below its parent's, negative capacity */
    POLICY_FAULT_ENUM,    /* unknown state, malleability, pin or level */
    POLICY_FAULT_WEIGHT,  /* 0 or above POLICY_WEIGHT_MAX */
    POLICY_FAULT_BOUNDS,  /* negative amount, or minimum above maximum */
    POLICY_FAULT_CURRENT, /* no home; or an entry in a wrong or double place, or state */
    POLICY_FAULT_SAME_ID, /* two jobs with one id */
    POLICY_FAULT_CURVE,   /* a count without a table */
    POLICY_FAULT_USER,    /* a job of no user, or a user without weight or with no cores */
    /* faults of a plan */
    POLICY_FAULT_STALE,     /* epoch or generation is not the snapshot's */
    POLICY_FAULT_ID,        /* the decision is for another job */
    POLICY_FAULT_VERB,      /* not allowed in the job's state */
    POLICY_FAULT_PREEMPT,   /* pauses a job that is not preemptible */
    POLICY_FAULT_RIGID,     /* changes a job that cannot change now */
    POLICY_FAULT_REASON,    /* no or unknown reason */
    POLICY_FAULT_PLACE,     /* an amount outside of the home, twice in a domain, negative */
    POLICY_FAULT_NOT_KEPT,  /* keep, with other amounts than now */
    POLICY_FAULT_NO_CHANGE, /* resize, with the same amounts as now */
    POLICY_FAULT_MEMORY,    /* pause, hold or resume must leave memory where it is */
    POLICY_FAULT_HOLDS,     /* a job that does not run holds more than a paused one's memory */
    POLICY_FAULT_MINIMUM,
    POLICY_FAULT_MAXIMUM,
    POLICY_FAULT_PINNED,   /* not what it is pinned to */
    POLICY_FAULT_FEASIBLE, /* called infeasible, although the capacity suffices */
    POLICY_FAULT_CAPACITY, /* above the capacity, and no minimum or pin forces it */
    POLICY_FAULT_MARK,     /* oversubscription not marked, or marked where there is none */
    POLICY_FAULT_USE,      /* the use of a domain is not the sum of its amounts */
    POLICY_FAULT_WAKEUP,   /* next wake-up is not in the future */
    POLICY_FAULT_MAX
};

struct policy_fault {
    uint32_t code;     /* enum policy_fault_code */
    uint32_t index;    /* the job or domain that is at fault */
    bool in_domain;    /* index is a domain's */
    uint32_t resource; /* enum policy_resource, where one is at fault */
    int64_t value;     /* the value found … */
    int64_t bound;     /* … and the bound that it violates; both 0 where there is none */
};

/* Checks that the snapshot is well formed: 0, or -EINVAL with *fault (may be NULL) filled in. */
int policy_snapshot_check(const struct policy_snapshot *snapshot, struct policy_fault *fault);

/*
 * Checks that the snapshot allows the plan: verbs by state and malleability, places, minima,
 * maxima, pins, memory of paused jobs, capacity of every domain. A plan may exceed a capacity only
 * where minima, pins, rigid sizes or one thread per job add up to more, and must mark it. Returns
 * 0, or -EINVAL with *fault (may be NULL) filled in.
 */
int policy_plan_check(const struct policy_snapshot *snapshot, const struct policy_plan *plan,
                      struct policy_fault *fault);

/* ---- texts ----------------------------------------------------------------------------------- */

/* Follow the reason, before numbers: more cores in use than there are; the user's cores. */
#define POLICY_OVER_TEXT "; oversubscribed: "
#define POLICY_USER_TEXT "; its user has "

/*
 * Writes one line for a person, without full stop: "equal share of 8 cores among 3 jobs". Cuts it
 * at @size (POLICY_TEXT_MAX holds every one). Returns the length written. @other is the name of the
 * job of policy_reason_job(); NULL: "job N".
 */
size_t policy_reason_text(const struct policy_reason *reason, const char *other, char *buf,
                          size_t size);
size_t policy_fault_text(const struct policy_fault *fault, char *buf, size_t size);

/* True if the reason names another job; *ret_id is its id. */
bool policy_reason_job(const struct policy_reason *reason, uint64_t *ret_id);

const char *policy_verb_name(enum policy_verb verb); /* "resize"; "?" if unknown */
