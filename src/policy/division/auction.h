/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hands out cores one after the other, each to the job that bids most for it.
 *
 * A bid says what the next core is worth to a job; the policies differ in that alone. Where a job's
 * bids never rise, as with a concave speed-up curve, no division has a larger sum of bids: domains
 * lie within each other, and on such constraints the greedy way is optimal (Federgruen and
 * Groenevelt 1986). On another curve the bids follow its concave envelope. No job gets a core that
 * gains it nothing. Among equal bids, running jobs go before waiting ones, then older jobs first.
 *
 * Running jobs that cannot be paused have their least before the auction begins. A waiting job bids
 * for all of its least at once, and goes on waiting if there is no room for that.
 *
 * A job without a curve, or with one of low confidence, cannot bid. It gets at least the equal
 * share, rounded down: its part by weight, among all jobs that want some, of the cores of its place
 * that jobs of fixed size leave. Such jobs also get the cores from which no bidder gains.
 *
 * Pure; used by policies alone, within one decision. Storage is the plan's scratch.
 */
#pragma once

#include "policy/division/gate.h"
#include "policy/division/layout.h"

/* The first parameters of each policy with an auction; its own follow. */
enum auction_param {
    AUCTION_CONFIDENCE,
    AUCTION_GATE, /* GATE_PARAMS */
    AUCTION_PARAM_MAX = AUCTION_GATE + GATE_PARAM_COUNT
};

#define AUCTION_PARAMS                                                                             \
    [AUCTION_CONFIDENCE] = {.name = "confidence",                                                  \
                            .max = 1000,                                                           \
                            .def = 300,                                                            \
                            .unit = "permille",                                                    \
                            .text = "a speed-up curve of lower confidence counts as unknown"},     \
    GATE_PARAMS

#define AUCTION_WORTH_MAX (INT64_C(1) << 60)
#define AUCTION_PRICE_MAX (INT64_C(1) << 44)

/* How jobs that run and may be paused keep their minimum. */
enum auction_pausing {
    AUCTION_PAUSES_NOBODY,
    AUCTION_PAUSES_IN_NEED, /* while there is room, they come before all bids */
    AUCTION_PAUSES_OUTBID   /* they bid for it like waiting jobs */
};

/* One job; sizes in mcpu. */
struct bidder {
    int64_t bid; /* for the next cores */
    uint64_t arrival_ns;
    uint64_t id;
    int64_t mcpu; /* in the plan; 0: does not run */
    int64_t least;
    int64_t most;
    int64_t sure;          /* mcpu of a job without curve before the bids begin */
    int64_t price;         /* 1 … AUCTION_PRICE_MAX for a thousandth of its speed on one core */
    const uint32_t *speed; /* concave, in thousandths, for `count` cores; NULL: not known */
    uint32_t count;
    uint32_t weight;
    uint32_t lacking; /* domain that had no room for its last bid, or POLICY_NO_PARENT */
    bool runs;        /* before the plan */
    bool seated;      /* goes on in any case, since it cannot be paused */
    bool fixed;       /* has only one possible size */
};

struct auction {
    const struct policy_snapshot *snapshot;
    struct policy_plan *plan;
    struct layout layout;
    struct bidder *bidder;
    uint32_t *heap;
    uint32_t heap_count;
    int64_t *weight_in; /* for each domain: weights of the jobs that want cores there */
    enum auction_pausing pausing;
    /*
     * Returns the worth of the next core to a job with @cores, which has a curve or no cores. It
     * counts up to AUCTION_WORTH_MAX; at 0 or less the job wants no more cores.
     */
    int64_t (*worth)(const struct auction *auction, uint32_t job, int64_t cores);
};

/* The auction's scratch in bytes (aligned as int64_t); the room of a policy that needs no more. */
size_t auction_bytes(const struct policy_snapshot *snapshot);
void auction_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room);

/*
 * Seats the running jobs, in the machine without @reserve_mcpu. Prices are the weights and worth is
 * the price of the speed gained; the policy may change both. Uses the beginning of the scratch.
 */
void auction_init(struct auction *auction, const struct policy *policy,
                  const struct policy_snapshot *snapshot, struct policy_plan *plan,
                  enum auction_pausing pausing, int64_t reserve_mcpu);

/* Returns the speed with whole cores by the concave curve; without a curve, it is linear. */
int64_t auction_speed(const struct bidder *bidder, int64_t cores);

/* Returns the speed that a core beside @cores adds, in thousandths; for the least, per core. */
int64_t auction_gain(const struct bidder *bidder, int64_t cores);

/*
 * Raises the job to @mcpu before the auction, if there is room; starts or resumes it for that. With
 * @crowd, cores need no room. Returns true if the job has that much now.
 */
bool auction_seat(struct auction *auction, uint32_t job, int64_t mcpu, bool crowd);

/* Runs the auction, then lends and borrows. */
void auction_run(struct auction *auction);

/* Writes the plan; a policy may replace reasons afterwards. */
void auction_conclude(struct auction *auction);

/* Returns the domain where the job's cores are or will be. */
uint32_t auction_place(struct auction *auction, uint32_t job);

/* True if the auction decides about the job: no user holds it, and it was not refused. */
bool auction_takes_part(const struct auction *auction, uint32_t job);
