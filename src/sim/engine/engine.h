/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one run, shared by sim.c (events), live.c (one job's life), snapshot.c (the policy's
 * snapshot and plan), loans.c and servers.c; no other file includes this. One thread per run.
 */
#pragma once

#include "policy/core/extras.h"
#include "policy/core/promise_room.h"
#include "sim/engine/machine.h"
#include "sim/engine/sim.h"

struct server;

/* A job from its arrival to its end. Progress is exact: it is linear between changes of speed. */
struct live {
    struct machine_task task;    /* while it runs */
    uint64_t rate, usage, waits; /* of the task, since settled_ns or before */
    uint64_t settled_ns;         /* the time of `left` and `busy` */
    uint64_t stalled_ns;         /* no progress before: the cost of an action */
    uint64_t owed_ns;            /* the part of that cost that was left when the job was paused */
    uint64_t finish_ns; /* of work, start or phase, at this rate; POLICY_NEVER: it does not run */
    sim_sum left; /* work in ns, 32 fractional bits; during the start, the rest of the start */
    sim_sum busy; /* CPU time in ns, 32 fractional bits */
    sim_sum held_mcpu_ns;
    uint32_t state;    /* enum policy_state */
    uint32_t index;    /* in the engine's arrays */
    uint64_t state_ns; /* begin of this state */
    sim_sum waited;    /* as busy: time of its threads without a core */
    sim_sum busy_looked, waited_looked, left_looked; /* at the last look */
    struct extras_loan loan;
    struct server *server;    /* NULL: none */
    struct promise_room room; /* what promises make of it */
    uint32_t beyond;          /* threads beyond its share that its promise gives it */
    int64_t weigh, weighs;    /* weight that others yield to it, or it to others; in force */
    uint64_t segment_ns;      /* begin of the time with this many cores */
    uint64_t change_ns;       /* last resize, pause or resume; 0: none */
    int64_t mcpu;
    struct sim_job job;
    struct sim_record record;
    uint32_t held_count;
    uint32_t of_speed[POLICY_SPEEDS_MAX]; /* its cores of each speed; all 0: any */
    bool starting;                        /* `left` counts the start */
    bool serial;                          /* in a serial phase */
    sim_sum phase_left;          /* work until its phase ends, when the finish was computed */
    struct policy_amount held[]; /* room for one per domain */
};

/* Storage of plans, grown as needed; states alternate, as one is read while the other is written.
 */
struct book {
    struct policy_plan plan;
    uint32_t decision_room;
    void *state[2];
    size_t state_room;
    size_t state_size; /* size of state[state_at], the last one written */
    uint32_t state_at;
    uint64_t generation;
};

struct engine {
    struct sim_machine machine;
    const struct sim_options *options;
    struct sim_sink *sink;
    struct error *err;
    uint64_t now_ns;
    uint64_t next_finish_ns; /* POLICY_NEVER: nothing runs */
    uint64_t next_wakeup_ns; /* the policy's wish, on our clock */
    struct live **live;      /* by id; NULL: left since the last snapshot */
    struct policy_job *jobs; /* the same jobs as the policy sees them; not without a policy */
    uint32_t count, room;    /* of both */
    uint32_t alive;
    struct live **running; /* by id */
    struct machine_task **tasks;
    uint32_t running_count;
    bool lends; /* idle cores as extra threads */
    struct extras extras;
    struct extras_job *extras_jobs; /* room as `jobs`, both only if it lends */
    struct extras_user *extras_users;
    uint64_t next_look_ns, looked_ns; /* POLICY_NEVER: nothing runs */
    bool promises;                    /* decide on cores */
    uint32_t server_count;            /* alive */
    struct promise_room **rooms;      /* room as `jobs` */
    uint64_t next_request_ns;         /* something happens at a server, POLICY_NEVER: nothing */
    uint64_t next_decide_ns;          /* a server needs other cores */
    uint64_t progress;                /* of servers, counts up */
    uint64_t usage;                   /* of all running jobs */
    sim_sum busy, busy_looked;        /* usage × ns */
    int64_t reserve_mcpu;             /* that the plan keeps unused */
    struct policy_user *users;        /* of the jobs; room for one each */
    struct policy_domain *domains;
    uint32_t domain_count;
    struct book book;
    uint64_t power_uw;
    sim_sum energy; /* uW × ns */
    struct sim_totals totals;
};

/* live.c. All functions act at the present time and return 0 or the sink's error. */
struct live *live_new(struct engine *e, const struct sim_job *job);
void live_settle(struct live *l, uint64_t now_ns);
void live_set_rate(struct engine *e, struct live *l); /* from its task */
uint64_t live_done(const struct live *l);             /* its finished work, at settled_ns */
int live_start(struct engine *e, struct live *l);     /* also resumes; with its present cores */
void live_started(struct engine *e, struct live *l);  /* its work begins */
/* finish_ns was the end of a phase, and the next one begins. False: it was the job's end. */
bool live_next_phase(struct engine *e, struct live *l);
int live_resize(struct engine *e, struct live *l);
/* Its extra threads changed, its cores did not. */
int live_lend(struct engine *e, struct live *l);
int live_pause(struct engine *e, struct live *l);
int live_end(struct engine *e, struct live *l, bool finished); /* sends the record; frees the job */
void live_free(struct live *l);
void live_hold(struct engine *e, struct live *l);   /* anew: its requests or weight changed */
void live_served(struct engine *e, struct live *l); /* requests may have ended */

/* loans.c */
int loans_grow(struct engine *e, uint32_t room);
void loans_done(struct engine *e);
void loans_begin(struct engine *e); /* measures from now on */
int loans_look(struct engine *e);   /* measures, and lends idle cores or takes them back */

/* servers.c */
void servers_bound(struct engine *e);            /* in a snapshot */
int servers_apply(struct engine *e, bool began); /* after its plan; jobs began or went on */
void servers_turn(struct engine *e);             /* requests and looks that are due */
void servers_decide_soon(struct engine *e);

/* snapshot.c */
int snapshot_init(struct engine *e);
void snapshot_done(struct engine *e);
int snapshot_add(struct engine *e, struct live *l); /* owns the job, also on failure */
void snapshot_compact(struct engine *e);            /* drops the jobs that have left */
int snapshot_decide(struct engine *e);              /* decides and applies the plan */
