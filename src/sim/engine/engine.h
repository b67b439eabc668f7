/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of the simulator, shared by sim.c (events), live.c (one job's life) and snapshot.c (the
 * policy's snapshot and plan); no other file includes this. One thread per run.
 */
#pragma once

#include "sim/engine/machine.h"
#include "sim/engine/sim.h"

/* A job from its arrival to its end. Progress is exact: it is linear between changes of speed. */
struct live {
    struct machine_task task; /* while it runs */
    uint64_t rate, usage;     /* the task's, since settled_ns or before */
    uint64_t settled_ns;      /* `left` and `busy` are of then */
    uint64_t stalled_ns;      /* no progress before: the cost of an action */
    uint64_t owed_ns;         /* of that, what was left when it was paused */
    uint64_t finish_ns;       /* at this rate; POLICY_NEVER: does not run */
    sim_sum left;             /* work in ns, 32 fractional bits; while it starts, of its start */
    sim_sum busy;             /* CPU time in ns, 32 fractional bits */
    sim_sum held_mcpu_ns;
    uint32_t state;      /* enum policy_state */
    uint32_t index;      /* in the engine's arrays */
    uint64_t state_ns;   /* in this state since then */
    uint64_t segment_ns; /* with this many cores since then */
    uint64_t change_ns;  /* last resize, pause or resume; 0: none */
    int64_t mcpu;
    struct sim_job job;
    struct sim_record record;
    uint32_t held_count;
    bool starting;               /* what is left is of the start */
    struct policy_amount held[]; /* room for one per domain */
};

/* Storage of plans, grown as needed; states alternate, as one is read while the other is written.
 */
struct book {
    struct policy_plan plan;
    uint32_t decision_room;
    void *state[2];
    size_t state_room;
    size_t state_size; /* of state[state_at], the last one written */
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
    uint64_t next_wakeup_ns; /* as the policy asked, on our clock */
    struct live **live;      /* by id; NULL: gone since the last snapshot */
    struct policy_job *jobs; /* the same jobs as the policy sees them; not without a policy */
    uint32_t count, room;    /* of both */
    uint32_t alive;
    struct live **running; /* by id */
    struct machine_task **tasks;
    uint32_t running_count;
    struct policy_user *users; /* of the jobs; room for one each */
    struct policy_domain *domains;
    uint32_t domain_count;
    struct book book;
    uint64_t power_uw;
    sim_sum energy; /* uW × ns */
    struct sim_totals totals;
};

/* live.c. All times are now; 0 or what the sink returned. */
struct live *live_new(struct engine *e, const struct sim_job *job);
void live_settle(struct live *l, uint64_t now_ns);
void live_set_rate(struct engine *e, struct live *l); /* from its task */
uint64_t live_done(const struct live *l);             /* of its work, by settled_ns */
int live_start(struct engine *e, struct live *l);     /* also resumes; with what it holds by now */
void live_started(struct engine *e, struct live *l);  /* its work begins */
int live_resize(struct engine *e, struct live *l);
int live_pause(struct engine *e, struct live *l);
int live_end(struct engine *e, struct live *l, bool finished); /* record; frees it */

/* snapshot.c */
int snapshot_init(struct engine *e);
void snapshot_done(struct engine *e);
int snapshot_add(struct engine *e, struct live *l); /* takes the job over, also on failure */
void snapshot_compact(struct engine *e);            /* forgets the jobs that are gone */
int snapshot_decide(struct engine *e);              /* and applies the plan */
